"""Patches that overlap: the patch embedding at a smaller stride, and rotary positions in between.

The weights stay as they are. The convolution that embeds patches moves by S pixels instead of the
patch p, so S = p is the model itself, and every (p / S)-th embedding is one of the model's own.
Learned positions are resized to the finer grid in ``positions``, by the model's rule. Rotary ones
are functions of coordinates, and are computed at the patches' true centres: what lies at index i of
timm's grid for patches side by side lies at i S / p here, with the same height and width in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.errors import UnsupportedModelError


def check_overlap(module: Any, name: str) -> None:
    """Raise UnsupportedModelError unless a convolution of the patch's size embeds the patches."""
    embed = module.patch_embed
    projection = getattr(embed, "proj", None)
    size = tuple(embed.patch_size)
    if (
        not isinstance(projection, nn.Conv2d)
        or projection.kernel_size != size
        or projection.stride != size
    ):
        raise UnsupportedModelError(
            f"{name} does not embed its patches by one convolution, so they cannot overlap",
            "omit --stride",
        )


@contextmanager
def overlapping(module: Any, patch: int, stride: int | None) -> Iterator[None]:
    """The module with patches ``stride`` pixels apart for one pass; as it was after it.

    None: the module as it is.
    """
    if stride is None:
        yield
        return
    projection, rope = module.patch_embed.proj, getattr(module, "rope", None)
    own = projection.stride
    projection.stride = (stride, stride)
    if rope is not None:
        # On the instance, so that the class and other models keep theirs.
        rope.__dict__["get_embed"] = _between(rope.get_embed, patch, stride)
    try:
        yield
    finally:
        projection.stride = own
        if rope is not None:
            del rope.__dict__["get_embed"]


def _between(get_embed: Callable[..., Tensor], patch: int, stride: int) -> Callable[..., Tensor]:
    """The ``get_embed`` of timm for the grid of patches that overlap."""

    def strided(shape: Sequence[int] | None = None, **more: Any) -> Tensor:
        if shape is None:
            raise _unsupported()
        whole = [((side - 1) * stride + patch) // patch for side in shape]
        with _Between(whole, patch // stride):
            embedding = get_embed(shape=whole, **more)
        if embedding.shape[-2] != shape[0] * shape[1]:
            raise _unsupported()
        return embedding

    return strided


class _Between(TorchFunctionMode):
    """Grids of coordinates with ``parts`` steps from one index to the next, instead of one.

    sides: numbers of patches side by side, whose ranges these are.
    """

    def __init__(self, sides: Sequence[int], parts: int) -> None:
        super().__init__()
        self._sides, self._parts = sides, parts

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func not in (torch.arange, torch.linspace) or len(made) not in self._sides:
            return made
        if len(made) == 1:
            return made
        values = made.double()
        count = (len(made) - 1) * self._parts + 1
        steps = torch.arange(count, dtype=torch.float64, device=made.device) / self._parts
        dtype = made.dtype if made.is_floating_point() else torch.float32
        between = (values[0] + steps * (values[1] - values[0])).to(dtype)
        between[:: self._parts] = made  # to the bit
        return between


def _unsupported() -> UnsupportedModelError:
    return UnsupportedModelError(
        "this version of timm does not compute rotary positions from a grid",
        "--stride of a rotary model needs the tested version; see constraints.txt",
    )
