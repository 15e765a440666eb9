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
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.choose import choose_heads, choose_layer, choose_layers, need_cls
from attnviz.attention.stats import MatrixStats, StatsOptions
from attnviz.domain import HeadsMaps, LayersMaps, PatchMaps, Query
from attnviz.domain.kinds import HeadsRequest, LayersRequest, PatchRequest
from attnviz.domain.row_statistics import entropy
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain import FloatArray


@dataclass(frozen=True, eq=False)
class _LayerResult:
    """One layer's query rows (B, H, N), and the statistics of its matrices, one an image."""

    rows: FloatArray
    stats: tuple[MatrixStats, ...]


def heads_maps(model: AttentionModel, batch: Tensor, request: HeadsRequest) -> list[HeadsMaps]:
    """The CLS attention of every head of a layer, for each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no CLS token and the query is ``cls``.
    """
    info = model.info
    need_cls(info, request.query)
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    chosen = list(heads)
    layout = layout_of(model, batch)
    options = StatsOptions(
        mean=request.query is Query.MEAN, distance=request.distance, entropy=request.distance
    )
    result = _query_rows(model, batch, (layer,), options)[layer]
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
        UnsupportedModelError: The model has no CLS token and the query is ``cls``.
    """
    info = model.info
    need_cls(info, request.query)
    layers = choose_layers(info, request.layers)
    heads = choose_heads(info, request.heads)
    chosen = list(heads)
    layout = layout_of(model, batch)
    options = StatsOptions(mean=request.query is Query.MEAN, distance=request.distance)
    results = _query_rows(model, batch, layers, options)
    maps = []
    for image in range(batch.shape[0]):
        rows = np.stack([results[layer].rows[image, chosen] for layer in layers])  # L, H, N
        distance = None
        if request.distance:
            distance = np.stack(
                [as_array(results[layer].stats[image].distance)[chosen] for layer in layers]
            )
        maps.append(
            LayersMaps(
                attention=layout.to_grid(rows),
                prefix=rows[..., : info.prefix],
                entropy=entropy(rows),
                distance=distance,
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
    """The attention of chosen patches; ``cells[i]`` are the (row, column) queries of image i.

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
    captured: list[FloatArray] = []

    def handle(call: AttentionCall) -> None:
        if call.layer != layer:
            return
        for image in range(batch.shape[0]):
            rows = call.of_image(image).rows(index[image].to(batch.device))[0]  # H, Q, N
            captured.append(as_array(rows.transpose(0, 1))[:, list(heads)])  # Q, H, N

    capture(model, batch, layer, handle)
    return [
        PatchMaps(
            attention=layout.to_grid(rows),
            prefix=rows[..., : info.prefix],
            entropy=entropy(rows),
            cells=queries[image],
            layer=layer,
            heads=heads,
        )
        for image, rows in enumerate(captured)
    ]


def _query_rows(
    model: AttentionModel, batch: Tensor, layers: Sequence[int], options: StatsOptions
) -> dict[int, _LayerResult]:
    """The query's rows of the chosen layers, with the statistics that ``options`` name.

    The query is the mean over the patches where ``options.mean`` is set, else token 0.
    """
    last = max(layers)
    results: dict[int, _LayerResult] = {}

    def handle(call: AttentionCall) -> Tensor | None:
        if call.layer not in layers:
            return None
        if options:
            output = None if call.layer == last else torch.empty_like(call.query)
            results[call.layer] = _from_blocks(model, batch, call, options, output)
            return output
        output = None if call.layer == last else call.fused()
        rows = call.rows(call.first_token, output)[:, :, 0]
        results[call.layer] = _LayerResult(as_array(rows), ())
        return output

    capture(model, batch, last, handle)
    return results


def _from_blocks(
    model: AttentionModel,
    batch: Tensor,
    call: AttentionCall,
    options: StatsOptions,
    output: Tensor | None,
) -> _LayerResult:
    """A layer's query rows and statistics from all its rows; fills ``output`` (B, H, N, d)."""
    layout, heads = layout_of(model, batch), model.info.heads
    stats: list[MatrixStats] = []
    for image in range(batch.shape[0]):
        one = MatrixStats(layout, heads, options, batch.device)
        one.read(call.of_image(image), None if output is None else output[image])
        stats.append(one)
    if options.mean:
        rows = torch.stack([one.mean_row for one in stats])  # B, H, N
    else:
        rows = call.unchecked_rows(call.first_token)[:, :, 0]
    return _LayerResult(as_array(rows), tuple(stats))
