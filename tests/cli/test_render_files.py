"""The file of a figure set: every option under its own name, and errors with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from attnviz.cli.app import command_with_options
from attnviz.cli.figure_set import read_figure_set
from attnviz.cli.toml_file import load_toml
from attnviz.domain.comparison import CompareRequest
from attnviz.domain.evolution import EvolutionRequest
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.kinds import KINDS, kind_of
from attnviz.domain.requests import RunRequest
from attnviz.errors import UsageError
from tests.helpers import kinds
from tests.helpers.writer_neurons import neuron_list

ROOT = Path(__file__).resolve().parents[2]
"""The commands of the gallery."""

WRITTEN = {
    "model": '"dinov2_vits14"', "checkpoint": '"w.pth"', "checkpoint-key": '"student"',
    "model-arg": '["depth=6", "heads=3"]', "device": '"cuda:1"', "precision": '"bfloat16"',
    "positions": '"timm"', "verify": "true", "size": '"480x640"', "fit": '"pad"', "mean": "0.5",
    "std": "[0.2, 0.3, 0.4]", "max-pixels": "1000",
    "bands": '"3,2,1"', "range": '"0,100"', "heads": "[0, 2]", "width": '"column"',
    "dpi": "300", "cmap": '"hot"', "scale": '"fixed"', "limits": "[0, 0.1]", "name": '"mine"',
    "interpolation": '"bilinear"', "alpha": "0.5", "out": '"here"', "format": '["pdf", "svg"]',
    "save-data": "true", "skip-existing": "true", "batch-size": "4", "workers": "0",
    "fail-fast": "true", "layer": "-2", "threshold": "0.4", "overlay": "true", "distance": "false",
    "query": '"mean"', "layers": '"0-2"', "each-head": "true", "fusion": '"max"',
    "residual": "0.3", "discard-ratio": "0", "discard": '"before"', "start-layer": "1",
    "layers-shown": "[2, -1]", "at": "[[3, 7], [0, 0]]", "xy": '["9,8.5"]', "keep-ratio": "0.7",
    "csv": "true", "norm": '"linear"', "part": '["q", "v"]', "foreground": "true",
    "flip-foreground": "true", "outlier-threshold": "9.5", "stride": "4",
    "test-registers": '"n.json"', "register-count": "2",
    "show": '["mean", "head:1"]', "class": "3", "baseline": '"black"', "chefer": "true",
    "seed": "5", "direction": '"to"', "lfe": "true", "sinks": "true",
}  # fmt: skip
"""A value of every option, as it stands in a file."""

WRITTEN_OF = {"discover": {"method": '"lost"', "part": '"v"'}}
"""The same where an option's values depend on the command."""


def options_of(command: str) -> dict[str, typer.models.ParameterInfo]:
    return {
        parameter.name.rstrip("_").replace("_", "-"): parameter
        for parameter in command_with_options(command).params
        if parameter.param_type_name == "option"
    }


def as_arguments(name: str, option, written: str) -> list[str]:
    """The same value on the command line."""
    import tomllib

    value = tomllib.loads(f"value = {written}")["value"]
    if isinstance(value, bool):
        return [option.opts[0] if value else option.secondary_opts[0]]
    repeatable = getattr(option, "multiple", False)
    values = value if isinstance(value, list) and repeatable else [value]
    texts = [",".join(map(str, each)) if isinstance(each, list) else str(each) for each in values]
    return [f"--{name}={text}" for text in texts]


def write(folder: Path, text: str) -> Path:
    path = folder / "set.toml"
    path.write_text(text, encoding="utf-8")
    return path


LEFT_OUT = (
    *("config", "json", "quiet", "random-weights", "table", "summary"),
    *("engine", "ray-address", "cpus-per-model", "shard", "overlay-only"),
)
"""Options of the run as a whole, and those that exclude others: --checkpoint, --format."""


@pytest.mark.parametrize(
    "key", ["table = 't.csv'", "summary = true", "shard = '0/2'", "cpus-per-model = 2"]
)
def test_options_about_all_pictures_are_none_of_a_figure(tmp_path, key):
    path = write(tmp_path, f"[[figure]]\ncommand = 'heads'\nimages = ['a.jpg']\n{key}\n")
    with pytest.raises(UsageError, match="is not an option of a figure") as caught:
        read_figure_set(path)
    assert f"{path}:4" in caught.value.message
    assert "run the command itself" in caught.value.hint


