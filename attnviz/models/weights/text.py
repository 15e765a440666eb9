"""Text beside the weights: JSON files, messages of other libraries, names of tensors. No torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from attnviz.errors import CheckpointError


def first_line(error: Exception) -> str:
    """The first line of an error's message, printable; the name of its type where it has none."""
    # Messages quote names from the file, which may hold anything.
    lines = str(error).strip().splitlines()
    line = "".join(letter if letter.isprintable() else "?" for letter in lines[0]) if lines else ""
    return line or type(error).__name__


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object beside the weights, such as config.json.

    Raises:
        CheckpointError: Unreadable, or not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return content


class StoredTensor:
    """Stands for a tensor of which only the name was read."""


def is_tensor(value: Any) -> bool:
    """Whether an entry of a checkpoint is a tensor, also where torch is not imported yet."""
    torch = sys.modules.get("torch")
    return isinstance(value, StoredTensor) or (
        torch is not None and isinstance(value, torch.Tensor)
    )
