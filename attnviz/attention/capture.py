"""The hooked forward pass: the queries, keys and values that the model passes to attention.

Every block of a plain ViT computes attention in one call of torch's scaled dot product attention,
after its own q/k norms, rotary embedding, scale and mask. For the time of one pass that call is
intercepted, so nothing is recomputed from weights and nothing about the model is guessed: the
result is softmax(q k^T * scale + mask) of the very tensors that the model computed. The model's own
fused kernel still makes the layer's output; a handler may make it instead from rows that it needs
anyway. Hooks and switches are removed again whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from attnviz.attention.arrays import layout_of
from attnviz.attention.classifier import Classifier
from attnviz.domain import ModelInfo
from attnviz.errors import AttentionError, UnsupportedModelError

ROW_SUM_TOLERANCE = 1e-4
NOT_FINITE_HINT = "the weights or the input hold non-finite numbers; try --precision float32"
OUTPUT_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}
"""Largest allowed deviation of attention times V from the model's own output, relative to |V|."""


class AttentionModel(Protocol):
    """The interface of a model that a pass uses; ``models.backbone.Backbone`` implements it."""

    @property
    def info(self) -> ModelInfo:
        """Facts about the loaded model."""

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The L transformer blocks in order, each with one attention."""

    @property
    def norm(self) -> nn.Module:
        """The norm after the last block."""

    @property
    def head(self) -> Classifier | None:
        """The classifier that came with the weights, if any."""

    @property
    def attention_pool(self) -> nn.Module | None:
        """The pooling of the tokens by latent queries, if the weights have one."""

    def run(self, batch: Tensor) -> Tensor:
        """The plain forward pass of a (B, 3, h, w) batch to its (B, N, width) tokens."""

    def pool(self, tokens: Tensor) -> Tensor:
        """The model's own pooling of the tokens that ``run`` returns: (B, width)."""


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """The attention of one layer, as the model calls it.

    query, key, value: (B, H, N, d), after norms and rotary embedding, in the model's number type.
    ``mask`` is added to the logits (or is boolean, True = may attend); None without one.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float

    @cached_property
    def first_token(self) -> Tensor:
        """The index (1,) of token 0, for ``rows``."""
        return torch.zeros(1, dtype=torch.long, device=self.query.device)

    @cached_property
    def largest_value(self) -> float:
        """The largest |V|, at least 1."""
        # Over the width first: on a view into q, k and v that is several times faster.
        low, high = self.value.amin(dim=-1).amin(), self.value.amax(dim=-1).amax()
        return max(1.0, -low.item(), high.item())

    def fused(self) -> Tensor:
        """The model's own attention output (B, H, N, d), by torch's fused kernel."""
        return scaled_dot_product_attention(
            self.query, self.key, self.value, attn_mask=self.mask, scale=self.scale
        )

    def fused_rows(self, index: Tensor) -> Tensor:
        """``fused`` for the query tokens ``index`` (R,) alone: (B, H, R, d)."""
        return scaled_dot_product_attention(
            self.query[:, :, index], self.key, self.value,
            attn_mask=self.mask_of(index), scale=self.scale,
        )  # fmt: skip

    def of_image(self, image: int) -> AttentionCall:
        """The same call for one image of the batch: every tensor with B = 1."""
        one = slice(image, image + 1)
        mask = self.mask
        if mask is not None and mask.dim() == 4 and mask.shape[0] > 1:
            mask = mask[one]
        query, key, value = self.query[one], self.key[one], self.value[one]
        return AttentionCall(self.layer, query, key, value, mask, self.scale)

    def mask_of(self, rows: slice | Tensor, heads: slice = slice(None)) -> Tensor | None:
        """The part of the mask that concerns some query rows and heads, broadcastable."""
        mask = self.mask
        if mask is None:
            return None
        while mask.dim() < 4:
            mask = mask.unsqueeze(0)
        mask = mask[:, heads] if mask.shape[1] > 1 else mask
        return mask[:, :, rows] if mask.shape[2] > 1 else mask

    def rows(self, index: Tensor, own: Tensor | None = None) -> Tensor:
        """Attention of the query tokens ``index`` (R,) to all tokens: (B, H, R, N) float32.

        own: the output of ``fused``, where the caller has it; else its rows are computed.

        Raises:
            AttentionError: A row is not finite, does not sum to 1, or does not reproduce the
                output of the model's own kernel.
        """
        attention = self.unchecked_rows(index)
        check_rows(attention, self.layer)
        expected = self.fused_rows(index) if own is None else own[:, :, index]
        check_output(attention @ self.value.float(), expected, self)
        return attention

    def unchecked_rows(self, index: Tensor) -> Tensor:
        """``rows`` without its checks, for use beside ``row_blocks``, which checks every row."""
        query = self.query[:, :, index]  # B, H, R, d
        logits = (query.float() * self.scale) @ self.key.float().transpose(-2, -1)  # B, H, R, N
        mask = self.mask_of(index)
        if mask is not None:
            logits = add_mask(logits, mask)
        return logits.softmax(dim=-1)


Handler = Callable[[AttentionCall], Tensor | None]
"""Receives a layer's attention; returns its output (B, H, N, d), or None for the model's own."""


def add_mask(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits under a mask, with the meaning that it has in torch's attention."""
    if mask.dtype == torch.bool:
        return logits.masked_fill(~mask, float("-inf"))
    return logits + mask.float()


