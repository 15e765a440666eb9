"""Building timm's models, and reading from them what is known before weights are loaded."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.domain import ModelInfo, Positions, Size
from attnviz.domain.process import imports_done
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.models.architecture import Architecture
from attnviz.models.device import arithmetic_of
from attnviz.models.without_compiler import without_compiler

RANDOM_SEED = 0

FAMILIES = ("vision_transformer", "eva", "deit", "beit", "vision_transformer_relpos")
"""timm's modules whose blocks have one softmax attention per head over all tokens of the image."""

_WITHOUT_DYNAMIC_SIZE = ("beit", "vision_transformer_relpos")
"""Families without timm's ``dynamic_img_size``: a check of the patch embedding is in the way."""

_ONE_SOFTMAX = "its attention is not one softmax per head and cannot be shown exactly"


def import_timm() -> Any:
    """The module timm; without torch's compiler in a process that runs attnviz alone."""
    with without_compiler(), without_bar_warning():
        import timm
    imports_done()
    return timm


@contextlib.contextmanager
def without_bar_warning() -> Iterator[None]:
    """Imports in this block do not warn that a notebook without ipywidgets shows plain bars.

    tqdm does so when the hub's package is imported, whether or not anything is downloaded.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        yield


def find_family(timm_name: str) -> str | None:
    """The timm module that defines a model, e.g. ``vision_transformer``; None if timm has none."""
    timm = import_timm()
    architecture = timm_name.split(".", maxsplit=1)[0]
    if not timm.is_model(architecture):
        return None
    return str(timm.model_entrypoint(architecture).__module__).rsplit(".", 1)[-1]


def check_family(name: str, timm_name: str) -> None:
    """Refuse models of which the attention cannot be shown, before anything of them is built.

    Raises:
        UnsupportedModelError: Of a module other than ``FAMILIES``, or unknown to timm.
    """
    family = find_family(timm_name)
    if family is None:
        raise UnsupportedModelError(
            f"{name}: the installed timm has no model {timm_name}", "a newer timm may have it"
        )
    if family not in FAMILIES:
        raise UnsupportedModelError(
            f"{name} is not supported (timm's {family})",
            "supported are models whose blocks attend once over all tokens of the image: DINO, "
            "DINOv2, DINOv3 (`attnviz models`) and timm's ViT, DeiT, BEiT, CLIP, SigLIP and EVA "
            "models",
        )


def known_names() -> list[str]:
    """Every model name that timm knows, for near matches."""
    timm = import_timm()
    names: list[str] = timm.list_models()
    return names


def is_known_tag(timm_name: str) -> bool:
    """Whether timm itself has pretrained weights of this name, tag included."""
    timm = import_timm()
    architecture, _, tag = timm_name.partition(".")
    return bool(tag) and timm_name in timm.list_pretrained(f"{architecture}*")


def hub_repository(timm_name: str) -> tuple[str, str | None] | None:
    """Repository and file of a timm model's pretrained weights on the hub; None if it has none."""
    timm = import_timm()
    config = timm.get_pretrained_cfg(timm_name)
    if config is None or not config.hf_hub_id:
        return None
    return str(config.hf_hub_id), config.hf_hub_filename


def native_size_of(timm_name: str) -> Size | None:
    """The input size of a timm model by its own configuration; None if it has none."""
    timm = import_timm()
    config = timm.get_pretrained_cfg(timm_name)
    return None if config is None else Size(*config.input_size[1:])


class _NoRandomWeights(TorchFunctionMode):
    """Leaves parameters as they were allocated.

    Drawing numbers that a file replaces takes longer than reading the file, and touching the
    memory would make a second copy of the weights.
    """

    SKIPPED = frozenset(
        {
            *(Tensor.uniform_, Tensor.normal_, Tensor.erfinv_),
            *(Tensor.mul_, Tensor.add_, Tensor.clamp_),
            # These are asked first, and then draw without asking again.
            *(nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_),
        }
    )

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        tensor = args[0] if args else named.get("tensor")
        if func in self.SKIPPED and isinstance(tensor, nn.Parameter):
            return tensor
        return func(*args, **named)


