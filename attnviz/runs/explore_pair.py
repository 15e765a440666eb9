"""Two images through a model into one explorer page of what is similar in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.attention.checks import default_match_layer
from attnviz.attention.descriptors import joined_layers
from attnviz.attention.memory import memory_errors
from attnviz.attention.pair_factors import pair_factors
from attnviz.attention.units import unit_vectors
from attnviz.domain import FigureImage, ImageFile, Part
from attnviz.domain.events import Done, Step
from attnviz.domain.kinds import LayersRequest
from attnviz.explorer.pair import PairContent, pair_page
from attnviz.images.names import printable
from attnviz.images.read import read_input
from attnviz.output.record import record_of, to_json
from attnviz.output.write import write_page
from attnviz.runs.explore_plan import COMMAND, page_options
from attnviz.stages.plan import file_digest
from attnviz.stages.single import SingleImage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnviz.domain.explorer import ExploreRequest
    from attnviz.models.backbone import Backbone


def make_pair_page(
    request: ExploreRequest,
    model: Backbone,
    file: ImageFile,
    layers: tuple[int, ...],
    target: Path,
) -> Iterator[Step | Done]:
    """Write the page of ``file`` and the request's second image.

    Raises:
        AttnvizError: An image cannot be read, or does not fit into memory.
    """
    assert request.like is not None
    steps = 2 + len(layers)
    images, vectors = [], []
    notes: list[str] = []
    for index, each in enumerate((file, ImageFile(request.like, Path(request.like.name)))):
        yield Step("running the model", index, steps)
        image = read_input(each, request.inputs)
        single = SingleImage.of(model, image, request.inputs, verify=request.model.verify)
        single.check(LayersRequest(layers=layers, distance=False))
        with memory_errors(single.prepared.geometry.model_input):
            found = joined_layers(model, model.batch([single.prepared]), layers, Part.KEY)
        vectors.append([unit_vectors(layer[0]) for layer in found])
        name = printable(each.path.name)
        images.append((single, FigureImage(image.pixels, single.prepared.geometry, name)))
        notes += [*single.prepared.image.notes, *single.notes]
    packed = {}
    for index, layer in enumerate(layers):
        yield Step(f"packing layer {layer}", 2 + index, steps)
        packed[layer] = pair_factors(vectors[0][index], vectors[1][index])
    first, second = images
    digest = file_digest(request.like)
    provenance = first[0].provenance(COMMAND, page_options(request), digest)
    start = default_match_layer(model.info)
    content = PairContent(
        layers=packed,
        start=start if start in layers else layers[-1],
        images=(first[1], second[1]),
        model=provenance.model,
        record=to_json(provenance),
    )
    written = (write_page(target, pair_page(content)),)
    record = record_of(provenance, written, ())
    yield Done(file, written, record, (), tuple(dict.fromkeys(notes)))
