"""Building and loading the model. The only file that imports timm."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.domain import ModelInfo, Positions, Precision, PreparedImage, Size
from attnviz.domain.process import available_cores, imports_done, process_is_ours
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.models.architecture import Architecture
from attnviz.models.head import ClassHead
from attnviz.models.positions import PositionTable
from attnviz.models.without_compiler import without_compiler

RANDOM_SEED = 0


class Backbone:
    """A loaded ViT, ready to be run on batches of any size.

    ``info`` holds the facts read from the loaded module. The module is in evaluation mode, needs no
    gradients, and is never changed by a run. ``notes`` are lines that a user should see once.
    ``head``: the classifier that came with the weights, if any.
    """

    def __init__(
        self,
        module: nn.Module,
        info: ModelInfo,
        *,
        offset: bool,
        notes: tuple[str, ...] = (),
        head: ClassHead | None = None,
    ) -> None:
        parameter = next(module.parameters())
        self.module = module
        self.info = info
        self.notes = notes
        self.head = head
        self.device = parameter.device
        self.dtype = parameter.dtype
        self._positions = PositionTable(module, info.positions, offset=offset)

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

    def run(self, batch: Tensor) -> Tensor:
        """The plain forward pass: (B, 3, h, w) to the tokens after the last norm, (B, N, width)."""
        height, width = batch.shape[-2:]
        with self._positions.at(Size(height // self.info.patch, width // self.info.patch)):
            forward: Any = self.module.forward_features
            tokens: Tensor = forward(batch)
            return tokens

    def to(self, device: str) -> Backbone:
        """This model on another device, moved in place."""
        self.module = self.module.to(torch.device(device))
        self.device = next(self.module.parameters()).device
        offset = self._positions.offset
        self._positions = PositionTable(self.module, self.info.positions, offset=offset)
        return self

    def replica(self) -> Backbone:
        """Another model of the same weights, in the same memory, that may run at the same time."""
        shared: dict[int, Any] = {id(part): part for part in self.module.parameters()}
        shared |= {id(part): part for part in self.module.buffers()}
        return Backbone(
            copy.deepcopy(self.module, shared),
            self.info,
            offset=self._positions.offset,
            notes=self.notes,
            head=self.head,
        )

    def batch(self, images: Sequence[PreparedImage]) -> Tensor:
        """Prepared pictures of one size as a (B, 3, h, w) tensor on the model's device."""
        stacked = torch.from_numpy(np.stack([image.tensor for image in images]))
        if self.device.type == "cuda":
            stacked = stacked.pin_memory()
        return stacked.to(self.device, self.dtype, non_blocking=True)


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


def import_timm() -> Any:
    """The module timm; without torch's compiler in a process that runs attnviz alone."""
    with without_compiler():
        import timm
    imports_done()
    return timm


def find_family(timm_name: str) -> str | None:
    """The timm module that defines a model, e.g. ``vision_transformer``; None if timm has none."""
    timm = import_timm()
    architecture = timm_name.split(".", maxsplit=1)[0]
    if not timm.is_model(architecture):
        return None
    return str(timm.model_entrypoint(architecture).__module__).rsplit(".", 1)[-1]


def known_names() -> list[str]:
    """Every model name that timm knows, for near matches."""
    timm = import_timm()
    names: list[str] = timm.list_models()
    return names


def hub_repository(timm_name: str) -> tuple[str, str | None] | None:
    """Repository and file of a timm model's pretrained weights on the hub; None if it has none."""
    timm = import_timm()
    config = timm.get_pretrained_cfg(timm_name)
    if config is None or not config.hf_hub_id:
        return None
    return str(config.hf_hub_id), config.hf_hub_filename


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
    """
    timm = import_timm()
    with (
        warnings.catch_warnings(),
        contextlib.nullcontext() if random_weights else _NoRandomWeights(),
    ):
        warnings.simplefilter("ignore")
        logging.getLogger("timm").setLevel(logging.ERROR)
        if random_weights:  # nothing is drawn otherwise, and a training run may be going on
            torch.manual_seed(RANDOM_SEED)
        try:
            module: nn.Module = timm.create_model(
                architecture.timm_name,
                pretrained=False,
                num_classes=0,
                dynamic_img_size=True,
                **architecture.arguments,
            )
        except (TypeError, AssertionError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            sizes = ", ".join(f"{name}={value}" for name, value in architecture.arguments.items())
            raise UsageError(
                f"{architecture.timm_name} cannot be built with {sizes}: {reason}",
                "see --model-arg",
            ) from error
    for attribute in ("blocks", "patch_embed", "num_prefix_tokens"):
        if not hasattr(module, attribute):
            raise UnsupportedModelError(
                f"{architecture.timm_name} is no plain Vision Transformer: it has no {attribute}"
            )
    return module.eval().requires_grad_(requires_grad=False)


def read_info(module: Any, name: str, timm_name: str, positions: Positions) -> ModelInfo:
    """The facts of a built module. ``weights`` is left empty for the loader to fill in."""
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
    )


def _heads_of(block: Any, name: str) -> int:
    """Heads of a block: its attention is a part of it, or the block itself (parallel blocks)."""
    attention = getattr(block, "attn", None) or block
    heads = getattr(attention, "num_heads", None)
    # Differential attention is the difference of two softmaxes, weighed by a learned lambda.
    if isinstance(heads, int) and not hasattr(attention, "lambda_init"):
        return heads
    raise UnsupportedModelError(
        f"{name} has no single softmax attention in a block ({type(attention).__name__})",
        "its attention is not one softmax per head and cannot be shown exactly",
    )


def choose_device(wanted: str) -> torch.device:
    """The device behind ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.

    Raises:
        UsageError: Unknown, or not on this machine.
    """
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise UsageError(
            f"--device {wanted} is no device", "use auto, cpu, cuda, cuda:1 or mps"
        ) from error
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(device.type, False):
        raise UsageError(f"--device {wanted} is not on this machine", "use --device auto or cpu")
    return device


def torch_dtype(precision: Precision) -> torch.dtype:
    """Torch's number type of a precision."""
    return {
        Precision.FLOAT32: torch.float32,
        Precision.BFLOAT16: torch.bfloat16,
        Precision.FLOAT16: torch.float16,
    }[precision]
