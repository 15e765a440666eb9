"""Attention maps of a batch: ``heads``, ``layers`` and ``patch``, in one pass of the model each.

Only what is asked is computed: rows of the asked queries, on top of the model's fused attention.
What needs every row (attention distance, the mean query) goes through blocks of rows, which then
also make the block's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.arrays import as_array, grid_of
from attnviz.attention.blocks import row_blocks
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.choose import choose_heads, choose_layer, choose_layers, need_cls
from attnviz.attention.stats import MatrixStats
from attnviz.domain import HeadsMaps, LayersMaps, PatchMaps, Query, Size
from attnviz.domain.kinds import HeadsRequest, LayersRequest, PatchRequest
from attnviz.domain.row_statistics import entropy
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain import FloatArray


@dataclass(frozen=True, eq=False)
class _LayerRows:
    """Of one layer: the query's rows (B, H, N), and statistics of the whole matrices, if any."""

    rows: FloatArray
    stats: tuple[MatrixStats, ...]


def heads_maps(model: AttentionModel, batch: Tensor, request: HeadsRequest) -> list[HeadsMaps]:
    """The CLS attention of every head of a layer, for each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no class token and the query is ``cls``.
    """
    info = model.info
    need_cls(info, request.query)
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    chosen = list(heads)
    whole = request.distance
    found = _query_rows(model, batch, (layer,), request.query, distance=whole, entropy=whole)[layer]
    maps = []
    for image in range(batch.shape[0]):
        rows = found.rows[image, chosen]  # H, N
        stats = found.stats[image] if whole else None
        maps.append(
            HeadsMaps(
                attention=_grid(rows, info.prefix, grid_of(model, batch)),
                prefix=rows[:, : info.prefix],
                entropy=entropy(rows),
                distance=as_array(stats.distance)[chosen] if stats else None,
                to_cls=as_array(stats.to_cls)[chosen] if stats and info.has_cls else None,
                token_entropy=as_array(stats.entropy)[chosen]
                if stats and stats.entropy is not None
                else None,
                layer=layer,
                heads=heads,
                query=request.query,
            )
        )
    return maps


def layers_maps(model: AttentionModel, batch: Tensor, request: LayersRequest) -> list[LayersMaps]:
    """The CLS attention of every head of the asked layers, for each image of the batch.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no class token and the query is ``cls``.
    """
    info = model.info
    need_cls(info, request.query)
    layers = choose_layers(info, request.layers)
    heads = choose_heads(info, request.heads)
    chosen = list(heads)
    found = _query_rows(model, batch, layers, request.query, distance=request.distance)
    maps = []
    for image in range(batch.shape[0]):
        rows = np.stack([found[layer].rows[image, chosen] for layer in layers])  # L, H, N
        distance = None
        if request.distance:
            distance = np.stack(
                [as_array(found[layer].stats[image].distance)[chosen] for layer in layers]
            )
        maps.append(
            LayersMaps(
                attention=_grid(rows, info.prefix, grid_of(model, batch)),
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
    grid = grid_of(model, batch)
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    queries = np.asarray(cells, dtype=np.int64)  # B, Q, 2
    if not ((queries >= 0).all() and (queries < np.array(grid)).all()):
        raise UsageError(
            f"a query cell lies outside the grid of {grid.height} rows and {grid.width} columns",
            f"rows run from 0 to {grid.height - 1}, columns from 0 to {grid.width - 1}",
        )
    index = torch.from_numpy(info.prefix + queries[..., 0] * grid.width + queries[..., 1])
    taken: list[FloatArray] = []

    def take(call: AttentionCall) -> None:
        if call.layer != layer:
            return
        for image in range(batch.shape[0]):
            rows = call.of_image(image).rows(index[image].to(batch.device))[0]  # H, Q, N
            taken.append(as_array(rows.transpose(0, 1))[:, list(heads)])  # Q, H, N

    capture(model, batch, layer, take)
    return [
        PatchMaps(
            attention=_grid(rows, info.prefix, grid),
            prefix=rows[..., : info.prefix],
            entropy=entropy(rows),
            cells=queries[image],
            layer=layer,
            heads=heads,
        )
        for image, rows in enumerate(taken)
    ]


def _query_rows(
    model: AttentionModel,
    batch: Tensor,
    layers: Sequence[int],
    query: Query,
    *,
    distance: bool,
    entropy: bool = False,
) -> dict[int, _LayerRows]:
    """The query's rows of the asked layers, and the asked statistics of their whole matrices."""
    last = max(layers)
    found: dict[int, _LayerRows] = {}
    mean = query is Query.MEAN
    whole = mean or distance or entropy

    def take(call: AttentionCall) -> Tensor | None:
        if call.layer not in layers:
            return None
        stats: list[MatrixStats] = []
        output = torch.empty_like(call.query) if whole and call.layer != last else None
        for image in range(batch.shape[0] if whole else 0):
            one = MatrixStats(
                model.info.heads, model.info.prefix, grid_of(model, batch), model.info.patch,
                batch.device, mean=mean, distance=distance, entropy=entropy,
            )  # fmt: skip
            part = None if output is None else output[image]
            for block in row_blocks(call.of_image(image), output=part, logits=entropy):
                one.add(block)
            stats.append(one)
        first = torch.zeros(1, dtype=torch.long, device=batch.device)
        if mean:
            rows = torch.stack([one.mean_row for one in stats])  # B, H, N
        elif whole:
            rows = call.unchecked_rows(first)[:, :, 0]
        else:
            output = None if call.layer == last else call.fused()
            rows = call.rows(first, output)[:, :, 0]
        found[call.layer] = _LayerRows(as_array(rows), tuple(stats))
        return output

    capture(model, batch, last, take)
    return found


def _grid(rows: FloatArray, prefix: int, grid: Size) -> FloatArray:
    """The patch part of rows (..., N) as (..., gh, gw)."""
    return np.ascontiguousarray(rows[..., prefix:]).reshape(*rows.shape[:-1], *grid)
