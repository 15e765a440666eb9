"""What a kind of figure is: one description from which everything else about it follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from attnviz.domain.choices import take_choices
from attnviz.domain.options import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnviz.domain.arrays import ByteArray
    from attnviz.domain.drawing import DrawStyle, Provenance, WrittenFile

    Arrays = dict[str, NDArray[Any]]
    Row = dict[str, Any]


@dataclass(frozen=True)
class CommandRequest:
    """What a command is asked to compute and draw. Nothing in it has been looked up yet.

    Layers and heads count from 0, negative ones from the end; they are resolved once the model is
    known. Choices may be given as text.
    """

    def __post_init__(self) -> None:
        take_choices(self)

    @property
    def needs_cls(self) -> bool:
        """Whether only a model with a CLS token can do it."""
        return False

    @property
    def needs_gradients(self) -> bool:
        """Whether something is differentiated, which float16 has no range for."""
        return False

    @property
    def draws_figure(self) -> bool:
        """Whether a figure is drawn, and not only clean overlays."""
        return not getattr(self, "overlay_only", False)

    @property
    def first_overlay(self) -> str:
        """Part of the file name of the first overlay: ``STEM.COMMAND.PART.png``."""
        return "overlay"

    @property
    def second_image(self) -> Path | None:
        """The image to compare with, where there is one."""
        return None

    @property
    def can_follow(self) -> bool:
        """Whether it looks from patches that can move from frame to frame."""
        return False

    def for_maps_alone(self) -> Self:
        """The request of a run that draws maps only, and neither numbers nor arrays."""
        return self

    def keeping_data(self, *, save_data: bool) -> Self:  # noqa: ARG002 - kinds that hold more read it
        """The request of a run that also saves the arrays."""
        return self


@dataclass(frozen=True, eq=False)
class FigureSource:
    """What else the figure of some maps is drawn from.

    pixels: (height, width, 3) uint8, the original image. request: with the fields that only the
    drawing uses (``Kind.drawn_with``).
    """

    request: CommandRequest
    pixels: ByteArray
    provenance: Provenance
    style: DrawStyle


_DISPLAY = "attnviz.stages.display"
"""The module that draws what maps show of themselves; named, not imported, as in ``Kind``."""


@dataclass(frozen=True, eq=False)
class Maps:
    """What a command computes of an image: raw values, never scaled for display.

    Maps that a function of the Python interface returned have a ``source``: they show their figure
    at the end of a notebook cell, and draw and save it. In a run it is None.
    """

    source: FigureSource | None = field(default=None, kw_only=True, repr=False)

    def arrays(self) -> Arrays:
        """The arrays that ``--save-data`` writes, by name; docs/shapes.md lists them."""
        raise NotImplementedError

    def rows(self) -> tuple[Row, ...]:
        """The numbers as rows of plain values, for the terminal, tables and JSON.

        Weights are shares of 1; entropy is in nats, entropy_share is entropy / ln N, distance is in
        input pixels, focus is max / mean over the patches. ``prefix_mass`` is the weight of CLS,
        distillation and register tokens together.
        """
        raise NotImplementedError

    @property
    def table(self) -> list[Row]:
        """The numbers of the figure, one dict a row, as ``rows`` describes them."""
        return list(self.rows())

    def to_pandas(self) -> Any:
        """``table`` as a pandas DataFrame.

        Raises:
            UsageError: pandas is not installed.
        """
        return resolve(f"{_DISPLAY}:as_data_frame")(self)

    def styled(self, **options: Any) -> Self:
        """The same maps, whose figure is drawn with these options.

        options: fields of ``DrawStyle`` (``width="column"``, ``cmap="viridis"``,
        ``scale="shared"``), and those of the kind of figure (``threshold=0.6`` of heads).

        Raises:
            UsageError: An option that the figure does not have, or a value of another kind.
        """
        styled: Self = resolve(f"{_DISPLAY}:styled")(self, options)
        return styled

    def figures(self, **options: Any) -> tuple[Figure, ...]:
        """The pages of the figure as matplotlib figures, made without pyplot; usually one.

        options: as of ``styled``.

        Raises:
            UsageError: As ``styled``, or the maps have no source.
        """
        pages: tuple[Figure, ...] = resolve(f"{_DISPLAY}:figures_of")(self, options)
        return pages

    def figure(self, **options: Any) -> Figure:
        """The figure of one page; options as of ``styled``.

        Raises:
            UsageError: As ``figures``, or there are several pages.
        """
        figure: Figure = resolve(f"{_DISPLAY}:figure_of")(self, options)
        return figure

    def save(self, path: str | Path, **options: Any) -> tuple[WrittenFile, ...]:
        """Write the figure (.png, .pdf, .svg), the arrays (.npz) or the table (.csv).

        Figures and arrays carry the record of how they were made. An existing file is replaced.
        Pages after the first go to ``NAME.2.png`` and so on; a PDF holds them all. options: as of
        ``styled``.

        Raises:
            UsageError: As ``figures``, another suffix, or the path is that of the image.
            OutputError: The file cannot be written.
        """
        written: tuple[WrittenFile, ...] = resolve(f"{_DISPLAY}:save")(self, path, options)
        return written

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The figure for a notebook: PNG, or SVG where ``include`` asks for ``image/svg+xml``.

        With metadata: the alternative text of the image.
        """
        bundle: tuple[dict[str, Any], dict[str, Any]] | None
        bundle = resolve(f"{_DISPLAY}:mime_bundle")(self, include or (), exclude or ())
        return bundle


