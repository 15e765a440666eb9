"""What is written about the commands is what they are."""

from __future__ import annotations

import dataclasses
import inspect
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.cli.app import app
from attnviz.cli.commands import heads, layers, matrix, patch, qkv, relevance, rollout, score
from attnviz.cli.flatten import flatten, unwrapped

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = (
    *(heads.heads, layers.layers, rollout.rollout, patch.patch, score.score),
    relevance.relevance,
    matrix.matrix,
    qkv.qkv,
)


def example(function: object) -> list[str]:
    last = unwrapped(function.__doc__ or "").split("\n\n")[-1]
    return shlex.split(last.removeprefix("Example: "))


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    tool = ROOT / "tools" / "generate_cli_docs.py"
    run = subprocess.run(
        [sys.executable, tool, "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_example_is_a_command_that_is_accepted(function: object, request_of) -> None:
    program, *arguments = example(function)
    assert program == "attnviz"
    assert request_of(*arguments)


def test_every_option_has_help() -> None:
    for info in app.registered_commands:
        assert info.callback is not None
        for name, parameter in inspect.signature(info.callback, eval_str=True).parameters.items():
            (option,) = parameter.annotation.__metadata__
            assert option.help, name
            assert option.help.endswith("."), name


def test_a_command_can_be_called_with_an_options_value(pipeline) -> None:
    options = heads.HeadsOptions(inputs=["a.jpg"], threshold=0.6)
    heads.heads(options)
    assert pipeline.requests[0].command.threshold == 0.6


def test_flat_signatures_hold_every_field_once_and_a_commands_own_first() -> None:
    flat = flatten(patch.patch)
    names = list(flat.__annotations__)
    assert sorted(names) == sorted(item.name for item in dataclasses.fields(patch.PatchOptions))
    assert set(names[:4]) == {"layer", "at", "xy", "each_head"}
