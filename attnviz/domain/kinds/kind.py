"""What a kind of figure is: one description from which everything else about it follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from attnviz.domain.choices import take_choices

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

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
    def second_image(self) -> Path | None:
        """The image to compare with, where there is one."""
        return None

    def keeping_data(self, *, save_data: bool) -> Self:  # noqa: ARG002 - kinds that hold more read it
        """The request of a run that also saves the arrays."""
        return self


@dataclass(frozen=True, eq=False)
class Maps:
    """What a command computes of one image: raw values, never scaled for display."""

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
    - extra_bytes(info, tokens, request) -> memory of one image beyond a plain pass; None for none

    computed_with: what ``compute`` takes besides: ``cells`` (the cells of each image that the
    request looks from) or ``reference`` (the second image). drawn_with: fields of the request that
    the drawing takes. sidecars: by the field of the request that asks for them. summarised: whether
    ``--summary`` draws the numbers of all images. unused: drawing options that have no
    effect on the figure and are refused.
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
    sidecars: Mapping[str, Sidecar] = field(default_factory=dict)
    summarised: bool = False
    unused: tuple[str, ...] = ()
