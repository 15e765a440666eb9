"""The program: its commands, and the one place where errors become a line and an exit code.

Exit codes: 0 all done, 1 some image failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import errno
import sys
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from attnviz._version import __version__
from attnviz.cli.argv import plain_arguments
from attnviz.cli.commands import COMMANDS, about_command, load_command
from attnviz.cli.config import CommandWithFile, typer_message
from attnviz.cli.ending import INTERRUPTED
from attnviz.cli.parameters import without_needless_coercion
from attnviz.cli.streams import let_any_name_be_printed
from attnviz.errors import AttnvizError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class CommandGroup(TyperGroup):
    """The commands by name; only the one that is called is imported and has its options built."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Their names, for the near matches of a wrong one.
        self.commands = dict.fromkeys(COMMANDS, TyperCommand(name=None))

    def list_commands(self, _context: Any) -> list[str]:
        """All commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _context: Any, name: str) -> Any:
        """A command for the list in the help: what it is, without its options."""
        if name not in COMMANDS:
            return None
        return TyperCommand(name=name, help=about_command(name))

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        """The command that is called, with its options."""
        name, command, rest = super().resolve_command(context, arguments)
        return name, command_with_options(str(name)) if command else command, rest


@cache
def command_with_options(name: str) -> Any:
    """A command as it is called, built once: who calls ``main`` many times waits once."""
    single = typer.Typer(add_completion=False)
    function = load_command(name)
    with_file = hasattr(function, "__signature__")
    single.command(name, cls=CommandWithFile if with_file else None)(function)
    return without_needless_coercion(typer.main.get_command(single))


app = typer.Typer(
    name="attnviz",
    cls=CommandGroup,
    help="Exact attention figures of self-supervised Vision Transformers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  (typer calls it so)
    if wanted:
        typer.echo(f"attnviz {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


@cache
def _program() -> Any:
    return without_needless_coercion(typer.main.get_command(app))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Nothing that attnviz raises on purpose leaves it."""
    arguments = plain_arguments(sys.argv[1:] if argv is None else argv)
    let_any_name_be_printed()
    try:
        code = _program().main(arguments, prog_name="attnviz", standalone_mode=False)
    except AttnvizError as error:
        return _explain(error.message, error.hint, error.exit_code)
    except typer.TyperException as error:
        # What typer itself cannot parse: an unknown option, a value of another type.
        return _explain(typer_message(error), _where_to_look(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        # Errors of files that have a name are AttnvizErrors where they matter, or bugs.
        if error.filename is not None or error.errno not in _DISK_ERRORS:
            raise
        return _explain(f"standard output cannot be written ({error.strerror})", "", 1)
    except SystemExit as end:
        # Typer leaves this way when nobody reads standard output any more.
        return end.code if isinstance(end.code, int) else 1
    return code if isinstance(code, int) else 0


def _explain(message: str, hint: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)  # noqa: T201
    if hint:
        print(f"  {hint}", file=sys.stderr)  # noqa: T201
    return code


def _where_to_look(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"see '{context.command_path} --help'" if context is not None else ""
