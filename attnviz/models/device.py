"""Where and in which arithmetic a model runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from attnviz.domain import Precision
from attnviz.errors import UsageError


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
            f"--device {wanted} is not a device", "use auto, cpu, cuda, cuda:1 or mps"
        ) from error
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available.get(device.type, False):
        raise UsageError(f"--device {wanted} is not on this machine", "use --device auto or cpu")
    return device


def torch_dtype(precision: Precision) -> torch.dtype:
    """Torch's number type of a precision."""
    return {
        Precision.FLOAT32: torch.float32,
        Precision.BFLOAT16: torch.bfloat16,
        Precision.FLOAT16: torch.float16,
    }[precision]


def arithmetic_of(dtype: torch.dtype) -> str:
    """What a pass inside ``exact_float32`` computes in, for the record."""
    name = str(dtype).removeprefix("torch.")
    return f"{name}, no TF32" if dtype is torch.float32 else name


_EXACT = "ieee"
_INHERITED = "none"


def _settings() -> list[Any]:
    """Torch's settings that let a float32 operation be rounded further.

    cuDNN's convolutions are in TF32 unless that is switched off, matrix products on request, and
    oneDNN may take bfloat16 on a CPU.
    """
    backends: Any = torch.backends
    if not hasattr(backends.cudnn, "conv"):  # before torch 2.9 the older switches are all there is
        return []
    return [
        *(backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul),
        *(backends.mkldnn.conv, backends.mkldnn.rnn, backends.mkldnn.matmul),
    ]


class _ExactFloat32:
    """The settings of this process, which models of several threads share: the last restores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._allowed: bool | None = None
        self._products: str | None = None
        self._before: list[str] = []

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._switch()
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._restore()

    def _switch(self) -> None:
        # torch has an older and a newer way to say this, and complains where they disagree.
        self._before = [setting.fp32_precision for setting in _settings()]
        self._allowed = _or_none(lambda: torch.backends.cudnn.allow_tf32)
        self._products = _or_none(torch.get_float32_matmul_precision)
        if self._allowed is not None:
            torch.backends.cudnn.allow_tf32 = False
        if self._products is not None:
            torch.set_float32_matmul_precision("highest")
        for setting in _settings():
            setting.fp32_precision = _EXACT

    def _restore(self) -> None:
        if self._allowed is not None:
            torch.backends.cudnn.allow_tf32 = self._allowed
        if self._products is not None:
            torch.set_float32_matmul_precision(self._products)
        for setting, value in zip(_settings(), self._before, strict=True):
            setting.fp32_precision = _INHERITED
            if setting.fp32_precision != value:
                setting.fp32_precision = value


def _or_none(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError:
        return None


_exact = _ExactFloat32()


@contextmanager
def exact_float32() -> Iterator[None]:
    """float32 operations in float32, on every device; afterwards all is as it was."""
    _exact.enter()
    try:
        yield
    finally:
        _exact.leave()
