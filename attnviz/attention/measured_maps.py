"""The maps that ``faithful`` measures, each computed as its own command does by default.

Relevance and contribution need a target. With a class it is the class's logit. Without one it is
the projection of the feature z of the changed image onto that of the whole image, z . z0 / |z0|^2:
the cosine similarity itself has its maximum at the whole image, where its gradient is 0.
"""

from __future__ import annotations

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
    query = Query.CLS if model.info.has_cls else Query.MEAN
    names = measured_names(model, request)
    results: list[dict[str, FloatArray]] = [{} for _ in range(len(batch))]
    if any(name in _OF_HEADS or head_of(name) is not None for name in names):
        wanted = HeadsRequest(layer=request.layer, distance=False, query=query)
        for result, heads in zip(results, heads_maps(model, batch, wanted), strict=True):
            result["mean"] = heads.attention.mean(axis=0)
            result["max"] = heads.attention.max(axis=0)
            result |= {f"head:{head}": heads.attention[head] for head in heads.heads}
    if "rollout" in names:
        rollouts = rollout_maps(model, batch, RolloutRequest(query=query))
        for result, rollout in zip(results, rollouts, strict=True):
            result["rollout"] = rollout.rollout
    if "score" in names:
        scores = score_maps(model, batch, ScoreRequest(layer=request.layer))
        for result, score in zip(results, scores, strict=True):
            result["score"] = score.score
    for name, rows_of in (("relevance", _relevance), ("contribution", _contribution)):
        if name in names:
            rows = layout_of(model, batch).to_grid(as_array(rows_of(model, batch, request)))
            for result, row in zip(results, rows, strict=True):
                result[name] = row
    if "random" in names:
        grid = layout_of(model, batch).grid
        for result in results:
            # Not one of the random orders: those are drawn from the seed alone.
            rng = np.random.default_rng((request.seed, 1))
            result["random"] = rng.random(grid, np.float32)
    return [{name: result[name] for name in names} for result in results]


def _relevance(model: AttentionModel, batch: Tensor, request: FaithfulRequest) -> Tensor:
    """Relevance (B, N) by the method of Chefer et al. 2021."""
    index = request.class_index

    def target(tokens: Tensor) -> Tensor:
        if index is not None:
            return classifier_of(model).logits(tokens)[:, index]
        own = feature(model.info, tokens)
        whole = own.detach()
        return (own * whole).sum(dim=-1) / whole.square().sum(dim=-1)

    heads, method = range(model.info.heads), RelevanceMethod.CHEFER
    return relevance_rows(model, batch, target, heads, method, of_class=index is not None)[1]


def _contribution(model: AttentionModel, batch: Tensor, request: FaithfulRequest) -> Tensor:
    """What each token contributes to CLS along the target: (B, N)."""
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
    return along(model.norm, directions, cls, written)


def classifier_of(model: AttentionModel) -> Classifier:
    """The classifier, which ``check_faithful`` has made sure of."""
    assert model.head is not None
    return model.head
