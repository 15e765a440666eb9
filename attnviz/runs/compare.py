"""The comparison of pictures and models in one figure; what happens is yielded as events.

Models are loaded one after another, so that one at a time is in memory, and each sees all pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.compute import check_command
from attnviz.attention.memory import largest_batch
from attnviz.domain import (
    ComparedMap,
    ComparedRow,
    ImageFile,
    Maps,
    ModelInfo,
    Picture,
    Provenance,
    RgbImage,
    WrittenFile,
)
from attnviz.domain.events import UP_TO_DATE, Done, Event, Failed, Skipped, Started
from attnviz.domain.options import compared_options
from attnviz.domain.requests import CommandRequest, CompareRequest, ShownMap
from attnviz.errors import AttnvizError, UsageError
from attnviz.figures import draw_comparison
from attnviz.images.find import find_images
from attnviz.images.fit import check_size, prepare
from attnviz.images.read import read_input
from attnviz.models.backbone import Backbone
from attnviz.models.digest import weights_digest
from attnviz.models.load import load_backbone
from attnviz.output.current import recorded_paths, rows_up_to_date
from attnviz.output.data import compared_arrays
from attnviz.output.name import STEM, has_placeholder, name_values
from attnviz.output.plan import OutputPlan, check_folder, plan_outputs
from attnviz.output.record import record_of
from attnviz.output.write import write_figures, write_npz
from attnviz.runs.compare_maps import command_of, compared, resolved
from attnviz.stages.draw import about
from attnviz.stages.model import maps_of
from attnviz.stages.read import versions

if TYPE_CHECKING:
    from attnviz.domain import ByteArray

COMMAND = "compare"


@dataclass(frozen=True, eq=False)
class _Cell:
    """One picture under one model: its maps by name, and how they were made."""

    maps: dict[str, ComparedMap]
    provenance: Provenance


def compare(request: CompareRequest) -> Iterator[Event]:
    """Draw one figure: one ``Started``, a ``Failed`` for each picture that gave nothing, ``Done``.

    Rows are pictures, and within a picture models, in the order asked.

    Raises:
        AttnvizError: Nothing can be done at all: the options, a model, or the output folder.
    """
    found = find_images(request.inputs.inputs, exclude=request.output.folder)
    failed = [Failed(name, error) for name, error in found.missing]
    images: dict[ImageFile, RgbImage] = {}
    for file in found.files:
        try:
            images[file] = read_input(file, request.inputs)
        except AttnvizError as error:
            failed.append(Failed(str(file.path), error))
    if images:
        plan = _plan(request, list(images))
        check_folder(request.output.folder, [plan])
        yield from _figure(request, images, plan, failed, found.skipped)
    else:
        yield from failed


def _plan(request: CompareRequest, files: Sequence[ImageFile]) -> OutputPlan:
    """Where the one figure goes: named after the first picture, unless ``--name`` names it."""
    first = files[0]
    output = request.output
    own_name = output.name is None or has_placeholder(output.name, STEM)
    if own_name and len(files) > 1:
        more = f"{first.relative.stem}-and-{len(files) - 1}-more"
        named = ImageFile(first.path, Path(f"{more}{first.relative.suffix}"))
    else:
        named = replace(first, relative=Path(first.relative.name))
    layer = "last" if request.layer is None else request.layer
    values = name_values(COMMAND, request.models, layer)
    return plan_outputs([named], COMMAND, output, values)[named]


def _figure(
    request: CompareRequest,
    images: dict[ImageFile, RgbImage],
    plan: OutputPlan,
    failed: list[Failed],
    passed_over: tuple[tuple[Path, str], ...],
) -> Iterator[Event]:
    options = compared_options(request)
    total = 1 + len(failed)
    output = request.output
    skip = output.skip_existing and not output.every_number
    if skip and _is_up_to_date(request, images, plan, options):
        yield from failed
        yield Skipped(next(iter(images)), UP_TO_DATE)
        return
    cells: dict[ImageFile, list[_Cell]] = {file: [] for file in images}
    several = len(images) + len(failed) > 1
    shown: tuple[ShownMap, ...] = ()
    for place, wanted in enumerate(request.models):
        model = load_backbone(wanted)
        shown = _agreed(model.info, request, shown)
        commands = _checked_commands(request, model.info, shown)
        yield Started(total, model.info, model.notes, () if place else passed_over)
        if place == 0:
            yield from failed
        for file, image in list(images.items()):
            try:
                cells[file].append(_cell(request, model, image, commands, options))
            except AttnvizError as error:
                del images[file]
                total += 1
                yield Failed(str(file.path), about(file, error))
        del model
    pixels = {str(file.path): image.pixels for file, image in images.items()}
    rows = _rows([cell for file in images for cell in cells[file]], pixels, several=several)
    if not rows:
        return
    made = [cell.provenance for file in images for cell in cells[file]]
    provenance = replace(made[0], rows=tuple(made))
    written = _write(request, rows, plan, provenance)
    table = _table(rows)
    notes = tuple(note for image in images.values() for note in image.notes)
    yield Done(next(iter(images)), written, record_of(provenance, written, table), table, notes)


def _agreed(
    info: ModelInfo, request: CompareRequest, before: tuple[ShownMap, ...]
) -> tuple[ShownMap, ...]:
    """The maps with heads counted from 0, which must be the same as those of models ``before``."""
    shown = resolved(info, request.shown)
    if before and shown != before:
        raise UsageError(
            f"--show: heads counted from the last are others in {info.name} than in the models "
            "before it",
            "count heads from 0, or compare models by mean, rollout or heads",
        )
    return shown


def _checked_commands(
    request: CompareRequest, info: ModelInfo, shown: tuple[ShownMap, ...]
) -> dict[ShownMap, CommandRequest]:
    """What computes each map; what the model cannot honour raises here."""
    commands = {each: command_of(each, request.layer) for each in shown}
    for command in commands.values():
        check_command(info, command)
    check_size(info.patch, request.inputs.size, request.inputs.fit)
    return commands


def _cell(
    request: CompareRequest,
    model: Backbone,
    image: RgbImage,
    commands: dict[ShownMap, CommandRequest],
    options: dict[str, Any],
) -> _Cell:
    inputs = request.inputs
    picture = prepare(image, model.info, inputs.size, inputs.fit, inputs.mean, inputs.std)
    results: dict[CommandRequest, Maps] = {}
    for command in commands.values():
        if command not in results:
            # Asked for its error: it names the largest size that fits.
            largest_batch(model.info, picture.geometry.model_input, command, model.device)
            results[command] = maps_of(model, [picture], command)[0]
    maps = {str(shown): compared(shown, results[command]) for shown, command in commands.items()}
    return _Cell(
        maps,
        Provenance(
            command=COMMAND,
            model=model.info,
            image=str(image.file.path),
            image_sha256=image.sha256,
            geometry=picture.geometry,
            options=options,
            versions=versions(),
            device=model.device.type,
        ),
    )


def _rows(
    cells: Sequence[_Cell], pixels: Mapping[str, ByteArray], *, several: bool
) -> list[ComparedRow]:
    """Rows with titles that say what differs: the model, the picture, or both.

    several: pictures were asked for, however many of them could be shown.
    """
    models = {_model_name(cell.provenance, cells) for cell in cells}
    rows = []
    for cell in cells:
        made = cell.provenance
        name, label = Path(made.image).name, _model_name(made, cells)
        title = ((name,) if several else ()) + ((label,) if len(models) > 1 else ())
        picture = Picture(pixels[made.image], made.geometry, name)
        rows.append(ComparedRow(title, label, made.model, picture, cell.maps))
    return rows


def _model_name(made: Provenance, cells: Sequence[_Cell]) -> str:
    """The model's name; where two share it, the name of the weights."""
    model = made.model
    namesakes = {
        (cell.provenance.model.weights, cell.provenance.model.weights_sha256)
        for cell in cells
        if cell.provenance.model.name == model.name
    }
    if model.random_weights:
        return f"{model.name} (random)"
    return model.weights if len(namesakes) > 1 else model.name


