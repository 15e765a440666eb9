"""The sizes and parts of a network, inferred from its tensors or read from its config."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from torch import Tensor

from attnviz.domain import Positions, Size
from attnviz.errors import CheckpointError
from attnviz.models.weights.grid import (
    BIAS_TABLE,
    Grid,
    grid_of_biases,
    grid_of_positions,
    shape_of,
)

SEPARATE_BIAS = re.compile(r"\.attn\.[qkv]_bias$")
"""Biases that timm's EVA and BEiT blocks keep apart from the joined weight."""

_BLOCK = re.compile(r"blocks\.(\d+)\.")


class Source(StrEnum):
    """Whose layout the names in a file follow."""

    DINO = "dino"
    DINOV2 = "dinov2"
    DINOV3 = "dinov3"
    TIMM = "timm"
    TORCHVISION = "torchvision"
    OPEN_CLIP = "open-clip"
    HF_VIT = "hf-vit"
    HF_DEIT = "hf-deit"
    HF_MAE = "hf-mae"
    HF_MSN = "hf-msn"
    HF_IJEPA = "hf-ijepa"
    HF_DINOV2 = "hf-dinov2"
    HF_DINOV2_REGISTERS = "hf-dinov2-registers"
    HF_DINOV3 = "hf-dinov3"
    HF_CLIP = "hf-clip"
    HF_SIGLIP = "hf-siglip"
    HF_BEIT = "hf-beit"

    @property
    def is_hf(self) -> bool:
        """Whether it is a layout of the transformers library."""
        return self.value.startswith("hf-")

    @property
    def positions(self) -> Positions | None:
        """Whose rule the code behind this layout resizes positions with; None: it does not say."""
        if self in (Source.TIMM, Source.TORCHVISION, Source.OPEN_CLIP):
            return None
        # transformers resizes register models as their original code does.
        if self.is_hf and self is not Source.HF_DINOV2_REGISTERS:
            return Positions.HF
        return Positions.ORIGINAL


@dataclass(frozen=True)
class Preprocessing:
    """How images are to be prepared: channel statistics, filter, and the size if it is given."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str
    size: Size | None = None


@dataclass(frozen=True)
class InferredConfig:
    """The sizes and parts of a network. None: the file does not say.

    grid: rows and columns of the stored positions, None when there are none (rotary);
    ``grid_assumed``: only their number is known, and a square was assumed.
    positions_prefix: how many prefix tokens have a position of their own. mlp_hidden: the width
    between the two layers of the MLP; gated_mlp: SwiGLU, its gate in the first layer too or, with
    separate_gate, in one of its own. qkv_bias: whether query, key or value have a
    bias that is not zero throughout. pre_norm: a norm before the blocks. final_norm: the norm after
    them, ``norm`` on all tokens or ``fc_norm`` on pooled ones. attention_pool: pooled by a latent
    query. absolute_positions: embeddings that are added to tokens. block_biases, shared_biases:
    biases of relative positions that are added to logits, of every block or of all. eps: of the
    layer norms. activation: of the MLP, in timm's word. rope_theta: base of the rotation periods.
    image_size: the input size that a config names.
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
    grid_assumed: bool = False
    separate_gate: bool = False
    pre_norm: bool = False
    final_norm: str | None = "norm"
    attention_pool: bool = False
    absolute_positions: bool = True
    block_biases: bool = False
    shared_biases: bool = False
    eps: float | None = None
    activation: str | None = None
    rope_theta: float | None = None
    image_size: Size | None = None

    @property
    def prefix(self) -> int:
        """Tokens before the patches: class, distillation, registers."""
        return int(self.has_cls) + int(self.distilled) + self.registers

    @property
    def stored_size(self) -> Size | None:
        """Height and width in pixels of the stored grid; None without stored positions."""
        if self.grid is None:
            return None
        return Size(self.grid.height * self.patch, self.grid.width * self.patch)


def infer_config(
    tensors: Mapping[str, Tensor],
    path: Path,
    *,
    rotary: bool = False,
    sizes: Sequence[Size] = (),
    stated_by: str = "",
) -> InferredConfig:
    """What shapes tell of tensors in timm's naming.

    ``sizes``: input sizes in pixels, the most trusted first; the first that the stored positions
    fit gives the grid. Otherwise a square is assumed, unless ``stated_by``
    names who vouches for the sizes (config.json).

    Raises:
        CheckpointError: Shapes that no ViT has, or positions of which the grid is not known.
    """
    kernel = tensors["patch_embed.proj.weight"]
    if kernel.ndim != 4 or kernel.shape[2] != kernel.shape[3]:
        raise CheckpointError(
            f"{path}: patch_embed.proj.weight is {shape_of(kernel)}, not square patches of an image"
        )
    numbers = {int(match.group(1)) for name in tensors if (match := _BLOCK.match(name))}
    if not numbers:
        raise CheckpointError(f"{path}: 0 blocks in it; first missing: blocks.0.norm1.weight")
    first = f"blocks.{min(numbers)}."
    register = tensors.get("reg_token")
    registers = 0 if register is None else int(register.shape[-2])
    has_cls, distilled = "cls_token" in tensors, "dist_token" in tensors
    prefix = int(has_cls) + int(distilled) + registers
    patch = int(kernel.shape[3])
    grids = [Size(size.height // patch, size.width // patch) for size in sizes]
    shared, own = f"rel_pos_bias.{BIAS_TABLE}", f"{first}attn.{BIAS_TABLE}"
    biases = tensors.get(shared, tensors.get(own))
    stored = tensors.get("pos_embed")
    grid = Grid(None, 0, assumed=False)
    if stored is not None:
        grid = grid_of_positions(
            stored, prefix, grids, path, registers=registers, stated_by=stated_by
        )
    elif biases is not None:
        grid = grid_of_biases(biases, grids, path, stated_by=stated_by)
    gated, hidden = _mlp_of(tensors, first)
    return InferredConfig(
        patch=patch,
        in_chans=int(kernel.shape[1]),
        width=int(kernel.shape[0]),
        depth=max(numbers) + 1,
        heads=None if biases is None else int(biases.shape[-1]),
        registers=registers,
        has_cls=has_cls,
        distilled=distilled,
        mlp_hidden=hidden,
        gated_mlp=gated,
        layer_scale=first + "ls1.gamma" in tensors or first + "gamma_1" in tensors,
        qkv_bias=_has_bias(tensors, first),
        qk_norm=first + "attn.q_norm.weight" in tensors,
        rotary=rotary,
        grid=grid.size,
        positions_prefix=grid.prefix,
        grid_assumed=grid.assumed,
        separate_gate=first + "mlp.fc1_g.weight" in tensors,
        pre_norm="norm_pre.weight" in tensors,
        final_norm=next((n for n in ("norm", "fc_norm") if f"{n}.weight" in tensors), None),
        attention_pool="attn_pool.latent" in tensors,
        absolute_positions=stored is not None,
        block_biases=own in tensors,
        shared_biases=shared in tensors,
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
