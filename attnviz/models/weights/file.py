"""Reading a weights file: memory-mapped, onto the CPU, and without running anything in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.errors import CheckpointError
from attnviz.models.weights.header import is_safetensors, read_head, safetensors_bytes
from attnviz.models.weights.pickle_header import SAFE_HINT
from attnviz.models.weights.pickles import read_pickle
from attnviz.models.weights.text import first_line


def read_weights(path: Path) -> Mapping[str, Any]:
    """The content of a file: names to tensors, or dicts of them in any nesting.

    Raises:
        CheckpointError: Not a checkpoint, damaged, or a pickle that asks for more than data.
    """
    head = read_head(path)
    if is_safetensors(head, path):
        return _read_safetensors(path, head)
    content = read_pickle(path)
    if not isinstance(content, Mapping):
        kind = type(content).__name__
        raise CheckpointError(f"{path} holds a {kind}, not a dict of tensors", SAFE_HINT)
    return content


def _read_safetensors(path: Path, head: bytes) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        have, need, least = path.stat().st_size, *safetensors_bytes(path, head)
        if have < need:
            message = f"{path} is cut off: {have:,} of {least}{need:,} bytes are there"
        else:
            message = f"{path} is a damaged safetensors file: {first_line(error)}"
        raise CheckpointError(message, "download it again") from error
