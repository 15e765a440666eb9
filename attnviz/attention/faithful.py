"""Which map says what matters to the model: deletion, insertion and SaCo.

deletion, insertion   Petsiuk, Das & Saenko 2018 ("RISE"): the cells with the highest values are
                      painted over first, or are the first to be uncovered; the area under f.
Chefer's protocol     Chefer, Gur & Wolf 2021 ("Transformer Interpretability Beyond Attention
                      Visualization", section 4): 10 to 90 % of the cells black, the highest first
                      (positive) and the lowest first (negative).
SaCo                  Wu et al. 2024 ("On the Faithfulness of Vision Transformer Explanations",
                      algorithm 1): K groups of cells by rank, all pairs of which are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from attnviz.attention.capture import AttentionModel
from attnviz.attention.checks import check_faithful
from attnviz.attention.choose import choose_layer
from attnviz.attention.faithful_cost import CHEFER_TENTHS, STEPS
from attnviz.attention.measured_maps import classifier_of, measured_maps
from attnviz.attention.perturb import HiddenCells
from attnviz.attention.relevance import feature
from attnviz.domain import FaithfulMaps
from attnviz.domain.kinds import FaithfulRequest
from attnviz.domain.kinds.faithful import GROUPS, RANDOM_ORDERS, Curves

if TYPE_CHECKING:
    from attnviz.attention.perturb import Score
    from attnviz.domain import BoolArray, FloatArray, IntArray

    Colour = tuple[float, float, float]


def faithful_maps(
    model: AttentionModel, batch: Tensor, request: FaithfulRequest, black: Sequence[Colour]
) -> list[FaithfulMaps]:
    """The measurements of each image of a (B, 3, h, w) batch.

    black: what a black pixel became in each image by its normalisation.

    Raises:
        UsageError: Layer, head or class out of range.
        UnsupportedModelError: A map is not defined for this model.
        AttentionError: The captured attention, a gradient or an output is not as it must be.
    """
    check_faithful(model.info, request)
    maps = measured_maps(model, batch, request, black)
    return [
        measure(HiddenCells(model, image, colour, score_of(model, request, image)), request, values)
        for image, values, colour in zip(batch, maps, black, strict=True)
    ]


def score_of(model: AttentionModel, request: FaithfulRequest, image: Tensor) -> Score:
    """F of an image (3, h, w) while its cells are changed.

    The probability of the class, or the cosine of the feature to that of the whole image.
    """
    index = request.class_index
    if index is not None:
        head = classifier_of(model)
        return lambda tokens: head.logits(tokens).cpu().double().softmax(dim=-1)[:, index]

    def features(tokens: Tensor) -> Tensor:
        return feature(model.info, tokens.float()).cpu().double()

    with torch.inference_mode():
        whole = features(model.run(image[None]))
    return lambda tokens: cosine_similarity(features(tokens), whole, dim=-1)


def measure(
    hidden: HiddenCells, request: FaithfulRequest, maps: dict[str, FloatArray]
) -> FaithfulMaps:
    """Measure the maps (gh, gw) of one image, by name."""
    values = np.stack(list(maps.values()))  # M, gh, gw
    cells = values[0].size
    orders = [ranked(each) for each in values]  # M of (n,)
    rng = np.random.default_rng(request.seed)
    random = [rng.permutation(cells) for _ in range(RANDOM_ORDERS)]
    counts = cell_counts(cells, chefer=request.chefer)
    deletes, inserts = request.baselines

    def curve(part: Sequence[IntArray], *, insert: bool) -> FloatArray:
        masks = (_cells(order[:count], values) for order in part for count in counts)
        asked = [(inserts, ~mask) if insert else (deletes, mask) for mask in masks]
        return np.array(hidden.values(asked), np.float32).reshape(len(part), len(counts))

    def curves(*, insert: bool) -> Curves:
        parts = (orders, [order[::-1] for order in orders], random)
        return Curves(*(curve(part, insert=insert) for part in parts))

    groups = [rank_groups(order) for order in orders]
    (whole,) = hidden.values([(deletes, _cells(orders[0][:0], values))])
    asked = [(deletes, _cells(group, values)) for some in groups for group in some]
    without = np.array(hidden.values(asked)).reshape(len(groups), -1)  # M, K
    influence = whole - without
    return FaithfulMaps(
        names=tuple(maps),
        maps=values,
        shares=(np.array(counts) / cells).astype(np.float32),
        deletion=curves(insert=False),
        insertion=None if request.chefer else curves(insert=True),
        influence=influence.astype(np.float32),
        saco=np.array(
            [saco(*each) for each in zip(values, groups, influence, strict=True)], np.float32
        ),
        value=whole,
        layer=choose_layer(hidden.info, request.layer),
        baselines=request.baselines,
        class_index=request.class_index,
        chefer=request.chefer,
    )


def ranked(values: FloatArray) -> IntArray:
    """The cells (n,) of a map (gh, gw), highest first; of equal ones the first in reading order."""
    return np.argsort(-values.ravel(), kind="stable")


def cell_counts(cells: int, *, chefer: bool) -> list[int]:
    """How many of the cells are changed at each step; halves are rounded up."""
    if chefer:
        return [(2 * cells * tenth + 10) // 20 for tenth in CHEFER_TENTHS]
    rising = [(2 * cells * step + STEPS) // (2 * STEPS) for step in range(STEPS // 2 + 1)]
    # What is left at the end is what is changed at the start, so that curves share images.
    return [*rising, *(cells - count for count in reversed(rising[:-1]))]


def rank_groups(order: IntArray) -> list[IntArray]:
    """Up to K groups of cells by rank, the highest first; sizes differ by one cell at most."""
    return np.array_split(order, min(GROUPS, order.size))


def saco(values: FloatArray, groups: Sequence[IntArray], influence: FloatArray) -> float:
    """SaCo of a map (gh, gw), from -1 to 1; 0 for a constant map, which ranks nothing.

    groups: of cells, by rank. influence (K,): f of the whole image minus f without a group. Sums
    over groups are divided by their sizes, which may differ by one cell.
    """
    if values.min() == values.max():
        return 0.0
    flat = values.ravel().astype(np.float64)
    salience = [float(flat[group].mean()) for group in groups]
    effect = [float(one) / group.size for one, group in zip(influence, groups, strict=True)]
    total = weights = 0.0
    for high, low in combinations(range(len(groups)), 2):
        weight = salience[high] - salience[low]
        total += weight if effect[high] >= effect[low] else -weight
        weights += abs(weight)
    return total / weights if weights else 0.0


def _cells(chosen: IntArray, values: FloatArray) -> BoolArray:
    """The chosen cells of maps (M, gh, gw) as a mask (gh, gw)."""
    mask = np.zeros(values[0].size, np.bool_)
    mask[chosen] = True
    return mask.reshape(values.shape[1:])
