"""Parameters without typer's coercion take the values that typer's coercion gives."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from attnviz.cli.app import command_with_options
from attnviz.cli.commands import COMMANDS
from attnviz.errors import AttnvizError

PROGRAM = """
import sys
from attnviz.cli.app import main

for line in (["models"], ["heads", "missing.png", "--layer", "3"], ["heads", "--wrong"]):
    main(line)
sys.exit("pydantic" in sys.modules)
"""


def _outcome(process, context, value):
    try:
        given = process(context, value)
    except (AttnvizError, typer.TyperException) as error:
        return type(error), str(error)
    return type(given), given


@pytest.mark.parametrize("name", COMMANDS)
def test_values_are_those_of_typer(name):
    command = command_with_options(name)
    context = typer.Context(command)
    parameters = [p for p in command.get_params(context) if p.name != "help"]
    assert parameters
    for parameter in parameters:
        several = parameter.multiple or parameter.nargs == -1
        values = [None, parameter.default]
        values += [("3", "cat"), (), ["png"]] if several else ["3", "cat", "", "png", "-1"]
        for value in values:
            plain = type(parameter).process_value.__get__(parameter)
            ours = _outcome(parameter.process_value, context, value)
            theirs = _outcome(plain, context, value)
            if several and not theirs[1]:
                ours, theirs = tuple(ours[1]), tuple(theirs[1])
            assert ours == theirs, (parameter.name, value)


def test_text_and_defaults_load_no_pydantic(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
