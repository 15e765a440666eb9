"""Reading a pickle of weights as data.

A ``.pth`` file is a pickle, which is a small program. torch's restricted unpickler builds tensors
and plain containers; on top of these only argparse.Namespace (training scripts store their options
in one), paths and numpy's arrays, numbers and dtypes are allowed, for the duration of the call.
numpy's own constructors are not called: what a pickle says about an array is checked and read
here, since numpy takes a pickled dtype at its word.
"""

from __future__ import annotations

import argparse
import pathlib
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnviz.errors import CheckpointError
from attnviz.models.weights.pickle_header import NEEDED, SAFE_HINT, cut_off
from attnviz.models.weights.text import first_line

# What a refused pickle is called in torch's messages.
_BLOCKED = (
    re.compile(r"Unsupported global: GLOBAL (\S+)"),
    re.compile(r"Trying to call reduce for unrecognized function (.+)"),
    re.compile(r"Trying to load unsupported GLOBAL (\S+)"),
    re.compile(r"Can only build Tensor, .* but got <class '([^']+)'>"),
    re.compile(r"Trying to instantiate unsupported class (\S+)"),
    re.compile(r"Trying to load blocked module (\S+)"),
)

_NUMBERS = re.compile(r"[biufc]\d{1,2}")


class _Dtype:
    """A numpy dtype as a pickle describes it: a code such as ``f8``, and the byte order."""

    def __init__(self, code: Any = "", *_: Any) -> None:
        self.code = code if isinstance(code, str) else ""
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">"):
            self.order = str(state[1])

    def numbers(self) -> np.dtype[Any] | None:
        """The dtype of plain numbers; None for text, objects and records."""
        if not _NUMBERS.fullmatch(self.code):
            return None
        try:
            return np.dtype(self.order + self.code)
        except TypeError:
            return None


class _Array:
    """A numpy array as a pickle describes it; ``values`` None where it is not of plain numbers."""

    def __init__(self, *_: Any) -> None:
        self.values: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        try:
            _, shape, dtype, by_column, raw = state
            numbers = dtype.numbers()
            if numbers is not None and isinstance(raw, bytes) and min(shape, default=0) >= 0:
                order: Any = "F" if by_column else "C"
                self.values = np.frombuffer(raw, numbers).reshape(shape, order=order)
                self.values = self.values.astype(numbers.newbyteorder("="))
        except (TypeError, ValueError, AttributeError):
            self.values = None


def _no_bytes(*_: Any) -> bytes:
    return b""  # an array without a number is pickled as a call of bytes


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _scalar(dtype: Any = None, raw: Any = None) -> Any:
    numbers = dtype.numbers() if isinstance(dtype, _Dtype) else None
    if numbers is None or not isinstance(raw, bytes) or len(raw) != numbers.itemsize:
        return None
    return np.frombuffer(raw, numbers)[0].item()


def _allowed_globals() -> list[Any]:
    paths = (pathlib.PosixPath, pathlib.PurePosixPath, pathlib.WindowsPath, pathlib.PureWindowsPath)
    numpy: list[Any] = [
        (_Array, "numpy.ndarray"),
        (_Dtype, "numpy.dtype"),
        (_no_bytes, "builtins.bytes"),
    ]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        numpy += [(_reconstruct, f"{module}._reconstruct"), (_scalar, f"{module}.scalar")]
    return [argparse.Namespace, *paths, *numpy]


def read_pickle(path: Path) -> Any:
    """The content of a pickle written by torch.save; numpy arrays of numbers become tensors.

    Raises:
        CheckpointError: Cut off, damaged, or it asks for more than data.
    """
    try:
        with torch.serialization.safe_globals(_allowed_globals()), warnings.catch_warnings():
            # Other pickle protocols are read as far as they are understood, or refused below.
            warnings.simplefilter("ignore")
            # Only the zip form can be mapped; files from before torch 1.6 are read whole.
            content = torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except pickle.UnpicklingError as error:
        raise _unpickling_error(path, error) from error
    except (RuntimeError, EOFError, OSError, LookupError, ValueError, struct.error) as error:
        missing = cut_off(path)
        if missing:
            raise CheckpointError(missing, "download it again") from error
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint: {first_line(error)}", "is it complete?"
        ) from error
    except (TypeError, AttributeError, NotImplementedError, AssertionError) as error:
        raise CheckpointError(
            f"{path} holds something other than plain data: {first_line(error)}", SAFE_HINT
        ) from error
    try:
        return _with_tensors(content)
    except RecursionError as error:
        raise CheckpointError(f"{path} is nested without end", NEEDED) from error


def _with_tensors(content: Any) -> Any:
    """Mappings with every numpy array of numbers as a tensor."""
    if isinstance(content, _Array):
        try:
            return None if content.values is None else torch.from_numpy(content.values)
        except TypeError:  # a number type or byte order that torch does not have
            return None
    if isinstance(content, Mapping):
        return {name: _with_tensors(value) for name, value in content.items()}
    return content


def _unpickling_error(path: Path, error: Exception) -> CheckpointError:
    text = str(error)
    for pattern in _BLOCKED:
        match = pattern.search(text)
        if match:
            name = match.group(1).strip("'\"`<>.,")
            what = f"{path} wants to run or build {name}, which is refused"
            return CheckpointError(what, SAFE_HINT)
    missing = cut_off(path)
    if missing:
        return CheckpointError(missing, "download it again")
    if "Unsupported operand" in text or "invalid load key" in text or "persistent" in text:
        return CheckpointError(f"{path} is not a PyTorch checkpoint, or is damaged", NEEDED)
    reason = first_line(ValueError(text.rsplit("WeightsUnpickler error:", maxsplit=1)[-1]))
    return CheckpointError(f"{path} cannot be read safely: {reason}", SAFE_HINT)
