"""One image through a model into one explorer page. Prints nothing; yields events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnviz.attention.choose import choose_layers
from attnviz.domain import ImageFile, Query
from attnviz.domain.events import Done, Event, Failed, Started, Step
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.kinds import LayersRequest
from attnviz.errors import AttnvizError
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.output.plan import check_folder
from attnviz.output.record import record_of
from attnviz.output.write import write_page
from attnviz.runs.explore_pair import make_pair_page
from attnviz.runs.explore_plan import page_options, page_plan
from attnviz.stages.explorer_page import make_page
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
    if request.like is not None:
        yield from make_pair_page(request, model, file, layers, target)
        return
    image = read_input(file, request.inputs)
    single = SingleImage.of(model, image, request.inputs, verify=request.model.verify)
    content, provenance = yield from make_page(
        single, layers, rollout=request.rollout, options=page_options(request)
    )
    written = (write_page(target, content),)
    notes = (*single.prepared.image.notes, *single.notes)
    yield Done(file, written, record_of(provenance, written, ()), (), notes)
