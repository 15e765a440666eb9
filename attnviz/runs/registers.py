"""Register neurons of a model over many images: the list and its figure. Yields events."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.domain import DEFAULT_OUT, PreparedImage, Query
from attnviz.domain.events import Done, Event, Failed, Started, Step
from attnviz.domain.kinds import HeadsRequest
from attnviz.domain.options import request_options
from attnviz.domain.register_neurons import read_neurons
from attnviz.errors import AttnvizError, UsageError
from attnviz.figures.names import missing_glyphs
from attnviz.figures.registers import draw_registers
from attnviz.images.find import find_images
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.output.plan import OutputPlan, check_folder
from attnviz.output.record import to_dict
from attnviz.output.write import write_figures, write_npz, write_text
from attnviz.stages.plan import check_before_loading
from attnviz.stages.read import prepare_image, provenance_of
from attnviz.stages.registers import STEPS, RegisterFinder, find_registers
from attnviz.storage import same_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnviz.domain import ImageFile, RgbImage, WrittenFile
    from attnviz.domain.registers import RegistersMaps, RegistersRequest

COMMAND = "registers"
DEFAULT_FILE = Path(DEFAULT_OUT) / "registers.json"


def registers(request: RegistersRequest) -> Iterator[Event]:
    """Find the neurons: one ``Started``, some ``Step`` and ``Failed``, then ``Done``.

    An image that cannot be read is left out. Where nothing is an outlier, nothing is written and
    the last event is a ``Failed``.

    Raises:
        AttnvizError: Nothing can be done at all: no image, the options, the model or the folder.
    """
    target = request.file or DEFAULT_FILE
    plan = _plan(target)
    found = find_images(request.inputs.inputs)
    _check_target(target, plan, request, found.files)
    failed = [Failed(name, error) for name, error in found.missing]
    if not found.files:
        yield from failed
        return
    search = request.search
    for layer in (search.layer, search.max_layer):
        asked = HeadsRequest(-1 if layer is None else layer, query=Query.MEAN)
        check_before_loading(asked, request.model, request.inputs)
    model = load_backbone(request.model)
    check_size(model.info.patch, request.inputs.size, request.inputs.fit)
    finder = RegisterFinder(model, search)
    notes = (*model.notes, *missing_glyphs(file.path.name for file in found.files))
    yield Started(1 + len(failed), model.info, notes, found.skipped)
    yield from failed
    images = _Images(request, model, found.files)
    try:
        for name, index in find_registers(finder, images, images.leave_out):
            done = STEPS.index(name) * len(images) + index
            yield Step(f"{name}, image {index + 1} of {len(images)}", done, 3 * len(images))
            yield from images.failures()
        yield from images.failures()
        yield _write(request, target, plan, model, finder.result(), images)
    except AttnvizError as error:
        yield from images.failures()
        yield Failed(str(target), error)


class _Images:
    """The images, read and prepared anew whenever they are iterated.

    Those that cannot be read the first time, or measured, are left out from then on; one that
    cannot be read again ends the run.
    """

    def __init__(
        self, request: RegistersRequest, model: Backbone, files: Sequence[ImageFile]
    ) -> None:
        self._request, self._model = request, model
        self.files = list(files)
        self.notes: dict[str, None] = {}
        self.digests: list[str] = []
        self.first: PreparedImage | None = None
        self._failures: list[Failed] = []
        self._again = False

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[PreparedImage]:
        self.digests, again, self._again = [], self._again, True
        for file in list(self.files):
            try:
                image = read_input(file, self._request.inputs)
                prepared = prepare_image(image, self._model.info, self._request.inputs)
            except AttnvizError as error:
                if again:
                    raise
                self._remove(file, error)
                continue
            yield prepared
            if file in self.files:
                self._take(file, image)
                self.first = self.first or prepared

    def leave_out(self, image: PreparedImage, error: AttnvizError) -> None:
        """Go on without an image."""
        self._remove(image.image.file, error)

    def _remove(self, file: ImageFile, error: AttnvizError) -> None:
        self.files.remove(file)
        self._failures.append(Failed(str(file.path), error))

    def _take(self, file: ImageFile, image: RgbImage) -> None:
        self.digests.append(image.sha256)
        self.notes |= {f"{file.path.name}: {note}": None for note in image.notes}

    def failures(self) -> Iterator[Failed]:
        """The failures since the last call."""
        while self._failures:
            yield self._failures.pop(0)


def _plan(target: Path) -> OutputPlan:
    return OutputPlan(target.parent, target.stem, COMMAND)


def _check_target(
    target: Path, plan: OutputPlan, request: RegistersRequest, files: Sequence[ImageFile]
) -> None:
    if target.is_dir():
        raise UsageError(f"--out: {target} is a folder", "name the file: --out neurons.json")
    if target.suffix.lower() != ".json":
        raise UsageError(
            f"--out: the list of neurons is JSON, and {target.name} does not end in .json",
            f"--out {target.with_suffix('.json')}",
        )
    figures = [plan.path(each.value) for each in request.formats]
    if any(same_file(path, file.path) for path in (target, *figures) for file in files):
        raise UsageError(f"--out: {target} would overwrite an image", "choose another --out")
    if target.exists():
        try:
            read_neurons(target)
        except UsageError:
            raise UsageError(
                f"--out: {target} exists, and is not a list of register neurons",
                "choose another --out, or remove it",
            ) from None
    check_folder(target.parent)


def _write(
    request: RegistersRequest,
    target: Path,
    plan: OutputPlan,
    model: Backbone,
    maps: RegistersMaps,
    images: _Images,
) -> Done:
    """The figure last, so that it stands for a complete set."""
    record = _record(request, model, images)
    figures = draw_registers(maps, _info(request, model), request.style)
    written: list[WrittenFile] = [write_text(target, maps.neurons.to_json(), "neurons")]
    if request.save_data:
        written.append(write_npz(plan.path("npz"), maps.arrays(), record))
    drawn = write_figures(figures, plan, request.formats, request.style.dpi, record)
    rows = maps.rows()
    files = [{"path": str(file.path), "kind": file.kind} for file in (*drawn, *written)]
    done = {**record, "files": files, "table": [dict(row) for row in rows]}
    notes = tuple(images.notes)
    return Done(images.files[0], (*drawn, *written), done, rows, notes, tuple(images.files))


def _info(request: RegistersRequest, model: Backbone) -> Any:
    return model.info.with_statistics(request.inputs.mean, request.inputs.std)


def _record(request: RegistersRequest, model: Backbone, images: _Images) -> dict[str, Any]:
    """How it was made: as of the first image, with the inputs as they were named.

    The images themselves may be thousands: one hash stands for all.
    """
    assert images.first is not None
    options = request_options(request.search, request.model, request.inputs, request.style)
    device = model.device.type
    made = provenance_of(COMMAND, images.first, _info(request, model), device, options)
    inputs = [name for name in request.inputs.inputs if name != "-"]
    if len(inputs) < len(request.inputs.inputs):
        inputs = [str(file.path) for file in images.files]
    return {
        **to_dict(made),
        "inputs": inputs,
        "images": len(images.files),
        "images_sha256": hashlib.sha256("".join(images.digests).encode()).hexdigest(),
    }
