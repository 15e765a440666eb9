"""How many plain passes ``faithful`` takes, and how many images go through together. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain.kinds.faithful import GROUPS, RANDOM_ORDERS

if TYPE_CHECKING:
    from attnviz.domain import ModelInfo
    from attnviz.domain.kinds import FaithfulRequest

STEPS = 20
"""Steps from the whole image to none of it."""

CHEFER_TENTHS = range(1, 10)
"""Tenths of the cells that Chefer et al. 2021 paint over."""

TOKENS_IN_A_PASS = 2048
"""Changed images go through the model together up to so many tokens: beyond that a CPU gains
nothing, and memory grows."""


def images_in_a_pass(tokens: int) -> int:
    """How many changed images of N tokens go through the model together."""
    return max(1, TOKENS_IN_A_PASS // tokens)


def most_passes(request: FaithfulRequest) -> int:
    """An upper bound of the images that go through the model for each one, its maps left out.

    Images that two curves share, such as both ends, are computed once.
    """
    maps = len(request.show)
    whole = 2 if request.class_index is None else 1  # once for the feature that f compares with
    if request.chefer:
        return whole + len(CHEFER_TENTHS) * (2 * maps + RANDOM_ORDERS) + GROUPS * maps
    between = STEPS - 1
    deletion, insertion = request.baselines
    if deletion is insertion:
        # Inserting the highest cells leaves what deleting the lowest ones does.
        return whole + 1 + maps * (2 * between + GROUPS) + RANDOM_ORDERS * 2 * between
    return whole + 2 + maps * (4 * between + GROUPS) + RANDOM_ORDERS * 2 * between


def cost_text(info: ModelInfo, request: FaithfulRequest) -> str:  # noqa: ARG001 - as of every kind
    """The cost of a run, said before it starts."""
    count = len(request.show)
    maps = "1 map" if count == 1 else f"{count} maps"
    return (
        f"measuring {maps} takes up to {most_passes(request)} plain passes for each image, besides "
        "computing the maps"
    )
