"""One pass of a model in which patches are removed on the way, as token pruning does.

VTC-LFC selects patches after a block's attention and before its MLP. An MLP treats every token by
itself, so they are removed where the block ends: what is left is the same. Patches that are left
keep their order and their positions, also rotary ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.attention.arrays import layout_of
from attnviz.attention.capture import (
    OUTPUT_TOLERANCE,
    AttentionCall,
    AttentionModel,
    EndOfPass,
    capture,
)
from attnviz.attention.contribution import output_projection
from attnviz.errors import UnsupportedModelError


@dataclass(frozen=True, eq=False)
class LayerTokens:
    """The tokens of one image that a layer has.

    terms (..., N): what was read from its attention. left (n,): the indices of its patches among
    all, ascending. patches (n, width): after the attention residual, before the MLP; None if not
    asked for.
    """

    layer: int
    terms: Tensor
    left: Tensor
    patches: Tensor | None


Read = Callable[[AttentionCall], Tensor]
"""What is read from the attention of one image (B = 1), of the tokens that are left."""

Select = Callable[[LayerTokens], Tensor]
"""Which patches are kept: ascending indices (m,) into those that a layer has."""


def pass_with_selection(
    model: AttentionModel,
    batch: Tensor,
    layers: Sequence[int],
    read: Read,
    select: Select,
    *,
    residual: bool,
    prunes: bool,
) -> None:
    """Run the model, passing what ``read`` makes of each chosen layer and image to ``select``.

    batch: (B, 3, h, w); a single image where ``prunes``, so that what is not selected does not go
    on to the next layer. residual: whether ``select`` is given ``patches``.

    Raises:
        UnsupportedModelError: The model has biases for pairs of positions, or its blocks do not add
            their attention to the tokens.
    """
    _Pass(model, batch, layers, read, select, residual, prunes).run()


@dataclass(eq=False)
class _Pass:
    """The state of a pass: which patches are left, and the layer that is running."""

    model: AttentionModel
    batch: Tensor
    layers: Sequence[int]
    read: Read
    select: Select
    residual: bool
    prunes: bool
    left: Tensor = field(init=False)
    kept: Tensor | None = None
    call: AttentionCall | None = None
    terms: list[Tensor] = field(default_factory=list)
    before: Tensor = field(init=False)
    added: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.layout = layout_of(self.model, self.batch)
        self.last = max(self.layers)
        self.left = torch.arange(self.layout.patches, device=self.batch.device)

    def run(self) -> None:
        """Up to the selection of the last layer."""
        # What follows attention in the last layer is needed for its residual alone.
        end = self.model.info.depth if self.residual else self.last
        with self._hooked():
            capture(self.model, self.batch, end, self._attend, self._tokens)

    def _tokens(self) -> int:
        return self.layout.prefix + len(self.left)

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        handles = []
        try:
            for layer, block in enumerate(self.model.blocks[: self.last + 1]):
                handles.append(block.register_forward_pre_hook(self._enter, with_kwargs=True))
                handles.append(block.register_forward_hook(self._leave))
                second = getattr(block, "norm2", None)
                if self.residual and layer in self.layers and isinstance(second, nn.Module):
                    handles.append(second.register_forward_pre_hook(self._add))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, _block: nn.Module, inputs: Any, given: dict[str, Any]) -> Any:
        self.before = inputs[0][:, 0].float()
        rope = given.get("rope")
        if rope is None or len(self.left) == self.layout.patches:
            return None
        if not isinstance(rope, Tensor) or rope.shape[-2] != self.layout.patches:
            raise self._unsupported("its rotary positions are not one a patch")
        return inputs, given | {"rope": rope.index_select(-2, self.left)}

    def _attend(self, call: AttentionCall) -> None:
        if self.prunes and call.mask is not None:
            raise self._unsupported("its attention has biases for pairs of positions")
        if call.layer not in self.layers:
            return
        self.call = call
        # Here and not later: outside of this call torch's attention is intercepted.
        self.terms = [self.read(call.of_image(image)) for image in range(self.batch.shape[0])]
        if self.residual:
            self.added = self._added(call)
        else:
            self._select(None)

    def _added(self, call: AttentionCall) -> Tensor:
        """What attention adds to CLS: (B, width)."""
        projection = output_projection(self.model.blocks[call.layer])
        if projection is None:
            raise self._no_residual()
        weight, bias = projection
        return call.fused_rows(call.first_token)[:, :, 0].float().flatten(1) @ weight.T + bias

    def _add(self, _norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """The tokens after the attention residual, where those are what the second norm gets."""
        assert self.call is not None
        tokens = inputs[0]
        after = tokens[:, 0].float()
        deviation = (after - self.before - self.added).abs().max() / after.abs().max().clamp_min(1)
        if not deviation.item() < OUTPUT_TOLERANCE[self.call.value.dtype]:
            raise self._no_residual()
        self._select(tokens)
        if self.call.layer == self.last:
            raise EndOfPass

    def _select(self, tokens: Tensor | None) -> None:
        assert self.call is not None
        for image, terms in enumerate(self.terms):
            patches = None if tokens is None else tokens[image, self.layout.prefix :]
            kept = self.select(LayerTokens(self.call.layer, terms, self.left, patches))
            if self.prunes:
                self.kept = kept

    def _leave(self, _block: nn.Module, _inputs: Any, output: Tensor) -> Tensor | None:
        if self.kept is None:
            return None
        prefix = torch.arange(self.layout.prefix, device=self.kept.device)
        index = torch.cat([prefix, self.layout.prefix + self.kept])
        self.left, self.kept = self.left[self.kept], None
        return output[:, index]

    def _no_residual(self) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.model.info.name}: its blocks do not add their attention to the tokens that the "
            "MLP reads, so their low-frequency energy is not defined",
            "leave out --lfe",
        )

    def _unsupported(self, why: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.model.info.name}: {why}, so patches cannot be removed from it",
            "leave out --layers",
        )
