"""The maps that ``faithful`` measures, each computed as its own command does by default.

Relevance and contribution need a target. With a class it is the class's logit. Without one it is
the projection of the feature z of the changed image onto that of the whole image, z . z0 / |z0|^2:
the cosine similarity itself has its maximum at the whole image, where its gradient is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from attnviz.attention.arrays import as_array, layout_of
from attnviz.attention.capture import AttentionModel
from attnviz.attention.choose import choose_heads
from attnviz.attention.contribution import along, check_norm, cls_contributions
from attnviz.attention.maps import heads_maps
from attnviz.attention.relevance import feature, relevance_rows
from attnviz.attention.rollout import rollout_maps
from attnviz.attention.score import score_maps
from attnviz.domain import Query, RelevanceMethod
from attnviz.domain.kinds import FaithfulRequest, HeadsRequest, RolloutRequest, ScoreRequest
from attnviz.domain.kinds.faithful import head_of
from attnviz.errors import UnsupportedModelError, UsageError

if TYPE_CHECKING:
    from attnviz.attention.classifier import Classifier
    from attnviz.domain import FloatArray

_OF_HEADS = ("mean", "max")


def measured_names(model: AttentionModel, request: FaithfulRequest) -> tuple[str, ...]:
    """The maps with heads counted from 0, each once."""
    names = []
    for name in request.show:
        head = head_of(name)
        names.append(name if head is None else f"head:{choose_heads(model.info, [head])[0]}")
    return tuple(dict.fromkeys(names))


def measured_maps(
    model: AttentionModel, batch: Tensor, request: FaithfulRequest
) -> list[dict[str, FloatArray]]:
    """The maps (gh, gw) float32 of each image of a (B, 3, h, w) batch, by name.

    Raises:
        UsageError: Layer, head or class out of range.
        UnsupportedModelError: A map is not defined for this model.
        AttentionError: The captured attention or a gradient breaks an invariant.
    """
    names = measured_names(model, request)
    made: dict[str, list[FloatArray]] = {}
    if any(name in _OF_HEADS or head_of(name) is not None for name in names):
        made |= _of_heads(model, batch, request)
    made |= {name: _OTHERS[name](model, batch, request) for name in names if name in _OTHERS}
    return [{name: made[name][image] for name in names} for image in range(len(batch))]


def _query(model: AttentionModel) -> Query:
    return Query.CLS if model.info.has_cls else Query.MEAN


def _of_heads(
    model: AttentionModel, batch: Tensor, request: FaithfulRequest
) -> dict[str, list[FloatArray]]:
    """The attention of CLS: of every head, its mean and its maximum over them."""
    wanted = HeadsRequest(layer=request.layer, distance=False, query=_query(model))
    attention = [maps.attention for maps in heads_maps(model, batch, wanted)]
    return {
        "mean": [each.mean(axis=0) for each in attention],
        "max": [each.max(axis=0) for each in attention],
        **{f"head:{h}": [each[h] for each in attention] for h in range(model.info.heads)},
    }


def _rollout(model: AttentionModel, batch: Tensor, _request: FaithfulRequest) -> list[FloatArray]:
    return [
        maps.rollout for maps in rollout_maps(model, batch, RolloutRequest(query=_query(model)))
    ]


def _score(model: AttentionModel, batch: Tensor, request: FaithfulRequest) -> list[FloatArray]:
    return [maps.score for maps in score_maps(model, batch, ScoreRequest(layer=request.layer))]


def _random(model: AttentionModel, batch: Tensor, request: FaithfulRequest) -> list[FloatArray]:
    """Other values than those that make the random orders, which the seed alone makes."""
    rng, grid = np.random.default_rng((request.seed, 1)), layout_of(model, batch).grid
    return [rng.random(grid, np.float32)] * len(batch)


def _relevance(model: AttentionModel, batch: Tensor, request: FaithfulRequest) -> list[FloatArray]:
    """Relevance by the method of Chefer et al. 2021."""
    index = request.class_index

    def target(tokens: Tensor) -> Tensor:
        if index is not None:
            return classifier_of(model).logits(tokens)[:, index]
        own = feature(model.info, tokens)
        whole = own.detach()
        return (own * whole).sum(dim=-1) / whole.square().sum(dim=-1)

    heads, method = range(model.info.heads), RelevanceMethod.CHEFER
    _, rows = relevance_rows(model, batch, target, heads, method, of_class=index is not None)
    return list(layout_of(model, batch).to_grid(as_array(rows)))


def _contribution(
    model: AttentionModel, batch: Tensor, request: FaithfulRequest
) -> list[FloatArray]:
    """What each patch contributes to CLS along the target."""
    info, index = model.info, request.class_index
    direction = None if index is None else classifier_of(model).direction(index)
    if index is not None and direction is None:
        raise UsageError(
            f"--show contribution: class {index} of {info.name} is not read from CLS alone",
            "leave it out, or show relevance",
        )
    try:
        check_norm(model.norm, info.name)
        written, cls, tokens = cls_contributions(model, batch, range(info.heads))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(
            f"--show contribution: {error.message}", "leave it out, or show relevance"
        ) from error
    whole = tokens[:, 0]
    directions = whole / whole.square().sum(dim=-1, keepdim=True)
    if direction is not None:
        directions = direction.expand_as(whole)
    rows = along(model.norm, directions, cls, written)
    return list(layout_of(model, batch).to_grid(as_array(rows)))


_OTHERS: dict[str, Callable[[AttentionModel, Tensor, FaithfulRequest], list[FloatArray]]] = {
    "rollout": _rollout,
    "relevance": _relevance,
    "score": _score,
    "contribution": _contribution,
    "random": _random,
}


def classifier_of(model: AttentionModel) -> Classifier:
    """The classifier, which ``check_faithful`` has made sure of."""
    assert model.head is not None
    return model.head
