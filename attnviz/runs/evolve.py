"""One image under several checkpoints of one model. Prints nothing; yields events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.attention.checks import check_request
from attnviz.domain import (
    EvolutionMaps,
    FigureImage,
    HeadsMaps,
    ImageFile,
    LayersMaps,
    ModelInfo,
    PreparedImage,
    Provenance,
    WrittenFile,
)
from attnviz.domain.events import UP_TO_DATE, Done, Event, Failed, Skipped, Started
from attnviz.domain.evolution import EvolutionRequest
from attnviz.errors import AttentionError, AttnvizError, CheckpointError
from attnviz.figures.evolve import draw_evolution, draw_frames
from attnviz.figures.names import missing_glyphs
from attnviz.images.mask import mask_notes, read_mask
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.models.weights.digest import digest_of
from attnviz.output.animation import write_gif
from attnviz.output.current import identity, is_up_to_date, outputs_up_to_date
from attnviz.output.plan import OutputPlan, check_folder
from attnviz.output.read_record import read_record
from attnviz.output.record import record_of
from attnviz.output.write import write_figures, write_npz
from attnviz.runs.checkpoint_names import CheckpointSeries, name_checkpoints
from attnviz.runs.checkpoint_series import join, table
from attnviz.runs.evolve_plan import COMMAND, evolution_options, evolution_plan, joined_digest
from attnviz.stages.draw import about
from attnviz.stages.plan import file_digest
from attnviz.stages.read import prepare_image, provenance_of
from attnviz.stages.single import SingleImage

if TYPE_CHECKING:
    from attnviz.domain import BoolArray

SAME_IN_ALL = ("patch", "width", "depth", "heads", "prefix", "native_size", "mean", "std")
"""What the checkpoints of one figure must have in common."""


@dataclass(frozen=True, eq=False)
class _Task:
    """One figure to make: of which image and checkpoints, and where its files go.

    info: of the first checkpoint's model; device: where it runs, as cuda.
    """

    request: EvolutionRequest
    file: ImageFile
    plan: OutputPlan
    series: CheckpointSeries
    info: ModelInfo
    device: str


def evolve(request: EvolutionRequest, into: Path | None = None) -> Iterator[Event]:
    """Draw the figure: one ``Started``, then one ``Done``, ``Skipped`` or ``Failed``.

    ``into``: write into this folder instead of the request's, under the same names.

    Raises:
        AttnvizError: Nothing can be done at all: no image, the options, the first checkpoint, or
            the output folder.
    """
    if into is not None:
        request = replace(request, output=replace(request.output, folder=into))
    file, plan = evolution_plan(request)
    series = name_checkpoints(request.checkpoints)
    check_folder(request.output.folder, [plan])
    model = _load(request, series.paths[0])
    check_size(model.info.patch, request.inputs.size, request.inputs.fit)
    task = _Task(request, file, plan, series, model.info, model.device.type)
    yield Started(1, model.info, (*model.notes, *missing_glyphs([file.path.name])))
    models = _models(task, model)
    del model
    try:
        yield _outcome(task, models)
    except AttnvizError as error:
        yield Failed(str(file.path), about(file, error))


def _load(request: EvolutionRequest, path: Path) -> Backbone:
    model = load_backbone(replace(request.model, checkpoint=path))
    check_request(model.info, request.command)
    return model


def _models(task: _Task, first: Backbone) -> Iterator[Backbone]:
    """The models of all checkpoints, one in memory at a time if the caller keeps none."""
    yield first
    del first
    for path in task.series.paths[1:]:
        yield _load_alike(task, path)


def _load_alike(task: _Task, path: Path) -> Backbone:
    model = _load(task.request, path)
    for name in SAME_IN_ALL:
        value, expected = getattr(model.info, name), getattr(task.info, name)
        if value != expected:
            raise CheckpointError(
                f"{path}: its {name.replace('_', ' ')} is {value}, that of the first is {expected}",
                "all checkpoints of a figure must be of the same model",
            )
    return model


def _outcome(task: _Task, models: Iterable[Backbone]) -> Done | Skipped:
    request, output = task.request, task.request.output
    image = read_input(task.file, request.inputs)
    mask: BoolArray | None = None
    mask_note: tuple[str, ...] = ()
    if request.mask is not None:
        read = read_mask(request.mask, image.size)
        mask, mask_note = read.pixels, mask_notes(read)
    prepared = prepare_image(image, task.info, request.inputs)
    provenance = _provenance(task, prepared)
    current = output.skip_existing and _is_up_to_date(task, provenance)
    if current and not output.every_number:
        return Skipped(task.file, UP_TO_DATE)
    maps, notes = _maps(task, models, prepared, mask)
    rows = table(maps)
    if current:
        return Skipped(task.file, UP_TO_DATE, rows)
    written = _write(task, maps, prepared, mask, provenance)
    record = record_of(provenance, written, rows)
    return Done(task.file, written, record, rows, (*prepared.image.notes, *mask_note, *notes))


def _maps(
    task: _Task, models: Iterable[Backbone], prepared: PreparedImage, mask: BoolArray | None
) -> tuple[EvolutionMaps, list[str]]:
    """What all checkpoints compute, and notes about them."""
    request, series = task.request, task.series
    results: list[HeadsMaps | LayersMaps] = []
    notes: list[str] = []
    names = iter(series.names)
    for model in models:
        name = next(names)
        single = SingleImage(model, prepared, request.model.verify)
        try:
            results.append(single.maps(request.command))
        except AttentionError as error:
            raise AttentionError(f"{name}: {error.message}", error.hint) from error
        notes += [f"{name}: {note}" for note in single.notes]
        # One model in memory at a time.
        del model, single
    return join(results, series, prepared.geometry, mask, request.threshold), notes


def _provenance(task: _Task, prepared: PreparedImage) -> Provenance:
    request, paths = task.request, task.series.paths
    digests = [digest_of(path) for path in paths]
    name = request.model.name or task.info.shape or task.info.name
    if request.model.name is None and name == paths[0].stem:
        name = f"ViT of {task.info.depth} layers of width {task.info.width}"
    weights = f"{len(paths)} checkpoint{'s' * (len(paths) > 1)}"
    info = task.info.with_statistics(request.inputs.mean, request.inputs.std)
    info = replace(
        info, name=name, shape="", weights=weights, weights_sha256=joined_digest(digests)
    )
    return replace(
        provenance_of(COMMAND, prepared, info, task.device, evolution_options(request)),
        checkpoints=tuple((str(p), d) for p, d in zip(paths, digests, strict=True)),
        mask_sha256=None if request.mask is None else file_digest(request.mask),
    )


def _is_up_to_date(task: _Task, provenance: Provenance) -> bool:
    if not outputs_up_to_date(task.plan, task.request.output, identity(provenance)):
        return False
    gif = task.plan.path("gif")
    return not task.request.animation or is_up_to_date(read_record(gif), provenance)


def _write(
    task: _Task,
    maps: EvolutionMaps,
    prepared: PreparedImage,
    mask: BoolArray | None,
    provenance: Provenance,
) -> tuple[WrittenFile, ...]:
    """The figure last, so that it stands for a complete set."""
    request, plan, style = task.request, task.plan, task.request.style
    shown = FigureImage(prepared.image.pixels, prepared.geometry, task.file.path.name)
    written = []
    if request.output.save_data:
        written.append(write_npz(plan.path("npz"), maps.arrays(), provenance))
    if request.animation:
        frames = draw_frames(maps, shown, provenance.model, style)
        written.append(write_gif(frames, plan.path("gif"), style.dpi, provenance))
    figures = draw_evolution(
        maps, shown, provenance.model, style, mask=mask, threshold=request.threshold
    )
    drawn = write_figures(figures, plan, request.output.formats, style.dpi, provenance)
    return (*drawn, *written)
