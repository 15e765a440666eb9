"""Maps that show their own figure: in a notebook, as matplotlib figures, and as files.

``attnviz.domain.kinds.Maps`` has the methods. No torch, and no pyplot: a figure belongs to nobody
once it is drawn, so that nothing is shown twice and nothing stays in memory.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from attnviz.domain import DrawStyle, FigureImage, ImageFormat, Maps
from attnviz.domain.kinds import FigureSource, kind_of
from attnviz.domain.near_names import did_you_mean
from attnviz.domain.options import option_fields, request_options
from attnviz.errors import UsageError
from attnviz.figures import draw
from attnviz.output.encode import stacked_png, stacked_svg
from attnviz.output.plan import OutputPlan
from attnviz.output.write import write_csv, write_figures, write_npz
from attnviz.stages.draw import image_name
from attnviz.storage import path_of, same_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from matplotlib.figure import Figure

    from attnviz.domain import Provenance, WrittenFile
    from attnviz.domain.kinds import CommandRequest
    from attnviz.stages.single import SingleImage

_Maps = TypeVar("_Maps", bound=Maps)

SCREEN_DPI = 110
"""Pixels per inch of a figure in a notebook: a page of 7 inches fits the width of a cell."""

PNG, SVG, TEXT = "image/png", "image/svg+xml", "text/plain"


def shown(
    single: SingleImage, request: CommandRequest, maps: _Maps, like_sha256: str | None = None
) -> _Maps:
    """The maps of a request with what their figure is drawn from.

    like_sha256: of the second image of ``relevance``.
    """
    made = single.provenance(kind_of(request).name, {}, like_sha256)
    pixels = single.prepared.image.pixels
    source = FigureSource(request, pixels, replace(made, in_python=True), DrawStyle())
    return replace(maps, source=source)


def styled(maps: _Maps, options: Mapping[str, Any]) -> _Maps:
    """See ``Maps.styled``."""
    source = _source(maps)
    kind = kind_of(maps)
    asked: Any = kind.request
    drawn = {each.field.name: each for each in option_fields(asked)}
    own = {name: drawn[name] for name in kind.drawn_with}
    style = {
        name: each
        for each in option_fields(DrawStyle)
        if each.name not in kind.unused
        for name in {each.name, each.field.name}
    }
    given: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for name, value in options.items():
        if name not in own and name not in style:
            known = (*own, *style)
            hint = did_you_mean(name, known) or f"it has {', '.join(known)}"
            raise UsageError(f"the figure {kind.name} has no option {name!r}", hint)
        each = own[name] if name in own else style[name]
        given[name not in own][each.field.name] = each.take(value)
    changed = {name: value for name, value in given[1].items() if value is not None}
    source = replace(
        source,
        request=replace(source.request, **given[0]),
        style=replace(source.style, **changed),
    )
    return replace(maps, source=source)


def figures_of(maps: Maps, options: Mapping[str, Any]) -> tuple[Figure, ...]:
    """See ``Maps.figures``."""
    return _drawn(_source(styled(maps, options)), maps)


def figure_of(maps: Maps, options: Mapping[str, Any]) -> Figure:
    """See ``Maps.figure``."""
    pages = figures_of(maps, options)
    if len(pages) > 1:
        raise UsageError(f"the figure has {len(pages)} pages", "figures() returns them all")
    return pages[0]


def save(maps: Maps, path: str | Path, options: Mapping[str, Any]) -> tuple[WrittenFile, ...]:
    """See ``Maps.save``."""
    source = _source(styled(maps, options))
    target = path_of(path)
    suffix = target.suffix.lower().removeprefix(".")
    known = (*(each.value for each in ImageFormat), "npz", "csv")
    if suffix not in known:
        raise UsageError(
            f"{target} does not end in {', '.join(f'.{each}' for each in known)}",
            "the suffix says what is written",
        )
    if target.is_dir():
        raise UsageError(f"{target} is a folder", "name a file")
    if same_file(target, path_of(source.provenance.image)):
        raise UsageError(f"{target} would overwrite the image", "choose another name")
    made = _made(source)
    if suffix == "npz":
        return (write_npz(target, maps.arrays(), made),)
    if suffix == "csv":
        return (write_csv(target, maps.rows()),)
    plan = OutputPlan(target.parent, target.name[: -len(suffix) - 1], "")
    formats = (ImageFormat(suffix),)
    return write_figures(_drawn(source, maps), plan, formats, source.style.dpi, made)


def mime_bundle(
    maps: Maps, include: Collection[str], exclude: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """See ``Maps._repr_mimebundle_``; None leaves the notebook to its own ways."""
    source = maps.source
    if source is None:
        return None
    offered = (SVG if SVG in include else PNG, TEXT)
    wanted = [kind for kind in offered if kind not in exclude and (not include or kind in include)]
    bundle: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if TEXT in wanted:
        bundle[TEXT] = _summary(maps, source)
    if PNG in wanted:
        bundle[PNG] = stacked_png(_drawn(source, maps), SCREEN_DPI, _made(source))
        made = source.provenance
        metadata[PNG] = {"alt": f"{made.command} of {image_name(made)}, {made.model.title}"}
    if SVG in wanted:
        bundle[SVG] = stacked_svg(_drawn(source, maps), source.style.dpi, _made(source))
    return bundle, metadata


def as_data_frame(maps: Maps) -> Any:
    """See ``Maps.to_pandas``."""
    return data_frame(maps.table)


def data_frame(rows: list[dict[str, Any]]) -> Any:
    """Rows as a pandas DataFrame.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UsageError(
            "to_pandas needs the package pandas, which is not installed",
            "pip install pandas, or take .table, a list of dicts",
        ) from error
    return pd.DataFrame(rows)


def _source(maps: Maps) -> FigureSource:
    if maps.source is None:
        raise UsageError(
            f"this {type(maps).__name__} does not know its image",
            "attnviz.draw(maps, image, model) draws it",
        )
    return maps.source


def _drawn(source: FigureSource, maps: Maps) -> tuple[Figure, ...]:
    made = source.provenance
    image = FigureImage(source.pixels, made.geometry, image_name(made))
    options = {name: getattr(source.request, name) for name in kind_of(maps).drawn_with}
    return draw(maps, image, made.model, source.style, **options)


def _made(source: FigureSource) -> Provenance:
    """The provenance with the options of the request and the style as they are now."""
    return replace(source.provenance, options=request_options(source.request, source.style))


def _summary(maps: Maps, source: FigureSource) -> str:
    """One line of text, where figures are not shown."""
    arrays = {
        each.name: getattr(maps, each.name).shape
        for each in fields(maps)
        if hasattr(getattr(maps, each.name), "shape")
    }
    shapes = ", ".join(f"{name} {shape}" for name, shape in arrays.items())
    made = source.provenance
    return f"{type(maps).__name__}({made.model.title}, {image_name(made)}: {shapes})"