@dataclass(frozen=True)
class Sidecar:
    """A file beside the figure that a switch of the request asks for.

    tail: what follows ``STEM.COMMAND.`` in its name; of several the first. write: ``module:name``
    of what writes it, see ``attnviz.stages.sidecars``.
    """

    tail: str
    write: str


@dataclass(frozen=True)
class Kind:
    """One kind of figure.

    name: the command, part of file names, and the function of the Python interface. help: of the
    command; its last paragraph is ``Example: attnviz ...``.

    The others name functions as ``module:function``, so that neither torch nor matplotlib is
    imported for a look at the description:

    - compute(model, batch, request, **computed_with) -> a list of maps, one an image
    - draw(maps, image, model, style, **drawn_with) -> the pages of the figure
    - check(info, request): raises UsageError for what a model cannot do
    - refer(model, batch, image, request) -> of the second image, what ``compute`` takes as
      ``reference``; None for a kind without one
    - extra_bytes(info, tokens, request) -> memory of one image beyond a plain pass; None for none
    - cost(info, request) -> a line about the time of each image, said before the run starts; None
      where it is about that of a plain pass
    - summarised: the class that collects the numbers of all images for ``--summary``, as
      ``attnviz.runs.summary.Summary`` does; None without a summary

    computed_with: what ``compute`` takes besides: ``cells`` (the cells of each image that the
    request looks from), ``geometries`` (where each lies on its original), ``reference`` (the
    second image) or ``black`` (what a black pixel of each image became). drawn_with: fields of the
    request that the drawing takes. sidecars: by the field of the request that asks for them. pair:
    whether the last of several inputs is the second image where ``like`` names none.
    overlays: see ``attnviz.figures.overlays``, for kinds whose request has the field
    ``overlay_only``. unused: drawing options that have no effect on the figure and are refused.

    over_frames: ``module:function`` from the maps of some frames of a video to a function that
    turns the maps of any frame into those that are drawn, so that frames can be compared.
    """

    name: str
    help: str
    request: type[CommandRequest]
    maps: type[Maps]
    compute: str
    draw: str
    check: str = "attnviz.attention.checks:check_layer_and_heads"
    computed_with: tuple[str, ...] = ()
    drawn_with: tuple[str, ...] = ()
    extra_bytes: str | None = None
    refer: str | None = None
    pair: bool = False
    cost: str | None = None
    sidecars: Mapping[str, Sidecar] = field(default_factory=dict)
    summarised: str | None = None
    overlays: str | None = None
    unused: tuple[str, ...] = ()
    over_frames: str | None = None