def check_rows(attention: Tensor, layer: int) -> None:
    """Raise unless every row (..., N) is non-negative, finite and sums to 1."""
    deviation = (attention.sum(dim=-1) - 1).abs().max().item()
    if not deviation < ROW_SUM_TOLERANCE:  # also true for NaN
        raise broken_row(layer, f"sums to 1 only within {deviation:.3g}")


def broken_row(layer: int, how: str) -> AttentionError:
    """The error for a row that is not a distribution."""
    return AttentionError(
        f"attention of layer {layer} is broken: a row {how}",
        NOT_FINITE_HINT,
    )


def check_output(ours: Tensor, own: Tensor, call: AttentionCall) -> float:
    """Raise unless attention times V equals the model's own output.

    Returns the largest absolute difference. The tolerance is relative to the largest |V|, which
    counts as 1 or more.
    """
    difference: float = (ours - own.float()).abs().max().item()
    tolerance = OUTPUT_TOLERANCE[call.value.dtype]
    # A small difference passes without the largest |V|. ``not <`` also holds for NaN.
    if not difference < tolerance and not difference / call.largest_value < tolerance:
        raise AttentionError(
            f"attention of layer {call.layer} times V differs from the model's own output by "
            f"{difference / call.largest_value:.3g}",
            "the attention of this model cannot be reproduced, so it is not drawn",
        )
    return difference


class EndOfPass(Exception):  # noqa: N818 - a signal, not an error
    """Ends a pass early: after the last layer needed, or raised in a hook of a caller."""


class _Interception(TorchFunctionMode):
    """Routes the attention call of each layer to the handler."""

    def __init__(self, handler: Handler, last: int) -> None:
        super().__init__()
        self.handler = handler
        self.last = last
        self.layer: int | None = None
        self.calls = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not scaled_dot_product_attention or self.layer is None:
            return func(*args, **(kwargs or {}))
        self.calls += 1
        call = _read_call(self.layer, *args, **(kwargs or {}))
        with torch.autocast(call.query.device.type, enabled=False):
            output = self.handler(call)
            if self.layer == self.last:
                raise EndOfPass
            return call.fused() if output is None else output


