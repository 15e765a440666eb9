"""The options of requests, spelled once: what a field of a request says about itself.

A field that users can set carries an ``Option``: how it is spelled, what it means, and the ``Form``
in which its values are written. The command line, configuration files, records inside figures and
the command that draws a figure again are all made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz.domain.parse import in_range
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from enum import StrEnum

_OPTION = "option"
_GROUP = "group"


def _as_it_is(_option: str, value: Any) -> Any:
    return value


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Form:
    """How values of one kind are written.

    read: from the option's spelling and what ``type`` made of the text, to the value; raises
    UsageError. write: from the value to JSON: text, a number, or a list where ``repeated``.
    unset: the text that stands for the default where that is None or 0, as ``auto``. offered: what
    the shell completes, where the values have names.
    """

    read: Callable[[str, Any], Any] = _as_it_is
    write: Callable[[Any], Any] = _same
    type: Any = str
    metavar: str | None = None
    repeated: bool = False
    unset: str | None = None
    offered: tuple[str, ...] = ()


FLAG = Form(type=bool)


def choice(members: type[StrEnum]) -> Form:
    """One member of an enumeration, by its value."""
    return Form(type=members, write=lambda member: member.value)


def choices(members: type[StrEnum]) -> Form:
    """Members of an enumeration, each once, in the order given."""
    return Form(
        read=lambda _option, given: tuple(dict.fromkeys(map(members, given))),
        write=lambda some: [member.value for member in some],
        type=members,
        repeated=True,
    )


def number(
    metavar: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    type: type = float,  # noqa: A002 - as in Form
) -> Form:
    """A number inside bounds."""

    def read(option: str, value: float) -> float:
        return in_range(option, value, least=least, above=above, most=most, below=below)

    return Form(read=read, type=type, metavar=metavar)


@dataclass(frozen=True)
class Option:
    """What a field of a request is on the command line, in configuration files and in records.

    name: without dashes; by default the field's own with ``-`` for ``_``. flags: declarations
    where ``--NAME`` alone is not it (``--out``/``-o``, ``--distance/--no-distance``). default: what
    help shows in place of the value. recorded: whether it shapes the numbers or the drawing, so
    that records keep it. check: ``module:function`` of the value, for what takes more than its
    text. panel: where help lists it, if not with the other fields.
    """

    form: Form
    help: str
    name: str = ""
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    default: str | None = None
    recorded: bool = True
    check: str | None = None
    panel: str | None = None


def option(  # noqa: PLR0913 - those of Option
    default: Any,
    form: Form,
    help: str,  # noqa: A002 - as in Option
    *,
    name: str = "",
    flags: tuple[str, ...] = (),
    metavar: str | None = None,
    show: str | None = None,
    recorded: bool = True,
    check: str | None = None,
    panel: str | None = None,
) -> Any:
    """A field of a request with its option; a dict as default is copied for each request."""
    about = Option(form, help, name, flags, metavar, show, recorded, check, panel)
    metadata = {_OPTION: about}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def switch(
    help: str,  # noqa: A002 - as in Option
    *,
    on: bool = False,
    flags: tuple[str, ...] = (),
    recorded: bool = True,
    panel: str | None = None,
) -> Any:
    """A field that is on or off."""
    return option(on, FLAG, help, flags=flags, recorded=recorded, panel=panel)


def group(request: type) -> Any:
    """A field of a request that is itself a dataclass of options, by default with its defaults."""
    return field(default_factory=request, metadata={_GROUP: request})


@dataclass(frozen=True)
class OptionField:
    """An option with the field that holds it; ``name`` is spelled as on the command line."""

    field: Field[Any]
    option: Option

    @property
    def name(self) -> str:
        """Without dashes: ``discard-ratio``."""
        return self.option.name or self.field.name.replace("_", "-")

    @property
    def default(self) -> Any:
        """The value where none is given; ``dataclasses.MISSING`` where one must be."""
        if self.field.default_factory is not MISSING:
            return self.field.default_factory()
        return self.field.default

    def read(self, given: Any) -> Any:
        """The value of what the command line or a file gave; None stays None.

        Raises:
            UsageError: Not a value of this option; the message begins with its spelling.
        """
        if given is None:
            return None
        value = self.option.form.read(f"--{self.name}", given)
        return value if self.option.check is None else resolve(self.option.check)(value)

    def take(self, value: Any) -> Any:
        """The value of what Python code gave: as the request holds it, or as text; None is None.

        Raises:
            UsageError: As ``read``, or a value of another type.
        """
        if value is None or self.option.form is FLAG:
            if value is None or isinstance(value, bool):
                return value
            raise self._not_a_value(value)
        try:
            return self.read(self._as_given(value))
        except (TypeError, ValueError, AttributeError) as error:
            raise self._not_a_value(value) from error

    def _as_given(self, value: Any) -> Any:
        """The value as the command line would have given it."""
        form = self.option.form
        if form.repeated:
            several = [value] if isinstance(value, str) else value
            written = several if all(isinstance(each, str) for each in several) else None
            return [form.type(each) for each in (form.write(value) if written is None else written)]
        written = value if isinstance(value, str) else form.write(value)
        if isinstance(written, bool | tuple | list | dict):
            raise TypeError
        return form.type(written)

    def _not_a_value(self, value: Any) -> UsageError:
        return UsageError(f"{self.name}: {value!r} is not a value of this option", self.option.help)

    def write(self, value: Any) -> Any:
        """The value as JSON, or None."""
        return None if value is None else self.option.form.write(value)


@lru_cache
def option_fields(request: type) -> tuple[OptionField, ...]:
    """The options of a request class, those of its groups in their place."""
    return tuple(_fields(request))


def _fields(request: type) -> Iterator[OptionField]:
    for item in fields(request):
        if _OPTION in item.metadata:
            yield OptionField(item, item.metadata[_OPTION])
        elif _GROUP in item.metadata:
            yield from _fields(item.metadata[_GROUP])


def build(request: type, values: dict[str, Any], **own: Any) -> Any:
    """A request from values by field name, its groups included; ``own``: fields that are set here.

    Fields that ``values`` lacks keep their defaults.
    """
    made = dict(own)
    for item in fields(request):
        if item.name in own:
            continue
        if _GROUP in item.metadata:
            made[item.name] = build(item.metadata[_GROUP], values)
        elif item.name in values and _OPTION in item.metadata:
            made[item.name] = values[item.name]
    return request(**made)


def request_options(*requests: Any) -> dict[str, Any]:
    """Every option that shapes the numbers or the drawing, by its command-line name, for JSON.

    Options that are None, False or empty are left out; a switch that is on by default stands under
    its name for off, as ``no-distance``.
    """
    options: dict[str, Any] = {}
    for request in requests:
        for item in fields(request):
            value = getattr(request, item.name)
            if _GROUP in item.metadata:
                options |= request_options(value)
            elif _OPTION in item.metadata and item.metadata[_OPTION].recorded:
                known = OptionField(item, item.metadata[_OPTION])
                if known.option.form is FLAG and known.default:
                    options[f"no-{known.name}"] = not value
                else:
                    options[known.name] = known.write(value)
    return given_options(options)


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options without those that are None, False or an empty list."""
    # By identity: layer 0 and a ratio of 0 are equal to False, and are not defaults.
    return {
        name: value
        for name, value in options.items()
        if not (value is None or value is False or value == [])
    }


@lru_cache
def resolve(reference: str) -> Any:
    """What ``module:name`` names; the module is imported when it is first asked for."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
