"""From a command that takes one options value to the flat signature that typer reads."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from attnviz.cli.input_options import InputOptions
from attnviz.cli.options import SharedOptions

if TYPE_CHECKING:
    from collections.abc import Callable

Options = TypeVar("Options", bound=InputOptions)
Result = TypeVar("Result")


def flatten(command: Callable[[Options], Result]) -> Callable[..., Result]:
    """A function with one keyword argument a field of the command's options dataclass.

    A command's own fields come before the shared ones, so that its help begins with what is
    particular to it. The command itself is unchanged and can be called with an options value.
    """
    (argument,) = inspect.signature(command).parameters
    options_class: type[Options] = get_type_hints(command)[argument]
    hints: dict[str, Any] = {}
    for base in reversed(options_class.__mro__):
        hints |= _own_hints(base)
    parameters = [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(item),
            annotation=hints[item.name],
        )
        for item in _own_first(options_class)
    ]

    def flat(**values: Any) -> Result:
        return command(options_class(**values))

    flat.__name__ = command.__name__
    flat.__doc__ = unwrapped(command.__doc__ or "")
    flat.__annotations__ = {item.name: item.annotation for item in parameters}
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flat


@lru_cache
def _own_hints(options_class: type) -> dict[str, Any]:
    # Evaluated once a class: the shared options are the same for every command, and --help waits.
    return inspect.get_annotations(options_class, eval_str=True)


def unwrapped(text: str) -> str:
    """The text with every paragraph on one line, so that the help can wrap it to the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _own_first(options_class: type[InputOptions]) -> list[Field[Any]]:
    shared = {item.name for item in fields(SharedOptions)}
    return sorted(fields(options_class), key=lambda item: item.name in shared)


def _default(item: Field[Any]) -> Any:
    if item.default is not MISSING:
        return item.default
    if item.default_factory is not MISSING:
        return item.default_factory()
    return inspect.Parameter.empty
