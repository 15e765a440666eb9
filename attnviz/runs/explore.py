"""One picture through a model into one explorer page; what happens is yielded as events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnviz.attention.choose import choose_layers
from attnviz.attention.memory import largest_batch, memory_errors
from attnviz.attention.query_keys import query_keys
from attnviz.domain import (
    DEFAULT_OUT,
    ImageFile,
    PreparedImage,
    Provenance,
    Query,
    RolloutMaps,
    WrittenFile,
)
from attnviz.domain.events import Done, Event, Failed, Started
from attnviz.domain.options import set_options, written_inputs
from attnviz.domain.requests import InputRequest, LayersRequest, ModelRequest, RolloutRequest
from attnviz.errors import AttnvizError, UsageError
from attnviz.explorer.page import PageContent, page
from attnviz.images.find import find_images
from attnviz.images.fit import check_size, prepare
from attnviz.images.names import printable
from attnviz.images.read import read_input
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.output.plan import check_folder, shortened_stem
from attnviz.output.record import record_of, to_json
from attnviz.output.write import write_page
from attnviz.stages.model import maps_of, verified
from attnviz.stages.read import versions
from attnviz.storage import same_file


@dataclass(frozen=True)
class ExploreRequest:
    """One picture, the layers of its page (None: all), and where the page goes.

    ``file`` None: ``STEM.explore.html`` in the default folder.
    """

    model: ModelRequest
    inputs: InputRequest
    layers: tuple[int, ...] | None = None
    rollout: bool = True
    file: Path | None = None


def explore(request: ExploreRequest, model: Backbone | None = None) -> Iterator[Event]:
    """Write the page: one ``Started``, then ``Done`` or ``Failed``.

    ``model``: the one that the request names, where it is loaded already.

    Raises:
        AttnvizError: Nothing can be done at all: the options, the model or the folder.
    """
    found = find_images(request.inputs.inputs)
    for _, error in found.missing:
        raise error
    if len(found.files) != 1:
        raise UsageError(
            f"a page shows one picture, and {len(found.files)} were given", "name one picture"
        )
    (file,) = found.files
    target = request.file or default_file(file)
    if target.is_dir():
        raise UsageError(f"--out: {target} is a folder", "name the file: --out page.html")
    if same_file(target, file.path):
        raise UsageError(
            f"the page {target} would take the place of the picture", "choose another --out"
        )
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"--out: a page is HTML, and {target.name} does not end in .html",
            f"--out {target.with_suffix('.html')}",
        )
    check_folder(target.parent)
    model = model or load_backbone(request.model)
    layers = choose_layers(model.info, request.layers)
    check_size(model.info.patch, request.inputs.size, request.inputs.fit)
    yield Started(1, model.info, model.notes, found.skipped)
    try:
        yield _done(request, model, file, layers, target)
    except AttnvizError as error:
        yield Failed(str(file.path), error)


def default_file(file: ImageFile) -> Path:
    """Where a picture's page goes when no place is named."""
    return Path(DEFAULT_OUT) / f"{shortened_stem(file.path.stem)}.explore.html"


def _done(
    request: ExploreRequest,
    model: Backbone,
    file: ImageFile,
    layers: tuple[int, ...],
    target: Path,
) -> Done:
    inputs = request.inputs
    image = read_input(file, inputs)
    picture = prepare(image, model.info, inputs.size, inputs.fit, inputs.mean, inputs.std)
    # Asked for its error: it names the largest size that fits.
    size = picture.geometry.model_input
    largest_batch(model.info, size, LayersRequest(layers=layers), model.device)
    notes = (verified(model, [picture]),) if request.model.verify else ()
    with memory_errors(size):
        maps = query_keys(model, model.batch([picture]), layers)
    provenance = Provenance(
        command="explore",
        model=model.info,
        image=str(file.path),
        image_sha256=image.sha256,
        geometry=picture.geometry,
        options=_written(request, layers),
        versions=versions(),
        device=model.device.type,
    )
    content = PageContent(
        maps=maps,
        rollout=_rollout(model, picture, layers) if request.rollout else None,
        pixels=image.pixels,
        name=printable(file.path.name),
        provenance=provenance,
        record=to_json(provenance),
    )
    written: tuple[WrittenFile, ...] = (write_page(target, page(content)),)
    return Done(
        file, written, record_of(provenance, written, ()), (), (*picture.image.notes, *notes)
    )


def _rollout(model: Backbone, picture: PreparedImage, layers: tuple[int, ...]) -> RolloutMaps:
    """The rollout of the default options, up to each layer of the page."""
    query = Query.CLS if model.info.has_cls else Query.MEAN
    command = RolloutRequest(depths=layers, query=query)
    largest_batch(model.info, picture.geometry.model_input, command, model.device)
    (maps,) = maps_of(model, [picture], command)
    assert isinstance(maps, RolloutMaps)
    return maps


def _written(request: ExploreRequest, layers: tuple[int, ...]) -> dict[str, object]:
    options = written_inputs(request.model, request.inputs)
    options["layers"] = ",".join(map(str, layers))
    options["no-rollout"] = not request.rollout
    return set_options(options)
