"""``attnviz info``: what it tells, and that the command it prints gives the same bytes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from attnviz.cli.reproduce import redraw_command
from attnviz.domain import sha256_of
from attnviz.output.read_record import read_record
from tests.helpers.command_line import attnviz, files_below
from tests.helpers.photos import save_scene

FORMATS = ("png", "pdf", "svg")
CALLS = [
    ("heads", "--layer", "-2", "--threshold", "0.6", "--heads", "-1,0", "--overlay", "--width",
     "column", "--scale", "fixed", "--limits", "0,0.1", "--mean", "0.5", "--no-distance"),
    ("layers", "--layers", "-2,-1", "--each-head", "--cmap", "hot", "--size", "40", "--fit", "pad"),
    ("rollout", "--start-layer", "1", "--layers-shown", "2,-1", "--fusion", "max", "--discard",
     "before", "--residual", "0.3", "--query", "mean", "--interpolation", "bilinear"),
    ("patch", "--at", "3,0", "--at", "2,3", "--xy", "9.5,7", "--each-head", "--std", ".2,.3,.4"),
    ("score", "--csv", "--keep-ratio", "0.3", "--precision", "bfloat16", "--positions", "timm"),
    ("relevance", "--like", "in/it's a $cat [1].png", "--method", "gradient-rollout"),
    ("discover", "--method", "spectral", "--layer", "-2", "--part", "v"),
    ("match", "--like", "in/it's a $cat [1].png", "--pairs", "all", "--part", "tokens", "--csv"),
    ("features", "--foreground", "--flip-foreground", "--layer", "0", "--at", "3,0", "--xy",
     "9.5,7", "--outlier-threshold", "4"),
    ("heads", "--layer", "0", "--heads", "0", "--alpha", "0"),
    ("rollout", "--discard-ratio", "0", "--residual", "0"),
]  # fmt: skip


@pytest.fixture
def again(tmp_path, capsys):
    """Run a shell's command line in a folder, in this process."""

    def call(folder: Path, line: str) -> None:
        program, *arguments = shlex.split(line)
        assert program == "attnviz"
        with contextlib.chdir(folder):
            code = attnviz(*arguments)
        assert code == 0, capsys.readouterr().err

    return call


@pytest.fixture
def command_in(capsys):
    """The command that ``info`` prints for a figure, asked in a folder."""

    def call(folder: Path, figure: str) -> str:
        capsys.readouterr()
        with contextlib.chdir(folder):
            assert attnviz("info", figure, "--json") == 0
        return json.loads(capsys.readouterr().out)["redraw"]

    return call


def fresh(tmp_path: Path, *, of: Path) -> Path:
    """An empty folder that holds nothing but the same pictures."""
    folder = tmp_path / "again"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(of / "in", folder / "in")
    return folder


IN_ALL_FORMATS = pytest.mark.slow(reason="draws every call in PDF too")


@pytest.mark.parametrize(
    ("call", "formats"),
    [
        (CALLS[0], FORMATS),
        *((call, ("png", "svg")) for call in CALLS[1:]),
        *(pytest.param(call, FORMATS, marks=IN_ALL_FORMATS) for call in CALLS[1:]),
    ],
    ids=lambda value: value[0] if value in CALLS else "-".join(value),
)
def test_the_printed_command_gives_the_same_bytes(call, formats, tiny, tmp_path, again, command_in):
    chosen = [word for name in formats for word in ("-f", name)]
    first = tmp_path / "first"
    save_scene(first / "in" / "it's a $cat [1].png", 40, 56)
    with contextlib.chdir(first):
        assert attnviz(call[0], "in", *tiny, *call[1:], *chosen, "--save-data", "-o", "o x") == 0
    written = files_below(first / "o x")
    assert {Path(name).suffix for name in written} >= {".npz", *(f".{name}" for name in formats)}
    asked = {Path(name).suffix: name for name in written if not name.endswith("csv")}.values()
    printed = {name: command_in(first, f"o x/{name}") for name in asked}
    # Files of one run print one command as a rule, which then is run once.
    for command in set(printed.values()):
        folder = fresh(tmp_path, of=first)
        again(folder, command)
        for name in asked:
            if printed[name] == command:
                made, expected = folder / "o x" / name, first / "o x" / name
                assert made.read_bytes() == expected.read_bytes(), name