@pytest.mark.parametrize("underscores", [False, True])
@pytest.mark.parametrize("command", kinds.BY_DEFAULT)
def test_every_option_means_what_it_means_on_the_command_line(
    command, underscores, request_of, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("w.pth").touch()
    Path("n.json").write_text(neuron_list((0, 1)).to_json(), encoding="utf-8")
    options = options_of(command)
    names = [name for name in options if name not in {*LEFT_OUT, *KINDS[command].unused}]
    values = WRITTEN | WRITTEN_OF.get(command, {})
    assert set(names) <= values.keys()
    lines = [f"{n.replace('-', '_') if underscores else n} = {values[n]}" for n in names]
    head = ["[[figure]]", f'command = "{command}"', 'images = ["a.jpg", "b c.jpg"]']
    (figure,) = read_figure_set(write(tmp_path, "\n".join([*head, *lines])).relative_to(tmp_path))
    arguments = [word for n in names for word in as_arguments(n, options[n], values[n])]
    assert figure.request == request_of(command, "a.jpg", "b c.jpg", *arguments)
    assert kind_of(figure.request.command).name == command


def test_defaults_reach_the_commands_that_have_them_and_figures_win(tmp_path):
    path = write(
        tmp_path,
        "[defaults]\nlayer = 2\nrandom_weights = true\ndpi = 99\nfusion = 'max'\n"
        "[[figure]]\ncommand = 'heads'\nimages = ['a.jpg']\nlayer = 3\n"
        "[[figure]]\ncommand = 'rollout'\nimages = 'b.jpg'\ndpi = 50\n",
    )
    heads, rollout = (figure.request for figure in read_figure_set(path))
    assert (heads.command.layer, heads.style.dpi, rollout.style.dpi) == (3, 99, 50)
    assert rollout.command.options.fusion == "max"
    assert heads.model.random_weights
    assert heads.output.folder == tmp_path / "attnviz-out"
    assert heads.output.skip_existing
    assert not read_figure_set(path, overwrite=True)[0].request.output.skip_existing


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "sets").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    text = "[[figure]]\ncommand='heads'\nimages=['../a/*.jpg', '/b.jpg', 'c.jpg']\nout='../o'\n"
    path = write(tmp_path / "sets", text)
    monkeypatch.chdir(tmp_path)
    (figure,) = read_figure_set(Path("sets/set.toml"))
    assert figure.request.inputs.inputs == ("a/*.jpg", "/b.jpg", "sets/c.jpg")
    assert figure.request.output.folder == Path("o")
    # Through a link ".." is the folder above the link's target.
    path.rename(tmp_path / "elsewhere" / "set.toml")
    (tmp_path / "linked" / "below").symlink_to(tmp_path / "sets", target_is_directory=True)
    (tmp_path / "sets" / "deep.toml").write_text(text)
    (figure,) = read_figure_set(Path("linked/below/deep.toml"))
    assert figure.request.inputs.inputs[0] == "linked/below/../a/*.jpg"


FIGURE = "[[figure]]\ncommand = 'heads'\nimages = ['a.jpg']\n"


