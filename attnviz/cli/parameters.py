"""Parameters that skip typer's coercion where there is nothing to coerce.

Typer builds a pydantic type for every parameter that it processes, given or not, and importing
pydantic alone takes longer than drawing a help page. A value that nobody gave and plain text need
neither.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def without_needless_coercion(command: Any) -> Any:
    """The command itself; its parameters, that of ``--help`` too, take values as they are."""
    all_of = command.get_params

    def quick(ctx: Any) -> list[Any]:
        parameters: list[Any] = all_of(ctx)
        for parameter in parameters:
            if hasattr(parameter, "type_descriptor") and "process_value" not in vars(parameter):
                parameter.process_value = partial(_process, parameter, parameter.process_value)
        return parameters

    command.get_params = quick
    return command


def _process(parameter: Any, coerced: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """The value that the command is called with."""
    several = parameter.multiple or parameter.nargs == -1
    taken = _as_it_is(parameter, value, several=several)
    if not taken or (parameter.required and parameter.value_is_missing(value)):
        return coerced(ctx, value)
    if several:
        value = list(value) if value else ()
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def _as_it_is(parameter: Any, value: Any, *, several: bool) -> bool:
    """Whether typer's coercion would give the value back unchanged."""
    descriptor = parameter.type_descriptor
    info, annotation = descriptor.parameter_info, descriptor.annotation
    if value is None or (several and value == ()):
        return True
    if info.parser is not None or getattr(info, "click_type", None) is not None:
        return False
    if several:
        (item,) = getattr(annotation, "__args__", None) or (None,)
        unset = value is parameter.default and all(type(part) is item for part in value)
        return unset or (item is str and isinstance(value, list | tuple))
    # A default's type is compared since typer converts the text of a default too.
    unset = value is parameter.default and type(value) is annotation
    return unset or (annotation is str and isinstance(value, str))
