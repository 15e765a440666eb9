"""A loaded ViT that runs on batches of any size."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.domain import ModelInfo, PreparedImage, Size
from attnviz.domain.model import AddedRegisters
from attnviz.domain.process import available_cores, process_is_ours
from attnviz.domain.register_neurons import RegisterNeurons
from attnviz.domain.requests import ModelRequest
from attnviz.errors import UsageError
from attnviz.models.added_registers import RegisterEdit, check_neurons, output_projections
from attnviz.models.device import exact_float32
from attnviz.models.head import ClassHead
from attnviz.models.overlap import overlapping
from attnviz.models.positions import PositionTable
from attnviz.models.precision import product_type, products_in


class Backbone:
    """A loaded ViT, ready to be run on batches of any size.

    ``info`` holds the facts read from the loaded module. The module is in evaluation mode, needs no
    gradients, and is never changed by a run. ``notes`` are lines that a user should see once.
    ``head``: the classifier that came with the weights, if any. ``request``: what loads the same
    model again; None where nothing does. ``offset``: whether the model's own
    code resizes positions by the scale factor (n + 0.1) / M, as DINO's does. ``dtype``: the number
    type of the matrix products in its blocks; input and tokens are float32. ``neurons``: those of
    the registers that ``info.test_registers`` counts.
    """

    def __init__(
        self,
        module: nn.Module,
        info: ModelInfo,
        *,
        offset: bool,
        notes: tuple[str, ...] = (),
        head: ClassHead | None = None,
        neurons: RegisterNeurons | None = None,
    ) -> None:
        parameter = next(module.parameters())
        self.module = module
        self.info = info
        self.notes = notes
        self.head = head
        self.request: ModelRequest | None = None
        self.device = parameter.device
        self.dtype = product_type(module)
        self._offset = offset
        self._positions = self._position_table()
        self._neurons = neurons
        self._registers = self._register_edit()

    def __repr__(self) -> str:
        info = self.info
        facts = f"patch {info.patch}, width {info.width}, {info.depth} layers, {info.heads} heads"
        line = f"{info.title}: {facts}"
        # The note on loaded weights says the same, and more.
        said = any(note.startswith(line) for note in self.notes)
        return "\n".join(self.notes if said else (f"{line}, from {info.weights}", *self.notes))

    def _position_table(self) -> PositionTable:
        return PositionTable(
            self.module,
            self.info.positions,
            by_offset=self._offset,
            registers=self.info.trained_registers,
        )

    def _register_edit(self) -> RegisterEdit | None:
        added = self.info.test_registers
        if self._neurons is None or added is None:
            return None
        return RegisterEdit(self.module, self.info, self._neurons, added)

    def with_test_registers(self, neurons: RegisterNeurons, count: int = 1) -> Backbone:
        """The same model, sharing its module, with ``count`` registers added at test time.

        Their activations are those of ``neurons`` (``attnviz registers``); ``info.prefix`` and
        ``info.registers`` count them.

        Raises:
            UsageError: The neurons are those of other weights, or the model has such registers.
            UnsupportedModelError: Its tokens have no place for a register.
        """
        if self.info.test_registers is not None:
            raise UsageError(f"{self.info.name} has test-time registers already")
        layers = output_projections(self.blocks, self.info.name)
        check_neurons(neurons, self.info, layers[0].in_features)
        added = AddedRegisters(count, len(neurons.neurons), neurons.digest)
        head = self.head and self.head.behind(self.info.prefix, count)
        classes = 0 if head is None else head.classes
        info = replace(self.info.with_registers(added), classes=classes)
        return Backbone(
            self.module,
            info,
            offset=self._offset,
            notes=(*self.notes, f"{info.name}: {added}"),
            head=head,
            neurons=neurons,
        )

    @property
    def output_projections(self) -> list[nn.Linear]:
        """The layer of each block's MLP that reads its neurons.

        Raises:
            UnsupportedModelError: Blocks whose MLP is not a part of its own.
        """
        return output_projections(self.blocks, self.info.name)

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The L transformer blocks in order."""
        blocks: Any = self.module.blocks
        return list(blocks)

    @property
    def norm(self) -> nn.Module:
        """The norm after the last block."""
        module: Any = self.module
        norm: nn.Module = module.norm
        return norm

    @property
    def attention_pool(self) -> nn.Module | None:
        """Timm's AttentionPoolLatent of the weights (SigLIP); None: pooled in another way.

        Its ``latent`` (1, 1, width) is the query that attends to the tokens that ``run`` returns.
        """
        pool: nn.Module | None = getattr(self.module, "attn_pool", None)
        return pool

    def run(self, batch: Tensor) -> Tensor:
        """The plain forward pass: (B, 3, h, w) to the tokens after the last norm, (B, N, width)."""
        grid = self.info.grid_of(Size(*batch.shape[-2:]))
        products = products_in(self.dtype, self.module, self.device)
        registers = self._registers.active() if self._registers else nullcontext()
        overlap = overlapping(self.module, self.info.patch, self.info.stride)
        with self.exact_arithmetic(), self._positions.at(grid), overlap, registers, products:
            forward: Any = self.module.forward_features
            tokens: Tensor = forward(batch)
            return tokens

    def pool(self, tokens: Tensor) -> Tensor:
        """The model's own pooling of the tokens (B, N, width) that ``run`` returns: (B, width).

        In float32, whatever the products of the blocks run in. A pooling that reads the patches
        alone does not read test-time registers either.
        """
        added, prefix = self.info.test_registers, self.info.prefix
        if added is not None and not getattr(self.module, "pool_include_prefix", True):
            own = tokens[:, : prefix - added.count]
            tokens = torch.cat([own, tokens[:, prefix:]], dim=1)
        with self.exact_arithmetic():
            pool: Any = self.module.pool
            pooled: Tensor = pool(tokens.float())
            return pooled

    def exact_arithmetic(self) -> AbstractContextManager[None]:
        """The arithmetic that a pass runs in: float32 operations are not rounded to TF32."""
        return exact_float32()

    def to(self, device: str) -> Backbone:
        """This model on another device, moved in place."""
        self.module = self.module.to(torch.device(device))
        self.device = next(self.module.parameters()).device
        self._positions = self._position_table()
        self._registers = self._register_edit()
        return self

    def replica(self) -> Backbone:
        """Another model of the same weights, in the same memory, that may run at the same time."""
        shared: dict[int, Any] = {id(part): part for part in self.module.parameters()}
        shared |= {id(part): part for part in self.module.buffers()}
        return Backbone(
            copy.deepcopy(self.module, shared),
            self.info,
            offset=self._offset,
            notes=self.notes,
            head=self.head,
            neurons=self._neurons,
        )

    def batch(self, images: Sequence[PreparedImage]) -> Tensor:
        """Prepared images of one size as a (B, 3, h, w) float32 tensor on the model's device."""
        stacked = torch.from_numpy(np.stack([image.tensor for image in images]))
        if self.device.type == "cuda":
            stacked = stacked.pin_memory()
        return stacked.to(self.device, non_blocking=True)


def compute_with(threads: int) -> None:
    """How many CPU cores a model of this process computes with, instead of all."""
    torch.set_num_threads(threads)


def cores() -> int:
    """How many CPU cores the models of this process may compute with."""
    return min(threads(), available_cores())


def threads() -> int:
    """How many threads torch computes with in this thread."""
    return torch.get_num_threads()


def keep_to_available_cores() -> None:
    """Have torch heed the quota of a container; by itself it counts the cores of the machine.

    Only in a process that runs attnviz alone: in others torch's threads are not ours to set.
    """
    if process_is_ours() and cores() < threads():
        compute_with(cores())
