"""The panels of options, and what the command line gave for them.

A panel is some fields of a request class, under a title in the help. A command is composed of the
panels that it honours; the fields spell their own options (``attnviz.domain.options``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnviz.domain import DrawStyle
from attnviz.domain.drawing import SharedScaleStyle
from attnviz.domain.options import build, option_fields, switch
from attnviz.domain.requests import (
    OUTPUT_PANEL,
    RUN_PANEL,
    EngineRequest,
    InputRequest,
    ModelRequest,
    OutputRequest,
    RunRequest,
)
from attnviz.domain.video import VideoRequest
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain.kinds import Kind
    from attnviz.domain.options import OptionField


@dataclass(frozen=True)
class PrintRequest:
    """What a run prints."""

    json: bool = switch(
        "One JSON record a line on standard output, instead of the paths.", panel=OUTPUT_PANEL
    )
    quiet: bool = switch(
        "No progress and no tables; failures are still reported.",
        flags=("--quiet", "-q"),
        panel=RUN_PANEL,
    )


@dataclass(frozen=True)
class Panel:
    """Options of one request class under one title; ``names`` None: all of its options.

    title None: those that are particular to a command.
    """

    title: str | None
    request: type
    names: tuple[str, ...] | None = None

    def options(self) -> list[OptionField]:
        """The options, in the order of the fields."""
        known = option_fields(self.request)
        return [each for each in known if self.names is None or each.name in self.names]

    def without(self, *names: str) -> Panel:
        """The panel but for some options."""
        kept = tuple(each.name for each in self.options() if each.name not in names)
        return replace(self, names=kept)


MODEL = Panel("Model", ModelRequest)
IMAGES = Panel("Images", InputRequest).without("shard")
DRAWING = Panel("Drawing", DrawStyle)
SHARED_SCALE_DRAWING = Panel("Drawing", SharedScaleStyle)
VIDEO = Panel("Video", VideoRequest)
OUTPUT = Panel(OUTPUT_PANEL, OutputRequest).without("summary")
SUMMARY = Panel(OUTPUT_PANEL, OutputRequest, ("summary",))
RUN = Panel(RUN_PANEL, RunRequest)
ENGINE = Panel(RUN_PANEL, EngineRequest)
SHARD = Panel(RUN_PANEL, InputRequest, ("shard",))
PRINT = Panel(RUN_PANEL, PrintRequest)
QUIET = Panel(RUN_PANEL, PrintRequest, ("quiet",))


def figure_panels(kind: Kind) -> tuple[Panel, ...]:
    """What the command of a kind of figure is composed of."""
    own = Panel(None, kind.request)
    summary = (SUMMARY,) if kind.summarised else ()
    return (own, MODEL, IMAGES, VIDEO, DRAWING, OUTPUT, *summary, RUN, ENGINE, SHARD, PRINT)


@dataclass(frozen=True)
class Given:
    """The values of a command's options, by request class and field."""

    values: dict[type, dict[str, Any]]

    def make(self, request: type, **own: Any) -> Any:
        """The request of a class, from its options and the fields that are set here."""
        return build(request, self.values.get(request, {}), **own)

    def refuse(self, request: type, names: Sequence[str], command: str) -> None:
        """Raise UsageError for options of a class that a command has no use for.

        Their default is no statement, so records and configuration files may repeat it.
        """
        for each in option_fields(request):
            value = self.values[request].get(each.field.name, each.default)
            if each.name in names and value != each.default:
                raise UsageError(
                    f"--{each.name} has no effect on the figure of {command}", "leave it out"
                )
