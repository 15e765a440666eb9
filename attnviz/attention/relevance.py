"""Relevance for a target: attention weighted by its gradient, carried through all layers.

chefer            Chefer, Gur & Wolf 2021 ("Generic Attention-model Explainability"), equations 5
                  and 6 for self-attention: R <- R + F R with F = mean over heads of (G * A)+.
gradient-rollout  gradient rollout (jacobgil/vit-explain), with each layer's own gradient:
                  F = (mean over heads of G * A)+, A' = F + I with rows normalised, and
                  R = A'_L ... A'_1.

contribution      without a gradient, see ``contribution.py``.

G = df/dA of the same layer. As in rollout, the weights with which the target pools the tokens are
pushed through the layers as a vector, from the last to the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from attnviz.attention.arrays import as_array, head_index, layout_of
from attnviz.attention.capture import AttentionModel
from attnviz.attention.checks import check_relevance, not_of_cls
from attnviz.attention.choose import choose_heads
from attnviz.attention.contribution import along, check_norm, cls_contributions
from attnviz.attention.gradients import LayerGradient, Target, attention_gradients
from attnviz.attention.layer_matrix import push_rows
from attnviz.domain import FigureImage, ModelInfo, RelevanceMaps, RelevanceMethod
from attnviz.domain.kinds import RelevanceRequest


@dataclass(frozen=True, eq=False)
class Reference:
    """The image that ``like`` names, and its feature (width,) float32."""

    image: FigureImage
    feature: Tensor


def feature(info: ModelInfo, tokens: Tensor) -> Tensor:
    """The feature of an image: CLS after the last norm, or the mean patch where there is no CLS.

    tokens (B, N, width) to (B, width).
    """
    return tokens[:, 0] if info.has_cls else tokens[:, info.prefix :].mean(dim=1)


def reference_of(
    model: AttentionModel,
    batch: Tensor,
    image: FigureImage,
    _request: RelevanceRequest | None = None,
) -> Reference:
    """The reference that an image makes; batch: (1, 3, h, w)."""
    with torch.no_grad():  # an inference tensor cannot be part of a target with a gradient
        return Reference(image, feature(model.info, model.run(batch).float())[0])


SAME_COSINE = 1 - 2.5e-7
"""Cosines above count as 1; it is four steps of float32 below."""


def relevance_maps(
    model: AttentionModel, batch: Tensor, request: RelevanceRequest, reference: Reference | None
) -> list[RelevanceMaps]:
    """The relevance of each image of a (B, 3, h, w) batch. reference: of the request's ``like``.

    Raises:
        UsageError: No such target, or head out of range.
        UnsupportedModelError: The method is not defined for this model.
        AttentionError: A gradient is not finite, or the attention breaks an invariant.
    """
    info = model.info
    check_relevance(info, request)
    heads = choose_heads(info, request.heads)
    layout = layout_of(model, batch)
    if request.method is RelevanceMethod.CONTRIBUTION:
        target, rows = _by_contribution(model, batch, request, reference, heads)
    else:
        target, rows = _by_gradient(model, batch, request, reference, heads)
        if reference is not None:
            # At its maximum the gradient of the cosine is 0: what is computed there is rounding.
            rows[target.values > SAME_COSINE] = 0
    return [
        RelevanceMaps(
            relevance=layout.to_grid(row),
            prefix=row[: info.prefix],
            value=float(value),
            heads=heads,
            method=request.method,
            class_index=request.class_index,
            probability=None if probability is None else float(probability),
            like=None if reference is None else reference.image,
        )
        for value, probability, row in zip(
            as_array(target.values), target.probabilities, as_array(rows), strict=True
        )
    ]


@dataclass(frozen=True, eq=False)
class _Target:
    """The target of each image (B,), and the probability of a class among several."""

    values: Tensor
    probabilities: Sequence[Tensor | None]


def _target(
    model: AttentionModel, request: RelevanceRequest, reference: Reference | None, tokens: Tensor
) -> _Target:
    """The target of each image, from its tokens after the last norm (B, N, width) float32."""
    if request.class_index is None:
        assert reference is not None
        cosines = cosine_similarity(feature(model.info, tokens), reference.feature[None], dim=-1)
        return _Target(cosines, [None] * len(tokens))
    assert model.head is not None
    logits = model.head.logits(tokens)  # B, C
    values = logits[:, request.class_index]
    if logits.shape[1] == 1:  # a regression, or one logit: its softmax would be 1 for any image
        return _Target(values, [None] * len(tokens))
    return _Target(values, list(logits.detach().softmax(dim=-1)[:, request.class_index]))


def _by_gradient(
    model: AttentionModel,
    batch: Tensor,
    request: RelevanceRequest,
    reference: Reference | None,
    heads: Sequence[int],
) -> tuple[_Target, Tensor]:
    """The target, and the relevance of every token (B, N)."""
    targets: list[_Target] = []

    def values(tokens: Tensor) -> Tensor:
        targets.append(_target(model, request, reference, tokens))
        return targets[0].values

    of_class = request.class_index is not None
    target_values, rows = relevance_rows(model, batch, values, heads, request.method, of_class)
    return _Target(target_values, targets[0].probabilities), rows


def relevance_rows(
    model: AttentionModel,
    batch: Tensor,
    target: Target,
    heads: Sequence[int],
    method: RelevanceMethod,
    of_class: bool,  # noqa: FBT001 - which tokens the target reads
) -> tuple[Tensor, Tensor]:
    """A target of each image (B,), and the relevance of every token for it (B, N).

    of_class: the target reads the tokens that the classifier reads; else those of the feature.

    Raises:
        AttentionError: As ``attention_gradients``.
    """
    values, layers = attention_gradients(model, batch, target)
    tokens = layers[0].call.query.shape[-2]
    if of_class:
        assert model.head is not None
        reads = model.head.reads(tokens)
    else:
        index = torch.arange(tokens)
        pooled = index < 1 if model.info.has_cls else index >= model.info.prefix
        reads = pooled / pooled.sum()
    rows = [
        carry([layer.of_image(image) for layer in layers], reads, heads, method)
        for image in range(len(batch))
    ]
    return values, torch.stack(rows)


def _by_contribution(
    model: AttentionModel,
    batch: Tensor,
    request: RelevanceRequest,
    reference: Reference | None,
    heads: Sequence[int],
) -> tuple[_Target, Tensor]:
    """The target, and the contribution of every token (B, N)."""
    info = model.info
    direction: Tensor | None = None
    if request.class_index is not None:
        assert model.head is not None
        direction = model.head.direction(request.class_index)
    if (request.class_index is not None and direction is None) or not info.has_cls:
        raise not_of_cls(info)
    check_norm(model.norm, info.name)
    written, cls, tokens = cls_contributions(model, batch, heads)
    target = _target(model, request, reference, tokens)
    if direction is None:
        assert reference is not None
        unit = reference.feature / reference.feature.norm()
        directions = unit / tokens[:, 0].norm(dim=-1, keepdim=True)  # B, width
    else:
        directions = direction.expand(len(batch), -1)
    return target, along(model.norm, directions, cls, written)


def carry(
    layers: Sequence[LayerGradient], reads: Tensor, heads: Sequence[int], method: RelevanceMethod
) -> Tensor:
    """The relevance of every token of one image: (N,).

    reads (N,): the weights with which the target pools the tokens, sum 1. The identity of Chefer's
    R is left out of the result.
    """
    own = reads.to(layers[0].gradient.device)[None]  # 1, N
    adds = method is RelevanceMethod.CHEFER
    carried = torch.zeros_like(own) if adds else own
    for layer in reversed(layers):
        passed = carried.clone() if adds else torch.zeros_like(own)
        for rows, fused in fused_rows(layer, heads, method):
            if adds:
                passed.addmm_((own + carried)[:, rows], fused)
            else:
                push_rows(carried, rows, fused, 1.0, 1.0, passed)
        carried = passed
    return carried[0]


def fused_rows(
    layer: LayerGradient, heads: Sequence[int], method: RelevanceMethod
) -> Iterator[tuple[slice, Tensor]]:
    """Rows (R, N) of a layer's F, in order.

    Chefer takes the positive part of every head, gradient rollout that of their mean.
    """
    index = head_index(heads, layer.gradient.device)
    for block, weighted in layer.weighted_blocks():
        if method is RelevanceMethod.CHEFER:
            weighted.clamp_(min=0)
        yield block.rows, weighted[index].mean(dim=0).clamp_(min=0)
