"""Attention maps of a batch: ``heads``, ``layers`` and ``patch``, in one pass of the model each.

Only the rows of the requested queries are computed, on top of the model's fused attention. What
needs every row (attention distance, token entropy, the mean query) is computed in blocks of rows,
which then also make the layer's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.arrays import as_array, layout_of
from attnviz.attention.blocks import columns
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.checks import check_heads
from attnviz.attention.choose import (
    choose_heads,
    choose_layer,
    choose_layers,
    choose_pool_heads,
    need_query,
    query_token,
)
from attnviz.attention.pooling import pooling_weights, read_weights
from attnviz.attention.stats import MatrixStats, StatsOptions
from attnviz.domain import Direction, HeadsMaps, LayersMaps, PatchMaps, Query
from attnviz.domain.kinds import HeadsRequest, LayersRequest, PatchRequest
from attnviz.domain.row_statistics import entropy
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain import FloatArray


@dataclass(frozen=True, eq=False)
class _LayerResult:
    """One layer's query rows (B, H, N), and the statistics of its matrices, one an image.

    value_norms (B, H, N): the Euclidean norm of every token's value, where sinks are looked for.
    """

    rows: FloatArray
    stats: tuple[MatrixStats, ...]
    value_norms: FloatArray | None


def heads_maps(model: AttentionModel, batch: Tensor, request: HeadsRequest) -> list[HeadsMaps]:
    """The CLS attention of every head of a layer, for each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no CLS token, or no attention pooling, that the query
            stands for.
    """
    info = model.info
    need_query(info, request.query)
    if request.query is Query.POOL:
        return _pooled_heads(model, batch, request)
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    chosen = list(heads)
    layout = layout_of(model, batch)
    options = StatsOptions(
        mean=request.query is Query.MEAN,
        distance=request.distance,
        entropy=request.distance,
        received=request.distance,
    )
    result = _query_rows(model, batch, (layer,), options, request.query)[layer]
    maps = []
    for image in range(batch.shape[0]):
        rows = result.rows[image, chosen]  # H, N
        stats = result.stats[image] if request.distance else None
        maps.append(
            HeadsMaps(
                attention=layout.to_grid(rows),
                prefix=rows[:, : info.prefix],
                entropy=entropy(rows),
                distance=as_array(stats.distance)[chosen] if stats else None,
                to_cls=as_array(stats.to_cls)[chosen] if stats and info.has_cls else None,
                token_entropy=as_array(stats.entropy)[chosen] if stats else None,
                received=as_array(stats.received)[chosen] if stats else None,
                layer=layer,
                heads=heads,
                query=request.query,
            )
        )
    return maps


def layers_maps(model: AttentionModel, batch: Tensor, request: LayersRequest) -> list[LayersMaps]:
    """The CLS attention of every head of the chosen layers, for each image of the batch.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no CLS token, or no attention pooling, that the query
            stands for.
    """
    info = model.info
    need_query(info, request.query)
    layers = choose_layers(info, request.layers)
    heads = choose_heads(info, request.heads)
    chosen = list(heads)
    layout = layout_of(model, batch)
    mean = request.query in (Query.MEAN, Query.POOL)
    options = StatsOptions(mean=mean, distance=request.distance, received=request.sinks)
    results = _query_rows(model, batch, layers, options, request.query)
    maps = []
    for image in range(batch.shape[0]):
        rows = np.stack([results[layer].rows[image, chosen] for layer in layers])  # L, H, N
        distance = None
        if request.distance:
            distance = np.stack(
                [as_array(results[layer].stats[image].distance)[chosen] for layer in layers]
            )
        received = norms = None
        if request.sinks:
            received, norms = _sinks([results[layer] for layer in layers], image, chosen)
        maps.append(
            LayersMaps(
                attention=layout.to_grid(rows),
                prefix=rows[..., : info.prefix],
                entropy=entropy(rows),
                distance=distance,
                received=received,
                value_norms=norms,
                layers=layers,
                heads=heads,
                query=request.query,
            )
        )
    return maps


def patch_maps(
    model: AttentionModel,
    batch: Tensor,
    request: PatchRequest,
    cells: Sequence[Sequence[tuple[int, int]]],
) -> list[PatchMaps]:
    """The attention of or to chosen patches; ``cells[i]`` are the (row, column) of image i.

    All images have the same number of queries.

    Raises:
        UsageError: Layer, head or cell out of range.
    """
    info = model.info
    layout = layout_of(model, batch)
    grid = layout.grid
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    queries = np.asarray(cells, dtype=np.int64)  # B, Q, 2
    if not ((queries >= 0).all() and (queries < np.array(grid)).all()):
        raise UsageError(
            f"a query cell lies outside the grid of {grid.height} rows and {grid.width} columns",
            f"rows run from 0 to {grid.height - 1}, columns from 0 to {grid.width - 1}",
        )
    index = torch.from_numpy(info.prefix + queries[..., 0] * grid.width + queries[..., 1])
    received = request.direction is Direction.TO
    captured: list[FloatArray] = []

    def handle(call: AttentionCall) -> None:
        if call.layer != layer:
            return
        for image in range(batch.shape[0]):
            one, tokens = call.of_image(image), index[image].to(batch.device)
            rows = columns(one, tokens) if received else one.rows(tokens)[0]  # H, Q, N
            captured.append(as_array(rows.transpose(0, 1))[:, list(heads)])  # Q, H, N

    capture(model, batch, layer, handle)
    return [
        PatchMaps(
            attention=layout.to_grid(rows),
            prefix=rows[..., : info.prefix],
            entropy=None if received else entropy(rows),
            received=rows.sum(axis=-1, dtype=np.float64).astype(np.float32) if received else None,
            cells=queries[image],
            layer=layer,
            heads=heads,
        )
        for image, rows in enumerate(captured)
    ]


def _pooled_heads(model: AttentionModel, batch: Tensor, request: HeadsRequest) -> list[HeadsMaps]:
    """The attention of every latent query and head of the model's pooling to its output tokens."""
    info, layout = model.info, layout_of(model, batch)
    check_heads(info, request)
    chosen = choose_pool_heads(info, request.heads)
    weights = as_array(pooling_weights(model, batch))[:, :, list(chosen)]  # B, M, h, N
    count = weights.shape[1]
    latents = tuple(latent for latent in range(count) for _ in chosen)
    maps = []
    for image in weights:
        rows = image.reshape(-1, layout.tokens)  # M h, N
        maps.append(
            HeadsMaps(
                attention=layout.to_grid(rows),
                prefix=rows[:, : info.prefix],
                entropy=entropy(rows),
                distance=None,
                layer=info.depth,
                heads=chosen * count,
                query=request.query,
                latents=latents if count > 1 else None,
            )
        )
    return maps


