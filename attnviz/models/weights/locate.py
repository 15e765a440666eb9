"""Which files a path to weights means, and what to call them. Nothing is opened but an index."""

from __future__ import annotations

import re
from pathlib import Path

from attnviz.errors import CheckpointError, UsageError
from attnviz.models.weights.text import read_json
from attnviz.storage import local_copy

CONFIG = "config.json"
WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")
"""Weights in a folder, the preferred first; each may be split, with an index beside it."""

PREPROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""Files of transformers on how images are prepared; the second has it as one part of several."""

_CACHED = re.compile(r"^models--(.+?)--(.+)$")
"""The folder of a repository in the cache of the hub."""


def locate(path: Path) -> tuple[list[Path], Path | None]:
    """The weights files of a path, and the config.json beside them if there is one.

    What is at an address is copied to this machine.

    Raises:
        UsageError: No such path, or a folder without config.json or weights.
        CheckpointError: An index of a split file that is damaged or incomplete, or an address that
            cannot be read.
    """
    files, config = _files_of(path)
    try:
        if config is not None:
            for name in PREPROCESSORS:
                if config.with_name(name).is_file():
                    local_copy(config.with_name(name))
        return [local_copy(file) for file in files], None if config is None else local_copy(config)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(f"checkpoint {path} cannot be read ({reason})") from error


def _files_of(path: Path) -> tuple[list[Path], Path | None]:
    try:
        folder, file, exists = path.is_dir(), path.is_file(), path.exists()
    except OSError as error:
        raise UsageError(f"checkpoint {path} cannot be opened: {error.strerror}") from error
    if not exists:
        raise UsageError(f"checkpoint {path} does not exist", "give a file or a folder")
    if not folder:
        if not file:
            raise UsageError(f"checkpoint {path} is not a regular file", "give a file or a folder")
        config = path.parent / CONFIG
        files = _parts(path) if path.name.endswith(".index.json") else [path]
        return files, config if config.is_file() else None
    config = path / CONFIG
    if not config.is_file():
        raise UsageError(
            f"checkpoint {path} is a folder without {CONFIG}",
            "give a weights file, or a Hugging Face folder with config.json and weights",
        )
    files = weights_in(path)
    if not files:
        raise UsageError(
            f"checkpoint {path} has {CONFIG}, but no weights ({' or '.join(WEIGHTS_FILES)})",
            "download the weights into it",
        )
    return files, config


def weights_in(folder: Path) -> list[Path]:
    """The weights files of a folder, several where they are split; empty without any.

    Raises:
        CheckpointError: An index of a split file that is damaged or incomplete.
    """
    for name in WEIGHTS_FILES:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _parts(index)
    return []


def part_names(index: Path) -> list[str]:
    """The names of the files that an index of split weights lists.

    Raises:
        CheckpointError: It lists none, or points outside its folder.
    """
    parts = read_json(index).get("weight_map")
    if not isinstance(parts, dict) or not parts:
        raise CheckpointError(f"{index} lists no weights files")
    names = sorted({str(name) for name in parts.values()})
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"{index} points outside its folder, to {name!r}")
    return names


def _parts(index: Path) -> list[Path]:
    names = part_names(index)
    for name in names:
        if not (index.parent / name).is_file():
            raise CheckpointError(f"{index} lists {name}, which is missing", "download it again")
    return [index.parent / name for name in names]


def title_of(path: Path, *, configured: bool) -> str:
    """What to call weights: their file, or the folder whose config.json describes them.

    A folder in the cache of the hub is called by its repository.
    """
    folder = path if path.is_dir() else path.parent
    if not configured and folder != path:
        return path.name
    snapshot = folder.resolve()
    cached = _CACHED.match(snapshot.parent.parent.name)
    if cached and snapshot.parent.name == "snapshots":
        return f"{cached.group(1)}/{cached.group(2)}"
    return snapshot.name or str(folder)
