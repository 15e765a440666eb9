"""From panels of options to the flat signature that typer reads."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from attnviz.cli.complete import completion_of
from attnviz.cli.config import read_config
from attnviz.cli.panels import Given, Panel
from attnviz.domain.config_source import field_name
from attnviz.domain.options import FLAG
from attnviz.domain.requests import RUN_PANEL
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnviz.domain.options import OptionField

Result = TypeVar("Result")

CONFIG = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=path_of,
        help="A TOML file with values for these options; the command line wins.",
        callback=read_config,
        is_eager=True,
        rich_help_panel=RUN_PANEL,
    ),
]


def with_options(
    command: Callable[..., Result], *panels: Panel, doc: str = "", name: str = ""
) -> Callable[..., Result]:
    """A function with one keyword argument an option, for typer to read.

    command: takes a ``Given`` first; its other parameters are arguments and options of its own,
    annotated for typer. ``doc`` and ``name`` stand for its docstring and name. A command's own
    options come before the shared ones, so that its help begins with what is particular to it.
    """
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    options = {
        field_name(each.name): (panel.request, each, _parameter(panel, each))
        for panel in panels
        for each in panel.options()
    }
    config = inspect.Parameter(
        "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=CONFIG
    )
    parameters = [*own, *(parameter for _, _, parameter in options.values()), config]

    def flat(*, config: Path | None = None, **values: Any) -> Result:  # noqa: ARG001 - for its callback
        given: dict[type, dict[str, Any]] = {panel.request: {} for panel in panels}
        for key, (request, each, _) in options.items():
            value = each.read(values.pop(key))
            if value is not None:
                given[request][each.field.name] = value
        return command(Given(given), **values)

    flat.__name__ = name or command.__name__
    flat.__doc__ = unwrapped(doc or command.__doc__ or "")
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flat


def unwrapped(text: str) -> str:
    """The text with every paragraph on one line, so that the help can wrap it to the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _parameter(panel: Panel, each: OptionField) -> inspect.Parameter:
    """An option as a parameter with typer's annotation."""
    option, form = each.option, each.option.form
    about = typer.Option(
        *(option.flags or (f"--{each.name}",)),
        metavar=option.metavar or form.metavar,
        help=option.help,
        show_default=option.default or True,
        autocompletion=completion_of(each),
        rich_help_panel=option.panel or panel.title,
    )
    return inspect.Parameter(
        field_name(each.name),
        inspect.Parameter.KEYWORD_ONLY,
        default=_default(each),
        annotation=Annotated[_type(each), about],
    )


def _type(each: OptionField) -> Any:
    form = each.option.form
    if form.repeated:
        return list[form.type]  # type: ignore[name-defined]  # a type at run time
    return form.type if _default(each) is not None else form.type | None


def _default(each: OptionField) -> Any:
    """The default as typer takes it: what a user would have written."""
    value, form = each.default, each.option.form
    if value is MISSING:
        return inspect.Parameter.empty
    if form.repeated:
        return list(value) if value and form.type is not str else form.write(value)
    if form.unset is not None and not value:
        return form.unset
    if value is None or form is FLAG:
        return value
    if form.type is str:
        written = form.write(value)
        return written if written is None else str(written)
    return value
