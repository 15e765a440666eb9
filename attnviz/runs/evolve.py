"""One picture under several checkpoints of one model; what happens is yielded as events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.compute import check_command
from attnviz.attention.memory import largest_batch
from attnviz.domain import (
    DEFAULT_MASS,
    DrawStyle,
    EvolutionMaps,
    HeadsMaps,
    ImageFile,
    LayersMaps,
    ModelInfo,
    Picture,
    PreparedImage,
    Provenance,
    Query,
    RgbImage,
    Rows,
    WrittenFile,
)
from attnviz.domain.events import UP_TO_DATE, Done, Event, Skipped, Started
from attnviz.domain.options import written_options
from attnviz.domain.requests import (
    HeadsRequest,
    InputRequest,
    LayersRequest,
    ModelRequest,
    OutputRequest,
    RunRequest,
)
from attnviz.errors import CheckpointError, UsageError
from attnviz.figures.evolve import draw_evolution, draw_frames
from attnviz.images.find import find_images
from attnviz.images.fit import check_size, prepare
from attnviz.images.mask import mask_notes, read_mask
from attnviz.images.read import read_input
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.models.weights.checkpoint import digest_of
from attnviz.output.animation import write_gif
from attnviz.output.current import identity, is_up_to_date, outputs_up_to_date
from attnviz.output.data import evolution_arrays
from attnviz.output.name import name_values
from attnviz.output.plan import OutputPlan, check_folder, plan_outputs
from attnviz.output.read_record import read_record
from attnviz.output.record import record_of
from attnviz.output.write import write_figures, write_npz
from attnviz.runs.checkpoint_series import Named, join, name_checkpoints, table
from attnviz.stages.model import maps_of
from attnviz.stages.read import versions

if TYPE_CHECKING:
    from attnviz.domain import BoolArray

COMMAND = "evolve"


@dataclass(frozen=True)
class EvolutionRequest:
    """Which checkpoints are compared, on which picture (one), and what is drawn of them.

    ``mask``: the object's pixels, for the Jaccard index of mass masks that hold ``threshold``.
    """

    checkpoints: tuple[Path, ...]
    model: ModelRequest
    inputs: InputRequest
    output: OutputRequest
    style: DrawStyle = field(default_factory=DrawStyle)
    rows: Rows = Rows.HEADS
    layer: int = -1
    heads: tuple[int, ...] | None = None
    query: Query = Query.CLS
    mask: Path | None = None
    threshold: float = DEFAULT_MASS
    animation: bool = False

    @property
    def command(self) -> HeadsRequest | LayersRequest:
        """What every checkpoint is asked for."""
        if self.rows is Rows.LAYERS:
            return LayersRequest(heads=self.heads, distance=False, query=self.query)
        return HeadsRequest(self.layer, self.heads, distance=False, query=self.query)


def evolve(request: EvolutionRequest) -> Iterator[Event]:
    """Draw the figure: one ``Started``, then one ``Done`` or ``Skipped``.

    Raises:
        AttnvizError: The picture, its mask, a checkpoint, an option or the output folder.
    """
    file = _picture_of(request.inputs)
    named = name_checkpoints(request.checkpoints)
    layer = None if request.rows is Rows.LAYERS else request.layer
    values = name_values(COMMAND, [replace(request.model, checkpoint=named.paths[-1])], layer)
    plan = plan_outputs([file], COMMAND, request.output, values)[file]
    digests = tuple(digest_of(path) for path in named.paths)
    check_folder(request.output.folder, [plan])
    image = read_input(file, request.inputs)
    notes, mask = image.notes, None
    if request.mask is not None:
        read = read_mask(request.mask, image.size)
        notes, mask = (*notes, *mask_notes(read)), read.pixels
    model = _load(request, named.paths[0])
    check_size(model.info.patch, request.inputs.size, request.inputs.fit)
    prepared = _prepared(request, image, model)
    provenance = _provenance(request, prepared, model, list(zip(named.paths, digests, strict=True)))
    yield Started(1, provenance.model, model.notes)
    if request.output.skip_existing and _is_up_to_date(request, plan, provenance):
        yield Skipped(file, UP_TO_DATE)
        return
    maps = _maps(request, model, prepared, named, mask)
    written = _write(request, maps, prepared, mask, plan, provenance)
    rows = table(maps)
    yield Done(file, written, record_of(provenance, written, rows), rows, notes)


def _picture_of(inputs: InputRequest) -> ImageFile:
    found = find_images(inputs.inputs)
    for _, error in found.missing:
        raise error
    if len(found.files) != 1:
        raise UsageError(f"--image: {len(found.files)} pictures, and the figure shows one")
    return found.files[0]


def _load(request: EvolutionRequest, path: Path) -> Backbone:
    model = load_backbone(replace(request.model, checkpoint=path))
    check_command(model.info, request.command)
    return model


def _prepared(request: EvolutionRequest, image: RgbImage, model: Backbone) -> PreparedImage:
    inputs = request.inputs
    return prepare(image, model.info, inputs.size, inputs.fit, inputs.mean, inputs.std)


def _maps(
    request: EvolutionRequest,
    first: Backbone,
    prepared: PreparedImage,
    named: Named,
    mask: BoolArray | None,
) -> EvolutionMaps:
    """One checkpoint after the other, so that one model is in memory at a time."""
    found: list[HeadsMaps | LayersMaps] = []
    info = first.info
    for path in named.paths:
        model = first if path == named.paths[0] else _load(request, path)
        _compare(info, model.info, path)
        # Asked for its error: it names the largest size that fits.
        size = prepared.geometry.model_input
        largest_batch(info, size, request.command, model.device)
        (maps,) = maps_of(model, [prepared], request.command)
        if not isinstance(maps, HeadsMaps | LayersMaps):
            raise TypeError("maps of another kind than asked for")
        found.append(maps)
    return join(found, named, prepared.geometry, mask, request.threshold)


def _compare(first: ModelInfo, info: ModelInfo, path: Path) -> None:
    for name in ("patch", "width", "depth", "heads", "prefix", "native_size", "mean", "std"):
        have, want = getattr(info, name), getattr(first, name)
        if have != want:
            raise CheckpointError(
                f"{path}: its {name.replace('_', ' ')} is {have}, that of the first is {want}",
                "the checkpoints of one figure are of one model",
            )


def _provenance(
    request: EvolutionRequest,
    prepared: PreparedImage,
    model: Backbone,
    checkpoints: list[tuple[Path, str]],
) -> Provenance:
    image = prepared.image
    # One hash for all, of the hashes in their order: it changes when any of them does.
    joined = hashlib.sha256("".join(digest for _, digest in checkpoints).encode()).hexdigest()
    name = request.model.name or model.info.name
    if request.model.name is None and name == checkpoints[0][0].stem:
        name = f"ViT of {model.info.depth} layers of width {model.info.width}"
    weights = f"{len(checkpoints)} checkpoint{'s' * (len(checkpoints) > 1)}"
    return Provenance(
        command=COMMAND,
        model=replace(model.info, name=name, weights=weights, weights_sha256=joined),
        image=str(image.file.path),
        image_sha256=image.sha256,
        geometry=prepared.geometry,
        options=_options(request),
        versions=versions(),
        device=model.device.type,
        checkpoints=tuple((str(path), digest) for path, digest in checkpoints),
    )


def _options(request: EvolutionRequest) -> dict[str, Any]:
    run = RunRequest(request.command, request.model, request.inputs, request.output, request.style)
    options = {"rows": request.rows.value, **written_options(run)}
    del options["no-distance"]
    if request.mask is not None:
        options |= {"mask": str(request.mask), "threshold": request.threshold}
    return options


def _is_up_to_date(request: EvolutionRequest, plan: OutputPlan, provenance: Provenance) -> bool:
    there = outputs_up_to_date(plan, request.output, identity(provenance))
    return there and (
        not request.animation or is_up_to_date(read_record(plan.path("gif")), provenance)
    )


def _write(
    request: EvolutionRequest,
    maps: EvolutionMaps,
    prepared: PreparedImage,
    mask: BoolArray | None,
    plan: OutputPlan,
    provenance: Provenance,
) -> tuple[WrittenFile, ...]:
    """The figure last, so that it stands for a complete set."""
    image, style = prepared.image, request.style
    picture = Picture(image.pixels, prepared.geometry, image.file.path.name)
    written = []
    if request.output.save_data:
        written.append(write_npz(plan.path("npz"), evolution_arrays(maps), provenance))
    if request.animation:
        frames = draw_frames(maps, picture, provenance.model, style)
        written.append(write_gif(frames, plan.path("gif"), style.dpi, provenance))
    figures = draw_evolution(
        maps, picture, provenance.model, style, mask=mask, threshold=request.threshold
    )
    drawn = write_figures(figures, plan, request.output.formats, style.dpi, provenance)
    return (*drawn, *written)
