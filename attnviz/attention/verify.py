"""The self-check of ``--verify``: attention times V against the model's own output, all blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from attnviz.attention.blocks import row_blocks
from attnviz.attention.capture import AttentionCall, AttentionModel, capture, check_output


def verify(model: AttentionModel, batch: Tensor) -> tuple[float, ...]:
    """The largest deviation of each of the L blocks, over all rows, heads and images.

    Deviations are absolute differences relative to the largest |V| (at least 1).

    Raises:
        AttentionError: A block deviates by more than its number type explains.
    """
    deviations: list[float] = []

    def check(call: AttentionCall) -> Tensor:
        expected = call.fused()
        ours = torch.empty_like(expected)
        for image in range(batch.shape[0]):
            for _ in row_blocks(call.of_image(image), output=ours[image]):
                pass  # only the output is needed
        deviations.append(check_output(ours.float(), expected, call) / call.largest_value)
        return expected

    capture(model, batch, model.info.depth - 1, check)
    return tuple(deviations)
