"""Attention rollout (Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers").

Per layer, heads are fused to F; A' = r I + (1 - r) F with rows renormalised; small values may be
discarded; the rollout is the query row of A'_L ... A'_1. That row is pushed through the layers as
a vector from the last to the first, so no two N x N matrices are ever multiplied.

With u_i = v_i / (r + (1 - r) sum_j F_ij), one layer is v' = r u + (1 - r) u F: neither the residual
nor the renormalisation is written into the matrix. Discarding after the residual needs A' itself.

Matrices of all layers are kept where they are small; where not, only q and k are, and each matrix
is made again, rows at a time, on the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.arrays import grid_of
from attnviz.attention.blocks import patch_mean_row, row_blocks
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.checks import check_rollout_options
from attnviz.attention.choose import choose_heads, choose_layer, choose_layers, need_cls
from attnviz.attention.layer_matrix import (
    LayerMatrix,
    MatrixPool,
    fuse,
    layer_matrix,
    pool_of,
    push_rows,
)
from attnviz.domain import Fusion, Query, RolloutMaps, RolloutOptions
from attnviz.domain.kinds import RolloutRequest

KEEP_LIMIT_BYTES = 2 << 30
"""Matrices of all layers are kept up to this size; above it they are made a second time."""


@dataclass(frozen=True, eq=False)
class _Path:
    """The layers of one image from the start to the deepest, as matrices or as what makes them."""

    kept: dict[int, LayerMatrix]
    calls: dict[int, AttentionCall]


def rollout_maps(
    model: AttentionModel, batch: Tensor, request: RolloutRequest
) -> list[RolloutMaps]:
    """Attention rollout of each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: An option out of range.
        UnsupportedModelError: The model has no class token and the query is ``cls``.
    """
    info = model.info
    options = request.options
    check_rollout_options(options)
    need_cls(info, request.query)
    heads = choose_heads(info, request.heads)
    start = choose_layer(info, options.start_layer)
    last = info.depth - 1
    depths = tuple(d for d in choose_layers(info, (*request.depths, last)) if d >= start)
    grid = grid_of(model, batch)
    tokens = info.prefix + grid.height * grid.width
    images = batch.shape[0]
    keep = 4 * tokens * tokens * (last + 1 - start) * images <= KEEP_LIMIT_BYTES
    paths = [_Path({}, {}) for _ in range(images)]
    last_rows: list[Tensor] = []
    pool = pool_of(model)

    def take(call: AttentionCall) -> Tensor | None:
        if call.layer < start:
            return None
        parts = [call.of_image(image) for image in range(images)]
        if call.layer == last:
            last_rows.extend(_query_row(part, request.query, info.prefix) for part in parts)
        # The deepest layer meets a vector with a single entry, CLS: without a discard, its row is
        # all that is needed of the matrix.
        if not keep or (call.layer == last and not _needs_whole(options, request.query)):
            for path, part in zip(paths, parts, strict=True):
                path.calls[call.layer] = part
            return None
        output = None if call.layer == last else torch.empty_like(call.query)
        for image, (path, part) in enumerate(zip(paths, parts, strict=True)):
            part_output = None if output is None else output[image]
            matrix = pool.take(tokens, part.query.device)
            path.kept[call.layer] = layer_matrix(part, heads, options, matrix, part_output)
        return output

    capture(model, batch, last, take)
    maps = []
    for path, rows in zip(paths, last_rows, strict=True):
        with torch.inference_mode():
            vectors = _roll(path, depths, start, heads, request, info.prefix, tokens, pool)
        values = vectors.cpu().numpy()  # K, N
        at_depth = np.ascontiguousarray(values[:, info.prefix :]).reshape(-1, *grid)
        mean_last = rows[list(heads)].mean(dim=0).cpu().numpy()[info.prefix :].reshape(grid)
        maps.append(
            RolloutMaps(
                rollout=at_depth[-1],
                prefix=values[-1, : info.prefix],
                last=mean_last,
                options=replace(options, start_layer=start),
                last_layer=last,
                depths=depths,
                at_depth=at_depth,
                at_depth_prefix=values[:, : info.prefix],
                heads=heads,
                query=request.query,
            )
        )
    return maps


def _query_row(call: AttentionCall, query: Query, prefix: int) -> Tensor:
    """The row of the query in one layer of one image, every head: (H, N)."""
    if query is Query.MEAN:
        return patch_mean_row(call, prefix)
    return call.rows(torch.zeros(1, dtype=torch.long, device=call.query.device))[0, :, 0]


def _needs_whole(options: RolloutOptions, query: Query) -> bool:
    return options.discard_ratio > 0 or query is Query.MEAN


def _roll(
    path: _Path,
    depths: Sequence[int],
    start: int,
    heads: Sequence[int],
    request: RolloutRequest,
    prefix: int,
    tokens: int,
    pool: MatrixPool,
) -> Tensor:
    """The query's rollout from each depth down to the start layer: (K, N), K depths."""
    some = next(iter(path.calls.values())).query if path.calls else path.kept[depths[-1]].matrix
    query = torch.zeros(tokens, device=some.device)
    if request.query is Query.CLS:
        query[0] = 1.0
    else:
        query[prefix:] = 1.0 / (tokens - prefix)
    vectors = query.repeat(len(depths), 1)
    for layer in range(depths[-1], start - 1, -1):
        active = [place for place, depth in enumerate(depths) if depth >= layer]
        vectors[active] = _pass_layer(path, layer, vectors[active], heads, request, pool)
    return vectors


def _pass_layer(
    path: _Path,
    layer: int,
    vectors: Tensor,
    heads: Sequence[int],
    request: RolloutRequest,
    pool: MatrixPool,
) -> Tensor:
    options = request.options
    whole = path.kept.pop(layer, None)
    if whole is None and options.discard_ratio > 0:
        matrix = pool.take(vectors.shape[1], vectors.device)
        whole = layer_matrix(path.calls[layer], heads, options, matrix)
    if whole is not None:
        passed = whole.push(vectors)
        pool.give(whole.matrix)
        return passed
    call = path.calls[layer]
    residual = options.residual
    out = torch.zeros_like(vectors)
    if not vectors[:, 1:].any():
        fused = _fuse_first_row(call, heads, options.fusion)
        push_rows(vectors, slice(0, 1), fused, residual, 1 - residual, out)
        return out
    for block in row_blocks(call):
        fused = vectors.new_empty(block.weights.shape[1:])
        fuse(block, heads, options.fusion, fused)
        push_rows(vectors, block.rows, fused, residual, 1 - residual, out)
    return out


def _fuse_first_row(call: AttentionCall, heads: Sequence[int], fusion: Fusion) -> Tensor:
    """The fused row of token 0: (1, N)."""
    first = torch.zeros(1, dtype=torch.long, device=call.query.device)
    rows = call.rows(first)[0, list(heads)]  # H, 1, N
    if fusion is Fusion.MEAN:
        return rows.mean(dim=0)
    return rows.amax(dim=0) if fusion is Fusion.MAX else rows.amin(dim=0)