def _write(
    request: CompareRequest, rows: Sequence[ComparedRow], plan: OutputPlan, provenance: Provenance
) -> tuple[WrittenFile, ...]:
    """The figure last, so that it stands for a complete set."""
    written = []
    if request.output.save_data:
        written.append(write_npz(plan.path("npz"), compared_arrays(rows), provenance))
    figures = draw_comparison(rows, request.style)
    drawn = write_figures(figures, plan, request.output.formats, request.style.dpi, provenance)
    return (*drawn, *written)


def _table(rows: Sequence[ComparedRow]) -> tuple[dict[str, Any], ...]:
    """The lowest, mean and highest value of every map, components left out."""
    return tuple(
        {
            "row": " · ".join(row.title) or row.label,
            "map": name,
            "min": float(shown.values.min()),
            "mean": float(shown.values.mean()),
            "max": float(shown.values.max()),
        }
        for row in rows
        for name, shown in row.maps.items()
        if not shown.is_colours
    )


def _is_up_to_date(
    request: CompareRequest,
    images: dict[ImageFile, RgbImage],
    plan: OutputPlan,
    options: dict[str, Any],
) -> bool:
    """Whether all files are there, made of the same images and weights with the same options."""
    if not all(path.is_file() for path in recorded_paths(plan, request.output)):
        return False
    digests = [None if model.random_weights else weights_digest(model) for model in request.models]
    if any(
        digest is None and not model.random_weights
        for digest, model in zip(digests, request.models, strict=True)
    ):
        return False
    rows = [(images[file].sha256, digest) for file in images for digest in digests]
    return rows_up_to_date(plan, request.output, options, rows)
