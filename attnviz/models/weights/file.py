"""Reading a weights file as data: memory-mapped, onto the CPU, and without running anything in it.

A ``.pth`` file is a pickle, which is a small program. It is read by torch's restricted unpickler,
which builds tensors and plain containers; beyond these only argparse.Namespace (training files
keep their options in one), paths and numpy numbers are allowed, for the time of the call.
"""

from __future__ import annotations

import argparse
import json
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

_NEEDED = "a checkpoint (.pth, .pt, .bin, .safetensors) or a Hugging Face folder is needed"
_SAFE_HINT = (
    "nothing in a checkpoint is executed; save its weights alone on a machine where it is trusted: "
    "torch.save(model.state_dict(), FILE)"
)
_LONGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors format."""

# What a refused pickle is called in torch's messages.
_BLOCKED = (
    re.compile(r"Unsupported global: GLOBAL (\S+)"),
    re.compile(r"Trying to call reduce for unrecognized function (.+)"),
    re.compile(r"Trying to load unsupported GLOBAL (\S+)"),
    re.compile(r"Can only build Tensor, .* but got <class '([^']+)'>"),
    re.compile(r"Trying to instantiate unsupported class (\S+)"),
    re.compile(r"Trying to load blocked module (\S+)"),
)


def read_weights(path: Path) -> Mapping[str, Any]:
    """What is in a file: names to tensors, or dicts of them in any nesting.

    Raises:
        CheckpointError: No checkpoint, damaged, or a pickle that asks for more than data.
    """
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    _refuse_what_is_no_checkpoint(path, head)
    if _is_safetensors(head, path):
        return _read_safetensors(path)
    content = _read_pickle(path)
    if not isinstance(content, Mapping):
        kind = type(content).__name__
        raise CheckpointError(f"{path} holds a {kind}, not a dict of tensors", _SAFE_HINT)
    return content


def _is_safetensors(head: bytes, path: Path) -> bool:
    # The format begins with the length of its header, then the header, a JSON object.
    length = int.from_bytes(head[:8], "little")
    looks_like_it = len(head) > 8 and head[8:9] == b"{" and 2 <= length <= _LONGEST_HEADER
    return looks_like_it or path.suffix == ".safetensors"


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is a damaged safetensors file: {_first_line(error)}", "download it again"
        ) from error


def _refuse_what_is_no_checkpoint(path: Path, head: bytes) -> None:
    start = head.lstrip()[:64].lower()
    if not head:
        raise CheckpointError(f"{path} is empty", "download it again")
    if head.startswith(b"version https://git-lfs"):
        raise CheckpointError(
            f"{path} is a Git LFS pointer, not the weights", "fetch them with git lfs pull"
        )
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise CheckpointError(
            f"{path} is a web page, not weights: the download went wrong", "download it again"
        )
    if head.startswith(b"PK"):
        _refuse_other_archives(path)
    elif head.startswith((b"\x89HDF", b"\x1f\x8b", b"\xfd7zXZ", b"BZh")):
        raise CheckpointError(f"{path} is no PyTorch checkpoint", _NEEDED)
    elif _is_text(head):
        raise CheckpointError(f"{path} is a text file, not a checkpoint", _NEEDED)


def _refuse_other_archives(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        raise CheckpointError(f"{path} is cut off or damaged", "download it again") from error
    if any(name.endswith(".npy") for name in names):
        raise CheckpointError(f"{path} is a numpy archive, not a PyTorch checkpoint", _NEEDED)
    if not any(name.endswith("data.pkl") for name in names):
        raise CheckpointError(f"{path} is a zip archive, but no PyTorch checkpoint", _NEEDED)


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The head may end inside a character; anything earlier is no text.
        text = head[: error.start].decode("utf-8") if error.start >= len(head) - 3 else "\0"
    return all(character.isprintable() or character in "\t\n\r\f" for character in text)


def _read_pickle(path: Path) -> Any:
    try:
        with (
            torch.serialization.safe_globals(_harmless_globals()),
            warnings.catch_warnings(),
        ):
            # Other pickle protocols are read as far as they are understood, or refused below.
            warnings.simplefilter("ignore")
            # Only the zip form can be mapped; files from before torch 1.6 are read whole.
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except pickle.UnpicklingError as error:
        raise _unpickling_error(path, error) from error
    except (RuntimeError, EOFError, OSError, LookupError, ValueError, struct.error) as error:
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint: {_first_line(error)}", "is it complete?"
        ) from error
    except (TypeError, AttributeError, NotImplementedError, AssertionError) as error:
        raise CheckpointError(
            f"{path} holds what is no plain data: {_first_line(error)}", _SAFE_HINT
        ) from error


def _unpickling_error(path: Path, error: Exception) -> CheckpointError:
    text = str(error)
    for pattern in _BLOCKED:
        found = pattern.search(text)
        if found:
            name = found.group(1).strip("'\"`<>.,")
            what = f"{path} wants to run or build {name}, which is refused"
            return CheckpointError(what, _SAFE_HINT)
    if "Unsupported operand" in text or "invalid load key" in text or "persistent" in text:
        return CheckpointError(f"{path} is no PyTorch checkpoint, or is damaged", _NEEDED)
    reason = _first_line(ValueError(text.rsplit("WeightsUnpickler error:", maxsplit=1)[-1]))
    return CheckpointError(f"{path} cannot be read safely: {reason}", _SAFE_HINT)


def _harmless_globals() -> list[Any]:
    scalar = np.float64(0).__reduce__()[0]
    numbers = [type(np.dtype(code)) for code in "?bBhHiIlLqQefdg"]
    paths = (pathlib.PosixPath, pathlib.PurePosixPath, pathlib.WindowsPath, pathlib.PureWindowsPath)
    return [
        argparse.Namespace,
        *paths,
        np.dtype,
        *dict.fromkeys(numbers),
        (scalar, "numpy.core.multiarray.scalar"),
        (scalar, "numpy._core.multiarray.scalar"),
    ]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object beside the weights, such as config.json.

    Raises:
        CheckpointError: Unreadable, or no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {_first_line(error)}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return content


def _first_line(error: Exception) -> str:
    # Messages quote names out of the file, which may hold anything.
    lines = str(error).strip().splitlines()
    line = "".join(letter if letter.isprintable() else "?" for letter in lines[0]) if lines else ""
    return line or type(error).__name__
