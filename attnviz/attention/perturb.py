"""Images with some of their cells hidden, and what the model's output is for them.

What hides a cell: the mean colour of the image, black, or the image itself blurred by a Gaussian
(sigma 10 px in an image of 224 px, as Fong & Vedaldi 2017 choose it).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from attnviz.attention.capture import NOT_FINITE_HINT, AttentionModel
from attnviz.attention.faithful_cost import images_in_a_pass
from attnviz.domain import Baseline, ModelInfo
from attnviz.errors import AttentionError

if TYPE_CHECKING:
    from attnviz.domain import BoolArray

BLUR_SIGMA = 10 / 224
"""Standard deviation of the blur in units of the shorter side."""

Score = Callable[[Tensor], Tensor]
"""From the tokens after the last norm (B, N, width) to f of each image (B,), float64 on the CPU."""


class HiddenCells:
    """f of one image with cells hidden; every hidden set of cells is computed once.

    image: (3, h, w), as the model gets it. black: what a black pixel is in it. score: f.
    """

    def __init__(
        self, model: AttentionModel, image: Tensor, black: Sequence[float], score: Score
    ) -> None:
        self._model = model
        self._image = image
        self._black = black
        self._score = score
        self._painted: dict[Baseline, Tensor] = {}
        self._known: dict[Hashable, float] = {}

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return self._model.info

    def values(self, hidden: Iterable[tuple[Baseline, BoolArray]]) -> list[float]:
        """F for every baseline and set of hidden cells (gh, gw), in the same order.

        Raises:
            AttentionError: f is not finite.
        """
        asked = [(_key(baseline, cells), baseline, cells) for baseline, cells in hidden]
        new = {key: (b, cells) for key, b, cells in asked if key not in self._known}
        keys = list(new)
        patch = self._model.info.patch
        height, width = self._image.shape[-2:]
        tokens = self._model.info.prefix + (height // patch) * (width // patch)
        size = images_in_a_pass(tokens)
        for start in range(0, len(keys), size):
            part = keys[start : start + size]
            batch = torch.stack([self._with_hidden(*new[key]) for key in part])
            with torch.inference_mode():
                scores = self._score(self._model.run(batch)).numpy()
            if not np.isfinite(scores).all():
                raise AttentionError(
                    f"{self._model.info.name} returned values that are not finite", NOT_FINITE_HINT
                )
            self._known |= dict(zip(part, scores.tolist(), strict=True))
        return [self._known[key] for key, _, _ in asked]

    def _with_hidden(self, baseline: Baseline, cells: BoolArray) -> Tensor:
        if baseline not in self._painted:
            self._painted[baseline] = painted(self._image, baseline, self._black)
        patch = self._model.info.patch
        mask = torch.from_numpy(cells).to(self._image.device)
        mask = mask.repeat_interleave(patch, 0).repeat_interleave(patch, 1)  # h, w
        return torch.where(mask, self._painted[baseline], self._image)


def _key(baseline: Baseline, cells: BoolArray) -> Hashable:
    """Nothing hidden is the same whatever would hide it."""
    return (baseline, np.packbits(cells).tobytes()) if cells.any() else None


def painted(image: Tensor, baseline: Baseline, black: Sequence[float]) -> Tensor:
    """What hides all cells of an image (3, h, w)."""
    if baseline is Baseline.BLUR:
        return blurred(image, BLUR_SIGMA * min(image.shape[-2:]))
    if baseline is Baseline.MEAN:
        colour = image.mean(dim=(1, 2))
    else:
        colour = torch.tensor(list(black), dtype=image.dtype, device=image.device)
    return colour[:, None, None].expand_as(image)


def blurred(image: Tensor, sigma: float) -> Tensor:
    """An image (3, h, w) under a Gaussian that ends at 3 sigma; its edges are repeated outwards."""
    radius = max(1, round(3 * sigma))
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-(offsets**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).to(image.dtype).to(image.device)
    extended = pad(image[:, None], (radius, radius, radius, radius), mode="replicate")
    rows = conv2d(extended, weights[None, None, :, None])
    return conv2d(rows, weights[None, None, None, :])[:, 0]
