"""``attnviz.run``: the command line's run, its options as keywords, and a bar in notebooks."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from torch import nn

import attnviz
from attnviz.cli.progress import NotebookProgress, in_notebook, make_progress
from attnviz.domain.kinds import KINDS
from attnviz.errors import AttnvizError, UsageError
from attnviz.output.read_record import read_record
from tests.helpers import live_models
from tests.helpers.command_line import attnviz as command
from tests.helpers.photos import save_scene


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    return [save_scene(folder / f"{name}.png", 48, 64) for name in ("one", "two")]


@pytest.fixture(scope="module")
def model():
    return attnviz.load_model("demo", device="cpu")


def test_the_files_are_those_of_the_command_line(photos, model, tmp_path):
    shared = ("--model", "demo", "--device", "cpu", "--dpi", "40", "--save-data", "-q")
    options = ("--threshold", "0.6", "--heads", "0,2", "--format", "png", "--format", "svg")
    paths = list(map(str, photos))
    assert command("heads", *paths, *shared, *options, "--out", str(tmp_path / "a")) == 0
    more = {
        "dpi": 40, "save_data": True, "threshold": 0.6, "heads": (0, 2), "format": ["png", "svg"],
        "quiet": True,
    }  # fmt: skip
    result = attnviz.run("heads", photos, model="demo", device="cpu", out=tmp_path / "b", **more)
    loaded = attnviz.run("heads", paths, model=model, out=str(tmp_path / "c"), **more)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(names) == 6
    for found in (result, loaded):
        assert sorted(path.name for path in found.files) == names
        assert found.done == tuple(photos)
        for path in found.files:
            assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes(), path
    assert [row["image"] for row in result.table] == [paths[0]] * 2 + [paths[1]] * 2
    assert list(result.to_pandas()["head"]) == [0, 2, 0, 2]
    assert repr(result) == "RunResult(heads: 2 done; 6 files written)"


def test_what_fails_is_told_and_the_rest_is_drawn(photos, model, tmp_path, capfd):
    result = attnviz.run("rollout", [photos[0], "gone.png"], model=model, out=tmp_path, dpi=30)
    ((name, error),) = result.failed
    assert (name, str(error)) == ("gone.png", "gone.png does not exist")
    assert [path.name for path in result.files] == ["one.rollout.png", "failures.csv"]
    out, err = capfd.readouterr()
    assert out == ""
    assert "failed: gone.png does not exist" in err
    assert "1 of 2 done, 1 failed" in err
    again = attnviz.run(
        "rollout", photos, model=model, out=tmp_path, dpi=30, skip_existing=True, quiet=True
    )
    assert (again.skipped, again.done) == ((photos[0],), (photos[1],))
    assert repr(again) == "RunResult(rollout: 1 done, 1 skipped; 1 file written)"


def test_options_are_also_called_as_in_the_functions(photos, model, tmp_path):
    more = {"model": model, "dpi": 30, "save_data": True, "quiet": True}
    one = attnviz.run("patch", photos[0], cells=[(1, 2)], out=tmp_path / "a", **more)
    two = attnviz.run("patch", photos[0], at="1,2", out=tmp_path / "b", **more)
    assert [path.read_bytes() for path in one.files] == [path.read_bytes() for path in two.files]
    assert read_record(one.files[0])["options"]["at"] == ["1,2"]


def test_a_module_in_memory_is_drawn_and_its_record_says_so(photos, tmp_path):
    wrapped = attnviz.wrap(live_models.make("timm"))
    result = attnviz.run("heads", photos, model=wrapped, out=tmp_path, dpi=30, quiet=True)
    record = read_record(result.files[0])
    assert (record["in_python"], record["model"]) == (True, "VisionTransformer")
    with pytest.raises(UsageError, match="cannot be sent to a cluster"):
        attnviz.run("heads", photos, model=wrapped, out=tmp_path, engine="ray")


WRONG = {
    "a name": ({"treshold": 0.5}, "unknown option 'treshold' of heads"),
    "of another kind": ({"at": "1,2"}, "unknown option 'at' of heads"),
    "of printing": ({"json": True}, "unknown option 'json'"),
    "a text": ({"layer": "last"}, "layer: 'last' is not a layer number"),
    "half a layer": ({"layer": 1.5}, "layer: '1.5' is not a layer number"),
    "a number of heads": ({"heads": 3}, "heads: 3 is not a value"),
    "out of range": ({"dpi": 3}, "dpi: 3 is out of range"),
    "a word for a switch": ({"save_data": "yes"}, "save-data: 'yes' is not a value"),
    "a truth for a number": ({"threshold": True}, "threshold: True is not a value"),
    "an unknown format": ({"format": "gif"}, "format: 'gif' is not a value"),
    "of loading": ({"checkpoint": "x.pth"}, "the model is loaded already"),
    "a missing layer": ({"layer": 99}, "layer 99 does not exist"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_options_are_refused_before_anything_is_written(kind, photos, model, tmp_path):
    options, reason = WRONG[kind]
    with pytest.raises(AttnvizError, match=reason):
        attnviz.run("heads", photos, model=model, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_wrong_inputs_and_kinds_are_refused(photos, model):
    with pytest.raises(UsageError, match="no figure is called 'head'") as caught:
        attnviz.run("head", photos, model=model)
    assert caught.value.hint == "did you mean heads?"
    with pytest.raises(UsageError, match=r"a run reads files, .* ndarray"):
        attnviz.run("heads", [np.zeros((8, 8, 3), np.uint8)], model=model)
    with pytest.raises(UsageError, match="type Linear is not a loaded model"):
        attnviz.run("heads", photos, model=nn.Linear(2, 2))


def test_no_images_are_a_failure(model, tmp_path, capfd):
    with pytest.raises(UsageError, match="no images found"):
        attnviz.run("heads", [], model=model, out=tmp_path / "out")
    assert capfd.readouterr().err == ""
    (tmp_path / "empty").mkdir()
    result = attnviz.run("heads", tmp_path / "empty", model=model, out=tmp_path / "out")
    assert "holds no images" in str(result.failed[0][1])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_run(kind, photos, model, tmp_path):
    more = {"like": photos[1]} if kind in ("relevance", "match") else {}
    result = attnviz.run(kind, photos[0], model=model, out=tmp_path, dpi=30, quiet=True, **more)
    assert result.files[0].name == f"one.{kind}.png"
    assert result.failed == ()


@pytest.fixture
def notebook(monkeypatch):
    """A process that takes itself for a kernel, and what it displays."""
    shown = []

    class Handle:
        def update(self, what):
            shown.append(what._repr_mimebundle_([], [])["text/html"])

    def display(what, *, display_id):
        assert display_id
        Handle().update(what)
        return Handle()

    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    fake.display = types.SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    return shown


def test_a_notebook_shows_one_bar_and_prints_on_standard_output(
    notebook, photos, model, tmp_path, capsys
):
    assert in_notebook()
    assert isinstance(make_progress(sys.stdout, quiet=False), NotebookProgress)
    attnviz.run("heads", photos, model=model, out=tmp_path, dpi=30)
    assert "0/2" in notebook[0]
    assert "2/2" in notebook[-1]
    out, err = capsys.readouterr()
    assert out.endswith("2 of 2 done\n")
    assert err == ""


def test_elsewhere_there_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
