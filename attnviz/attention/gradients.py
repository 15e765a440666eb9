"""The gradient of a target with respect to every layer's attention, without storing a matrix.

A layer's output is O = A V, per head, so the gradient of a scalar f with respect to A at fixed V
is df/dA = df/dO V^T. df/dO is (N, d) a head and comes from one backward pass through the model's
own kernels; the N x N gradients are made from it a few rows at a time, beside the attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnviz.attention.blocks import packed, packed_transposed
from attnviz.attention.capture import (
    NOT_FINITE_HINT,
    AttentionCall,
    AttentionModel,
    intercepted,
)
from attnviz.attention.matrix_rows import MatrixRows, matrix_rows
from attnviz.errors import AttentionError, UnsupportedModelError, no_gradients_in_float16

Target = Callable[[Tensor], Tensor]
"""From the tokens after the last norm (B, N, width) to one number an image (B,)."""


@dataclass(frozen=True, eq=False)
class LayerGradient:
    """One layer's attention call, and the target's gradient at its output (B, H, N, d)."""

    call: AttentionCall
    gradient: Tensor

    def of_image(self, image: int) -> LayerGradient:
        """The same for one image of the batch, with B = 1."""
        return LayerGradient(self.call.of_image(image), self.gradient[image : image + 1])

    def weighted_blocks(self) -> Iterator[tuple[MatrixRows, Tensor]]:
        """Rows of attention of one image with gradient times attention (h, R, N), in float32.

        Raises:
            AttentionError: A row is broken, or attention times V is not the model's own output.
        """
        gradient = packed(self.gradient[0])  # H, N, d
        value = packed_transposed(self.call.value[0])  # H, d, N
        for block in matrix_rows(self.call):
            weighted = gradient[:, block.rows] @ value  # H, R, N
            yield block, weighted.mul_(block.attention)


def attention_gradients(
    model: AttentionModel, batch: Tensor, target: Target
) -> tuple[Tensor, list[LayerGradient]]:
    """The target of each image (B,), and every layer's gradient, for a (B, 3, h, w) batch.

    Raises:
        UsageError: The model runs in float16, whose range gradients leave.
        AttentionError: The target or a gradient is not finite.
        UnsupportedModelError: A layer was not reached.
    """
    calls: list[AttentionCall] = []
    outputs: list[Tensor] = []

    def handle(call: AttentionCall) -> Tensor:
        if call.value.dtype == torch.float16:
            raise no_gradients_in_float16()
        output = call.fused()
        if not outputs:
            # No gradient is needed before the first attention's output, so the graph begins here.
            output = output.detach().requires_grad_()
        outputs.append(output)
        query, key, value = (part.detach() for part in (call.query, call.key, call.value))
        calls.append(replace(call, query=query, key=key, value=value))
        return output

    depth = model.info.depth
    with torch.inference_mode(mode=False), torch.enable_grad():
        # One more than the last layer: the pass goes on to the target.
        with intercepted(model, batch, depth, handle):
            tokens = model.run(batch)
        if len(outputs) != depth:
            raise UnsupportedModelError(
                f"{model.info.name}: {len(outputs)} of {depth} layers were reached",
                "this model is not a plain ViT",
            )
        values = target(tokens.float())
        # An image's target depends on that image alone, so the gradients of the sum do not mix.
        gradients = torch.autograd.grad(values.sum(), outputs)
    if not all(bool(part.isfinite().all()) for part in (values, *gradients)):
        raise AttentionError(
            "the target or its gradient is not finite",
            NOT_FINITE_HINT,
        )
    layers = [LayerGradient(*pair) for pair in zip(calls, gradients, strict=True)]
    return values.detach(), layers
