"""Output tokens of a model: principal components, norms, similarity to chosen patches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.attention.arrays import as_array, layout_of
from attnviz.attention.capture import NOT_FINITE_HINT, AttentionModel, EndOfPass
from attnviz.attention.checks import check_features
from attnviz.attention.choose import choose_layer
from attnviz.attention.maps import heads_maps
from attnviz.attention.pca import fit_components, principal_components
from attnviz.domain import FeaturesMaps, Query
from attnviz.domain.kinds import FeaturesRequest, HeadsRequest
from attnviz.errors import AttentionError

if TYPE_CHECKING:
    from attnviz.domain import BoolArray, FloatArray, IntArray

COMPONENTS = 3


@dataclass(frozen=True, eq=False)
class _Foreground:
    """A mask of the foreground (gh, gw), and the first component (gh, gw), positive there."""

    mask: BoolArray
    first: FloatArray


def features_maps(
    model: AttentionModel,
    batch: Tensor,
    request: FeaturesRequest,
    cells: Sequence[Sequence[tuple[int, int]]],
) -> list[FeaturesMaps]:
    """The output tokens, for each image of a (B, 3, h, w) batch.

    ``cells[i]`` are the (row, column) patches that all patches of image i are compared with.

    Raises:
        UsageError: The layer is out of range, or the threshold is not above 0.
        AttentionError: Tokens are not finite, or their number is not prefix + grid.
    """
    info, layout = model.info, layout_of(model, batch)
    grid = layout.grid
    check_features(info, request)
    layer = None if request.layer is None else choose_layer(info, request.layer)
    tokens, raw = output_tokens(model, batch, layer)
    attended = _mean_attention(model, batch, layer) if request.foreground else None
    maps = []
    for image, (values, before) in enumerate(zip(tokens, raw, strict=True)):
        patches = values[info.prefix :]  # n, D
        norms = np.linalg.norm(before.astype(np.float64), axis=1).astype(np.float32)  # N
        queries = np.asarray(cells[image], np.int64).reshape(-1, 2)
        foreground = None
        if attended is not None:
            foreground = _foreground(patches, attended[image], flip=request.flip_foreground)
        components, explained = _components(patches, foreground)
        similarity = cosine(patches, queries[:, 0] * grid.width + queries[:, 1])
        maps.append(
            FeaturesMaps(
                tokens=values,
                norm=norms[info.prefix :].reshape(grid),
                prefix_norm=norms[: info.prefix],
                components=components.reshape(*grid, COMPONENTS),
                explained=explained,
                similarity=similarity.reshape(-1, *grid),
                cells=queries,
                layer=layer,
                foreground=None if foreground is None else foreground.mask,
                first=None if foreground is None else foreground.first,
                outlier_threshold=request.outlier_threshold,
                prefix_names=info.prefix_names,
            )
        )
    return maps


def same_components(sample: Sequence[FeaturesMaps]) -> Callable[[FeaturesMaps], FeaturesMaps]:
    """From the maps of some frames: what gives any frame the components of them all together.

    The components are those of all patch tokens of the sample, or of its foregrounds. A frame's
    foreground stays its own.
    """
    pooled = [_drawn_tokens(maps)[0] for maps in sample]
    fitted = fit_components(np.concatenate(pooled), COMPONENTS)

    def of_frame(maps: FeaturesMaps) -> FeaturesMaps:
        tokens, kept = _drawn_tokens(maps)
        scores = np.zeros((kept.size, COMPONENTS), np.float32)
        scores[kept] = fitted.scores(tokens)
        return replace(
            maps,
            components=scores.reshape(maps.components.shape),
            explained=fitted.explained.astype(np.float32),
        )

    return of_frame


def _drawn_tokens(maps: FeaturesMaps) -> tuple[FloatArray, BoolArray]:
    """The patch tokens (n, D) whose components are drawn, and which of all patches they are."""
    patches = maps.tokens[len(maps.prefix_norm) :]
    every = np.ones(len(patches), np.bool_)
    kept = every if maps.foreground is None else maps.foreground.ravel()
    return patches[kept], kept


def output_tokens(
    model: AttentionModel, batch: Tensor, layer: int | None
) -> tuple[FloatArray, FloatArray]:
    """Tokens (B, N, D) after the final norm, and as the last block gives them, before it.

    With a layer both are that block's output, and later blocks do not run. Hooks are removed again
    whatever happens.

    Raises:
        AttentionError: Tokens are not finite, or their number is not prefix + grid.
    """
    outputs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
        outputs.append(output)
        if layer is not None:
            raise EndOfPass

    handle = model.blocks[-1 if layer is None else layer].register_forward_hook(keep)
    final = None
    try:
        with torch.inference_mode():
            final = model.run(batch)
    except EndOfPass:
        pass
    finally:
        handle.remove()
    raw = _checked(model, batch, outputs[-1] if outputs else None)
    return (raw if layer is not None else _checked(model, batch, final)), raw


def cosine(patches: FloatArray, queries: IntArray) -> FloatArray:
    """Cosine similarity (Q, n) of some tokens (n, D) to all of them; 0 for a zero token.

    queries (Q,): the indices of these tokens.
    """
    values = patches.astype(np.float64)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    units = np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)
    cosines: FloatArray = (units[queries] @ units.T).clip(-1, 1).astype(np.float32)
    return cosines


def _checked(model: AttentionModel, batch: Tensor, tokens: Any) -> FloatArray:
    """Tokens (B, N, D) as float32; raises AttentionError where they are something else."""
    info, layout = model.info, layout_of(model, batch)
    shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else None
    if shape is None or len(shape) != 3 or shape[:2] != (batch.shape[0], layout.tokens):
        raise AttentionError(
            f"{info.name} returned {shape or 'no'} tokens, expected {info.prefix} prefix tokens "
            f"and {layout.grid} patches ({layout.tokens}) for each image"
        )
    values = as_array(tokens)
    if not np.isfinite(values).all():
        raise AttentionError(f"{info.name} returned tokens that are not finite", NOT_FINITE_HINT)
    return values


def _mean_attention(model: AttentionModel, batch: Tensor, layer: int | None) -> list[FloatArray]:
    """Attention to each patch (gh, gw), from CLS, or from all patches where there is no CLS.

    The mean over the heads of the layer that the tokens are from.
    """
    query = Query.CLS if model.info.has_cls else Query.MEAN
    request = HeadsRequest(layer=-1 if layer is None else layer, distance=False, query=query)
    return [maps.attention.mean(axis=0) for maps in heads_maps(model, batch, request)]


def _foreground(patches: FloatArray, attended: FloatArray, *, flip: bool) -> _Foreground:
    """The sign of the first component whose patches get more attention (gh, gw) on average."""
    scores, _ = principal_components(patches, 1)
    first = scores.reshape(attended.shape)
    sides = [attended[side] for side in (first > 0, first < 0)]
    positive, negative = (float(side.mean()) if side.size else 0.0 for side in sides)
    if (negative > positive) != flip:
        first = -first
    mask = first > 0
    # Where all tokens are equal, nothing is separated.
    return _Foreground(mask if mask.any() else np.ones_like(mask), first)


def _components(
    patches: FloatArray, foreground: _Foreground | None
) -> tuple[FloatArray, FloatArray]:
    """Scores (n, 3) and explained ratios (3,), of all patches or of the foreground alone."""
    if foreground is None:
        scores, explained = principal_components(patches, COMPONENTS)
        return scores, explained.astype(np.float32)
    kept = foreground.mask.ravel()
    scores = np.zeros((len(patches), COMPONENTS), np.float32)
    scores[kept], explained = principal_components(patches[kept], COMPONENTS)
    return scores, explained.astype(np.float32)