@pytest.mark.parametrize(
    ("text", "line", "reason", "hint"),
    [
        (
            FIGURE + "\ntreshold = 0.6",
            5,
            "unknown option 'treshold' of heads",
            "did you mean threshold",
        ),
        (FIGURE + "fusion = 'max'", 4, "unknown option 'fusion' of heads", ""),
        (FIGURE + "config = 'x'", 4, "unknown option 'config' of heads", ""),
        (
            FIGURE + "quiet = true",
            4,
            "quiet is not an option of a figure",
            "attnviz render --quiet",
        ),
        (FIGURE + "save-data = 1", 4, "save-data is a switch", ""),
        (FIGURE + "model = true", 4, "model is a bool", ""),
        (FIGURE + "dpi = 'x'", 4, "'--dpi'", ""),
        (FIGURE + "dpi = 10", 4, "--dpi: 10 is out of range", ""),
        (FIGURE + "scale = 'foo'", 4, "'panel', 'shared', 'fixed'", ""),
        (FIGURE + "scale = 'fixed'", 4, "--scale fixed needs --limits", ""),
        (FIGURE + "threshold = 2", 4, "--threshold: 2 is out of range", ""),
        (FIGURE + "heads = ['x']", 4, "--heads: 'x'", "count from 0"),
        (FIGURE + "checkpoint = 'no.pth'", 4, "no.pth does not exist", ""),
        (FIGURE + "cmap = '''\ninfernal'''", 4, "no colour map is called", "inferno"),
        (FIGURE + "name = 'a/b'", 4, "--name: 'a/b' is not a file name", ""),
        ("[defaults]\ndpi = 3\n" + FIGURE, 2, "--dpi: 3 is out of range", ""),
        ("[defaults]\ndip = 3\n" + FIGURE, 2, "unknown option 'dip'", "did you mean dpi"),
        ("[defaults]\nname = 'x'\n" + FIGURE, 2, "name belongs to a figure", ""),
        ("[defaults]\njson = true\n" + FIGURE, 2, "json is not an option of a figure", ""),
        ("defaults = 3\n" + FIGURE, 1, "defaults must be a table", ""),
        ("[default]\n" + FIGURE, 1, "unknown key 'default'", "did you mean defaults"),
        ("dpi = 3\n" + FIGURE, 1, "unknown key 'dpi'", "[defaults]"),
        ("figure = 3", 1, "figures must be tables", ""),
        ("figure = [{command = 'heads'}]", 1, "images must be a list", ""),
        ("[[figure]]\nimages = ['a']", 1, "the figure has no command", "heads, layers"),
        ("[[figure]]\ncommand = 'haeds'\nimages = ['a']", 2, "is called 'haeds'", "mean heads"),
        ("[[figure]]\ncommand = 'models'\nimages = ['a']", 2, "is called 'models'", "one of"),
        ("[[figure]]\ncommand = 'heads'\nimages = []", 3, "images must be a list", ""),
        ("[[figure]]\ncommand = 'heads'\nimages = [3]", 3, "images must be a list", ""),
        (FIGURE + "\n[figure.more]\nx = 1", 1, "unknown option 'more' of heads", ""),
        (FIGURE + "model = ", 4, "is not a TOML file", ""),
        (FIGURE + "dpi = 30\ndpi = 31", 5, "is not a TOML file", ""),
        ("", None, "holds no figure", ""),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_key(text, line, reason, hint, tmp_path):
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_figure_set(path)
    place = f"{path}:{line}: " if line else f"{path}: "
    assert caught.value.message.startswith(place), caught.value.message
    assert reason in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "arguments", "line"),
    [
        ("dpi = 300\nthreshold = 2\n", (), 2),
        ("\n\ndpi = 'x'", (), 3),
        ("scale = 'foo'", (), 1),
        ("model = 'a'\nsave-data = 'yes'", (), 2),
        ("model = 'a'\nsvae-data = true", (), 2),
        ("threshold = 0.5", ("--threshold", "2"), None),
        ("threshold = 0.5", ("--dpi", "x"), None),
    ],
)
def test_errors_of_a_config_have_its_line_unless_the_command_line_is_to_blame(
    text, arguments, line, attnviz_command, pipeline, tmp_path
):
    path = write(tmp_path, text)
    outcome = attnviz_command("heads", "a.jpg", "--config", str(path), *arguments)
    assert outcome.code == 2
    start = f"error: {path}:{line}: " if line else "error: "
    assert outcome.err.startswith(start)
    assert (str(path) in outcome.err) == (line is not None)
    assert not pipeline.requests


def test_lines_of_keys_in_a_file_that_makes_it_hard(tmp_path):
    file = load_toml(
        write(
            tmp_path,
            '# [x]\n"save-data" = true # = [\r\nheads = [ # ]\n  0,\n  "]",\n]\n'
            's = """\nfoo = 1\n\\"""[x]\n""""\nl = \'\'\'\ny = 2\'\'\'\n\n'
            "[defaults]\n dpi=30\n[[ figure ]]\nat = [[1, 2],\n[3, 4]]\nmodel = 'a=b # ['\n"
            "[[figure]] # last\nout = {a = 1, b = [2]}\nnot.here = 1",
        )
    )
    assert file.lines == {
        ("", 0, "save-data"): 2, ("", 0, "heads"): 3, ("", 0, "s"): 7, ("", 0, "l"): 11,
        ("defaults", 0, ""): 14, ("defaults", 0, "dpi"): 15,
        ("figure", 0, ""): 16, ("figure", 0, "at"): 17, ("figure", 0, "model"): 19,
        ("figure", 1, ""): 20, ("figure", 1, "out"): 21, ("figure", 1, "not"): 22,
    }  # fmt: skip


def test_the_sets_of_this_repository_can_be_read():
    figures = read_figure_set(ROOT / "configs" / "gallery.toml")
    runs = [f.request for f in figures if isinstance(f.request, RunRequest)]
    assert {kind_of(request.command).name for request in runs} == set(kinds.ALL)
    others = {type(f.request) for f in figures} - {RunRequest}
    assert others == {CompareRequest, EvolutionRequest, ExploreRequest}
