"""Attention rollout (Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers").

Per layer, heads are fused to F; A' = r I + (1 - r) F with rows renormalised; small values may be
discarded; the rollout is the query row of A'_L ... A'_1. That row is pushed through the layers as
a vector from the last to the first, so no two N x N matrices are ever multiplied.

With u_i = v_i / (r + (1 - r) sum_j F_ij), one layer is v' = r u + (1 - r) u F: neither the residual
nor the renormalisation is written into the matrix. Discarding after the residual needs A' itself.

The matrices of all layers are kept where they fit; otherwise only q and k are, and each matrix is
recomputed, a few rows at a time, on the way back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from attnviz.attention.arrays import TokenLayout, as_array, head_index, layout_of
from attnviz.attention.blocks import patch_mean_row, row_blocks
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.checks import check_rollout_options
from attnviz.attention.choose import (
    choose_heads,
    choose_layer,
    choose_layers,
    need_query,
    query_token,
)
from attnviz.attention.layer_matrix import (
    Fuser,
    LayerMatrix,
    MatrixPool,
    layer_matrix,
    pool_of,
    push_rows,
)
from attnviz.attention.pooling import pooling_weights, read_weights
from attnviz.domain import Fusion, Query, RolloutMaps, RolloutOptions
from attnviz.domain.kinds import RolloutRequest

KEEP_LIMIT_BYTES = 2 << 30
"""Matrices of all layers are kept up to this size; above it they are computed a second time."""


def rollout_maps(
    model: AttentionModel, batch: Tensor, request: RolloutRequest
) -> list[RolloutMaps]:
    """Attention rollout of each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: An option out of range.
        UnsupportedModelError: The model has no CLS token, or no attention pooling, that the query
            stands for.
    """
    plan = _plan(model, batch, request)
    recordings = _record(model, batch, plan)
    with torch.inference_mode():
        return [_maps(plan, recording) for recording in recordings]


@dataclass(frozen=True, eq=False)
class _Plan:
    """A request resolved against a model and the size of its input.

    ``options`` has the start layer's index from 0. ``depths`` (K) ascend to the last layer.
    ``keep``: whether the fused matrices of all layers are kept. ``token``: the index of the token
    whose row the query is; None for means over tokens.
    """

    options: RolloutOptions
    query: Query
    token: int | None
    heads: tuple[int, ...]
    depths: tuple[int, ...]
    layout: TokenLayout
    keep: bool
    pool: MatrixPool

    @property
    def last(self) -> int:
        """The last layer, and the deepest of the depths."""
        return self.depths[-1]

    @property
    def needs_last_matrix(self) -> bool:
        """Whether more than one row of the last layer is needed.

        It meets a vector with a single entry, unless the query is a mean over tokens; but to
        discard, the whole matrix is looked at.
        """
        return self.options.discard_ratio > 0 or self.token is None

    def keeps(self, layer: int) -> bool:
        """Whether a layer is kept as a matrix."""
        return self.keep and (layer != self.last or self.needs_last_matrix)


@dataclass(frozen=True, eq=False)
class _Recording:
    """The layers of one image from the start layer on: as matrices, or as calls to make them from.

    The call of the last layer is always there. ``start`` (N,): the weights with which tokens are
    read, where the query is the attention pooling.
    """

    matrices: dict[int, LayerMatrix] = field(default_factory=dict)
    calls: dict[int, AttentionCall] = field(default_factory=dict)
    start: Tensor | None = None


def _plan(model: AttentionModel, batch: Tensor, request: RolloutRequest) -> _Plan:
    info, options = model.info, request.options
    check_rollout_options(options)
    need_query(info, request.query)
    start, last = choose_layer(info, options.start_layer), info.depth - 1
    depths = tuple(
        depth for depth in choose_layers(info, (*request.depths, last)) if depth >= start
    )
    layout = layout_of(model, batch)
    matrices = 4 * layout.tokens**2 * (last + 1 - start) * batch.shape[0]
    return _Plan(
        replace(options, start_layer=start),
        request.query,
        query_token(info, request.query),
        choose_heads(info, request.heads),
        depths,
        layout,
        matrices <= KEEP_LIMIT_BYTES,
        pool_of(model),
    )


def _record(model: AttentionModel, batch: Tensor, plan: _Plan) -> list[_Recording]:
    """One pass of the model: what the rollout of each image is computed from."""
    recordings = [_Recording() for _ in range(batch.shape[0])]
    if plan.query is Query.POOL:
        starts = read_weights(model, pooling_weights(model, batch))
        recordings = [_Recording(start=start) for start in starts]

    def handle(call: AttentionCall) -> Tensor | None:
        if call.layer < plan.options.start_layer:
            return None
        output = None
        if plan.keeps(call.layer) and call.layer != plan.last:
            output = torch.empty_like(call.query)
        for image, recording in enumerate(recordings):
            part = None if output is None else output[image]
            _record_layer(call.of_image(image), plan, recording, part)
        return output

    capture(model, batch, plan.last, handle)
    return recordings


def _record_layer(
    call: AttentionCall, plan: _Plan, recording: _Recording, output: Tensor | None
) -> None:
    """Record one layer of one image; fills ``output`` (H, N, d)."""
    keeps = plan.keeps(call.layer)
    if keeps:
        matrix = plan.pool.take(plan.layout.tokens, call.query.device)
        recording.matrices[call.layer] = layer_matrix(
            call, plan.heads, plan.options, matrix, output
        )
    if not keeps or call.layer == plan.last:
        recording.calls[call.layer] = call


def _maps(plan: _Plan, recording: _Recording) -> RolloutMaps:
    last_rows = _query_rows(plan, recording)
    rows = as_array(_roll(plan, recording, last_rows))  # K, N
    at_depth = plan.layout.to_grid(rows)
    prefix = plan.layout.prefix
    return RolloutMaps(
        rollout=at_depth[-1],
        prefix=rows[-1, :prefix],
        last=plan.layout.to_grid(as_array(last_rows.mean(dim=0))),
        options=plan.options,
        last_layer=plan.last,
        depths=plan.depths,
        at_depth=at_depth,
        at_depth_prefix=rows[:, :prefix],
        heads=plan.heads,
        query=plan.query,
    )


def _query_rows(plan: _Plan, recording: _Recording) -> Tensor:
    """The row of the query in the last layer of one image, of the chosen heads: (h, N).

    Attention pooling comes after the last layer and reads by a row of its own: (1, N).
    """
    if recording.start is not None:
        return recording.start[None]
    call = recording.calls[plan.last]
    if plan.token is None:
        rows = patch_mean_row(call, plan.layout.prefix)
    else:
        rows = call.rows(torch.tensor([plan.token], device=call.query.device))[0, :, 0]
    return rows[head_index(plan.heads, rows.device)]


def _roll(plan: _Plan, recording: _Recording, last_rows: Tensor) -> Tensor:
    """The query's rollout from each depth down to the start layer: (K, N), K depths.

    last_rows (h, N): the query's row in the last layer, for the chosen heads.
    """
    query: Tensor = torch.zeros(plan.layout.tokens, device=last_rows.device)
    if recording.start is not None:
        query = recording.start
    elif plan.token is not None:
        query[plan.token] = 1.0
    else:
        query[plan.layout.prefix :] = 1.0 / plan.layout.patches
    vectors = query.repeat(len(plan.depths), 1)
    for layer in range(plan.last, plan.options.start_layer - 1, -1):
        # Depths ascend, so those that a layer belongs to are the last ones.
        first = sum(depth < layer for depth in plan.depths)
        active = vectors[first:]
        if layer == plan.last and not plan.needs_last_matrix and plan.token is not None:
            vectors[first:] = _pass_one_row(plan, plan.token, last_rows, active)
        else:
            vectors[first:] = _pass_layer(plan, recording, layer, active)
    return vectors


def _pass_layer(plan: _Plan, recording: _Recording, layer: int, vectors: Tensor) -> Tensor:
    """Row vectors (K, N) times one layer's A': (K, N)."""
    whole = recording.matrices.pop(layer, None)
    if whole is None and plan.options.discard_ratio > 0:
        matrix = plan.pool.take(vectors.shape[1], vectors.device)
        whole = layer_matrix(recording.calls[layer], plan.heads, plan.options, matrix)
    if whole is None:
        return _pass_call(plan, recording.calls[layer], vectors)
    result = whole.push(vectors)
    plan.pool.give(whole.matrix)
    return result


def _pass_call(plan: _Plan, call: AttentionCall, vectors: Tensor) -> Tensor:
    """``_pass_layer`` without a matrix: rows are made and used, a block at a time."""
    identity, weight = plan.options.residual, 1 - plan.options.residual
    out = torch.zeros_like(vectors)
    fuser = Fuser(plan.heads, call.query.shape[1], plan.options.fusion, vectors.device)
    for block in row_blocks(call):
        fused = vectors.new_empty(block.weights.shape[1:])
        fuser.fuse(block, fused)
        push_rows(vectors, block.rows, fused, identity, weight, out)
    return out


def _pass_one_row(plan: _Plan, token: int, rows: Tensor, vectors: Tensor) -> Tensor:
    """``_pass_layer`` for vectors with one token that is not zero; rows (h, N): its attention."""
    if plan.options.fusion is Fusion.MEAN:
        fused = rows.mean(dim=0, keepdim=True)  # 1, N
    else:
        reduce = torch.amax if plan.options.fusion is Fusion.MAX else torch.amin
        fused = reduce(rows, dim=0, keepdim=True)
    identity, weight = plan.options.residual, 1 - plan.options.residual
    out = torch.zeros_like(vectors)
    push_rows(vectors, slice(token, token + 1), fused, identity, weight, out)
    return out