def _read_call(
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - torch's own signature
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> AttentionCall:
    if dropout_p or is_causal:
        raise AttentionError(f"layer {layer} uses dropout or a causal mask in its attention")
    if enable_gqa and key.shape[1] != query.shape[1]:
        repeats = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(repeats, dim=1)
        value = value.repeat_interleave(repeats, dim=1)
    if torch.is_autocast_enabled(query.device.type):
        # What the kernel is given under autocast.
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    return AttentionCall(
        layer, query, key, value, attn_mask, query.shape[-1] ** -0.5 if scale is None else scale
    )


def capture(
    model: AttentionModel,
    batch: Tensor,
    last: int,
    handler: Handler,
    tokens: Callable[[], int] | None = None,
) -> None:
    """Run the model on a batch up to the attention of layer ``last``, passing each to ``handler``.

    batch: (B, 3, h, w) float32, on the model's device. Blocks after ``last`` and the
    rest of that block do not run. tokens: how many there should be at each call, where that is not
    the number of all tokens.

    Raises:
        AttentionError: The token count is not prefix + grid.
        UnsupportedModelError: A block does not call attention exactly once.
    """
    with torch.inference_mode(), intercepted(model, batch, last, handler, tokens):
        try:
            model.run(batch)
        except EndOfPass:
            return
    raise UnsupportedModelError(
        f"{model.info.name}: layer {last} was never reached", "this model is not a plain ViT"
    )


def module_attention(
    module: nn.Module | None, run: Callable[[], object], layer: int, name: str
) -> AttentionCall:
    """The one attention call of a module outside the blocks, while ``run`` runs.

    layer: by which errors name it.

    Raises:
        UnsupportedModelError: There is no module, or it does not attend exactly once.
    """
    calls: list[AttentionCall] = []
    interception = _Interception(calls.append, last=-1)
    interception.layer = layer
    modules = () if module is None else (module,)
    with torch.inference_mode(), _fused(modules), interception:
        run()
    if module is None or len(calls) != 1:
        raise UnsupportedModelError(
            f"{name}: its pooling calls scaled dot product attention {len(calls)} times, not once"
        )
    return calls[0]


@contextmanager
def intercepted(
    model: AttentionModel,
    batch: Tensor,
    last: int,
    handler: Handler,
    tokens: Callable[[], int] | None = None,
) -> Iterator[None]:
    """Pass every attention call to ``handler`` while active; the pass ends after layer ``last``.

    tokens: see ``capture``.
    """
    info, layout = model.info, layout_of(model, batch)

    def checked(call: AttentionCall) -> Tensor | None:
        expected = layout.tokens if tokens is None else tokens()
        if not call.query.shape[-2] == call.key.shape[-2] == expected:
            raise AttentionError(
                f"layer {call.layer} attends over {call.key.shape[-2]} tokens, expected "
                f"{info.prefix} prefix tokens and {layout.grid} patches ({expected})"
            )
        return handler(call)

    interception = _Interception(checked, last)
    with _fused(model.blocks), _hooked(model.blocks, interception, info.name), interception:
        yield


@contextmanager
def _fused(blocks: Sequence[nn.Module]) -> Iterator[None]:
    """Switch fused attention on for the pass: TIMM_FUSED_ATTN must not change the result."""
    switched: list[Any] = [
        module
        for block in blocks
        for module in block.modules()
        if getattr(module, "fused_attn", None) is False
    ]
    for module in switched:
        module.fused_attn = True
    try:
        yield
    finally:
        for module in switched:
            module.fused_attn = False


@contextmanager
def _hooked(blocks: Sequence[nn.Module], interception: _Interception, name: str) -> Iterator[None]:
    """Tell the interception which block is running; check that each attends exactly once."""

    def enter(layer: int) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any) -> None:
            interception.layer, interception.calls = layer, 0

        return hook

    def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        layer, interception.layer = interception.layer, None
        if interception.calls != 1:
            raise UnsupportedModelError(
                f"{name}: block {layer} calls scaled dot product attention "
                f"{interception.calls} times instead of once",
                "its attention is not one softmax per head, so it cannot be reproduced",
            )

    handles = []
    try:
        for layer, block in enumerate(blocks):
            handles.append(block.register_forward_pre_hook(enter(layer)))
            handles.append(block.register_forward_hook(leave))
        yield
    finally:
        for handle in handles:
            handle.remove()
