"""What the first bytes of a weights file tell, without torch: files of another kind are refused."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

from attnviz.errors import CheckpointError

NEEDED = "give a checkpoint (.pth, .pt, .bin, .safetensors) or a Hugging Face folder"

LONGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors format."""


def read_head(path: Path) -> bytes:
    """The first bytes of a file that may be a checkpoint.

    Raises:
        CheckpointError: It cannot be read, or is certainly no checkpoint.
    """
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    _refuse_other_files(path, head)
    return head


def is_safetensors(head: bytes, path: Path) -> bool:
    """Whether it is one by its first bytes, or else by its name."""
    # The format begins with the length of its header, then the header, a JSON object.
    length = int.from_bytes(head[:8], "little")
    looks_like_it = len(head) > 8 and head[8:9] == b"{" and 2 <= length <= LONGEST_HEADER
    return looks_like_it or path.suffix == ".safetensors"


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Names of the tensors of a safetensors file to ``shape`` and ``data_offsets``.

    Empty where it cannot be read.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= LONGEST_HEADER else {}
        entries = {name: entry for name, entry in header.items() if name[:2] != "__"}
        if all(len(each["shape"]) + each["data_offsets"][1] >= 0 for each in entries.values()):
            return entries
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    return {}


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
        from attnviz.models.weights.pickles import cut_off

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