def build(architecture: Architecture, *, random_weights: bool) -> nn.Module:
    """The module in evaluation mode, able to take any input size.

    Its weights are timm's initial ones, the same in every run; without ``random_weights`` they are
    undefined until they are loaded.

    Raises:
        UsageError: timm refuses an argument.
        UnsupportedModelError: The module has no blocks or patch embedding.
    """
    timm = import_timm()
    name = architecture.timm_name
    arguments: dict[str, Any] = dict(architecture.arguments)
    dynamic = find_family(name) not in _WITHOUT_DYNAMIC_SIZE
    if dynamic:
        arguments["dynamic_img_size"] = True
    with (
        warnings.catch_warnings(),
        contextlib.nullcontext() if random_weights else _NoRandomWeights(),
    ):
        warnings.simplefilter("ignore")
        logging.getLogger("timm").setLevel(logging.ERROR)
        if random_weights:  # nothing is drawn otherwise, and a training run may be going on
            torch.manual_seed(RANDOM_SEED)
        try:
            layers = {key: _layer(key, value) for key, value in arguments.items()}
            module: Any = timm.create_model(name, pretrained=False, num_classes=0, **layers)
        except (TypeError, AssertionError, RuntimeError, ValueError, AttributeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            sizes = ", ".join(f"{name}={value}" for name, value in architecture.arguments.items())
            raise UsageError(
                f"{name} cannot be built with {sizes}: {reason}", "see --model-arg"
            ) from error
    for attribute in ("blocks", "patch_embed", "num_prefix_tokens"):
        if not hasattr(module, attribute):
            raise UnsupportedModelError(f"{name} is not supported: it has no {attribute}")
    if not dynamic:
        module.patch_embed.strict_img_size = False
    built: nn.Module = module.eval().requires_grad_(requires_grad=False)
    return built


_LAYERS = ("mlp_layer", "embed_layer")
"""Arguments that timm does not take by name, unlike ``act_layer`` and ``norm_layer``."""


def _layer(argument: str, value: Any) -> Any:
    """The class of timm's layers that is named (SwiGLUPacked); other arguments as they are."""
    import timm.layers

    if argument not in _LAYERS or not isinstance(value, str):
        return value
    layer = getattr(timm.layers, value, None)
    if layer is None:
        raise ValueError(f"timm has no {argument} {value!r}")
    return layer


def read_info(module: Any, name: str, timm_name: str, positions: Positions) -> ModelInfo:
    """The facts of a built module. ``weights`` is left empty for the loader to fill in.

    Raises:
        UnsupportedModelError: Patches that are not square, or attention that is not one softmax.
    """
    config = module.pretrained_cfg
    patch = module.patch_embed.patch_size
    if patch[0] != patch[1]:
        raise UnsupportedModelError(f"{name} has patches of {patch[0]}x{patch[1]}, not square")
    prefix = int(module.num_prefix_tokens)
    registers = int(getattr(module, "num_reg_tokens", 0) or 0)
    if registers == 0 and getattr(module, "reg_token", None) is not None:
        registers = int(module.reg_token.shape[1])
    return ModelInfo(
        name=name,
        timm_name=timm_name,
        patch=int(patch[0]),
        width=int(module.embed_dim),
        depth=len(module.blocks),
        heads=_heads_of(module.blocks[0], name),
        prefix=prefix,
        registers=registers,
        has_cls=getattr(module, "cls_token", None) is not None,
        native_size=Size(*config["input_size"][1:]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=str(config["interpolation"]),
        positions=positions,
        weights="",
        arithmetic=arithmetic_of(next(module.parameters()).dtype),
        pool_heads=pool_heads(module),
    )


def pool_heads(module: Any) -> int:
    """Heads of a pooling by latent queries; 0 for other poolings, and for one without weights."""
    pool = getattr(module, "attn_pool", None)
    return int(pool.num_heads) if pool is not None and hasattr(pool, "latent") else 0


def _heads_of(block: Any, name: str) -> int:
    """Heads of a block: its attention is a part of it, or the block itself (parallel blocks)."""
    attention = getattr(block, "attn", None) or block
    heads = getattr(attention, "num_heads", None)
    # Differential attention is the difference of two softmaxes, weighted by a learned lambda.
    if isinstance(heads, int) and not hasattr(attention, "lambda_init"):
        return heads
    raise UnsupportedModelError(
        f"{name} does not have a single softmax attention in a block ({type(attention).__name__})",
        _ONE_SOFTMAX,
    )
