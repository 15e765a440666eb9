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

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import threshold

from attnviz.attention.blocks import RowBlock, each_strip, patch_mean_row
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.choose import choose_heads, choose_layer, choose_layers, need_cls
from attnviz.attention.maps import grid_of
from attnviz.attention.select import kth_smallest
from attnviz.attention.share import OrderedSum, share
from attnviz.domain import DiscardOrder, Fusion, Query, RolloutMaps, RolloutOptions
from attnviz.errors import UsageError
from attnviz.requests import RolloutRequest

KEEP_LIMIT_BYTES = 2 << 30
"""Matrices of all layers are kept up to this size; above it they are made a second time."""

CHUNK_FLOATS = 1 << 17
"""Floats that a vector passes at a time (512 KiB): they stay in cache until the sum is taken."""

STRIPS = 64
"""Parts, at most, that a matrix is passed in."""


@dataclass(frozen=True, eq=False)
class LayerMatrix:
    """One layer's matrix (N, N), and how a row vector passes it.

    ``keep_from``: smaller values count as 0; None keeps all. A' is ``identity`` * I + ``weight`` *
    matrix, rows renormalised; where the matrix is A' already, identity is 0 and weight 1.
    """

    matrix: Tensor
    keep_from: float | None
    identity: float
    weight: float

    def push(self, vectors: Tensor) -> Tensor:
        """Row vectors (K, N) times A': (K, N)."""
        tokens = self.matrix.shape[0]
        rows_each = max(1, CHUNK_FLOATS // tokens)
        chunks = math.ceil(tokens / rows_each)
        # Few strips, since each has a sum of its own; many enough that no thread waits long.
        starts = range(0, tokens, rows_each * math.ceil(chunks / STRIPS))
        total = OrderedSum(torch.zeros_like(vectors))

        def work(place: int) -> None:
            out = torch.zeros_like(vectors)
            stop = min(starts[place] + starts.step, tokens)
            for start in range(starts[place], stop, rows_each):
                rows = slice(start, min(start + rows_each, stop))
                chunk = self._above(self.matrix[rows])
                push_rows(vectors, rows, chunk, self.identity, self.weight, out)
            total.add(place, out)

        if vectors.device.type == "cpu":
            share(work, len(starts))
        else:
            for place in range(len(starts)):
                work(place)
        return total.total

    def _above(self, chunk: Tensor) -> Tensor:
        """The chunk with 0 for what is discarded."""
        if self.keep_from is None:
            return chunk
        # threshold() keeps what is above its bound; what equals the k-th smallest stays.
        bound = np.nextafter(np.float32(self.keep_from), np.float32(-np.inf))
        return threshold(chunk, float(bound), 0.0)


def push_rows(
    vectors: Tensor, rows: slice, chunk: Tensor, identity: float, weight: float, out: Tensor
) -> None:
    """Add to ``out`` (K, N) what the rows ``chunk`` (R, N) of one layer pass on of ``vectors``.

    A row that has lost everything passes its share to itself.
    """
    sums = identity + weight * chunk.sum(dim=-1)  # R
    lost = sums <= 0
    passed = vectors[:, rows] / sums.masked_fill(lost, 1.0)  # K, R
    kept = passed.masked_fill(lost, 0.0)
    out.addmm_(kept, chunk, alpha=weight)
    out[:, rows] += identity * kept + passed.masked_fill(~lost, 0.0)


def fuse(blocks: Iterator[RowBlock], heads: Sequence[int], fusion: Fusion, into: Tensor) -> None:
    """Fuse the chosen heads of a strip's blocks to rows ``into`` (R, N)."""
    first = True
    for block in blocks:
        for place, head in enumerate(
            range(block.heads.start, block.heads.start + len(block.weights))
        ):
            if head not in heads:
                continue
            if fusion is Fusion.MEAN:
                part = (block.totals[place] * len(heads)).reciprocal_()  # R, 1
                weights = block.weights[place]
                if first:
                    torch.mul(weights, part, out=into)
                else:
                    into.addcmul_(weights, part)
            else:
                rows = block.weights[place].div_(block.totals[place])
                if first:
                    into.copy_(rows)
                else:
                    join = torch.maximum if fusion is Fusion.MAX else torch.minimum
                    join(into, rows, out=into)
            first = False


def layer_matrix(
    call: AttentionCall,
    heads: Sequence[int],
    options: RolloutOptions,
    output: Tensor | None = None,
) -> LayerMatrix:
    """The fused matrix of one image and layer, ready to be passed by a vector."""
    residual = options.residual
    after = options.discard_ratio > 0 and options.discard is DiscardOrder.AFTER
    matrix = square(call.query.shape[-2], call.query.device)

    def visit(_place: int, rows: slice, blocks: Iterator[RowBlock]) -> None:
        fused = matrix[rows]
        fuse(blocks, heads, options.fusion, fused)
        if after:
            scale = residual + (1 - residual) * fused.sum(dim=-1, keepdim=True)
            fused.mul_((1 - residual) / scale)
            fused.diagonal(offset=rows.start).add_((residual / scale)[:, 0])

    each_strip(call, visit, output=output)
    identity, weight = (0.0, 1.0) if after else (residual, 1 - residual)
    return LayerMatrix(matrix, keep_from(matrix, options.discard_ratio), identity, weight)


def square(tokens: int, device: torch.device) -> Tensor:
    """Memory for a matrix (N, N) float32."""
    if device.type != "cpu":
        return torch.empty(tokens, tokens, device=device)
    # numpy asks for huge pages, which are several times faster to come by than torch's small ones.
    return torch.from_numpy(np.empty((tokens, tokens), dtype=np.float32))


def keep_from(matrix: Tensor, ratio: float) -> float | None:
    """The k-th smallest value, k = int(N * N * ratio): what is smaller goes. None: all stay."""
    k = int(matrix.numel() * ratio)
    return kth_smallest(matrix, k) if k else None


def check_options(options: RolloutOptions) -> None:
    """Raise UsageError for a discard ratio or residual outside [0, 1)."""
    if not 0 <= options.discard_ratio < 1:
        raise UsageError(
            f"discard ratio {options.discard_ratio} is not in [0, 1)",
            "0.9 discards the smallest 90 % of each layer's values, 0 discards nothing",
        )
    if not 0 <= options.residual < 1:
        raise UsageError(
            f"residual {options.residual} is not in [0, 1)",
            "0.5 weighs the residual connection as much as attention; 1 would leave no attention",
        )


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
    check_options(options)
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
            path.kept[call.layer] = layer_matrix(part, heads, options, part_output)
        return output

    capture(model, batch, last, take)
    maps = []
    for path, rows in zip(paths, last_rows, strict=True):
        vectors = _roll(path, depths, start, heads, request, info.prefix, tokens)
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
        vectors[active] = _pass_layer(path, layer, vectors[active], heads, request)
    return vectors


def _pass_layer(
    path: _Path, layer: int, vectors: Tensor, heads: Sequence[int], request: RolloutRequest
) -> Tensor:
    options = request.options
    if layer in path.kept:
        return path.kept[layer].push(vectors)
    call = path.calls[layer]
    if options.discard_ratio > 0:
        return layer_matrix(call, heads, options).push(vectors)
    residual = options.residual
    total = OrderedSum(torch.zeros_like(vectors))
    if not vectors[:, 1:].any():
        fused = _fuse_first_row(call, heads, options.fusion)
        push_rows(vectors, slice(0, 1), fused, residual, 1 - residual, total.total)
        return total.total

    def visit(place: int, rows: slice, blocks: Iterator[RowBlock]) -> None:
        fused = vectors.new_empty(rows.stop - rows.start, vectors.shape[1])
        fuse(blocks, heads, options.fusion, fused)
        out = torch.zeros_like(vectors)
        push_rows(vectors, rows, fused, residual, 1 - residual, out)
        total.add(place, out)

    each_strip(call, visit)
    return total.total


def _fuse_first_row(call: AttentionCall, heads: Sequence[int], fusion: Fusion) -> Tensor:
    """The fused row of token 0: (1, N)."""
    first = torch.zeros(1, dtype=torch.long, device=call.query.device)
    rows = call.rows(first)[0, list(heads)]  # H, 1, N
    if fusion is Fusion.MEAN:
        return rows.mean(dim=0)
    return rows.amax(dim=0) if fusion is Fusion.MAX else rows.amin(dim=0)
