"""``attnviz registers`` and ``--test-registers`` through the real command line."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
import torch
from PIL import Image

import attnviz
from attnviz.output.read_record import read_record
from tests.helpers import checkpoints
from tests.helpers.command_line import arrays, files_below, meta
from tests.helpers.planted import tiny_vit
from tests.helpers.writer_neurons import LAYER, NEURON, PATCH, planted_model

MODEL = ("--checkpoint", "planted.pth", "--model-arg", "heads=2", "--device", "cpu")
PIXELS = ("--mean", "0.5", "--std", "0.5")
FIND = ("registers", "photos", *MODEL, *PIXELS, "--threshold", "50", "--dpi", "40")


@pytest.fixture
def planted(tmp_path):
    """A folder of pictures, and weights in which one patch of each becomes an outlier."""
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 255, (3, 32, 32, 3), dtype=np.uint8)
    (tmp_path / "photos").mkdir()
    for number, each in enumerate(pixels):
        Image.fromarray(each).save(tmp_path / "photos" / f"{number}.png")
    plain = tiny_vit()
    batch = plain.batch([attnviz.prepare(each, plain) for each in pixels])
    state = planted_model(batch).module.state_dict()
    checkpoints.save(tmp_path / "planted.pth", state)
    return tmp_path


def test_the_list_and_the_figure(real, planted):
    run = real(*FIND, "--top", "4", "-o", "out/n.json", "--save-data", "-f", "png", "-f", "pdf")
    assert run.code == 0, run.err
    written = ["n.json", "n.registers.npz", "n.registers.pdf", "n.registers.png"]
    assert files_below(planted / "out") == written
    assert sorted(run.out.split()) == [f"out/{name}" for name in written]
    found = json.loads((planted / "out" / "n.json").read_text())
    assert (found["neurons"][0]["layer"], found["neurons"][0]["neuron"]) == (LAYER, NEURON)
    assert len(found["neurons"]) == 4
    assert found["weights_sha256"] == meta(planted / "out" / "n.registers.npz")["weights_sha256"]
    data = arrays(planted / "out" / "n.registers.npz")
    assert data["neurons"][0].tolist() == [LAYER, NEURON]
    assert data["largest_norm"].shape == (2, 3)
    assert data["largest_norm"][0, -1] > 5 * data["largest_norm"][1, -1]
    assert "layer   neuron" in run.err


def test_the_registers_take_the_spot_out_of_every_figure(real, planted):
    real(*FIND, "--top", "1", "-o", "n.json", "-q")
    options = ("photos/1.png", *MODEL, *PIXELS, "--save-data", "-q", "--dpi", "40")
    added = ("--test-registers", "n.json")
    for command in ("heads", "rollout", "features"):
        for folder, more in (
            ("plain", ()),
            ("added", added),
            ("two", (*added, "--register-count", "2")),
        ):
            run = real(command, *options, *more, "--out", folder)
            assert run.code == 0, run.err
    norms = [arrays(planted / folder / "1.features.npz")["norm"] for folder in ("plain", "added")]
    assert norms[0].ravel().argmax() == PATCH
    assert norms[0].max() > 5 * norms[1].max()
    prefix = [arrays(planted / f / "1.heads.npz")["prefix"] for f in ("plain", "added", "two")]
    assert [each.shape[-1] for each in prefix] == [1, 2, 3]
    assert prefix[1][:, 1].max() > 0.01
    record = meta(planted / "added" / "1.heads.npz")
    assert record["options"]["test-registers"] == "n.json"
    assert record["architecture"]["test_registers"]["count"] == 1
    assert len(record["neurons_sha256"]) == 64
    plain = meta(planted / "plain" / "1.heads.npz")
    assert "neurons_sha256" not in plain
    assert "test_registers" not in plain["architecture"]


def test_the_figure_says_it_at_the_foot(real, planted):
    real(*FIND, "--top", "3", "-o", "n.json", "-q")
    run = real("heads", "photos/1.png", *MODEL, "--test-registers", "n.json", "-f", "svg", "-q")
    assert run.code == 0, run.err
    text = (planted / "attnviz-out" / "1.heads.svg").read_text(encoding="utf-8")
    assert "1 test-time register (3 neurons)" in text
    assert "on 1 register" in text
    run = real("info", "attnviz-out/1.heads.svg")
    assert "neurons SHA-256" in run.out


def test_another_list_is_another_figure(real, planted):
    real(*FIND, "--top", "1", "-o", "n.json", "-q")
    draw = ("heads", "photos/1.png", *MODEL, "--test-registers", "n.json", "--skip-existing",
            "--dpi", "40")  # fmt: skip
    assert "1 of 1 done" in real(*draw).err
    assert "1 skipped" in real(*draw).err
    real(*FIND, "--top", "2", "-o", "n.json", "-q")
    assert "1 of 1 done" in real(*draw).err
    plain = [part for part in draw if part not in ("--test-registers", "n.json")]
    assert "1 of 1 done" in real(*plain).err
    assert "1 skipped" in real(*plain).err


def test_another_list_is_another_comparison(real, planted):
    real(*FIND, "--top", "1", "-o", "n.json", "-q")
    draw = ("compare", "photos/1.png", *MODEL, "--test-registers", "n.json", "--skip-existing",
            "--dpi", "40")  # fmt: skip
    assert "1 of 1 done" in real(*draw).err
    assert "1 skipped" in real(*draw).err
    real(*FIND, "--top", "2", "-o", "n.json", "-q")
    assert "1 of 1 done" in real(*draw).err


def test_a_figure_set_finds_the_list_beside_itself(real, planted):
    real(*FIND, "--top", "1", "-o", "sets/n.json", "-q")
    (planted / "sets" / "set.toml").write_text(
        '[[figure]]\ncommand = "heads"\nimages = ["../photos/1.png"]\n'
        'checkpoint = "../planted.pth"\nmodel_arg = ["heads=2"]\ntest_registers = "n.json"\n'
        'out = "../drawn"\ndpi = 40\n',
        encoding="utf-8",
    )
    assert real("render", "sets/set.toml").code == 0
    assert "neurons_sha256" in meta(planted / "drawn" / "1.heads.png")
    assert "1 skipped" in real("render", "sets/set.toml").err


def test_the_redraw_command_writes_the_same(real, planted):
    real(*FIND, "--top", "2", "--max-layer", "1", "--sparse", "-o", "out/n.json", "-q")
    before = {name: (planted / "out" / name).read_bytes() for name in files_below(planted / "out")}
    command = real("info", "--redraw", "out/n.registers.png")
    if command.code:  # without the switch the command is the last line
        command = real("info", "out/n.registers.png")
    line = command.out.strip().splitlines()[-1]
    for name in before:
        (planted / "out" / name).unlink()
    run = real(*shlex.split(line)[1:], "-q")
    assert run.code == 0, run.err
    assert {name: (planted / "out" / name).read_bytes() for name in before} == before


def test_the_redraw_command_of_a_figure_with_registers(real, planted):
    real(*FIND, "--top", "2", "-o", "n.json", "-q")
    draw = ("heads", "photos/1.png", *MODEL, "--test-registers", "n.json", "--register-count", "2",
            "--dpi", "40", "-q", "--out", "out")  # fmt: skip
    real(*draw)
    before = (planted / "out" / "1.heads.png").read_bytes()
    line = real("info", "out/1.heads.png").out.strip().splitlines()[-1]
    (planted / "out" / "1.heads.png").unlink()
    assert real(*shlex.split(line)[1:]).code == 0
    assert (planted / "out" / "1.heads.png").read_bytes() == before


def test_a_named_model_is_asked_before_its_weights(real, planted):
    for option in ("--layer", "--max-layer"):
        run = real("registers", "photos", "--model", "dinov2_vitl14", option, "24")
        assert (run.code, "layer 24" in run.err) == (2, True), run.err
    run = real("registers", "nowhere.png", "--model", "dinov2_vitl14")
    assert run.code == 1
    assert "nowhere.png does not exist" in run.err


def test_a_broken_picture_costs_only_itself(real, planted):
    (planted / "photos" / "9.png").write_bytes(b"\x89PNG broken")
    run = real(*FIND, "-o", "n.json")
    assert run.code == 1
    assert "failed: photos/9.png" in run.err
    assert read_record(planted / "n.registers.png")["images"] == 3


def test_without_outliers_nothing_is_written(real, planted):
    run = real(*FIND[:-4], "--threshold", "1e6", "-o", "out/n.json")
    assert run.code == 1
    assert "no patch of 3 images is an outlier" in run.err
    assert "nothing is written" in run.err
    assert files_below(planted / "out") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "n.txt"), "does not end in .json"),
        (("-o", "photos"), "is a folder"),
        (("-o", "mine.json"), "exists, and is not a list of register neurons"),
        (("--layer", "7"), "layer 7"),
        (("--threshold", "0"), "--threshold"),
        (("--top", "0"), "--top"),
        (("--alpha", "0.2"), "--alpha has no effect"),
    ],
)
def test_wrong_use(real, planted, arguments, message):
    (planted / "mine.json").write_text("{}")
    run = real(*FIND, *arguments)
    assert (run.code, message in run.err) == (2, True), run.err
    assert not (planted / "n.registers.png").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("not json", "is not a list of register neurons"),
        ("[]", "is not a list of register neurons"),
        ('{"attnviz": "register neurons", "version": 9}', "version 9"),
        ('{"attnviz": "register neurons", "version": 1}', "is not a list of register neurons"),
    ],
)
def test_lists_that_are_none(real, planted, content, message):
    if content is not None:
        (planted / "n.json").write_text(content)
    run = real("heads", "photos/1.png", *MODEL, "--test-registers", "n.json")
    assert (run.code, message in run.err) == (2, True), run.err
    assert files_below(planted / "attnviz-out") == []


def test_a_list_of_other_weights(real, planted):
    real(*FIND, "-o", "n.json", "-q")
    state = torch.load(planted / "planted.pth")
    state["cls_token"] += 1
    checkpoints.save(planted / "other.pth", state)
    run = real("heads", "photos/1.png", "--checkpoint", "other.pth", "--model-arg", "heads=2",
               "--test-registers", "n.json")  # fmt: skip
    assert run.code == 2
    assert "of other weights than other.pth" in run.err
    run = real("heads", "photos/1.png", *MODEL, "--register-count", "2")
    assert "--register-count needs --test-registers" in run.err


def test_the_other_commands_take_it_too(real, planted):
    real(*FIND, "--top", "1", "-o", "n.json", "-q")
    added = ("--test-registers", "n.json")
    run = real("compare", "photos/0.png", "photos/1.png", *MODEL, *added, "--show", "mean,norm",
               "--dpi", "40", "-q", "-f", "svg")  # fmt: skip
    assert run.code == 0, run.err
    (figure,) = (planted / "attnviz-out").glob("*.compare.svg")
    assert "1 test-time register (1 neuron)" in figure.read_text(encoding="utf-8")
    run = real("explore", "photos/0.png", *MODEL, *added, "-o", "page.html", "-q")
    assert run.code == 0, run.err
    page = (planted / "page.html").read_text(encoding="utf-8")
    assert '"prefix":["CLS","R1"]' in page.replace(" ", "")
    assert "1 test-time register (1 neuron)" in page
