"""The documents run as written: Python blocks, command lines, links, and names of tests."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
import types
from pathlib import Path

import pytest
import typer
import yaml

import attnviz.runs
from attnviz.cli.app import app, command_with_options, main
from attnviz.cli.commands import COMMANDS
from tests.helpers.writer_neurons import neuron_list

ROOT = Path(__file__).resolve().parents[2]
# docs/cli.md is generated, and tests/cli checks its examples.
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "cli.md"),
]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
GALLERY = tomllib.loads((ROOT / "configs" / "gallery.toml").read_text(encoding="utf-8"))

PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)\)")
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
FILES = ("heads.toml",)


def python_blocks(name: str) -> list[str]:
    return PYTHON.findall(TEXTS[name])


def commands_in(line: str) -> list[list[str]]:
    """The attnviz calls of a shell line, each as its arguments."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|;&")
    words.whitespace_split = True
    calls: list[list[str]] = [[]]
    for word in words:
        if word in {"|", ";", "&&", "do"}:
            calls.append([])
        else:
            calls[-1].append(word)
    return [call[1:] for call in calls if call[:1] == ["attnviz"]]


def command_lines() -> list[tuple[str, list[str]]]:
    found = []
    for name, text in TEXTS.items():
        prose = PYTHON.sub("", text).replace("\\\n", "").replace("$I/$N", "3/16")
        lines = [line for line in prose.splitlines() if line.startswith("    ")]
        lines += [code for code in INLINE.findall(prose) if code.startswith("attnviz ")]
        for line in lines:
            if re.search(r"\battnviz ", line):
                found += [(name, call) for call in commands_in(line)]
    return [(name, call) for name, call in found if "COMMAND" not in call]


_READING = {"render", "info", "eval", "evolve", "explore", "merge", "compare", "registers"}
"""Commands that read files which the documents only name."""


def known_options() -> set[str]:
    group = typer.main.get_command(app)
    return {
        option
        for command in (group, *map(command_with_options, COMMANDS))
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help", "--install-completion"}


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder that looks like the root of the repository to what is read there."""
    (tmp_path / "sample_images").symlink_to(ROOT / "sample_images")
    (tmp_path / "neurons.json").write_text(neuron_list((0, 1)).to_json(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["README.md", "docs/python.md"])
def test_python_blocks_run_in_their_order(name, workplace):
    blocks = python_blocks(name)
    assert blocks
    names = {"__name__": "documents"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{name}, block {number}", "exec"), names)


@pytest.mark.parametrize(("name", "arguments"), command_lines())
def test_every_command_line_is_accepted(name, arguments, workplace, monkeypatch):
    if "--install-completion" in arguments:
        return  # it would write into the user's shell; test_every_option_exists has seen it
    for file in FILES:
        toml = re.search(rf"# {re.escape(file)}\n(.*?)\n\n", TEXTS["docs/ci-and-shell.md"], re.S)
        Path(file).write_text(toml.group(1).replace("    ", ""), encoding="utf-8")
    if arguments[0] in _READING:
        # These read files that the documents only name; that they parse is what counts here.
        command = command_with_options(arguments[0])
        command.make_context(arguments[0], arguments[1:])
        return
    asked = []
    fake = types.ModuleType("attnviz.runs.command")
    fake.run = lambda request: asked.append(request) or iter(())
    monkeypatch.setitem(sys.modules, "attnviz.runs.command", fake)
    monkeypatch.setattr(attnviz.runs, "command", fake, raising=False)
    code = main(arguments)
    if arguments[0] == "models" or arguments[-1] == "--help":
        assert code == 0
    else:
        assert len(asked) == 1, name


def test_the_workflows_are_yaml_and_their_commands_are_accepted():
    blocks = YAML.findall(TEXTS["docs/ci-and-shell.md"])
    assert len(blocks) == 2
    for block in blocks:
        (job,) = (loaded := yaml.safe_load(block)).get("jobs", loaded).values()
        lines = [step["run"] for step in job.get("steps", ()) if "run" in step]
        lines += [*job.get("before_script", ()), *job.get("script", ())]
        (call,) = (call for line in lines for call in commands_in(line))
        command_with_options(call[0]).make_context(call[0], call[1:])


def test_our_own_workflow_calls_what_everyone_calls():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["check"]["steps"][-1] == {"run": ".ci/run"}
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_there_are_command_lines_of_every_command():
    seen = {arguments[0] for _, arguments in command_lines()}
    assert seen >= {
        "heads",
        "layers",
        "rollout",
        "patch",
        "score",
        "matrix",
        "qkv",
        "relevance",
        "discover",
        "match",
        "models",
        "render",
        "info",
        "eval",
        "explore",
        "registers",
    }


def test_every_option_exists():
    known = known_options()
    for name, text in TEXTS.items():
        for code in INLINE.findall(PYTHON.sub("", text)):
            if code.startswith(("--", "attnviz ")):
                options = re.findall(r"(?<!\S)--[a-z][a-z-]*", code)
                assert set(options) <= known, (name, code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_named_tests_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXTS["README.md"])
    assert named
    for path, function in named:
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), path


def test_every_page_is_in_the_index():
    index = TEXTS["docs/README.md"]
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, page.name


IN_THE_SET_ALONE = {"command", "images", "checkpoints", "dpi", "width", "animation"}


def test_the_readme_shows_the_gallery_and_the_commands_that_made_it():
    figures = GALLERY["figure"]
    assert len(figures) >= 5
    written = [sorted(call) for _, call in command_lines()]
    for figure in figures:
        if figure["command"] == "explore":
            assert f"]({figure['out'].removeprefix('../')})" in TEXTS["README.md"]
            continue
        paths = figure.get("images") or figure["checkpoints"]
        words = [figure["command"], *paths, "--model", GALLERY["defaults"]["model"]]
        for name, value in figure.items():
            if name in IN_THE_SET_ALONE:
                continue
            several = [",".join(value)] if name == "show" else value
            for one in several if isinstance(several, list) else [several]:
                words += [f"--{name}"] if one is True else [f"--{name}", str(one)]
        assert sorted(word.removeprefix("../") for word in words) in written, words
        stem = figure.get("name", Path(paths[0]).stem)
        assert f"](docs/figures/{stem}.{figure['command']}.png)" in TEXTS["README.md"]
