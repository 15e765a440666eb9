"""Norms of the tokens of every layer, and the MLP neurons that make the largest of them.

Jiang et al. 2025 (arXiv 2506.08010): patches of huge norm are written by a few neurons, which are
found by their mean absolute activation on these patches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.attention.arrays import as_array
from attnviz.attention.blocks import patch_mean_row
from attnviz.attention.capture import (
    NOT_FINITE_HINT,
    AttentionCall,
    AttentionModel,
    intercepted,
)
from attnviz.errors import AttentionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import BoolArray, FloatArray

OFF = 0.5
"""A neuron is off on a token where its activation is below this (the paper's filter)."""

_TO_DEVIATION = 1.4826
"""Times the median absolute deviation: the standard deviation of a normal distribution."""

_DEVIATIONS = 4


class NeuronModel(AttentionModel, Protocol):
    """A model whose neurons can be read; ``models.backbone.Backbone`` implements it."""

    @property
    def output_projections(self) -> Sequence[nn.Module]:
        """The layer of each block's MLP that reads its neurons."""


@dataclass(frozen=True, eq=False)
class TokenNorms:
    """One image: norms (L, N) of the tokens that each layer gives, in float32.

    attention (L, N): of the CLS token, or of the mean patch without one; mean over the heads.
    """

    norms: FloatArray
    attention: FloatArray


class _Stop(Exception):  # noqa: N818 - a signal, not an error
    """Ends the pass after the last layer whose neurons are read."""


def token_norms(model: AttentionModel, batch: Tensor) -> TokenNorms:
    """Norms and attention of every layer, of the one image of a (1, 3, h, w) batch.

    Raises:
        AttentionError: Tokens are not finite, or the attention breaks an invariant.
    """
    info = model.info
    norms: list[Tensor] = []
    attention: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, tokens: Tensor) -> None:
        norms.append(tokens[0].double().norm(dim=-1))

    def handle(call: AttentionCall) -> Tensor:
        output = call.fused()
        if info.has_cls:
            row = call.rows(call.first_token, output)[0, :, 0]  # H, N
        else:
            row = patch_mean_row(call, info.prefix)
        attention.append(row.mean(dim=0))
        return output

    handles = [block.register_forward_hook(keep) for block in model.blocks]
    try:
        with torch.inference_mode(), intercepted(model, batch, info.depth, handle):
            model.run(batch)
    finally:
        for handle_ in handles:
            handle_.remove()
    values = as_array(torch.stack(norms))
    if not np.isfinite(values).all():
        raise AttentionError(f"{info.name} returned tokens that are not finite", NOT_FINITE_HINT)
    return TokenNorms(values, as_array(torch.stack(attention)))


def outlier_threshold(norms: FloatArray) -> float:
    """Median + 4 * 1.4826 * MAD of the norms of patches (n,)."""
    values = norms.astype(np.float64)
    median = float(np.median(values))
    spread = float(np.median(np.abs(values - median)))
    return median + _DEVIATIONS * _TO_DEVIATION * spread


class NeuronScores:
    """The score of every MLP neuron of the first layers, from image to image.

    The score of a neuron is the mean over the images that have outliers of the mean over these
    outliers of its absolute activation.
    """

    def __init__(self, last: int) -> None:
        self._last = last
        self._sums: list[NDArray[np.float64]] = []
        self._off: list[NDArray[np.int64]] = []
        self._images = 0
        self._tokens = 0

    @property
    def images(self) -> int:
        """How many images have outliers."""
        return self._images

    def add(self, model: NeuronModel, batch: Tensor, outliers: BoolArray) -> None:
        """Read the neurons of the one image of a (1, 3, h, w) batch.

        outliers (n,): which patches are; where none is, the image does not count.
        """
        if not outliers.any():
            return
        chosen = model.info.prefix + np.flatnonzero(outliers)
        index = torch.from_numpy(chosen).to(batch.device)
        hidden: list[Tensor] = []
        with torch.inference_mode(), self._hooked(model, hidden), suppress(_Stop):
            model.run(batch)
        for layer, values in enumerate(hidden):
            mean = values[index].abs().double().mean(dim=0).cpu().numpy()
            off = (values < OFF).sum(dim=0).cpu().numpy()
            if not np.isfinite(mean).all():
                raise AttentionError(f"neurons of layer {layer} are not finite", NOT_FINITE_HINT)
            if len(self._sums) <= layer:
                self._sums.append(np.zeros_like(mean))
                self._off.append(np.zeros_like(off))
            self._sums[layer] += mean
            self._off[layer] += off
        self._images += 1
        self._tokens += len(hidden[0])

    @contextmanager
    def _hooked(self, model: NeuronModel, hidden: list[Tensor]) -> Iterator[None]:
        def keep(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            hidden.append(inputs[0][0].float())  # N, F
            if len(hidden) > self._last:
                raise _Stop

        layers = model.output_projections[: self._last + 1]
        handles = [layer.register_forward_pre_hook(keep) for layer in layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def strongest(self, count: int, *, sparse: bool) -> list[tuple[int, int, float]]:
        """The ``count`` neurons of highest score as (layer, index, score), highest first.

        sparse: only those that are off on at least half of the tokens. Of equal scores the lower
        layer comes first, then the lower index.
        """
        found = []
        for layer, (sums, off) in enumerate(zip(self._sums, self._off, strict=True)):
            scores = sums / self._images
            kept = np.flatnonzero(2 * off >= self._tokens) if sparse else np.arange(scores.size)
            # Only so many of a layer can be among the strongest.
            best = kept[np.argsort(-scores[kept], kind="stable")[:count]]
            found += [(layer, int(index), float(scores[index])) for index in best]
        return sorted(found, key=lambda each: (-each[2], each[0], each[1]))[:count]
