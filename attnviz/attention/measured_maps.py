"""The maps that ``faithful`` measures, each computed as its own command does by default.

Relevance and contribution need a target. With a class it is the class's logit. Without one it is
the projection of the feature z onto the way from the image with all cells hidden, zh, to the whole
image, z0: z . (z0 - zh) / |z0 - zh|^2, which grows by 1 on that way. The cosine similarity itself
has its maximum at the whole image, where its gradient is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.arrays import as_array, layout_of
from attnviz.attention.capture import AttentionModel
from attnviz.attention.choose import choose_heads
from attnviz.attention.contribution import along, check_norm, cls_contributions
from attnviz.attention.maps import heads_maps
from attnviz.attention.perturb import painted
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


@dataclass(frozen=True, eq=False)
class _Task:
    """The images (B, 3, h, w) of one size, what black is in each, and what is asked of them."""

    model: AttentionModel
    batch: Tensor
    request: FaithfulRequest
    black: Sequence[Sequence[float]]

    @property
    def query(self) -> Query:
        """Whose attention is shown: of CLS, or the mean over patches without one."""
        return Query.CLS if self.model.info.has_cls else Query.MEAN

    def on_grid(self, rows: Tensor) -> list[FloatArray]:
        """The patch part of rows (B, N) as maps (gh, gw)."""
        return list(layout_of(self.model, self.batch).to_grid(as_array(rows)))

    def way(self) -> Tensor:
        """z0 - zh of each image, divided by its squared length: (B, width); 0 where it is 0."""
        deletion, _ = self.request.baselines
        pairs = zip(self.batch, self.black, strict=True)
        hidden = torch.stack([painted(image, deletion, black) for image, black in pairs])
        with torch.no_grad():
            tokens = self.model.run(torch.cat([self.batch, hidden])).float()
        whole, none = feature(self.model.info, tokens).chunk(2)
        way = whole - none
        squared = way.square().sum(dim=-1, keepdim=True)
        return torch.where(squared > 0, way / squared, torch.zeros_like(way))


def measured_maps(
    model: AttentionModel,
    batch: Tensor,
    request: FaithfulRequest,
    black: Sequence[Sequence[float]],
) -> list[dict[str, FloatArray]]:
    """The maps (gh, gw) float32 of each image of a (B, 3, h, w) batch, by name.

    black: what a black pixel is in each image.

    Raises:
        UsageError: Layer, head or class out of range.
        UnsupportedModelError: A map is not defined for this model.
        AttentionError: The captured attention or a gradient breaks an invariant.
    """
    task = _Task(model, batch, request, black)
    names = measured_names(model, request)
    made: dict[str, list[FloatArray]] = {}
    if any(name in _OF_HEADS or head_of(name) is not None for name in names):
        made |= _of_heads(task)
    made |= {name: _OTHERS[name](task) for name in names if name in _OTHERS}
    return [{name: made[name][image] for name in names} for image in range(len(batch))]


def _of_heads(task: _Task) -> dict[str, list[FloatArray]]:
    """Attention of every head, its mean and its maximum over them."""
    wanted = HeadsRequest(layer=task.request.layer, distance=False, query=task.query)
    attention = [maps.attention for maps in heads_maps(task.model, task.batch, wanted)]
    heads = range(task.model.info.heads)
    return {
        "mean": [each.mean(axis=0) for each in attention],
        "max": [each.max(axis=0) for each in attention],
        **{f"head:{head}": [each[head] for each in attention] for head in heads},
    }


def _rollout(task: _Task) -> list[FloatArray]:
    wanted = RolloutRequest(query=task.query)
    return [maps.rollout for maps in rollout_maps(task.model, task.batch, wanted)]


def _score(task: _Task) -> list[FloatArray]:
    wanted = ScoreRequest(layer=task.request.layer)
    return [maps.score for maps in score_maps(task.model, task.batch, wanted)]


def _random(task: _Task) -> list[FloatArray]:
    """Other values than those that make the random orders, which the seed alone makes."""
    rng, grid = (
        np.random.default_rng((task.request.seed, 1)),
        layout_of(task.model, task.batch).grid,
    )
    return [rng.random(grid, np.float32)] * len(task.batch)


def _relevance(task: _Task) -> list[FloatArray]:
    """Relevance by the method of Chefer et al. 2021."""
    model, index = task.model, task.request.class_index
    way = task.way() if index is None else None

    def target(tokens: Tensor) -> Tensor:
        if way is None:
            return classifier_of(model).logits(tokens)[:, index]
        return (feature(model.info, tokens) * way).sum(dim=-1)

    heads, method = range(model.info.heads), RelevanceMethod.CHEFER
    _, rows = relevance_rows(model, task.batch, target, heads, method, of_class=way is None)
    return task.on_grid(rows)


def _contribution(task: _Task) -> list[FloatArray]:
    """What each patch contributes to CLS along the target."""
    model, info, index = task.model, task.model.info, task.request.class_index
    direction = None if index is None else classifier_of(model).direction(index)
    if index is not None and direction is None:
        raise UsageError(
            f"--show contribution: class {index} of {info.name} is not read from CLS alone",
            "leave it out, or show relevance",
        )
    try:
        check_norm(model.norm, info.name)
        written, cls, _ = cls_contributions(model, task.batch, range(info.heads))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(
            f"--show contribution: {error.message}", "leave it out, or show relevance"
        ) from error
    directions = task.way() if direction is None else direction.expand_as(cls)
    return task.on_grid(along(model.norm, directions, cls, written))


_OTHERS: dict[str, Callable[[_Task], list[FloatArray]]] = {
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
