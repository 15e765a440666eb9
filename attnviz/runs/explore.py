"""One image through a model into one explorer page. Prints nothing; yields events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnviz.attention.choose import choose_layers
from attnviz.attention.factors import factorize
from attnviz.attention.memory import memory_errors
from attnviz.attention.query_keys import query_keys
from attnviz.domain import (
    DEFAULT_OUT,
    ImageFile,
    Query,
    RolloutMaps,
)
from attnviz.domain.events import Done, Event, Failed, Started, Step
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.kinds import LayersRequest, RolloutRequest
from attnviz.errors import AttnvizError, UsageError
from attnviz.explorer.page import PageContent, page
from attnviz.images.find import find_images
from attnviz.images.names import printable
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.output.plan import check_folder, shortened_stem
from attnviz.output.record import record_of, to_json
from attnviz.output.write import write_page
from attnviz.runs.explore_pair import make_pair_page, page_options
from attnviz.stages.plan import check_before_loading
from attnviz.stages.single import SingleImage
from attnviz.storage import same_file


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
    target = request.file or default_file(file, request.like)
    if request.like is not None and not request.like.is_file():
        raise UsageError(f"the second image: {request.like} is not a file")
    _check_target(target, file.path, *([] if request.like is None else [request.like]))
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


def default_file(file: ImageFile, like: Path | None = None) -> Path:
    """Where the page of an image, or of two, goes unless the user says otherwise."""
    stem = file.path.stem if like is None else f"{file.path.stem}-and-{like.stem}"
    return Path(DEFAULT_OUT) / f"{shortened_stem(stem)}.explore.html"


def _check_target(target: Path, *images: Path) -> None:
    if target.is_dir():
        raise UsageError(f"--out: {target} is a folder", "name the file: --out page.html")
    if any(same_file(target, image) for image in images):
        raise UsageError(f"the page {target} would overwrite the image", "choose another --out")
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"--out: a page is HTML, and {target.name} does not end in .html",
            f"--out {target.with_suffix('.html')}",
        )
    check_folder(target.parent)


def _make_page(
    request: ExploreRequest,
    model: Backbone,
    file: ImageFile,
    layers: tuple[int, ...],
    target: Path,
) -> Iterator[Step | Done]:
    if request.like is not None:
        yield from make_pair_page(request, model, file, layers, target)
        return
    steps = 1 + request.rollout + len(layers)
    yield Step("running the model", 0, steps)
    image = read_input(file, request.inputs)
    single = SingleImage.of(model, image, request.inputs, verify=request.model.verify)
    single.check(LayersRequest(layers=layers))
    with memory_errors(single.prepared.geometry.model_input):
        maps = query_keys(model, model.batch([single.prepared]), layers)
    rollout = None
    if request.rollout:
        yield Step("computing the rollout", 1, steps)
        rollout = _rollout(single, layers)
    packed = []
    for index, layer in enumerate(layers):
        yield Step(f"packing layer {layer}", steps - len(layers) + index, steps)
        packed.append(factorize(maps.query[index], maps.key[index]))
    provenance = single.provenance("explore", page_options(request, layers))
    content = PageContent(
        layers=dict(zip(layers, packed, strict=True)),
        rollout=rollout,
        pixels=image.pixels,
        name=printable(file.path.name),
        provenance=provenance,
        record=to_json(provenance),
    )
    written = (write_page(target, page(content)),)
    notes = (*single.prepared.image.notes, *single.notes)
    yield Done(file, written, record_of(provenance, written, ()), (), notes)


def _rollout(single: SingleImage, layers: tuple[int, ...]) -> RolloutMaps:
    """The rollout with default options, up to each layer of the page."""
    query = Query.CLS if single.model.info.has_cls else Query.MEAN
    return single.maps(RolloutRequest(depths=layers, query=query))
