"""One image through a model into one explorer page. Prints nothing; yields events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnviz.attention.choose import choose_layers
from attnviz.domain import DEFAULT_OUT, ImageFile, Query
from attnviz.domain.events import Done, Event, Failed, Started, Step
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.kinds import LayersRequest
from attnviz.domain.options import given_options, request_options
from attnviz.errors import AttnvizError, UsageError
from attnviz.images.find import find_images
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.output.plan import shortened_stem
from attnviz.output.record import record_of
from attnviz.output.write import write_page
from attnviz.stages.explorer_page import check_target, make_page
from attnviz.stages.plan import check_before_loading
from attnviz.stages.single import SingleImage


def explore(request: ExploreRequest, model: Backbone | None = None) -> Iterator[Event]:
    """Write the page: one ``Started``, some ``Step``, then ``Done`` or ``Failed``.

    ``model``: the one that the request names, if it is loaded already.

    Raises:
        AttnvizError: Nothing can be done at all: the options, the model or the folder.
    """
    found = find_images(request.inputs.inputs)
    for _, error in found.missing:
        raise error
    if len(found.files) != 1:
        raise UsageError(
            f"a page shows one image, and {len(found.files)} were given", "name one image"
        )
    (file,) = found.files
    target = request.file or default_file(file)
    check_target(target, file.path)
    if model is None:
        asked = LayersRequest(request.layers, query=Query.MEAN)
        check_before_loading(asked, request.model, request.inputs)
        model = load_backbone(request.model)
    layers = choose_layers(model.info, request.layers)
    check_size(model.info.patch, request.inputs.size, request.inputs.fit)
    yield Started(1, model.info, model.notes, found.skipped)
    try:
        yield from _make_page(request, model, file, layers, target)
    except AttnvizError as error:
        yield Failed(str(file.path), error)


def default_file(file: ImageFile) -> Path:
    """Where an image's page goes unless the user says otherwise."""
    return Path(DEFAULT_OUT) / f"{shortened_stem(file.path.stem)}.explore.html"


def _make_page(
    request: ExploreRequest,
    model: Backbone,
    file: ImageFile,
    layers: tuple[int, ...],
    target: Path,
) -> Iterator[Step | Done]:
    image = read_input(file, request.inputs)
    single = SingleImage.of(model, image, request.inputs, verify=request.model.verify)
    content, provenance = yield from make_page(
        single, layers, rollout=request.rollout, options=_options(request, layers)
    )
    written = (write_page(target, content),)
    notes = (*single.prepared.image.notes, *single.notes)
    yield Done(file, written, record_of(provenance, written, ()), (), notes)


def _options(request: ExploreRequest, layers: tuple[int, ...]) -> dict[str, object]:
    options = request_options(request.model, request.inputs)
    options["layers"] = ",".join(map(str, layers))
    options["no-rollout"] = not request.rollout
    return given_options(options)
