"""What the first bytes of a weights file tell, before torch is imported. No torch."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnviz.errors import CheckpointError
from attnviz.models.weights.locate import locate
from attnviz.models.weights.networks import choose_network
from attnviz.models.weights.pickle_header import NEEDED, cut_off, stored_names
from attnviz.models.weights.text import StoredTensor
from attnviz.storage import is_address

_LONGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors format."""


def check_checkpoint(path: Path, key: str | None = None) -> tuple[str, ...]:
    """The names of a network's tensors, or none where only the loading can tell.

    Raises for what is told without reading a tensor: other files, other layouts, other keys.

    What is at an address is left to the loading, which copies it here.

    Raises:
        UsageError: No such path, or a folder without config.json or weights.
        CheckpointError: Not a checkpoint, cut off, in no known layout, or without the key.
    """
    if is_address(str(path)):
        return ()
    files, _ = locate(path)
    content: dict[str, Any] = {}
    for file in files:
        head = read_head(file)
        names = _safetensors_names(file) if is_safetensors(head, file) else stored_names(file)
        if not names:
            return ()
        content |= names
    if any(isinstance(value, StoredTensor | Mapping) for value in content.values()):
        with suppress(RecursionError):  # dicts in each other, which the loading refuses
            return tuple(choose_network(content, path, key).tensors)
    return ()


def read_head(path: Path) -> bytes:
    """The first bytes of a weights file.

    Raises:
        CheckpointError: It cannot be read, or is another kind of file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    _refuse_other_files(path, head)
    return head


def is_safetensors(head: bytes, path: Path) -> bool:
    """Whether a file with these first bytes is in the safetensors format."""
    # The format begins with the length of its header, then the header, a JSON object.
    length = int.from_bytes(head[:8], "little")
    looks_like_it = len(head) > 8 and head[8:9] == b"{" and 2 <= length <= _LONGEST_HEADER
    return looks_like_it or path.suffix == ".safetensors"


def _safetensors_names(path: Path) -> dict[str, StoredTensor] | None:
    """The names in the header; None where it is damaged."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return {name: StoredTensor() for name in header if name[:2] != "__"}
    except (OSError, ValueError, TypeError, MemoryError, OverflowError):
        return None


def safetensors_bytes(path: Path, head: bytes) -> tuple[int, str]:
    """How long the file has to be by its header, and "at least " where that is cut off too."""
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or length > _LONGEST_HEADER:
        return 0, ""
    try:
        with path.open("rb") as file:
            file.seek(8)
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name[:2] != "__"]
        return 8 + length + max(ends, default=0), ""
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return 8 + length, "at least "


def _refuse_other_files(path: Path, head: bytes) -> None:
    start = head.lstrip()[:64].lower()
    if not head:
        raise CheckpointError(f"{path} is empty", "download it again")
    if head.startswith(b"version https://git-lfs"):
        size = re.search(rb"^size (\d{1,18})$", head, re.MULTILINE)
        of = f" of {int(size.group(1)):,} bytes" if size else ""
        raise CheckpointError(
            f"{path} is a Git LFS pointer, not the weights{of}", "fetch them with git lfs pull"
        )
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise CheckpointError(
            f"{path} is a web page, not weights: the download went wrong", "download it again"
        )
    if head.startswith(b"PK"):
        _refuse_other_archives(path)
    elif head.startswith((b"\x89HDF", b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"GGUF")):
        raise CheckpointError(f"{path} is not a PyTorch checkpoint", NEEDED)
    elif _is_text(head):
        raise CheckpointError(f"{path} is a text file, not a checkpoint", NEEDED)


def _refuse_other_archives(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        message = cut_off(path) or f"{path} is cut off or damaged"
        raise CheckpointError(message, "download it again") from error
    if any(name.endswith(".npy") for name in names):
        raise CheckpointError(f"{path} is a numpy archive, not a PyTorch checkpoint", NEEDED)
    for name, kind, loader in (
        ("constants.pkl", "a TorchScript program", "torch.jit.load"),
        ("archive_format", "an exported program", "torch.export.load"),
    ):
        if any(each.rpartition("/")[2] == name for each in names):
            raise CheckpointError(
                f"{path} is {kind}, not weights",
                f"load it with {loader} and save its state_dict()",
            )
    if not any(name.endswith("data.pkl") for name in names):
        raise CheckpointError(f"{path} is a zip archive, but not a PyTorch checkpoint", NEEDED)


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The head may end inside a character; anything earlier is not text.
        text = head[: error.start].decode("utf-8") if error.start >= len(head) - 3 else "\0"
    return all(character.isprintable() or character in "\t\n\r\f" for character in text)
