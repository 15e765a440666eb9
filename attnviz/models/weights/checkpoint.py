"""A file or folder of weights as one network in timm's naming, with what is known about it.

Tensors stay memory-mapped where the file allows it; only what timm stores joined (query, key and
value of the transformers library) is copied. Nothing is resized: the positions keep their grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from attnviz.domain import Size
from attnviz.errors import CheckpointError
from attnviz.models.weights import hf_config, huggingface, layouts
from attnviz.models.weights.digest import Digest
from attnviz.models.weights.file import read_weights
from attnviz.models.weights.grid import BIAS_TABLE
from attnviz.models.weights.inferred import (
    InferredConfig,
    Preprocessing,
    Source,
    infer_config,
)
from attnviz.models.weights.locate import CONFIG, WEIGHTS_FILES, locate, title_of
from attnviz.models.weights.networks import choose_network
from attnviz.models.weights.preprocessor import preprocessing_of
from attnviz.models.weights.text import read_json
from attnviz.models.weights.timm_config import TimmConfig, read_timm_config

__all__ = ["CONFIG", "WEIGHTS_FILES", "Checkpoint", "open_checkpoint"]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One network out of a file.

    ``path`` is what was asked for, ``files`` what was read, ``title`` what to call it: the name of
    the file, or of the folder whose config.json belongs to it. ``key`` names the part of the file
    that was taken ("teacher"), None when there was only one. ``tensors`` are in timm's naming.
    ``timm``: what a timm config.json says. ``preprocessing``: what a config beside the weights
    says. ``unused``: tensors of heads and masks, a classifier perhaps among them.
    """

    path: Path
    files: tuple[Path, ...]
    title: str
    key: str | None
    source: Source
    tensors: dict[str, Tensor]
    inferred: InferredConfig
    timm: TimmConfig | None
    preprocessing: Preprocessing | None
    unused: dict[str, Tensor]
    _digest: Digest | None = field(repr=False)

    @property
    def sha256(self) -> str | None:
        """Hex SHA-256 of the weights file; of a split one, of its parts in order; None: no file."""
        return None if self._digest is None else self._digest.value()


def open_checkpoint(
    path: Path,
    key: str | None = None,
    *,
    config_path: Path | None = None,
    size: Size | None = None,
    sizes: Sequence[Size] = (),
) -> Checkpoint:
    """Read a checkpoint file or a folder with config.json.

    ``key`` picks a network of a training checkpoint ("student"); by default it is the teacher,
    or the averaged network, or the only one. ``config_path`` replaces the config.json beside it.
    ``size``: height and width in pixels that the stored positions are for. ``sizes``: others that
    they may be for, the most trusted first.

    Raises:
        UsageError: No such path, or a folder without config.json or weights.
        CheckpointError: Not readable, not safe, not a known layout, no such key, or config.json and
            weights disagree.
    """
    files, beside = locate(path)
    config_path = config_path or beside
    # The hash is of bytes, whatever they are, and costs nothing while other work goes on.
    digest = Digest(files)
    content: dict[str, Any] = {}
    for file in files:
        content |= read_weights(file)
    config = read_json(config_path) if config_path else {}
    try:
        network = choose_network(content, path, key)
    except CheckpointError:
        if config_path is not None and "model_type" in config:
            hf_config.source_of(config, config_path)  # names the model, if it is not supported
        raise
    timm = None
    if huggingface.is_layout(network.tensors):
        if config_path is None:
            raise CheckpointError(
                f"{path} is in the layout of transformers, and there is no {CONFIG} beside it: "
                "heads and norm epsilon are only stored there",
                f"put the {CONFIG} of the model into the same folder",
            )
        source = hf_config.source_of(config, config_path)
        tensors, unused = huggingface.convert(network.tensors, source, path)
        unused |= network.beside
        inferred = hf_config.infer_from_config(config, tensors, path)
        preprocessing = preprocessing_of(config_path.parent)
        configured = True
    else:
        source, tensors, unused = convert_original(network.tensors, path)
        if config_path is not None:
            timm = read_timm_config(config, config_path)
        configured = timm is not None
        preprocessing = None if timm is None else timm.preprocessing
        if timm is not None:
            source = Source.TIMM
            sizes = (*timm.sizes, *sizes)
        stated_by = "--model-arg" if size is not None else ""
        trusted = (size,) if size is not None else tuple(sizes)
        inferred = infer_original(tensors, source, path, sizes=trusted, stated_by=stated_by)
    return Checkpoint(
        path=path,
        files=tuple(files),
        title=title_of(path, configured=configured),
        key=network.key,
        source=source,
        tensors=tensors,
        inferred=inferred,
        timm=timm,
        preprocessing=preprocessing,
        unused=unused,
        _digest=digest,
    )


def convert_original(
    stored: dict[str, Tensor], path: Path
) -> tuple[Source, dict[str, Tensor], dict[str, Tensor]]:
    """Whose layout tensors have, those of the backbone in timm's naming, and the unused ones."""
    tensors = layouts.unchunk(stored)
    source = layouts.original_source(tensors)
    if source in (Source.TORCHVISION, Source.OPEN_CLIP):
        tensors = layouts.renamed(tensors, source)
    tensors, unused = layouts.split_unused(tensors)
    if source is Source.DINOV2:
        tensors = layouts.from_dinov2(tensors)
    elif source is Source.DINOV3:
        tensors = layouts.from_dinov3(tensors, path)
    return source, tensors, unused


_TORCHVISION_HEADS = {768: 12, 1024: 16, 1280: 16}
"""By width: ViT-B, ViT-L and ViT-H, of which torchvision has no other heads."""

_OPEN_CLIP_HEAD_WIDTH = 64
"""What open_clip and the original CLIP take where nothing else is said."""


def infer_original(
    tensors: dict[str, Tensor],
    source: Source,
    path: Path,
    *,
    sizes: Sequence[Size] = (),
    stated_by: str = "",
) -> InferredConfig:
    """What the shapes tell of tensors that ``convert_original`` gave.

    sizes, stated_by: as for ``infer_config``.

    Raises:
        CheckpointError: As ``infer_config``.
    """
    periods = tensors.get("rope.periods")
    learned = "pos_embed" in tensors or any(name.endswith(BIAS_TABLE) for name in tensors)
    rotary = source is Source.DINOV3 or not learned
    inferred = infer_config(tensors, path, rotary=rotary, sizes=sizes, stated_by=stated_by)
    if periods is not None:
        # A quarter of a head's width has a period each: this is where the head count is stored.
        return replace(inferred, heads=inferred.width // (4 * len(periods)))
    if source is Source.TORCHVISION:
        return replace(inferred, heads=_TORCHVISION_HEADS.get(inferred.width), eps=1e-6)
    if source is Source.OPEN_CLIP and inferred.width % _OPEN_CLIP_HEAD_WIDTH == 0:
        return replace(inferred, heads=inferred.width // _OPEN_CLIP_HEAD_WIDTH, eps=1e-5)
    return inferred