@pytest.mark.parametrize("where", ["pages/the cat.html", "attnviz-out/it's a $cat.explore.html"])
def test_a_page_is_read_and_its_command_gives_the_same_bytes(
    tiny, tmp_path, again, command_in, capsys, where
):
    first = tmp_path / "first"
    save_scene(first / "in" / "it's a $cat.png", 40, 56)
    out = ["-o", where] if where.startswith("pages") else []
    with contextlib.chdir(first):
        arguments = [
            "in/it's a $cat.png",
            *tiny[:4],
            "--layers",
            "-1,0",
            "--no-rollout",
            *out,
            "-q",
        ]
        assert attnviz("explore", *arguments) == 0
        assert attnviz("info", where) == 0
    told = capsys.readouterr().out
    digest = sha256_of((first / "in" / "it's a $cat.png").read_bytes())
    assert f"image SHA-256    {digest}" in told
    command = command_in(first, where)
    assert ("--out" in command) == bool(out)
    assert "--name" not in command
    assert "--layers=-1,0" in command
    folder = fresh(tmp_path, of=first)
    again(folder, command)
    assert (folder / where).read_bytes() == (first / where).read_bytes()


NAMES = (
    "-dash.png", "a\nb.png", "quote'\".png", "ünï 猫.png", "x.heads.y.png", "$HOME `id` *.png",
    "cat.png", "cat.jpg", "deep/er/cat.png",
)  # fmt: skip


