"""The page of two images: a patch of one, and the cosines of all patches of the other to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.explorer.document import VERSION, display_facts, document, model_name, readable
from attnviz.explorer.packing import pack_integers
from attnviz.explorer.picture import data_address, seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnviz.domain import FigureImage, ModelInfo, PairFactors

SCRIPTS = ("common.js", "pair.js", "pair-input.js")
"""In the order of the page: the last starts it."""


@dataclass(frozen=True, eq=False)
class PairContent:
    """What a page shows.

    layers: the vectors of each layer, by its index in the model; at least one. start: the layer
    that is shown first. images: both. record: how the page was made, as one line of JSON.
    """

    layers: Mapping[int, PairFactors]
    start: int
    images: tuple[FigureImage, FigureImage]
    model: ModelInfo
    record: str


def pair_page(content: PairContent) -> bytes:
    """The whole file, in UTF-8."""
    names = [readable(image.name) for image in content.images]
    pictures = [seen(image.pixels, image.geometry) for image in content.images]
    layers = content.layers.values()
    facts = {
        "version": VERSION,
        "names": names,
        "model": model_name(content.model),
        "random": content.model.random_weights,
        "grids": [list(image.geometry.grid) for image in content.images],
        "layers": list(content.layers),
        "start": content.start,
        "depth": content.model.depth,
        "ranks": [layer.values.shape[0] for layer in layers],
        "steps": [layer.step for layer in layers],
        "pictures": [
            {"width": picture.width, "height": picture.height, "address": data_address(picture)}
            for picture in pictures
        ],
        **display_facts(),
    }
    blocks = {f"layer-{i}": pack_integers(layer.values) for i, layer in content.layers.items()}
    title = f"{names[0]} and {names[1]} - explorer of similar patches"
    return document("pair.html", SCRIPTS, title, facts, content.record, blocks)
