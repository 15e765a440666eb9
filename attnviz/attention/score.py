"""The token score of VTC-LFC (Wang et al. 2022, equation 8, as its code computes it).

For one block, patches i and j, CLS = 0:
    cls_j   = mean_h( A[h,0,j] * mean_i A[h,i,0] )
    patch_j = mean_h( A[h,0,0] * mean_i A[h,i,j] )
    score_j = cls_j + patch_j
Registers and distillation tokens are left out of both means. The authors' code multiplies the score
by the low-frequency energy of the patches, see ``low_frequency``, and prunes by the product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.arrays import TokenLayout, as_array, head_index, layout_of
from attnviz.attention.blocks import patch_mean_row
from attnviz.attention.checks import check_keep_ratio, choose_pruning
from attnviz.attention.choose import choose_heads, need_cls
from attnviz.attention.low_frequency import low_frequency_energy
from attnviz.attention.pruning import LayerTokens, pass_with_selection
from attnviz.domain import ScoreMaps
from attnviz.domain.kinds import ScoreRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnviz.attention.capture import AttentionCall, AttentionModel
    from attnviz.domain import BoolArray, FloatArray, IntArray


def score_terms(cls_row: Tensor, patch_mean: Tensor, prefix: int) -> tuple[Tensor, Tensor]:
    """The two terms (n,) of the score, n patches.

    cls_row: (H, N), the CLS query's row. patch_mean: (H, N), the mean over the patch queries' rows.
    """
    cls_term = (cls_row[:, prefix:] * patch_mean[:, :1]).mean(dim=0)
    patch_term = (cls_row[:, :1] * patch_mean[:, prefix:]).mean(dim=0)
    return cls_term, patch_term


def keep_highest(score: FloatArray, keep_ratio: float) -> BoolArray:
    """The round(keep_ratio * n) highest of the scores (gh, gw); ties go to the earlier patch.

    Patches without a score (NaN) come last.

    Raises:
        UsageError: The ratio is not in (0, 1].
    """
    check_keep_ratio(keep_ratio)
    count = max(1, round(keep_ratio * score.size))
    order = np.argsort(-score.ravel(), kind="stable")
    kept = np.zeros(score.size, dtype=np.bool_)
    kept[order[:count]] = True
    return kept.reshape(score.shape)


def score_maps(model: AttentionModel, batch: Tensor, request: ScoreRequest) -> list[ScoreMaps]:
    """The token score of a layer, or of every step of a pruning run, for each image of a batch.

    batch: (B, 3, h, w).

    Raises:
        UsageError: Layer, head or keep ratio out of range.
        UnsupportedModelError: The model has no CLS token; or it does not add its attention to the
            tokens (with ``lfe``), or has positions that cannot be removed (with ``layers``).
    """
    need_cls(model.info)
    ratios = choose_pruning(model.info, request)
    prunes = request.layers is not None
    heads = choose_heads(model.info, request.heads)
    selection = _Selection(layout_of(model, batch), heads, ratios, prunes=prunes)
    # What is kept differs from image to image.
    size = 1 if prunes else batch.shape[0]
    for part in torch.split(batch, size):
        pass_with_selection(
            model, part, tuple(ratios), selection.read, selection.select,
            residual=request.lfe, prunes=prunes,
        )  # fmt: skip
    if not prunes:
        return selection.maps
    count = len(ratios)
    runs = [selection.maps[start : start + count] for start in range(0, len(selection.maps), count)]
    return [replace(steps[-1], steps=tuple(steps)) for steps in runs]


class _Selection:
    """Scores what the layers have, and keeps the highest. ``maps``: one a layer and image."""

    def __init__(
        self,
        layout: TokenLayout,
        heads: tuple[int, ...],
        ratios: Mapping[int, float],
        *,
        prunes: bool,
    ) -> None:
        self.maps: list[ScoreMaps] = []
        self._layout = layout
        self._heads = heads
        self._ratios = ratios
        self._prunes = prunes

    def read(self, call: AttentionCall) -> Tensor:
        """The two terms (2, N) of all tokens of one image that are left."""
        index = head_index(self._heads, call.query.device)
        cls_row = call.unchecked_rows(call.first_token)[0, index, 0]  # H, N
        patch_mean = patch_mean_row(call, self._layout.prefix)[index]  # H, N
        return torch.stack(score_terms(cls_row, patch_mean, 0))

    def select(self, tokens: LayerTokens) -> Tensor:
        """The patches that are kept, as indices (m,) into those that are left."""
        prefix, left = self._layout.prefix, tokens.left.cpu().numpy()
        cls_all, patch_all = as_array(tokens.terms)  # N
        cls_term, patch_term = (self._on_grid(term[prefix:], left) for term in (cls_all, patch_all))
        score, lfe = cls_term + patch_term, None
        if tokens.patches is not None:
            lfe = self._on_grid(low_frequency_energy(as_array(tokens.patches)), left)
            score = score * lfe
        present = np.zeros(self._layout.patches, np.bool_)
        present[left] = True
        ratio = self._ratios[tokens.layer]
        kept = keep_highest(score, ratio)
        self.maps.append(
            ScoreMaps(
                score=score,
                cls_term=cls_term,
                patch_term=patch_term,
                kept=kept,
                keep_ratio=ratio,
                layer=tokens.layer,
                heads=self._heads,
                prefix=(cls_all + patch_all)[:prefix],
                lfe=lfe,
                present=present.reshape(self._layout.grid) if self._prunes else None,
            )
        )
        return torch.from_numpy(np.flatnonzero(kept.ravel()[left])).to(tokens.left.device)

    def _on_grid(self, values: FloatArray, left: IntArray) -> FloatArray:
        """The values (n,) of the patches that are left on the grid (gh, gw), NaN elsewhere."""
        whole = np.full(self._layout.patches, np.nan, np.float32)
        whole[left] = values
        return whole.reshape(self._layout.grid)
