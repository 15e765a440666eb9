"""The models that have a short name: one table, which imports neither torch nor timm.

A name means the weights of its ``weights_file``, the file that the authors published; timm's hub
repository ``timm/<timm_name>`` holds the same tensors. ``dino_vits8`` is the ordinary pretrained
ViT-S/8. The figure script of the original DINO repository downloads another file, trained for 300
epochs; to repeat its figures, give that file with ``--checkpoint``.

The DINOv3 files of Meta carry biases of the query and value that are zero throughout, so the timm
models without them compute the same attention. A file whose biases are not zero keeps them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.domain import DEFAULT_MODEL, ModelInfo, Positions, Size
from attnviz.domain.near_names import near_names, suggestion
from attnviz.errors import UnknownModelError, UsageError

if TYPE_CHECKING:
    from attnviz.domain.requests import ModelRequest

NEAR_MATCHES = 4
NEAR_CUTOFF = 0.55

_TIMM_REPOSITORY = re.compile(r"^(?:hf[-_]hub:)?timm/")


@dataclass(frozen=True)
class ModelSpec:
    """One named model.

    ``timm_name`` is the full hub tag. ``native_size`` is the side of the square input, in pixels,
    that is used when no size is given. ``parameters`` counts the backbone without any head.
    ``rotary``: positions are rotations of query and key, nothing is stored. ``packaged``: the
    weights file inside this package; such a model has sizes of its own, built on ``timm_name``.
    """

    name: str
    timm_name: str
    patch: int
    width: int
    depth: int
    heads: int
    registers: int
    native_size: int
    parameters: int
    licence: str
    paper: str
    weights_file: str
    positions: Positions = Positions.ORIGINAL
    layer_scale: bool = True
    gated_mlp: bool = False
    rotary: bool = False
    packaged: str = ""

    @property
    def native(self) -> Size:
        """The square input that is used when no size is given."""
        return Size(self.native_size, self.native_size)

    @property
    def repository(self) -> str:
        """The repository of the weights on the Hugging Face hub."""
        return f"timm/{self.timm_name}"


_DINO = ("Apache-2.0", "arXiv:2104.14294")
_DINOV2 = ("Apache-2.0", "arXiv:2304.07193")
_REGISTERS = ("Apache-2.0", "arXiv:2309.16588")
_DINOV3 = ("DINOv3 License", "arXiv:2508.10104")


def _dino(
    name: str, size: str, patch: int, width: int, heads: int, parameters: int, file: str
) -> ModelSpec:
    return ModelSpec(
        name, f"vit_{size}_patch{patch}_224.dino", patch, width, 12, heads, 0, 224, parameters,
        *_DINO, file, layer_scale=False,
    )  # fmt: skip


def _dinov2(
    letter: str, size: str, width: int, depth: int, heads: int, parameters: tuple[int, int]
) -> tuple[ModelSpec, ModelSpec]:
    plain, name = f"vit_{size}_patch14_dinov2.lvd142m", f"dinov2_vit{letter}14"
    gated = letter == "g"
    return (
        ModelSpec(
            name, plain, 14, width, depth, heads, 0, 518, parameters[0],
            *_DINOV2, f"{name}_pretrain.pth", gated_mlp=gated,
        ),
        ModelSpec(
            f"{name}_reg", plain.replace("patch14_", "patch14_reg4_"), 14, width, depth, heads, 4,
            518, parameters[1], *_REGISTERS, f"{name}_reg4_pretrain.pth", gated_mlp=gated,
        ),
    )  # fmt: skip


def _dinov3(
    letter: str, size: str, width: int, depth: int, heads: int, parameters: int, digest: str
) -> ModelSpec:
    name = f"dinov3_vit{letter}16{'plus' if size.endswith('plus') else ''}"
    return ModelSpec(
        name, f"vit_{size}_patch16_dinov3.lvd1689m", 16, width, depth, heads, 4, 256, parameters,
        *_DINOV3, f"{name}_pretrain_lvd1689m-{digest}.pth",
        gated_mlp=size.endswith("plus"), rotary=True,
    )  # fmt: skip


def _table(specs: Iterable[ModelSpec]) -> dict[str, ModelSpec]:
    table: dict[str, ModelSpec] = {}
    for spec in specs:
        if spec.name in table:
            raise ValueError(f"two models have the name {spec.name}")
        table[spec.name] = spec
    return table


MODELS = _table(
    (
        _dino("dino_vits8", "small", 8, 384, 6, 21_670_272, "dino_deitsmall8_pretrain.pth"),
        _dino("dino_vits16", "small", 16, 384, 6, 21_665_664, "dino_deitsmall16_pretrain.pth"),
        _dino("dino_vitb8", "base", 8, 768, 12, 85_807_872, "dino_vitbase8_pretrain.pth"),
        _dino("dino_vitb16", "base", 16, 768, 12, 85_798_656, "dino_vitbase16_pretrain.pth"),
        *_dinov2("s", "small", 384, 12, 6, (22_056_192, 22_057_344)),
        *_dinov2("b", "base", 768, 12, 12, (86_579_712, 86_582_016)),
        *_dinov2("l", "large", 1024, 24, 16, (304_367_616, 304_370_688)),
        *_dinov2("g", "giant", 1536, 40, 24, (1_136_479_232, 1_136_483_840)),
        _dinov3("s", "small", 384, 12, 6, 21_586_944, "08c60483"),
        _dinov3("s", "small_plus", 384, 12, 6, 28_683_264, "4057cbaa"),
        _dinov3("b", "base", 768, 12, 12, 85_641_216, "73cec8be"),
        _dinov3("l", "large", 1024, 24, 16, 303_079_424, "8aa4cbdd"),
        _dinov3("h", "huge_plus", 1280, 32, 20, 840_509_440, "7c1da9a5"),
        ModelSpec(
            "demo",
            "vit_small_patch8_224.dino",
            8,
            128,
            6,
            4,
            0,
            96,
            1_233_280,
            "Apache-2.0",
            "arXiv:2104.14294",
            "demo.safetensors",
            layer_scale=False,
            packaged="demo.safetensors",
        ),
    )
)
"""Name to model, in the order in which they are listed."""

ALIASES = {
    "dinov3_vitsplus16": "dinov3_vits16plus",
    "dinov3_vithplus16": "dinov3_vith16plus",
}
"""Other spellings of a name; Meta writes the plus last."""


def find_spec(name: str) -> ModelSpec | None:
    """The model of that name, alias, full timm tag or repository; None when there is none."""
    spec = MODELS.get(ALIASES.get(name, name))
    if spec is not None:
        return spec
    tag = _TIMM_REPOSITORY.sub("", name)
    hub = (each for each in MODELS.values() if not each.packaged)
    return next((each for each in hub if each.timm_name == tag), None)


def known_info(request: ModelRequest) -> ModelInfo | None:
    """What is known of a model by its name and ``--model-arg`` alone; None for other models.

    No weights are looked at: whether they come with a classifier or attention pooling is known only
    of models that are named without a checkpoint, and that have none.
    """
    named = request.name or (None if request.checkpoint else DEFAULT_MODEL)
    spec = None if named is None else find_spec(named)
    if spec is None:
        return None
    sizes: Any = {
        "patch": spec.patch,
        "width": spec.width,
        "depth": spec.depth,
        "heads": spec.heads,
    }
    sizes |= {name: value for name, value in request.args.items() if name in sizes}
    registers = request.args.get("registers", spec.registers)
    if request.test_registers is not None:
        registers += request.register_count or 1
    stride = stride_of(request.stride, sizes["patch"])
    return ModelInfo(
        name=spec.name,
        timm_name=spec.timm_name,
        **sizes,
        prefix=1 + registers,
        registers=registers,
        has_cls=True,
        native_size=spec.native,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        interpolation="bicubic",
        positions=spec.positions,
        weights="",
        random_weights=request.random_weights,
        classes=0 if request.checkpoint is None else sys.maxsize,
        stride=stride,
        pool_heads=0 if request.checkpoint is None else sys.maxsize,
    )


def stride_of(stride: int | None, patch: int) -> int | None:
    """The stride of patches that overlap; None for that of patches side by side.

    Raises:
        UsageError: It does not divide the patch.
    """
    if stride is None or stride == patch:
        return None
    if patch % stride:
        divisors = [str(side) for side in range(1, patch + 1) if patch % side == 0]
        raise UsageError(
            f"--stride {stride} does not divide the patch of {patch} pixels",
            f"it can be {', '.join(divisors)}",
        )
    return stride


def packaged_weights(spec: ModelSpec) -> Path:
    """The weights file of a model that comes with this package."""
    return Path(__file__).parent.parent / "data" / spec.packaged


def unknown_model(name: str, more_names: Iterable[str] = ()) -> UnknownModelError:
    """The error for an unknown name, with near matches from here and ``more_names``."""
    own = [*MODELS, *ALIASES]
    names = [
        near
        for known in (own, more_names)
        for near in near_names(name, known, count=NEAR_MATCHES, cutoff=NEAR_CUTOFF)
    ]
    hint = suggestion(list(dict.fromkeys(names))[:NEAR_MATCHES])
    return UnknownModelError(
        f"there is no model {name!r}" + (f"; {hint}" if hint else ""),
        "attnviz models lists all; names of timm's ViTs and ORG/NAME of the Hugging Face hub work "
        "too",
    )


def cached(spec: ModelSpec) -> bool:
    """Whether the weights are on this machine: in the Hugging Face cache, or in this package.

    No network, no torch.
    """
    from attnviz.models.weights.hub import cached_weights

    if spec.packaged:
        return True
    return cached_weights(spec.repository) is not None
