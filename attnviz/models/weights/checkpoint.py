"""A file or folder of weights as one network in timm's naming, with what is known about it.

Tensors stay memory-mapped where the file allows it; only what timm stores joined (query, key and
value of the transformers library) is copied. Nothing is resized: the positions keep their grid.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from attnviz.domain import Size
from attnviz.errors import CheckpointError, UsageError
from attnviz.models.weights import huggingface, layouts
from attnviz.models.weights.facts import Facts, Preprocessing, Source, measure
from attnviz.models.weights.file import read_json, read_weights
from attnviz.models.weights.networks import Network, choose_network
from attnviz.storage import local_copy

CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"
FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")
"""Weights in a folder, the preferred first; each may be split, with an index beside it."""


class _Digest:
    """SHA-256 of some files, one after the other, computed while the model is being built."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._value: str | None = None
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._compute, daemon=True)
        self._thread.start()

    def _compute(self) -> None:
        digest = hashlib.sha256()
        try:
            for path in self._files:
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
        except OSError as error:
            self._error = error
        self._value = digest.hexdigest()

    def value(self) -> str:
        self._thread.join()
        if self._error is not None:
            raise CheckpointError(f"{self._files[0]} cannot be read: {self._error}")
        return str(self._value)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One network out of a file.

    ``path`` is what was asked for, ``files`` what was read. ``key`` names the part of the file
    that was taken ("teacher"), None when there was only one. ``tensors`` are in timm's naming.
    ``timm_name``: the architecture that a timm config.json names. ``preprocessing``: what a config
    beside the weights says. ``ignored``: names of heads and mask tokens that were left over.
    ``heads``: these by name, as stored; a classifier may be among them.
    """

    path: Path
    files: tuple[Path, ...]
    key: str | None
    source: Source
    tensors: dict[str, Tensor]
    facts: Facts
    timm_name: str | None
    preprocessing: Preprocessing | None
    ignored: tuple[str, ...]
    heads: dict[str, Tensor]
    _digest: _Digest | None = field(repr=False)

    @property
    def sha256(self) -> str | None:
        """Hex SHA-256 of the weights file; of a split one, of its parts in order; None: no file."""
        return None if self._digest is None else self._digest.value()


def open_checkpoint(path: Path, key: str | None = None) -> Checkpoint:
    """Read a checkpoint file or a folder with config.json.

    ``key`` picks a network of a training checkpoint ("student"); by default it is the teacher,
    or the averaged network, or the only one.

    Raises:
        UsageError: No such path, or a folder without config.json or weights.
        CheckpointError: Not readable, not safe, no Vision Transformer, no such key, or config.json
            and weights disagree.
    """
    files, config_path = _locate(path)
    # The hash is of bytes, whatever they are, and costs nothing while other work goes on.
    digest = _Digest(files)
    content: dict[str, Any] = {}
    for file in files:
        content |= read_weights(file)
    config = read_json(config_path) if config_path else {}
    try:
        network = choose_network(content, path, key)
    except CheckpointError:
        if config_path is not None and "model_type" in config:
            huggingface.source_of(config, config_path)  # names the model, if it is none of ours
        raise
    if huggingface.is_layout(network.tensors):
        if config_path is None:
            raise CheckpointError(
                f"{path} is in the layout of transformers, and there is no {CONFIG} beside it: "
                "heads and norm epsilon are only stored there",
                f"put the {CONFIG} of the model into the same folder",
            )
        source = huggingface.source_of(config, config_path)
        tensors, ignored = huggingface.convert(network.tensors, source, path)
        ignored += network.beside
        facts = huggingface.facts_of(config, source, tensors, path)
        preprocessing = huggingface.preprocessing_of(config_path.parent)
        timm_name = None
    else:
        source, tensors, ignored = convert_original(network.tensors, path)
        timm_name, preprocessing = _timm_config(config)
        if timm_name is not None:
            source = Source.TIMM
        facts = original_facts(tensors, source, path)
    return Checkpoint(
        path=path,
        files=tuple(files),
        key=network.key,
        source=source,
        tensors=tensors,
        facts=facts,
        timm_name=timm_name,
        preprocessing=preprocessing,
        ignored=tuple(ignored),
        heads=_heads(ignored, network),
        _digest=digest,
    )


def _heads(names: Sequence[str], network: Network) -> dict[str, Tensor]:
    held = network.tensors | network.beside
    return {name: held[name] for name in names if name in held}


def digest_of(path: Path) -> str:
    """The ``sha256`` that the checkpoint at a path would have; nothing in it is looked at.

    Raises:
        UsageError: No such path, or a folder without config.json or weights.
        CheckpointError: Not readable.
    """
    files, _ = _locate(path)
    return _Digest(files).value()


def _locate(path: Path) -> tuple[list[Path], Path | None]:
    """The weights files, and the config.json beside them if there is one, on this machine."""
    files, config = _files_of(path)
    try:
        if config is not None and (beside := config.with_name(PREPROCESSOR)).is_file():
            local_copy(beside)
        return [local_copy(file) for file in files], None if config is None else local_copy(config)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(f"checkpoint {path} cannot be read ({reason})") from error


def _files_of(path: Path) -> tuple[list[Path], Path | None]:
    try:
        folder, file, there = path.is_dir(), path.is_file(), path.exists()
    except OSError as error:
        raise UsageError(f"checkpoint {path} cannot be opened: {error.strerror}") from error
    if not there:
        raise UsageError(f"checkpoint {path} does not exist", "give a file or a folder")
    if not folder:
        if not file:
            raise UsageError(f"checkpoint {path} is no regular file", "give a file or a folder")
        config = path.parent / CONFIG
        in_folder = path.name.endswith(".index.json")
        files = _parts(path) if in_folder else [path]
        return files, config if config.is_file() else None
    config = path / CONFIG
    if not config.is_file():
        raise UsageError(
            f"checkpoint {path} is a folder without {CONFIG}",
            "give a weights file, or a Hugging Face folder with config.json and weights",
        )
    for name in FOLDER_FILES:
        if (path / name).is_file():
            return [path / name], config
        index = path / f"{name}.index.json"
        if index.is_file():
            return _parts(index), config
    raise UsageError(
        f"checkpoint {path} has {CONFIG}, but no weights ({' or '.join(FOLDER_FILES)})",
        "download the weights into it",
    )


def _parts(index: Path) -> list[Path]:
    parts = read_json(index).get("weight_map")
    if not isinstance(parts, dict) or not parts:
        raise CheckpointError(f"{index} lists no weights files")
    names = sorted({str(name) for name in parts.values()})
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"{index} points outside its folder, to {name!r}")
        if not (index.parent / name).is_file():
            raise CheckpointError(f"{index} lists {name}, which is missing", "download it again")
    return [index.parent / name for name in names]


def convert_original(
    found: dict[str, Tensor], path: Path
) -> tuple[Source, dict[str, Tensor], list[str]]:
    """Tensors in timm's naming, whose layout they had, and the names that were left over."""
    tensors = layouts.unchunk(found)
    source = layouts.original_source(tensors)
    tensors, ignored = layouts.split_unused(tensors)
    if source is Source.DINOV2:
        tensors = layouts.from_dinov2(tensors)
    elif source is Source.DINOV3:
        tensors = layouts.from_dinov3(tensors, path)
    return source, tensors, ignored


def original_facts(tensors: dict[str, Tensor], source: Source, path: Path) -> Facts:
    """What the shapes tell of tensors that ``convert_original`` gave."""
    periods = tensors.get("rope.periods")
    rotary = source is Source.DINOV3 or "pos_embed" not in tensors
    facts = measure(tensors, path, rotary=rotary)
    if periods is not None:
        # A quarter of a head's width has a period each: this is where the head count is stored.
        facts = replace(facts, heads=facts.width // (4 * len(periods)))
    return facts


def _timm_config(config: dict[str, Any]) -> tuple[str | None, Preprocessing | None]:
    """Architecture and preprocessing of timm's config.json; None where it is not timm's."""
    name, details = config.get("architecture"), config.get("pretrained_cfg")
    if not isinstance(name, str):
        return None, None
    if not isinstance(details, dict):
        return name, None
    tag = details.get("tag")
    try:
        _, height, width = details["input_size"]
        preprocessing = Preprocessing(
            huggingface.three(details["mean"]),
            huggingface.three(details["std"]),
            str(details["interpolation"]),
            Size(int(height), int(width)),
        )
    except (KeyError, TypeError, ValueError):
        preprocessing = None
    return f"{name}.{tag}" if tag else name, preprocessing
