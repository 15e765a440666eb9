"""One entry for all commands: a batch and a request in, one result an image out."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from attnviz.attention.capture import AttentionModel
from attnviz.attention.choose import choose_heads, choose_layer, choose_layers, need_cls
from attnviz.attention.features import check_features, features_maps
from attnviz.attention.maps import heads_maps, layers_maps, patch_maps
from attnviz.attention.matrix import matrix_maps
from attnviz.attention.qkv import qkv_maps
from attnviz.attention.relevance import Reference, check_target, relevance_maps
from attnviz.attention.rollout import check_options, rollout_maps
from attnviz.attention.score import check_keep_ratio, score_maps
from attnviz.domain import FitGeometry, Maps, ModelInfo, Query
from attnviz.domain.requests import (
    CommandRequest,
    FeaturesRequest,
    HeadsRequest,
    LayersRequest,
    MatrixRequest,
    PatchRequest,
    QkvRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.errors import ImageError, UsageError


def check_command(info: ModelInfo, command: CommandRequest) -> None:
    """Raise for anything in a request that the loaded model cannot honour, before any picture.

    Raises:
        UsageError: Layer, head, ratio or residual out of range.
        UnsupportedModelError: The model has no class token and the command needs one.
    """
    if isinstance(command, FeaturesRequest):
        check_features(info, command)
        return
    choose_heads(info, command.heads)
    if isinstance(command, HeadsRequest | LayersRequest | RolloutRequest):
        need_cls(info, command.query)
    if isinstance(command, HeadsRequest | PatchRequest | ScoreRequest | MatrixRequest | QkvRequest):
        choose_layer(info, command.layer)
    if isinstance(command, LayersRequest):
        choose_layers(info, command.layers)
    if isinstance(command, RolloutRequest):
        check_options(command.options)
        start = choose_layer(info, command.options.start_layer)
        for depth in command.depths:
            if choose_layer(info, depth) < start:
                raise UsageError(
                    f"the rollout cannot be shown after layer {depth}: it starts at layer {start}"
                )
    if isinstance(command, ScoreRequest):
        need_cls(info, Query.CLS)
        check_keep_ratio(command.keep_ratio)
    if isinstance(command, RelevanceRequest):
        check_target(info, command)


def compute(
    model: AttentionModel,
    batch: Tensor,
    geometries: Sequence[FitGeometry],
    command: CommandRequest,
    reference: Reference | None = None,
) -> list[Maps]:
    """The maps that a command asks for, for each image of a (B, 3, h, w) batch.

    reference: the second picture of a ``RelevanceRequest`` with ``like``.

    Raises:
        UsageError: Something is out of range for this model.
        ImageError: A point to look from lies outside a picture.
        AttentionError: The captured attention breaks an invariant.
    """
    results: list[Maps] = []
    match command:
        case HeadsRequest():
            results.extend(heads_maps(model, batch, command))
        case LayersRequest():
            results.extend(layers_maps(model, batch, command))
        case RolloutRequest():
            results.extend(rollout_maps(model, batch, command))
        case PatchRequest():
            cells = [query_cells(command, geometry) for geometry in geometries]
            results.extend(patch_maps(model, batch, cells, command))
        case ScoreRequest():
            results.extend(score_maps(model, batch, command))
        case RelevanceRequest():
            results.extend(relevance_maps(model, batch, command, reference))
        case FeaturesRequest():
            cells = [query_cells(command, geometry) for geometry in geometries]
            results.extend(features_maps(model, batch, cells, command))
        case MatrixRequest():
            results.extend(matrix_maps(model, batch, command))
        case QkvRequest():
            results.extend(qkv_maps(model, batch, command))
    return results


def query_cells(
    command: PatchRequest | FeaturesRequest, geometry: FitGeometry
) -> list[tuple[int, int]]:
    """The (row, column) cells that a request looks from, in the order asked.

    Without cells or points: the patch in the middle of each quadrant.
    """
    grid = geometry.grid
    cells = list(command.cells)
    for row, column in cells:
        if not (0 <= row < grid.height and 0 <= column < grid.width):
            raise ImageError(
                f"cell {row},{column} lies outside the grid of {grid.height} rows and "
                f"{grid.width} columns",
                f"rows run from 0 to {grid.height - 1}, columns from 0 to {grid.width - 1}",
            )
    for x, y in command.points:
        cell = geometry.cell_at(y, x)
        if cell is None:
            raise ImageError(
                f"point x={x:g}, y={y:g} lies outside what the model sees of the picture "
                f"({geometry.original.width} wide, {geometry.original.height} high)",
                "points are x,y in pixels of the original picture; see --fit for what is cut off",
            )
        cells.append(cell)
    if cells:
        return cells
    rows = (grid.height // 4, min(3 * grid.height // 4, grid.height - 1))
    columns = (grid.width // 4, min(3 * grid.width // 4, grid.width - 1))
    return [(row, column) for row in rows for column in columns]
