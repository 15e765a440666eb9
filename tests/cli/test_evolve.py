"""``attnviz evolve`` through the real command line, on small checkpoints."""

from __future__ import annotations

import csv
import gc
import hashlib
import itertools
import json
import shlex
import weakref

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import Box, FitGeometry, Size
from attnviz.domain.mass_mask import cell_numbers, mass_mask, on_pixels
from attnviz.images.mask import read_mask
from attnviz.output.read_record import read_record
from attnviz.runs import evolve as evolve_run
from attnviz.runs.jaccard import jaccard
from tests.helpers import checkpoints
from tests.helpers.command_line import arrays, files_below, meta
from tests.helpers.photos import save_scene

STEPS = (50, 100, 1000)


@pytest.fixture
def trained(tmp_path, tiny):
    """Three checkpoints, a picture and a mask; the options that read them, quick to draw."""
    for step in STEPS:
        checkpoints.save(tmp_path / f"step{step}.pth", checkpoints.original(seed=step // 50))
    save_scene(tmp_path / "cat.png", 40, 40)
    mask = np.zeros((40, 40), np.uint8)
    mask[5:25, 10:30] = 255
    Image.fromarray(mask).save(tmp_path / "cat.mask.png")
    files = [f"step{step}.pth" for step in (1000, 50, 100)]
    return ("evolve", *files, "--image", "cat.png", *tiny[2:])


def test_the_figure_the_data_and_the_animation(real, trained, tmp_path):
    run = real(*trained, "--mask", "cat.mask.png", "--save-data", "--animation", "-f", "pdf",
               "-f", "png", "--out", "out")  # fmt: skip
    assert run.code == 0, run.err
    written = [f"cat.evolve.{suffix}" for suffix in ("gif", "npz", "pdf", "png")]
    assert files_below(tmp_path / "out") == written
    assert sorted(run.out.split()) == [f"out/{name}" for name in written]
    found = arrays(tmp_path / "out" / "cat.evolve.npz")
    assert {name: values.shape for name, values in found.items()} == {
        "attention": (3, 2, 4, 4), "prefix": (3, 2, 1), "entropy": (3, 2), "jaccard": (3, 2),
        "checkpoints": (3,), "steps": (3,), "heads": (2,), "layer": (),
    }  # fmt: skip
    assert found["steps"].tolist() == list(STEPS)
    assert found["checkpoints"].tolist() == ["step 50", "step 100", "step 1000"]
    assert (int(found["layer"]), found["heads"].tolist()) == (3, [0, 1])


@pytest.mark.parametrize(
    ("rows", "command"), [("heads", ("heads",)), ("layers", ("layers", "--no-distance"))]
)
def test_every_column_is_what_the_single_command_gives(
    real, trained, tiny, tmp_path, rows, command
):
    options = ("--query", "mean", "--size", "48")
    real(*trained, *options, "--rows", rows, "--save-data", "--out", "all", "-q")
    together = arrays(tmp_path / "all" / "cat.evolve.npz")
    for place, step in enumerate(STEPS):
        run = real(*command, "cat.png", "--checkpoint", f"step{step}.pth", *tiny[2:], *options,
                   "--save-data", "--out", str(step), "-q")  # fmt: skip
        assert run.code == 0, run.err
        alone = arrays(tmp_path / str(step) / f"cat.{command[0]}.npz")
        for name in ("attention", "prefix", "entropy"):
            expected = alone[name] if rows == "heads" else alone[name].mean(axis=1)
            np.testing.assert_allclose(together[name][place], expected, rtol=0, atol=1e-6)
    assert np.ptp(together["attention"], axis=0).max() > 0.01


def test_the_jaccard_index_is_that_of_the_drawn_maps(real, trained, tmp_path):
    real(*trained, "--mask", "cat.mask.png", "--threshold", "0.4", "--save-data", "--out", "out")
    found = arrays(tmp_path / "out" / "cat.evolve.npz")
    record = meta(tmp_path / "out" / "cat.evolve.npz")
    geometry = FitGeometry(
        Size(*record["image_size"]), Size(*record["size"]), 8, Box(*record["region"])
    )
    mask = read_mask(tmp_path / "cat.mask.png", geometry.original).pixels
    cells = cell_numbers(geometry)
    expected = [
        [jaccard(on_pixels(mass_mask(values, 0.4), cells), mask) for values in heads]
        for heads in found["attention"]
    ]
    np.testing.assert_allclose(found["jaccard"], expected, rtol=1e-6)


def test_the_record_names_every_checkpoint_and_draws_the_figure_again(real, trained, tmp_path):
    real(*trained, "--mask", "cat.mask.png", "--animation", "--save-data", "--out", "out")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for name, content in kept.items():
        record = read_record(tmp_path / "out" / name)
        assert record["checkpoints"] == [
            {"path": file, "sha256": hashlib.sha256((tmp_path / file).read_bytes()).hexdigest()}
            for file in (f"step{step}.pth" for step in STEPS)
        ]
        told = real("info", f"out/{name}")
        assert told.code == 0, told.err
        assert [
            line.split()[-1] for line in told.out.splitlines() if line.startswith("checkpoint")
        ] == [f"step{step}.pth" for step in STEPS]
        (tmp_path / "out" / name).unlink()
        again = real(*shlex.split(told.out.splitlines()[-1])[1:])
        assert again.code == 0, again.err
        assert (tmp_path / "out" / name).read_bytes() == content, name


def test_the_animation_has_a_frame_a_checkpoint_and_runs_on(real, trained, tmp_path):
    real(*trained, "--animation", "--out", "out")
    with Image.open(tmp_path / "out" / "cat.evolve.gif") as gif:
        assert (gif.n_frames, gif.info["loop"]) == (3, 0)
        frames = []
        for number in range(3):
            gif.seek(number)
            frames.append(np.asarray(gif.convert("RGB"), int))
            assert gif.info["duration"] == (2100 if number == 2 else 700)
    assert all(np.abs(a - b).max() > 20 for a, b in itertools.pairwise(frames))


def test_what_stands_is_skipped_until_a_checkpoint_changes(real, trained, tmp_path):
    options = (*trained, "--animation", "--skip-existing", "--json", "-q")
    assert json.loads(real(*options).out)["status"] == "done"
    assert json.loads(real(*options).out)["status"] == "skipped"
    (tmp_path / "attnviz-out" / "cat.evolve.gif").unlink()
    assert json.loads(real(*options).out)["status"] == "done"
    checkpoints.save(tmp_path / "step100.pth", checkpoints.original(seed=7))
    told = json.loads(real(*options).out)
    assert told["status"] == "done"
    assert len(told["table"]) == 6


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_the_table_has_the_rows_of_the_record(real, trained, tmp_path, name):
    run = real(*trained, "--mask", "cat.mask.png", "--table", name, "--json")
    assert run.code == 0, run.err
    done, written = map(json.loads, run.out.splitlines())
    assert written == {"status": "written", "kind": "table", "path": name}
    if name.endswith(".csv"):
        with (tmp_path / name).open() as stream:
            rows = list(csv.DictReader(stream))
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / name).to_pylist()
    assert len(rows) == len(done["table"]) == 6
    for row, expected in zip(rows, done["table"], strict=True):
        assert row.pop("image") == "cat.png"
        assert {key: type(expected[key])(value) for key, value in row.items()} == expected


def test_a_figure_that_is_up_to_date_still_gives_its_table(real, trained, tmp_path):
    assert real(*trained, "--table", "first.csv").code == 0
    before = (tmp_path / "attnviz-out" / "cat.evolve.png").stat().st_mtime_ns
    run = real(*trained, "--table", "again.csv", "--skip-existing")
    assert run.err.splitlines()[-1] == "0 of 1 done, 1 skipped"
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "first.csv").read_bytes()
    assert (tmp_path / "attnviz-out" / "cat.evolve.png").stat().st_mtime_ns == before