def _query_rows(
    model: AttentionModel,
    batch: Tensor,
    layers: Sequence[int],
    options: StatsOptions,
    query: Query,
) -> dict[int, _LayerResult]:
    """The query's rows of the chosen layers, with the statistics that ``options`` name.

    ``options.mean`` is set for queries that are means over tokens.
    """
    last = max(layers)
    results: dict[int, _LayerResult] = {}
    token = query_token(model.info, query)
    index = None if token is None else torch.tensor([token], device=batch.device)
    weights = None
    if query is Query.POOL:
        weights = read_weights(model, pooling_weights(model, batch))  # B, N

    def handle(call: AttentionCall) -> Tensor | None:
        if call.layer not in layers:
            return None
        if options:
            output = None if call.layer == last else torch.empty_like(call.query)
            stats = _statistics(model, batch, call, options, weights, output)
            rows = None if index is None else call.unchecked_rows(index)[:, :, 0]
            if rows is None:
                rows = torch.stack([one.mean_row for one in stats])  # B, H, N
            norms = _value_norms(call) if options.received else None
            results[call.layer] = _LayerResult(as_array(rows), stats, norms)
            return output
        assert index is not None
        output = None if call.layer == last else call.fused()
        rows = call.rows(index, output)[:, :, 0]
        results[call.layer] = _LayerResult(as_array(rows), (), None)
        return output

    capture(model, batch, last, handle)
    return results


def _statistics(
    model: AttentionModel,
    batch: Tensor,
    call: AttentionCall,
    options: StatsOptions,
    weights: Tensor | None,
    output: Tensor | None,
) -> tuple[MatrixStats, ...]:
    """Statistics of all rows of a layer, one an image; fills ``output`` (B, H, N, d)."""
    layout, heads = layout_of(model, batch), model.info.heads
    stats: list[MatrixStats] = []
    for image in range(batch.shape[0]):
        own = None if weights is None else weights[image]
        one = MatrixStats(layout, heads, options, batch.device, own)
        one.read(call.of_image(image), None if output is None else output[image])
        stats.append(one)
    return tuple(stats)


def _value_norms(call: AttentionCall) -> FloatArray:
    """The Euclidean norm of every token's value: (B, H, N)."""
    return as_array(torch.linalg.vector_norm(call.value.float(), dim=-1))


def _sinks(
    results: Sequence[_LayerResult], image: int, heads: list[int]
) -> tuple[FloatArray, FloatArray]:
    """The attention received, and the norms of the values, of one image: (L, H, N) each."""
    received = [as_array(one.stats[image].received)[heads] for one in results]
    norms = [one.value_norms[image, heads] for one in results if one.value_norms is not None]
    return np.stack(received), np.stack(norms)
