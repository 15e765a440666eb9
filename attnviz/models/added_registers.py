"""Registers that are added to a trained ViT at test time (Jiang et al. 2025, arXiv 2506.08010).

A few MLP neurons write patches of huge norm. Zero tokens are added to the sequence after the
position embedding, without position and without rotation, and in every forward pass the activation
of each such neuron moves from the patches to these registers: a register gets the value of largest
magnitude among the patches of its image, with its sign; the patches get 0; CLS and trained
registers keep their own. Hooks do it for the time of one pass, so the module stays as it is.

The registers stand behind the other prefix tokens. Attention does not depend on the order of
tokens without a position, so maps are the same wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.domain import ModelInfo
from attnviz.domain.model import AddedRegisters
from attnviz.domain.register_neurons import RegisterNeurons
from attnviz.errors import UnsupportedModelError, UsageError


def output_projections(blocks: Sequence[Any], name: str) -> list[nn.Linear]:
    """The layer of each block's MLP that reads its neurons: their activations are its input.

    Of a gated MLP (SwiGLU) that is the hidden product; where a norm lies between, its output.

    Raises:
        UnsupportedModelError: Blocks whose MLP is not a part of its own.
    """
    layers = [getattr(getattr(block, "mlp", None), "fc2", None) for block in blocks]
    found = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if len(found) < len(layers):
        raise UnsupportedModelError(
            f"{name}: the neurons of its blocks cannot be told apart",
            "register neurons are those of an MLP that is a part of its own",
        )
    return found


def check_neurons(neurons: RegisterNeurons, info: ModelInfo, hidden: int) -> None:
    """Raise unless the list belongs to these weights.

    Raises:
        UsageError: It was made from other weights, or names a neuron that does not exist.
    """
    same = (neurons.weights_sha256, neurons.checkpoint_key)
    if same != (info.weights_sha256, info.checkpoint_key) or neurons.weights_sha256 is None:
        raise UsageError(
            f"the register neurons are those of {neurons.model}, of other weights than "
            f"{info.weights or info.name}",
            "neurons differ between weights: make a list from these with attnviz registers",
        )
    for layer, index, _ in neurons.neurons:
        if layer >= info.depth or index >= hidden:
            raise UsageError(
                f"there is no neuron {index} in layer {layer} of {info.name}, which has "
                f"{info.depth} layers of {hidden} neurons",
                "make a list from these weights with attnviz registers",
            )


class RegisterEdit:
    """Adds registers to a module for the time of a pass.

    prefix: the number of tokens before the patches that the module has by itself.

    Raises:
        UnsupportedModelError: The module's tokens have no place for more.
    """

    def __init__(
        self, module: Any, info: ModelInfo, neurons: RegisterNeurons, added: AddedRegisters
    ) -> None:
        self._prefix = info.prefix - added.count
        self._count = added.count
        self._entry: nn.Module | None = getattr(module, "pos_drop", None)
        self._blocks = list(module.blocks)
        if self._entry is None or any(
            hasattr(part, "set_window_size") for part in self._blocks[0].modules()
        ):
            raise UnsupportedModelError(
                f"{info.name} has biases for relative positions, and a register has no position",
                "test-time registers are for models with a position embedding or rotation",
            )
        layers = output_projections(self._blocks, info.name)
        self._neurons = [
            (layers[layer], torch.tensor(indices, dtype=torch.long))
            for layer, indices in neurons.by_layer.items()
        ]

    @contextmanager
    def active(self) -> Iterator[None]:
        """The module with its registers; without them again afterwards, whatever happens."""
        assert self._entry is not None
        rotated = [
            block.attn
            for block in self._blocks
            if hasattr(getattr(block, "attn", None), "num_prefix_tokens")
        ]
        handles = [self._entry.register_forward_hook(self._add)]
        try:
            for attention in rotated:
                attention.num_prefix_tokens += self._count
            for layer, indices in self._neurons:
                handles.append(layer.register_forward_pre_hook(self._mover(indices)))
            yield
        finally:
            for handle in handles:
                handle.remove()
            for attention in rotated:
                attention.num_prefix_tokens -= self._count

    def _add(self, _module: nn.Module, _inputs: Any, tokens: Tensor) -> Tensor:
        """Tokens (B, N, width) with zero tokens between prefix and patches."""
        images, _, width = tokens.shape
        zeros = tokens.new_zeros(images, self._count, width)
        return torch.cat([tokens[:, : self._prefix], zeros, tokens[:, self._prefix :]], dim=1)

    def _mover(self, indices: Tensor) -> Any:
        start, end = self._prefix, self._prefix + self._count

        def move(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            hidden, *rest = inputs  # B, N, F
            chosen = indices.to(hidden.device)
            patches = hidden[:, end:, chosen]  # B, n, k
            largest = patches.abs().argmax(dim=1, keepdim=True)  # B, 1, k
            moved = hidden.clone()
            moved[:, start:end, chosen] = patches.gather(1, largest).expand(-1, end - start, -1)
            moved[:, end:, chosen] = 0
            return (moved, *rest)

        return move
