"""The explorer page of one image under one model: as bytes, and as the output of a cell."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.factors import factorize
from attnviz.attention.memory import memory_errors
from attnviz.attention.query_keys import query_keys
from attnviz.domain import Query, RolloutMaps
from attnviz.domain.events import Step
from attnviz.domain.kinds import LayersRequest, RolloutRequest
from attnviz.explorer.page import PageContent, page
from attnviz.images.names import printable
from attnviz.output.plan import check_folder, check_page_file
from attnviz.output.record import to_json
from attnviz.output.write import write_page
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from attnviz.domain import Provenance, WrittenFile
    from attnviz.stages.single import SingleImage

PAGE_HEIGHT = 760
"""Of a page inside a cell, in pixels: the controls, the image and the map without scrolling."""


@dataclass(frozen=True, eq=False)
class ExplorerPage:
    """The explorer page of an image, which shows itself at the end of a notebook cell.

    html: the whole page, which loads nothing from elsewhere. image: path or name of the image.
    height: of the page in a cell, in pixels.
    """

    html: bytes
    image: str
    height: int = PAGE_HEIGHT

    def save(self, path: str | Path) -> WrittenFile:
        """Write the page, which a browser opens without a server. An existing file is replaced.

        Raises:
            UsageError: The path does not end in .html, or is that of the image or a folder.
            OutputError: The file cannot be written.
        """
        target = path_of(path)
        check_page_file(target, path_of(self.image))
        check_folder(target.parent)
        return write_page(target, self.html)

    def _repr_html_(self) -> str:
        """The page in a frame that carries it: no server, no second file."""
        # ASCII alone: the policy of the page holds its scripts' hashes, and the document around it
        # may be in another encoding.
        page = html.escape(self.html.decode("utf-8")).encode("ascii", "xmlcharrefreplace").decode()
        # Scripts run and images can be saved; the page cannot reach the notebook around it.
        return (
            f'<iframe srcdoc="{page}" width="100%" height="{self.height}" '
            f'style="border: 0" sandbox="allow-scripts allow-downloads"></iframe>'
        )

    def __repr__(self) -> str:
        return f"ExplorerPage({Path(self.image).name}, {len(self.html) / 1e6:.1f} MB)"


def make_page(
    single: SingleImage, layers: tuple[int, ...], *, rollout: bool, options: dict[str, Any]
) -> Generator[Step, None, tuple[bytes, Provenance]]:
    """The page of some layers, and how it was made; a ``Step`` as each part of the work begins.

    rollout: also the rollout up to each of these layers. options: for the record.

    Raises:
        AttnvizError: As ``SingleImage.maps``.
    """
    steps = 1 + rollout + len(layers)
    yield Step("running the model", 0, steps)
    single.check(LayersRequest(layers=layers))
    model, prepared = single.model, single.prepared
    with memory_errors(prepared.geometry.model_input):
        maps = query_keys(model, model.batch([prepared]), layers)
    rolled = None
    if rollout:
        yield Step("computing the rollout", 1, steps)
        rolled = _rollout(single, layers)
    packed = []
    for index, layer in enumerate(layers):
        yield Step(f"packing layer {layer}", steps - len(layers) + index, steps)
        packed.append(factorize(maps.query[index], maps.key[index], maps.biases[index]))
    provenance = single.provenance("explore", options)
    content = PageContent(
        layers=dict(zip(layers, packed, strict=True)),
        rollout=rolled,
        pixels=prepared.image.pixels,
        name=printable(prepared.image.file.path.name),
        provenance=provenance,
        record=to_json(provenance),
    )
    return page(content), provenance


def page_of(
    single: SingleImage, layers: tuple[int, ...], *, rollout: bool, height: int
) -> ExplorerPage:
    """The page as a value; parameters and errors as of ``make_page``."""
    made = make_page(single, layers, rollout=rollout, options={})
    while True:
        try:
            next(made)
        except StopIteration as end:
            content, _ = end.value
            return ExplorerPage(content, str(single.prepared.image.file.path), height)


def _rollout(single: SingleImage, layers: tuple[int, ...]) -> RolloutMaps:
    """The rollout with default options, up to each layer of the page."""
    query = Query.CLS if single.model.info.has_cls else Query.MEAN
    return single.maps(RolloutRequest(depths=layers, query=query))
