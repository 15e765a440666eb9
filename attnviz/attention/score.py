"""The token score of VTC-LFC (Wang et al. 2022, equation 8, as its code computes it).

For one block, patches i and j, CLS = 0:
    cls_j   = mean_h( A[h,0,j] * mean_i A[h,i,0] )
    patch_j = mean_h( A[h,0,0] * mean_i A[h,i,j] )
    score_j = cls_j + patch_j
Registers and distillation tokens are left out of both means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from attnviz.attention.arrays import as_array, head_index, layout_of
from attnviz.attention.blocks import patch_mean_row
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.checks import check_keep_ratio
from attnviz.attention.choose import choose_heads, choose_layer, need_cls
from attnviz.domain import Query, ScoreMaps
from attnviz.domain.kinds import ScoreRequest

if TYPE_CHECKING:
    from attnviz.domain import BoolArray, FloatArray


def score_terms(cls_row: Tensor, patch_mean: Tensor, prefix: int) -> tuple[Tensor, Tensor]:
    """The two terms (n,) of the score, n patches.

    cls_row: (H, N), the CLS query's row. patch_mean: (H, N), the mean over the patch queries' rows.
    """
    cls_term = (cls_row[:, prefix:] * patch_mean[:, :1]).mean(dim=0)
    patch_term = (cls_row[:, :1] * patch_mean[:, prefix:]).mean(dim=0)
    return cls_term, patch_term


def keep_highest(score: FloatArray, keep_ratio: float) -> BoolArray:
    """The round(keep_ratio * n) highest of the scores (gh, gw); ties go to the earlier patch.

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
    """The token score of a layer for each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: Layer, head or keep ratio out of range.
        UnsupportedModelError: The model has no CLS token.
    """
    info = model.info
    need_cls(info, Query.CLS)
    check_keep_ratio(request.keep_ratio)
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    layout = layout_of(model, batch)
    maps: list[ScoreMaps] = []

    def handle(call: AttentionCall) -> None:
        if call.layer != layer:
            return
        index = head_index(heads, batch.device)
        for image in range(batch.shape[0]):
            one = call.of_image(image)
            cls_row = one.unchecked_rows(one.first_token)[0, index, 0]  # H, N
            patch_mean = patch_mean_row(one, info.prefix)[index]  # H, N
            terms = score_terms(cls_row, patch_mean, info.prefix)
            cls_all, patch_all = score_terms(cls_row, patch_mean, 0)  # N
            prefix = as_array(cls_all + patch_all)[: info.prefix]
            cls_term, patch_term = (as_array(term).reshape(layout.grid) for term in terms)
            score = cls_term + patch_term
            kept = keep_highest(score, request.keep_ratio)
            maps.append(
                ScoreMaps(
                    score, cls_term, patch_term, kept, request.keep_ratio, layer, heads, prefix
                )
            )

    capture(model, batch, layer, handle)
    return maps
