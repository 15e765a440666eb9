"""What is written about the commands is what they are."""

from __future__ import annotations

import inspect
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.cli.commands import COMMANDS, about_command, load_command
from attnviz.cli.panels import figure_panels
from attnviz.cli.signature import unwrapped
from attnviz.domain.kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]


def example(command: str) -> list[str]:
    last = unwrapped(about_command(command)).split("\n\n")[-1]
    return shlex.split(last.removeprefix("Example: "))


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    tool = ROOT / "tools" / "generate_cli_docs.py"
    run = subprocess.run(
        [sys.executable, tool, "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_every_example_is_a_command_that_is_accepted(kind: str, request_of) -> None:
    program, *arguments = example(kind)
    assert program == "attnviz"
    assert request_of(*arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_says_what_the_command_says(command: str) -> None:
    said = unwrapped(load_command(command).__doc__ or "")
    assert said.startswith(unwrapped(about_command(command)).split("\n\n")[0])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_help(command: str) -> None:
    parameters = inspect.signature(load_command(command), eval_str=True).parameters
    for name, parameter in parameters.items():
        (option,) = parameter.annotation.__metadata__
        assert option.help, name
        assert option.help.endswith("."), name


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_command_has_the_options_of_its_panels_each_once_and_its_own_first(kind) -> None:
    names = list(inspect.signature(load_command(kind.name)).parameters)
    options = [each for panel in figure_panels(kind) for each in panel.options()]
    assert len(names) == len(options) + 2  # the inputs, and --config
    own = [each.name.replace("-", "_") for each in figure_panels(kind)[0].options()]
    assert [name.rstrip("_") for name in names[1 : 1 + len(own)]] == own
