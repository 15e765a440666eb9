"""One figure of several images and models. Prints nothing; yields events.

Models are loaded one after another, so that one at a time is in memory, and each sees all images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.attention.checks import check_request
from attnviz.domain import (
    ComparedMap,
    ComparedRow,
    ImageFile,
    Maps,
    ModelInfo,
    Provenance,
    RgbImage,
    Size,
    WrittenFile,
)
from attnviz.domain.comparison import CompareRequest, MapSpec, compared_arrays, comparison_options
from attnviz.domain.events import UP_TO_DATE, Done, Event, Failed, Skipped, Started
from attnviz.domain.kinds import CommandRequest
from attnviz.domain.requests import ModelRequest
from attnviz.errors import AttnvizError, ImageError, UsageError
from attnviz.figures import draw_comparison
from attnviz.figures.names import missing_glyphs
from attnviz.images.find import FoundImages, find_images
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.catalogue import known_info
from attnviz.models.load import load_backbone
from attnviz.output.plan import OutputPlan, check_folder
from attnviz.output.record import record_of
from attnviz.output.write import write_figures, write_npz
from attnviz.runs.compare_maps import command_of, compared, resolved
from attnviz.runs.compare_plan import COMMAND, comparison_plan, comparison_up_to_date
from attnviz.runs.compare_rows import Result, notes_of, rows_of, table_of
from attnviz.stages.draw import about
from attnviz.stages.plan import check_before_loading, second_digest
from attnviz.stages.reference import read_second
from attnviz.stages.single import SingleImage


def compare(request: CompareRequest, into: Path | None = None) -> Iterator[Event]:
    """Draw one figure: a ``Started`` for each model, ``Failed`` for each image left out, ``Done``.

    Rows are images, and within an image models, in the order asked. ``into``: write into this
    folder instead of the request's, under the same names.

    Raises:
        AttnvizError: Nothing can be done at all: the options, a model, or the output folder.
    """
    for command in request.second_images:
        for model in request.models:
            check_before_loading(command, model)
    found = find_images(request.inputs.inputs, exclude=request.output.folder)
    if into is not None:
        request = replace(request, output=replace(request.output, folder=into))
    images, failed = _read(request, found)
    if not images:
        yield from failed
        return
    comparison = _Comparison(request, images, failed, found.skipped)
    check_folder(request.output.folder, [comparison.plan()])
    output = request.output
    if output.skip_existing and not output.every_number and comparison.is_current():
        yield from failed
        yield Skipped(images[0].file, UP_TO_DATE)
        return
    for wanted in request.models:
        if comparison.has_images:
            yield from comparison.run(wanted)
    yield from comparison.finish()


def _read(request: CompareRequest, found: FoundImages) -> tuple[list[RgbImage], list[Failed]]:
    failed = [Failed(name, error) for name, error in found.missing]
    images = []
    for file in found.files:
        try:
            images.append(read_input(file, request.inputs))
        except AttnvizError as error:
            failed.append(Failed(str(file.path), error))
    return images, failed


class _Comparison:
    """A comparison in the making: the images that are left, and what models made of them."""

    def __init__(
        self,
        request: CompareRequest,
        images: list[RgbImage],
        failed: list[Failed],
        skipped: tuple[tuple[Path, str], ...],
    ) -> None:
        self._request = request
        self._images = images
        self._failed = failed
        self._skipped = skipped
        self._several = len(images) + len(failed) > 1
        self._total = 1 + len(failed)
        self._options = comparison_options(request)
        digests = (second_digest(command) for command in request.second_images)
        self._like_sha256 = next((digest for digest in digests if digest is not None), None)
        self._shown: tuple[MapSpec, ...] = ()
        self._results: dict[ImageFile, list[Result]] = {image.file: [] for image in images}

    @property
    def has_images(self) -> bool:
        """Whether any image is left."""
        return bool(self._images)

    def plan(self) -> OutputPlan:
        """Where the figure of the images that are left goes."""
        return comparison_plan(self._request, [image.file for image in self._images])

    def is_current(self) -> bool:
        """Whether the figure is up to date."""
        digests = [image.sha256 for image in self._images]
        return comparison_up_to_date(self._request, self.plan(), digests)

    def run(self, wanted: ModelRequest) -> Iterator[Started | Failed]:
        """Load a model and run all images through it; those that fail are left out."""
        info = known_info(wanted)
        if info is not None:  # before anything is downloaded
            _checked_commands(self._request, info, resolved(info, self._request))
        model = load_backbone(wanted)
        self._shown = _same_maps(model.info, self._request, self._shown)
        commands = _checked_commands(self._request, model.info, self._shown)
        references = {
            command: read_second(model, command, self._request.inputs)
            for command in dict.fromkeys(commands.values())
        }
        notes = model.notes
        if wanted is self._request.models[0]:
            notes += missing_glyphs(image.file.path.name for image in self._images)
        yield Started(self._total, model.info, notes, self._skipped)
        yield from self._failed
        self._skipped, self._failed = (), []
        for image in list(self._images):
            try:
                single = SingleImage.of(model, image, self._request.inputs, verify=wanted.verify)
                maps = _maps(single, commands, references)
                made = single.provenance(COMMAND, self._options, self._like_sha256)
                result = Result(single.prepared.image, maps, made, single.notes)
                self._results[image.file].append(result)
            except AttnvizError as error:
                yield self._left_out(image, error)

    def _left_out(self, image: RgbImage, error: AttnvizError) -> Failed:
        self._images.remove(image)
        self._total += 1
        return Failed(str(image.file.path), about(image.file, error))

    def finish(self) -> Iterator[Done | Failed]:
        """Draw and write the figure of the images that are left, if it has any map."""
        results = [result for image in self._images for result in self._results[image.file]]
        maps = [each for result in results for each in result.maps.values()]
        if all(each.reason for each in maps):
            for image in list(self._images):
                reason = next(iter(self._results[image.file][0].maps.values())).reason
                yield self._left_out(image, ImageError(str(reason)))
            return
        rows = rows_of(results, several=self._several)
        made = tuple(result.provenance for result in results)
        provenance = replace(made[0], rows=made)
        # Named after the images that it shows.
        written = _write(self._request, rows, self.plan(), provenance)
        table = table_of(rows, made)
        record = record_of(provenance, written, table)
        files = tuple(image.file for image in self._images)
        notes = notes_of(results, several=len(files) > 1)
        yield Done(files[0], written, record, table, notes, files if len(files) > 1 else ())


def _same_maps(
    info: ModelInfo, request: CompareRequest, before: tuple[MapSpec, ...]
) -> tuple[MapSpec, ...]:
    """The maps with heads counted from 0, which must be the same as those of models ``before``."""
    shown = resolved(info, request)
    if before and shown != before:
        raise UsageError(
            f"--show: heads counted from the last are others in {info.name} than in the models "
            "before it",
            "count heads from 0, or compare models by mean, rollout or heads",
        )
    return shown


def _checked_commands(
    request: CompareRequest, info: ModelInfo, shown: tuple[MapSpec, ...]
) -> dict[MapSpec, CommandRequest]:
    """What computes each map; what the model cannot honour raises here."""
    commands = {each: command_of(each, request) for each in shown}
    for command in commands.values():
        check_request(info, command)
    check_size(info.patch, request.inputs.size, request.inputs.fit)
    return commands


def _maps(
    single: SingleImage,
    commands: Mapping[MapSpec, CommandRequest],
    references: Mapping[CommandRequest, Any],
) -> dict[str, ComparedMap]:
    """The maps by name; one that looks from a point outside the image has the reason instead.

    references: what each command takes of the second image.
    """
    results: dict[CommandRequest, Maps] = {}
    maps = {}
    for shown, command in commands.items():
        try:
            if command not in results:
                results[command] = single.maps(command, references[command])
            maps[str(shown)] = compared(shown, results[command])
        except ImageError as error:
            maps[str(shown)] = _no_map(shown, single.prepared.geometry.grid, error.message)
    return maps


def _no_map(shown: MapSpec, grid: Size, reason: str) -> ComparedMap:
    return ComparedMap(shown.kind, np.zeros((0, *grid), np.float32), reason=reason)


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