def test_the_commands_in_a_real_shell_for_names_of_any_kind(tiny, tmp_path):
    """Several pictures in one run, drawn by processes; then redrawn one by one."""
    first = tmp_path / "first"
    for number, name in enumerate(NAMES):
        save_scene(tmp_path / "made.png", 32, 40, seed=number)
        (first / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made.png").rename(first / "in" / name)
    shutil.copy(first / "in" / "cat.png", first / "-")
    with contextlib.chdir(first):
        assert attnviz("heads", "in", *tiny, "-f", "svg", "-o", "o", "-q", "--workers", "2") == 0
        # A file called "-" is a picture here, and "-dash.png" no option.
        shutil.copy("in/-dash.png", "-dash.png")
        assert attnviz("heads", *tiny, "-f", "svg", "-o", "o", "--", "./-", "-dash.png") == 0
    figures = [f"o/{name}" for name in files_below(first / "o")]
    assert len(figures) == len(NAMES) + 1
    folder = fresh(tmp_path, of=first)
    for name in ("-", "-dash.png"):
        shutil.copy(first / name, folder / name)
    lines = [redraw_command(read_record(first / name), Path(name)) for name in figures]
    # The shell reads every line; this process runs them all, to spare a start for each.
    script = "\n".join(["attnviz() { printf '%s\\0' \"$@\"; printf '\\0'; }", *lines])
    shell = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    calls = shell.stdout.split(b"\0\0")[:-1]
    assert len(calls) == len(figures)
    with contextlib.chdir(folder):
        for call in calls:
            assert attnviz(*map(os.fsdecode, call.split(b"\0"))) == 0, call
    for name in figures:
        assert (folder / name).read_bytes() == (first / name).read_bytes(), name


def test_what_is_told(real, tiny, tmp_path, tiny_weights):
    save_scene(tmp_path / "cat.png", 40, 56)
    real("rollout", "cat.png", *tiny, "--fusion", "max", "-f", "pdf")
    run = real("info", "attnviz-out/cat.rollout.pdf")
    assert (run.code, run.err) == (0, "")
    *rows, empty, command = run.out.splitlines()
    told = {row[:15].strip(): row[17:] for row in rows}
    assert empty == ""
    assert command.startswith("attnviz rollout --")
    assert "--out" not in command
    assert told["command"] == "rollout"
    assert (told["model"], told["weights"]) == ("tiny.pth", "tiny.pth")
    assert told["weights SHA-256"] == sha256_of(tiny_weights.read_bytes())
    assert told["image SHA-256"] == sha256_of((tmp_path / "cat.png").read_bytes())
    assert (told["image size"], told["model input"]) == ("40x56", "32x48, 4x6 patches")
    assert told["positions"] == "original"
    assert "torch " in told["versions"]
    assert any(row.endswith("  fusion max") for row in rows)


def test_the_command_leaves_defaults_out_and_all_spells_them(real, tiny, tmp_path):
    save_scene(tmp_path / "cat.png", 40, 40)
    real("rollout", "cat.png", *tiny, "--discard-ratio", "0.5", "--start-layer", "1")
    figure = "attnviz-out/cat.rollout.png"
    short, whole = (
        shlex.split(real("info", figure, *more).out.splitlines()[-1]) for more in ((), ("--all",))
    )
    named = {word.partition("=")[0] for word in short if word.startswith("--")}
    of_the_model = {"--checkpoint", "--model-arg", "--device"}
    assert named == {*of_the_model, "--discard-ratio", "--start-layer", "--dpi"}
    assert {"--fusion", "--residual", "--cmap", "--width"} <= set(whole)
    before = (tmp_path / figure).read_bytes()
    for command in (short, whole):
        (tmp_path / figure).unlink()
        assert real(*command[1:]).code == 0
        assert (tmp_path / figure).read_bytes() == before


def test_the_json_form_is_the_record_and_the_command(real, tiny, tmp_path):
    save_scene(tmp_path / "cat.png", 40, 40)
    real("heads", "cat.png", *tiny)
    figure = tmp_path / "attnviz-out" / "cat.heads.png"
    told = json.loads(real("info", figure, "--json").out)
    assert read_record(figure).items() <= told.items()
    assert told["redraw"] == redraw_command(read_record(figure), figure)


def test_a_renamed_figure_keeps_its_new_name(real, tiny, tmp_path, command_in, again):
    save_scene(tmp_path / "cat.png", 40, 40)
    real("heads", "cat.png", *tiny)
    (tmp_path / "attnviz-out/cat.heads.png").rename(tmp_path / "figure 3.png")
    command = command_in(tmp_path, "figure 3.png")
    assert "--out . --name 'figure 3'" in command
    again(tmp_path, command)
    made = tmp_path / "figure 3.heads.png"
    assert made.read_bytes() == (tmp_path / "figure 3.png").read_bytes()


def test_a_picture_that_is_gone_or_another_one_is_told(real, tiny, tmp_path):
    save_scene(tmp_path / "cat.png", 40, 40)
    real("heads", "cat.png", *tiny)
    save_scene(tmp_path / "cat.png", 40, 40, seed=1)
    assert "cat.png is not the image" in real("info", "attnviz-out/cat.heads.png").err
    (tmp_path / "cat.png").unlink()
    assert "cat.png does not exist" in real("info", "attnviz-out/cat.heads.png").err


def test_a_file_without_a_record_is_one_clear_error(real, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "plain.png")
    (tmp_path / "notes.txt").write_text("attnviz")
    for name, code, reason in (
        ("plain.png", 1, "holds no record of how it was made"),
        ("notes.txt", 1, "holds no record of how it was made"),
        ("gone.png", 2, "gone.png is not a file"),
    ):
        run = real("info", name)
        assert (run.code, run.out) == (code, "")
        assert reason in run.err.splitlines()[0]


def test_a_name_of_ones_own_for_one_picture(real, tiny, tmp_path):
    save_scene(tmp_path / "a.png", 40, 40)
    save_scene(tmp_path / "b.png", 40, 40)
    assert real("heads", "a.png", *tiny, "--name", "fig.1").code == 0
    assert files_below(tmp_path / "attnviz-out") == ["fig.1.heads.png"]
    two = real("heads", "a.png", "b.png", *tiny, "--name", "fig")
    assert (two.code, "--name: 'fig' can name the figure of one image" in two.err) == (2, True)
    for name in ("", "a/b", "..", "n" * 300):
        run = real("heads", "a.png", *tiny, "--name", name)
        assert (run.code, "--name: " in run.err) == (2, True)


def test_a_name_with_placeholders_and_one_with_braces_are_drawn_again(real, tiny, tmp_path):
    save_scene(tmp_path / "a{x}.png", 40, 40)
    options = (*tiny, "--workers", "0", "--out", "out")
    run = real("heads", "a{x}.png", *options, "--name", "{stem} of {model} at {layer}")
    assert run.out == "out/a{x} of tiny at -1.heads.png\n"
    figure = tmp_path / run.out.strip()
    before = figure.read_bytes()
    command = shlex.split(real("info", figure.relative_to(tmp_path)).out.splitlines()[-1])
    figure.unlink()
    assert real(*command[1:]).code == 0
    assert figure.read_bytes() == before
    bad = real("heads", "a{x}.png", *options, "--name", "{stme}")
    assert (bad.code, bad.out) == (2, "")
    assert "--name: {stme} is not a placeholder" in bad.err