def test_what_fails_is_listed(real, trained, tmp_path):
    (tmp_path / "cat.png").write_bytes(b"not an image")
    run = real(*trained, "--table", "t.csv", "--json")
    assert run.code == 1
    failed, _ = map(json.loads, run.out.splitlines())
    assert (failed["status"], failed["image"]) == ("failed", "cat.png")
    assert (tmp_path / "t.csv").read_text() == "image\n"
    listed = (tmp_path / "attnviz-out" / "failures.csv").read_text().splitlines()
    assert (listed[0], listed[1].split(",")[0]) == ("image,reason,hint", "cat.png")
    save_scene(tmp_path / "cat.png", 40, 40)
    assert real(*trained).code == 0
    assert files_below(tmp_path / "attnviz-out") == ["cat.evolve.png"]


def test_the_record_holds_the_hash_of_the_mask(real, trained, tmp_path):
    call = (*trained, "--mask", "cat.mask.png", "--skip-existing")
    assert real(*call).err.splitlines()[-1] == "1 of 1 done"
    mask = tmp_path / "cat.mask.png"
    record = read_record(tmp_path / "attnviz-out" / "cat.evolve.png")
    assert record["mask_sha256"] == hashlib.sha256(mask.read_bytes()).hexdigest()
    assert record["mask_sha256"] in real("info", "attnviz-out/cat.evolve.png").out
    assert "1 skipped" in real(*call).err
    # Another place of the same mask changes nothing, another mask at the same place does.
    mask.rename(tmp_path / "moved.png")
    assert "1 skipped" in real(*trained, "--mask", "moved.png", "--skip-existing").err
    pixels = np.zeros((40, 40), np.uint8)
    pixels[20:] = 1
    Image.fromarray(pixels).save(mask)
    assert real(*call).err.splitlines()[-1] == "1 of 1 done"
    assert "mask_sha256" not in read_record(figure_without_mask(real, trained, tmp_path))


