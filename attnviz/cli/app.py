"""The commands, registered, and the one place where errors become a line and an exit code.

Exit codes: 0 all done, 1 some picture failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

from attnviz._version import __version__
from attnviz.cli.argv import plain_arguments
from attnviz.cli.commands.compare import compare
from attnviz.cli.commands.evaluate import evaluate
from attnviz.cli.commands.evolve import evolve
from attnviz.cli.commands.explore import explore
from attnviz.cli.commands.features import features
from attnviz.cli.commands.heads import heads
from attnviz.cli.commands.info import info
from attnviz.cli.commands.layers import layers
from attnviz.cli.commands.matrix import matrix
from attnviz.cli.commands.merge import merge
from attnviz.cli.commands.models import models
from attnviz.cli.commands.patch import patch
from attnviz.cli.commands.qkv import qkv
from attnviz.cli.commands.relevance import relevance
from attnviz.cli.commands.render import render
from attnviz.cli.commands.rollout import rollout
from attnviz.cli.commands.score import score
from attnviz.cli.config import CommandWithFile, said_by_typer
from attnviz.cli.flatten import flatten
from attnviz.errors import AttnvizError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130

app = typer.Typer(
    name="attnviz",
    help="Exact attention figures of self-supervised Vision Transformers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=CommandWithFile)(flatten(heads))
app.command(cls=CommandWithFile)(flatten(layers))
app.command(cls=CommandWithFile)(flatten(rollout))
app.command(cls=CommandWithFile)(flatten(patch))
app.command(cls=CommandWithFile)(flatten(score))
app.command(cls=CommandWithFile)(flatten(relevance))
app.command(cls=CommandWithFile)(flatten(features))
app.command(cls=CommandWithFile)(flatten(compare))
app.command(cls=CommandWithFile)(flatten(matrix))
app.command(cls=CommandWithFile)(flatten(qkv))
app.command(name="eval", cls=CommandWithFile)(flatten(evaluate))
app.command(cls=CommandWithFile)(flatten(evolve))
app.command(cls=CommandWithFile)(flatten(explore))
app.command()(render)
app.command()(info)
app.command()(merge)
app.command()(models)


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
def _commands() -> Any:
    """All commands with their options, built once: who calls ``main`` many times waits once."""
    return typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Nothing that attnviz raises on purpose leaves it."""
    arguments = plain_arguments(sys.argv[1:] if argv is None else argv)
    _let_any_name_be_printed()
    try:
        code = _commands().main(arguments, prog_name="attnviz", standalone_mode=False)
    except AttnvizError as error:
        return _explain(error.message, error.hint, error.exit_code)
    except typer.TyperException as error:
        # What typer itself cannot parse: an unknown option, a value of another type.
        return _explain(said_by_typer(error), _where_to_look(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
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


def _let_any_name_be_printed() -> None:
    """File names that are not UTF-8 go to standard output byte for byte."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="surrogateescape")
