"""One image through a model into one explorer page. Prints nothing; yields events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnviz.attention.choose import choose_layers
from attnviz.attention.factors import factorize
from attnviz.attention.memory import memory_errors
from attnviz.attention.query_keys import query_keys
from attnviz.domain import (
    ImageFile,
    Query,
    RolloutMaps,
)
from attnviz.domain.events import Done, Event, Failed, Started, Step
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.kinds import LayersRequest, RolloutRequest
from attnviz.errors import AttnvizError
from attnviz.explorer.page import PageContent, page
from attnviz.images.names import printable
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.output.plan import check_folder
from attnviz.output.record import record_of, to_json
from attnviz.output.write import write_page
from attnviz.runs.explore_plan import COMMAND, page_options, page_plan
from attnviz.stages.plan import check_before_loading
from attnviz.stages.single import SingleImage


def explore(
    request: ExploreRequest, model: Backbone | None = None, into: Path | None = None
) -> Iterator[Event]:
    """Write the page: one ``Started``, some ``Step``, then ``Done`` or ``Failed``.

    ``model``: the one that the request names, if it is loaded already. ``into``: write into this
    folder instead, under the same name.

    Raises:
        AttnvizError: Nothing can be done at all: the options, the model or the folder.
    """
    found, target = page_plan(request)
    (file,) = found.files
    if into is not None:
        target = into / target.name
    check_folder(target.parent)
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


def _make_page(
    request: ExploreRequest,
    model: Backbone,
    file: ImageFile,
    layers: tuple[int, ...],
    target: Path,
) -> Iterator[Step | Done]:
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
        packed.append(factorize(maps.query[index], maps.key[index], maps.biases[index]))
    provenance = single.provenance(COMMAND, page_options(request))
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