def figure_without_mask(real, trained, tmp_path):
    assert real(*trained, "--out", "plain").code == 0
    return tmp_path / "plain" / "cat.evolve.png"


def test_verify_checks_every_checkpoint_and_fails_on_wrong_attention(
    real, trained, wrong_attention
):
    run = real(*trained, "--verify", "--json")
    assert run.code == 0, run.err
    notes = json.loads(run.out)["notes"]
    assert [note.partition(": attention times V")[0] for note in notes] == [
        "step 50: verified", "step 100: verified", "step 1000: verified",
    ]  # fmt: skip
    wrong_attention()
    assert real(*trained).code == 0
    run = real(*trained, "--verify")
    assert (run.code, run.out) == (1, "")
    assert "failed: cat.png: step 50: attention of layer 2" in run.err


def test_dinos_last_state_comes_last_with_its_epoch(real, trained, tiny, tmp_path):
    for number, (name, epoch) in enumerate(
        [("checkpoint", 60), ("checkpoint0040", 41), ("checkpoint0000", 1), ("checkpoint0020", 21)]
    ):
        weights = {f"backbone.{key}": value for key, value in
                   checkpoints.original(seed=number).items()}  # fmt: skip
        checkpoints.save(tmp_path / f"{name}.pth", {"teacher": weights, "epoch": epoch})
    names = sorted(path.name for path in tmp_path.glob("checkpoint*.pth"))
    assert names[0] == "checkpoint.pth"  # as the shell sorts them in the C locale
    run = real("evolve", *names, "--image", "cat.png", *tiny[2:], "--save-data")
    assert run.code == 0, run.err
    found = arrays(tmp_path / "attnviz-out" / "cat.evolve.npz")
    assert found["checkpoints"].tolist() == [
        "checkpoint 0", "checkpoint 20", "checkpoint 40", "checkpoint (59)"
    ]  # fmt: skip
    assert found["steps"].tolist() == [0, 20, 40, 59]


def test_one_model_is_in_memory_at_a_time(real, trained, monkeypatch):
    loaded = []
    load = evolve_run.load_backbone

    def watched(request):
        gc.collect()
        assert not any(model() is not None for model in loaded)
        model = load(request)
        loaded.append(weakref.ref(model))
        return model

    monkeypatch.setattr(evolve_run, "load_backbone", watched)
    run = real(*trained)
    assert run.code == 0, run.err
    assert len(loaded) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("gone.pth", "--image", "cat.png"), 2, "checkpoint gone.pth does not exist"),
        (("step50.pth", "--image", "gone.png"), 1, "gone.png does not exist"),
        (("step50.pth", "--image", "."), 2, "images, and the figure shows one"),
        (("step50.pth",), 2, "Missing option"),
        (("--image", "cat.png"), 2, "Missing argument"),
        (
            ("step50.pth", "--image", "cat.png", "--mask", "gone.png"),
            2,
            "--mask: gone.png is not a file",
        ),
        (("step50.pth", "--image", "cat.png", "--random-weights"), 2, "No such option"),
        (("step50.pth", "--image", "cat.png", "--layer", "9"), 2, "layer 9 does not exist"),
        (("step50.pth", "broken.pth", "--image", "cat.png"), 1, "broken.pth"),
        (("step50.pth", "wide.pth", "--image", "cat.png"), 1, "wide.pth: its patch is 16"),
        (("step50.pth", "--image", "cat.png", "--mask", "cat.png.png"), 1, "its image 40x40"),
    ],
)
def test_wrong_use_is_one_line(real, trained, tmp_path, tiny, arguments, code, reason):
    (tmp_path / "broken.pth").write_bytes(b"PK\x03\x04 and no more")
    checkpoints.save(tmp_path / "wide.pth", checkpoints.original(patch=16))
    save_scene(tmp_path / "cat.png.png", 8, 8)
    run = real("evolve", *arguments, *tiny[2:])
    assert (run.code, run.out) == (code, "")
    assert reason in run.err
    assert "Traceback" not in run.err
    assert not (tmp_path / "attnviz-out" / "cat.evolve.png").exists()


def test_a_config_gives_options(real, trained, tmp_path):
    (tmp_path / "evolve.toml").write_text("rows = 'layers'\nsave-data = true\nscale = 'panel'\n")
    run = real(*trained, "--config", "evolve.toml")
    assert run.code == 0, run.err
    assert arrays(tmp_path / "attnviz-out" / "cat.evolve.npz")["layers"].tolist() == [0, 1, 2, 3]
