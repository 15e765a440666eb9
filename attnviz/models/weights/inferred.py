"""What a checkpoint says about its network: measured on the tensors, or read from its config."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from torch import Tensor

from attnviz.domain import Positions, Size
from attnviz.errors import CheckpointError

SEPARATE_BIAS = re.compile(r"\.attn\.[qkv]_bias$")
"""The biases that timm's EVA blocks keep apart from the joined weight."""

_BLOCK = re.compile(r"blocks\.(\d+)\.")


class Source(StrEnum):
    """Whose layout the names in a file follow."""

    DINO = "dino"
    DINOV2 = "dinov2"
    DINOV3 = "dinov3"
    TIMM = "timm"
    HF_VIT = "hf-vit"
    HF_DEIT = "hf-deit"
    HF_DINOV2 = "hf-dinov2"
    HF_DINOV2_REGISTERS = "hf-dinov2-registers"
    HF_DINOV3 = "hf-dinov3"

    @property
    def is_hf(self) -> bool:
        """Whether it is a layout of the transformers library."""
        return self.value.startswith("hf-")

    @property
    def positions(self) -> Positions | None:
        """Whose rule the code behind this layout resizes positions with; None: it does not say."""
        if self is Source.TIMM:
            return None
        # transformers resizes register models as their original code does.
        if self.is_hf and self is not Source.HF_DINOV2_REGISTERS:
            return Positions.HF
        return Positions.ORIGINAL


@dataclass(frozen=True)
class Preprocessing:
    """How pictures are to be prepared: channel statistics, filter, and the size if it is given."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str
    size: Size | None = None


@dataclass(frozen=True)
class InferredConfig:
    """The sizes of a network. None: the file does not tell.

    grid: rows and columns of the stored position embedding, None when there is none (rotary).
    positions_prefix: how many prefix tokens have a position of their own. mlp_hidden: the width
    between the two layers of the MLP; gated: SwiGLU. qkv_bias: whether query, key or value have a
    bias that is not zero throughout. eps: of the layer norms. rope_theta: base of the rotation
    periods. image_size: the input size that a config names.
    """

    patch: int
    in_chans: int
    width: int
    depth: int
    heads: int | None
    registers: int
    has_cls: bool
    distilled: bool
    mlp_hidden: int
    gated_mlp: bool
    layer_scale: bool
    qkv_bias: bool
    qk_norm: bool
    rotary: bool
    grid: Size | None
    positions_prefix: int
    eps: float | None = None
    rope_theta: float | None = None
    image_size: Size | None = None

    @property
    def prefix(self) -> int:
        """Tokens before the patches: class, distillation, registers."""
        return int(self.has_cls) + int(self.distilled) + self.registers


def infer_config(
    tensors: Mapping[str, Tensor], path: Path, *, rotary: bool = False, grid: Size | None = None
) -> InferredConfig:
    """What shapes tell of tensors in timm's naming.

    ``grid`` is that of the stored positions where a config names it; otherwise it is square.

    Raises:
        CheckpointError: Shapes that no ViT has.
    """
    kernel = tensors["patch_embed.proj.weight"]
    if kernel.ndim != 4 or kernel.shape[2] != kernel.shape[3]:
        raise CheckpointError(
            f"{path}: patch_embed.proj.weight is {_shape(kernel)}, not square patches of an image"
        )
    numbers = {int(found.group(1)) for name in tensors if (found := _BLOCK.match(name))}
    if not numbers:
        raise CheckpointError(f"{path}: 0 blocks in it; first missing: blocks.0.norm1.weight")
    first = f"blocks.{min(numbers)}."
    register = tensors.get("reg_token")
    registers = 0 if register is None else int(register.shape[-2])
    has_cls, distilled = "cls_token" in tensors, "dist_token" in tensors
    prefix = int(has_cls) + int(distilled) + registers
    stored = tensors.get("pos_embed")
    stored_grid, own = (
        (None, 0) if stored is None else _grid_of(stored, prefix, grid, path, registers=registers)
    )
    gated, hidden = _mlp_of(tensors, first)
    return InferredConfig(
        patch=int(kernel.shape[3]),
        in_chans=int(kernel.shape[1]),
        width=int(kernel.shape[0]),
        depth=max(numbers) + 1,
        heads=None,
        registers=registers,
        has_cls=has_cls,
        distilled=distilled,
        mlp_hidden=hidden,
        gated_mlp=gated,
        layer_scale=first + "ls1.gamma" in tensors or first + "gamma_1" in tensors,
        qkv_bias=_has_bias(tensors, first),
        qk_norm=first + "attn.q_norm.weight" in tensors,
        rotary=rotary,
        grid=stored_grid,
        positions_prefix=own,
    )


def _has_bias(tensors: Mapping[str, Tensor], block: str) -> bool:
    # Biases kept apart from the weights may be zero throughout: then there are none.
    if any(f"{block}attn.{name}.bias" in tensors for name in ("qkv", "q_proj")):
        return True
    return any(bool(t.any()) for name, t in tensors.items() if SEPARATE_BIAS.search(name))


def _mlp_of(tensors: Mapping[str, Tensor], block: str) -> tuple[bool, int]:
    # Packed gates (DINOv2 giant) double the first layer, others (EVA, DINOv3) have one of each.
    second = tensors.get(block + "mlp.fc2.weight")
    if second is None:
        return False, 0
    hidden = int(second.shape[1])
    first = tensors.get(block + "mlp.fc1.weight")
    packed = first is not None and int(first.shape[0]) == 2 * hidden
    return packed or block + "mlp.fc1_g.weight" in tensors, hidden


def _grid_of(
    stored: Tensor, prefix: int, grid: Size | None, path: Path, *, registers: int
) -> tuple[Size, int]:
    if stored.ndim != 3:
        raise CheckpointError(f"{path}: pos_embed is {_shape(stored)}, not (1, tokens, width)")
    tokens = int(stored.shape[1])
    # timm's models with registers store positions of patches only; others, of every token.
    for own in (0, prefix) if registers else (prefix, 0):
        patches = tokens - own
        if grid is not None:
            if grid.height * grid.width == patches:
                return grid, own
            continue
        side = math.isqrt(max(patches, 0))
        if patches > 0 and side * side == patches:
            return Size(side, side), own
    expected = f"the {grid} grid of its config" if grid else "any square grid"
    raise CheckpointError(
        f"{path}: its {tokens} stored positions do not fit {expected} with {prefix} prefix tokens"
    )


def _shape(tensor: Tensor) -> str:
    return "x".join(str(n) for n in tensor.shape)
