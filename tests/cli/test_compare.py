"""``attnviz compare``: its maps are those of the single commands, and its rows what was asked."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import re
import shlex
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from attnviz.cli.map_names import parse_maps
from attnviz.domain import MapKind
from attnviz.domain.comparison import MapSpec
from attnviz.errors import CheckpointError, MemoryNeededError, UsageError
from attnviz.output.read_record import read_record
from attnviz.runs import compare as compare_run
from tests.helpers import checkpoints
from tests.helpers.command_line import arrays, attnviz, files_below
from tests.helpers.photos import save_scene

ALL = (
    "mean,head:-1,heads,rollout,score,pca,foreground,norm,patch@1,2,cosine@50,3px,patch@9.5,7px,"
    "entropy,to-cls,q-pca,k-pca,v-pca,q-norm,k-norm,v-norm,max,discover,lost,spectral,q-pca:1,k-pca:-2,v-norm:1"
)


@pytest.fixture
def photo(tmp_path):
    return save_scene(tmp_path / "photo.png", 40, 56)


@pytest.fixture(scope="session")
def other_weights(tmp_path_factory):
    """Like the tiny checkpoint, after more training."""
    path = tmp_path_factory.mktemp("weights") / "later.pth"
    return checkpoints.save(path, checkpoints.original(seed=5))


def single(real, tmp_path, command, photo, weights, *options):
    """The arrays that a command of its own saves."""
    out = tmp_path / "single" / str(len(list(tmp_path.glob("single/*"))))
    run = real(
        command, photo, "--checkpoint", weights, "--model-arg", "heads=2", "--dpi", "30",
        "--save-data", "-o", out, *options,
    )  # fmt: skip
    assert run.code == 0, run.err
    return arrays(next(out.glob("*.npz")))


def test_every_map_is_that_of_its_own_command(
    real, tiny, tiny_weights, other_weights, photo, tmp_path
):
    run = real("compare", photo, *tiny, "--checkpoint", other_weights, "--show", ALL, "--save-data")
    assert run.code == 0, run.err
    found = arrays(tmp_path / "attnviz-out" / "photo.compare.npz")
    for row, weights in enumerate((tiny_weights, other_weights)):

        def alone(command, *options, weights=weights):
            return single(real, tmp_path, command, photo, weights, *options)

        heads = alone("heads", "--no-distance")["attention"]
        features = alone("features", "--xy", "50,3")
        split = alone("features", "--foreground")
        methods = {"discover": "tokencut", "lost": "lost", "spectral": "spectral"}
        objects = {name: alone("discover", "--method", each) for name, each in methods.items()}
        matrix, qkv = alone("matrix"), alone("qkv")
        parts, grid = ("query", "key", "value"), heads.shape[1:]
        lengths = {
            name: np.sqrt((qkv[f"{name}_norm"].astype(float) ** 2).sum(axis=0))[1:].reshape(grid)
            for name in parts
        }
        expected = {
            "mean": heads.mean(axis=0),
            "head_1": heads[-1],
            "heads": heads,
            "rollout": alone("rollout")["rollout"],
            "score": alone("score")["score"],
            "pca": features["components"],
            "foreground": split["components"],
            "foreground_mask": split["foreground"],
            "norm": features["norm"],
            "patch_1_2": alone("patch", "--at", "1,2")["attention"][0].mean(axis=0),
            "cosine_50_3px": features["similarity"][0],
            "entropy": matrix["token_entropy"].mean(axis=0)[1:].reshape(grid),
            "to-cls": matrix["to_cls"].mean(axis=0),
            **{f"{name[0]}-pca": qkv[f"{name}_pca_all"] for name in parts},
            **{f"{name[0]}-norm": lengths[name].astype(np.float32) for name in parts},
            "max": heads.max(axis=0),
            "lost": objects["lost"]["similarity"],
            **{name: objects[name]["eigenvectors"][0] for name in ("discover", "spectral")},
            **{f"{name}_mask": objects[name]["mask"] for name in methods},
            "q-pca_1": qkv["query_pca"][1],
            "k-pca_0": qkv["key_pca"][0],
            "v-norm_1": qkv["value_norm"][1, 1:].reshape(grid),
            "patch_9.5_7px": alone("patch", "--xy", "9.5,7")["attention"][0].mean(axis=0),
        }
        mine = {key.removeprefix(f"row{row}_"): found[key] for key in found if f"row{row}_" in key}
        assert mine.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(mine[name], values, err_msg=name)
    assert not np.array_equal(found["row0_mean"], found["row1_mean"])


def test_no_two_maps_meet_under_one_name(real, tiny, photo, tmp_path):
    shown = "head:1,head:0,head:-1,patch@0,1,patch@1,1,cosine@1.5,2px,cosine@1,5.2px"
    run = real("compare", photo, *tiny, "--show", shown, "--save-data", "--dpi", "30", "--json")
    assert run.code == 0, run.err
    names = set(arrays(tmp_path / "attnviz-out" / "photo.compare.npz"))
    # The last head is head 1, which was asked for already.
    assert {name for name in names if name.startswith("row")} == {
        "row0_head_1", "row0_head_0", "row0_patch_0_1", "row0_patch_1_1",
        "row0_cosine_1.5_2px", "row0_cosine_1_5.2px",
    }  # fmt: skip
    assert [row["map"] for row in json.loads(run.out)["table"]][:2] == ["head:1", "head:0"]


def test_the_last_head_is_one_head_in_all_models(real, tiny, photo, tmp_path):
    run = real("compare", photo, *tiny, "--model", "demo", "--show", "head:-1")
    assert (run.code, run.out) == (2, "")
    assert (
        "heads counted from the last are others in tiny.pth than in the models before it" in run.err
    )
    assert not files_below(tmp_path / "attnviz-out")


def test_a_layer_is_that_of_every_map(real, tiny, tiny_weights, photo, tmp_path):
    run = real("compare", photo, *tiny, "--show", "mean,norm", "--layer", "1", "--save-data")
    assert run.code == 0, run.err
    found = arrays(tmp_path / "attnviz-out" / "photo.compare.npz")
    heads = single(real, tmp_path, "heads", photo, tiny_weights, "--layer", "1")["attention"]
    np.testing.assert_array_equal(found["row0_mean"], heads.mean(axis=0))
    norm = single(real, tmp_path, "features", photo, tiny_weights, "--layer", "1")["norm"]
    np.testing.assert_array_equal(found["row0_norm"], norm)


def test_layers_stand_side_by_side(real, tiny, tiny_weights, photo, tmp_path):
    shown = "mean,rollout,norm,k-norm:1,patch@1,2"
    run = real(
        "compare", photo, *tiny, "--show", shown, "--layers", "0,-1", "--save-data", "-f", "svg",
        "--json",
    )  # fmt: skip
    assert run.code == 0, run.err
    found = arrays(tmp_path / "attnviz-out" / "photo.compare.npz")
    layered = ("mean", "norm", "k-norm_1", "patch_1_2")
    assert set(found) == {"row0_rollout"} | {
        f"row0_{name}_layer_{layer}" for name in layered for layer in (0, -1)
    }
    for layer in (0, -1):
        alone = real(
            "compare", photo, *tiny, "--show", shown, "--layer", layer, "--save-data", "-o", "one"
        )
        assert alone.code == 0, alone.err
        single_layer = arrays(tmp_path / "one" / "photo.compare.npz")
        for name in layered:
            np.testing.assert_array_equal(
                found[f"row0_{name}_layer_{layer}"], single_layer[f"row0_{name}"], err_msg=name
            )
    assert not np.array_equal(found["row0_mean_layer_0"], found["row0_mean_layer_-1"])
    record = json.loads(run.out)
    assert record["options"]["layers"] == "0,-1"
    assert [row["map"] for row in record["table"]][:2] == ["mean layer 0", "mean layer -1"]
    drawing = ET.parse(tmp_path / "attnviz-out" / "photo.compare.svg")
    titles = [text for each in drawing.iter() if (text := each.text or "").startswith("Mean ")]
    # The last layer by its number, which is that of all rows.
    assert [re.split("L|layer ", title)[-1] for title in titles] == ["0", "3"]


def test_match_is_that_of_its_own_command(real, tiny, tiny_weights, photo, tmp_path):
    second = save_scene(tmp_path / "second.png", 40, 40, seed=3)
    call = ("compare", photo, *tiny, "--show", "match,mean", "--like", "second.png", "--save-data")
    run = real(*call, "--json")
    assert run.code == 0, run.err
    found = arrays(tmp_path / "attnviz-out" / "photo.compare.npz")
    expected = single(real, tmp_path, "match", photo, tiny_weights, "--like", "second.png")
    np.testing.assert_array_equal(found["row0_match"], expected["best"])
    record = json.loads(run.out)
    assert record["options"]["like"] == "second.png"
    assert record["like_sha256"] == hashlib.sha256(second.read_bytes()).hexdigest()
    layered = real(*call[:-1], "--layers", "0,-1", "--save-data", "--name", "layered")
    assert layered.code == 0, layered.err
    of_layers = arrays(tmp_path / "attnviz-out" / "layered.compare.npz")
    assert not np.array_equal(of_layers["row0_match_layer_0"], of_layers["row0_match_layer_-1"])
    both = ("--show", "match,relevance", "--like", "second.png", "--method", "contribution")
    assert real("compare", photo, *tiny, *both).code == 0


def test_relevance_is_that_of_its_own_command(real, tiny, tiny_weights, photo, tmp_path):
    save_scene(tmp_path / "second.png", 40, 40, seed=3)
    for method in ("chefer", "contribution"):
        target = ("--like", "second.png", "--method", method)
        call = ("compare", photo, *tiny, "--show", "relevance,mean", *target, "--save-data")
        run = real(*call, "--json")
        assert run.code == 0, run.err
        found = arrays(tmp_path / "attnviz-out" / "photo.compare.npz")
        expected = single(real, tmp_path, "relevance", photo, tiny_weights, *target)["relevance"]
        np.testing.assert_array_equal(found["row0_relevance"], expected)
    record = json.loads(run.out)
    second = tmp_path / "second.png"
    assert record["like_sha256"] == hashlib.sha256(second.read_bytes()).hexdigest()
    assert "1 skipped" in real(*call, "--skip-existing").err
    save_scene(second, 40, 40, seed=4)
    assert "1 of 1 done" in real(*call, "--skip-existing").err


def test_rows_are_pictures_and_within_a_picture_models(real, photos, tiny_weights, other_weights):
    run = real(
        "compare", "photos/1.png", "photos/10.png", "--checkpoint", tiny_weights, "--checkpoint",
        other_weights, "--model-arg", "heads=2", "--dpi", "30", "--json", "--show", "mean,rollout",
    )  # fmt: skip
    assert run.code == 0, run.err
    record = json.loads(run.out)
    assert [file["path"] for file in record["files"]] == ["attnviz-out/1-and-1-more.compare.png"]
    told = [(row["image"], row["weights"]) for row in record["rows"]]
    assert told == [
        ("photos/1.png", "tiny.pth"), ("photos/1.png", "later.pth"),
        ("photos/10.png", "tiny.pth"), ("photos/10.png", "later.pth"),
    ]  # fmt: skip
    assert len({row["weights_sha256"] for row in record["rows"]}) == 2
    assert [row["map"] for row in record["table"]] == ["mean", "rollout"] * 4
    assert record["rows"][2]["grid"] == [4, 6]


def test_one_model_is_in_memory_at_a_time(real, tiny, other_weights, photo, monkeypatch):
    import gc
    import weakref

    loaded = []
    load = compare_run.load_backbone

    def watched(request):
        gc.collect()
        assert not any(model() is not None for model in loaded)
        model = load(request)
        loaded.append(weakref.ref(model))
        return model

    monkeypatch.setattr(compare_run, "load_backbone", watched)
    run = real("compare", photo, *tiny, "--checkpoint", other_weights, "--show", ALL)
    assert run.code == 0, run.err
    assert len(loaded) == 2


def test_info_tells_every_row_and_the_command_gives_the_same_bytes(
    tiny, other_weights, tmp_path, capsys
):
    call = (
        "--checkpoint", str(other_weights), "--show", "mean,patch@1,2,cosine@9.5,7px",
        "--show", "head:1", "--layer", "0", "-f", "png", "-f", "pdf", "--save-data",
    )  # fmt: skip
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        for name in ("a b.png", "b.png"):
            save_scene(folder / name, 40, 56)
    with contextlib.chdir(first):
        assert attnviz("compare", "a b.png", "b.png", *tiny, *call, "-o", "o") == 0
    names = files_below(first / "o")
    assert names == [f"a b-and-1-more.compare.{suffix}" for suffix in ("npz", "pdf", "png")]
    for name in names:
        capsys.readouterr()
        with contextlib.chdir(first):
            assert attnviz("info", f"o/{name}") == 0
        said = capsys.readouterr().out
        assert said.count("weights SHA-256") == 4
        with contextlib.chdir(again):
            assert attnviz(*shlex.split(said.splitlines()[-1])[1:]) == 0
        assert (again / "o" / name).read_bytes() == (first / "o" / name).read_bytes(), name


def test_a_record_with_broken_rows_is_still_told(real, tiny, photo, tmp_path):
    assert real("compare", photo, *tiny).code == 0
    figure = tmp_path / "attnviz-out" / "photo.compare.png"
    record = read_record(figure)
    for rows in (3, [4], [{"model": "m"}], []):
        from PIL.PngImagePlugin import PngInfo

        text = PngInfo()
        text.add_text("attnviz", json.dumps({**record, "rows": rows}))
        Image.new("RGB", (2, 2)).save(tmp_path / "broken.png", pnginfo=text)
        run = real("info", "broken.png")
        assert run.code == 0, run.err
        assert str(photo) in run.out


def test_a_figure_that_stands_is_skipped(real, tiny, other_weights, photo):
    call = ("compare", photo, *tiny, "--checkpoint", other_weights, "--skip-existing")
    assert real(*call).err.splitlines()[-1] == "1 of 1 done"
    again = real(*call)
    assert "1 skipped" in again.err.splitlines()[-1]
    assert again.out == ""
    assert "skipped" not in real(*call, "--show", "rollout").err
    save_scene(photo, 40, 56, seed=9)
    assert "skipped" not in real(*call, "--show", "rollout").err


def test_a_bad_picture_costs_its_own_rows(real, tiny, photos, tmp_path):
    (tmp_path / "photos" / "2.jpg").write_bytes(b"no picture")
    run = real("compare", "photos/1.png", "photos/2.jpg", "gone.png", *tiny, "--json")
    assert run.code == 1
    assert run.err.splitlines()[-1] == "1 of 3 done, 2 failed"
    done = [json.loads(line) for line in run.out.splitlines()]
    assert [record["status"] for record in done] == ["failed", "failed", "done"]
    assert [row["image"] for row in done[-1]["rows"]] == ["photos/1.png"]


def test_a_point_outside_one_image_leaves_an_empty_panel(real, tiny, photos, tmp_path):
    run = real(
        "compare", "photos/1.png", "photos/10.png", *tiny, "--show", "mean,cosine@60,20px", "-f",
        "svg", "--save-data", "--json", "--table", "t.csv",
    )  # fmt: skip
    assert run.code == 0, run.err
    record = json.loads(run.out.splitlines()[0])
    assert [row["image"] for row in record["rows"]] == ["photos/1.png", "photos/10.png"]
    stem = tmp_path / "attnviz-out" / "1-and-1-more.compare"
    assert record["files"][0]["path"].endswith("1-and-1-more.compare.svg")
    (note,) = record["notes"]
    assert note.startswith("photos/1.png: cosine@60,20px: point x=60, y=20 lies outside")
    assert f"note: {note}" in run.err
    drawing = ET.parse(f"{stem}.svg")
    words = " ".join(text for each in drawing.iter() if (text := (each.text or "").strip()))
    assert words.count("point x=60, y=20 lies") == 1
    assert set(arrays(tmp_path / f"{stem}.npz")) == {
        "row0_mean",
        "row1_mean",
        "row1_cosine_60_20px",
    }
    with (tmp_path / "t.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["image"], row["map"], bool(row["max"])) for row in rows] == [
        ("photos/1.png", "mean", True), ("photos/1.png", "cosine@60,20px", False),
        ("photos/10.png", "mean", True), ("photos/10.png", "cosine@60,20px", True),
    ]  # fmt: skip


def test_the_scale_is_that_of_the_maps_that_are_there(real, tiny, photos, tmp_path):
    call = (*tiny, "--show", "cosine@60,20px,patch@60,20px", "-f", "svg", "--overwrite")
    assert real("compare", "photos/10.png", "photos/1.png", *call).code == 0
    both = bar_numbers(tmp_path / "attnviz-out" / "10-and-1-more.compare.svg")
    assert real("compare", "photos/10.png", *call).code == 0
    assert both == bar_numbers(tmp_path / "attnviz-out" / "10.compare.svg")
    assert len(both) == 4


def bar_numbers(figure):
    texts = (each.text or "" for each in ET.parse(figure).iter())
    return [text for text in texts if re.fullmatch(r"-?\d\.?\d*", text.strip())]


def test_images_without_any_map_fail(real, tiny, photos, tmp_path):
    run = real("compare", "photos/1.png", "photos/2.jpg", *tiny, "--show", "patch@60,20px")
    assert (run.code, run.out) == (1, "")
    assert run.err.splitlines()[-1] == "0 of 2 done, 2 failed"
    for name in ("1.png", "2.jpg"):
        assert f"failed: photos/{name}: point x=60, y=20 lies outside" in run.err
    assert files_below(tmp_path / "attnviz-out") == ["failures.csv"]


def test_the_figure_is_named_after_the_images_that_it_shows(
    real, tiny, photos, tmp_path, monkeypatch
):
    maps = compare_run.SingleImage.maps

    def too_large(self, *asked):
        if self.prepared.image.file.path.name == "1.png":
            raise MemoryNeededError("does not fit")
        return maps(self, *asked)

    monkeypatch.setattr(compare_run.SingleImage, "maps", too_large)
    run = real("compare", "photos/1.png", "photos/10.png", *tiny)
    assert run.code == 1
    assert run.out.splitlines() == ["attnviz-out/10.compare.png"]
    assert run.err.splitlines()[-1] == "1 of 2 done, 1 failed"


def test_verify_checks_every_row_and_fails_on_wrong_attention(
    real, tiny, other_weights, photos, wrong_attention
):
    call = ("compare", "photos/1.png", "photos/2.jpg", *tiny, "--checkpoint", other_weights)
    run = real(*call, "--verify")
    assert run.code == 0, run.err
    for name in ("photos/1.png", "photos/2.jpg"):
        for model in ("tiny.pth", "later.pth"):
            assert f"note: {name}: {model}: verified: attention times V is the" in run.err
    wrong_attention()
    run = real(*call)
    assert run.code == 0, run.err
    assert "verified" not in run.err
    run = real(*call, "--verify")
    assert (run.code, run.out) == (1, "")
    assert run.err.splitlines()[-1] == "0 of 2 done, 2 failed"
    assert "failed: photos/1.png: attention of layer 2" in run.err


def test_untrained_models_are_named_and_checkpoints_stay_trained(real, tiny_weights, photo):
    run = real(
        "compare", photo, "--model", "demo", "--random-weights", "--checkpoint", tiny_weights,
        "--model-arg", "heads=2", "--dpi", "30", "--json",
    )  # fmt: skip
    assert run.code == 0, run.err
    rows = json.loads(run.out)["rows"]
    assert [(row["model"], row["random_weights"]) for row in rows] == [
        ("demo", True),
        ("tiny.pth", False),
    ]


def test_models_after_commas_and_named_checkpoints(real, photo, tmp_path):
    from attnviz.models.catalogue import find_spec, packaged_weights

    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(packaged_weights(find_spec("demo")).read_bytes())
    run = real("compare", photo, "--models", "demo", "--checkpoint", f"demo={copy}", "--json",
               "--dpi", "30")  # fmt: skip
    assert run.code == 0, run.err
    rows = json.loads(run.out)["rows"]
    assert [row["weights"] for row in rows] == ["demo.safetensors", "copy.safetensors"]
    assert rows[0]["weights_sha256"] == rows[1]["weights_sha256"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--show", "meen"), "no map is called 'meen'"),
        (("--show", "head"), "'head' is not a map"),
        (("--show", "mean:3"), "'mean:3' is not a map"),
        (("--show", "patch"), "'patch' needs a patch"),
        (("--show", "rollout@1,2"), "'rollout@1,2' takes no patch"),
        (("--show", "head:7"), "--show head:7: tiny.pth has heads 0 to 1"),
        (("--show", "to-clss"), "did you mean to-cls?"),
        (("--layer", "9"), "layer 9 does not exist"),
        (("--model", "demo,,demo"), "empty"),
        (("--model", "demo", "--model", "demo"), "compared with itself"),
        (("--checkpoint", "gone.pth"), "gone.pth does not exist"),
        (("--heads", "0"), "No such option: --heads"),
        (("--show", "max:2"), "'max:2' is not a map"),
        (("--show", "k-norm:7"), "--show k-norm:7: tiny.pth has heads 0 to 1"),
        (("--layers", "1,9"), "layer 9 does not exist"),
        (("--layers", "1", "--layer", "1"), "--layer and --layers exclude each other"),
        (("--show", "relevance"), "--show relevance needs a target"),
        (("--show", "match"), "--show match needs a second image"),
        (("--show", "match", "--like", "gone.png"), "gone.png is not a file"),
        (("--show", "match", "--like", "photo.png", "--class", "1"), "need --show relevance"),
        (("--like", "photo.png"), "--like, --class and --method need --show relevance"),
        (("--show", "relevance", "--like", "gone.png"), "gone.png is not a file"),
        (("--show", "relevance", "--class", "3"), "--class: tiny.pth has no classifier"),
    ],
)
def test_wrong_use_is_one_line(real, tiny, photo, options, said):
    run = real("compare", photo, *tiny, *options)
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    assert "Traceback" not in run.err


def test_a_checkpoint_that_does_not_load_stops_the_run(real, tiny, photo, tmp_path):
    (tmp_path / "broken.pth").write_bytes(b"x")
    run = real("compare", photo, *tiny, "--checkpoint", "broken.pth")
    assert (run.code, run.out) == (CheckpointError.exit_code, "")
    assert "broken.pth" in run.err
    assert not files_below(tmp_path / "attnviz-out")


def test_no_picture_at_all(real, tiny):
    run = real("compare", "gone.png", *tiny)
    assert (run.code, run.out) == (real("heads", "gone.png", *tiny).code, "")
    assert run.code != 0
    assert "gone.png" in run.err


def test_the_grammar():
    assert parse_maps(["mean, head:3", "patch@-1,2,cosine@240,120.5px", "mean"]) == (
        MapSpec(MapKind.MEAN),
        MapSpec(MapKind.HEAD, head=3),
        MapSpec(MapKind.PATCH, cell=(-1, 2)),
        MapSpec(MapKind.COSINE, point=(240.0, 120.5)),
    )
    for text in ("mean", "head:-1", "patch@3,7", "cosine@240,120px", "cosine@240.25,12px"):
        assert [str(shown) for shown in parse_maps([text])] == [text]
    with pytest.raises(UsageError):
        parse_maps([""])


def test_places_are_written_as_in_every_command(real, tiny, tmp_path):
    save_scene(tmp_path / "cat.png", 40, 56)
    there = ("--show", "mean,patch,cosine", "--at", "3,2", "--xy", "9.5,7")
    short = real("compare", "cat.png", *tiny, *there, "--save-data")
    assert short.code == 0
    figure = tmp_path / "attnviz-out" / "cat.compare.png"
    before = figure.read_bytes()
    written = "mean,patch@3,2,patch@9.5,7px,cosine@3,2,cosine@9.5,7px"
    assert real("compare", "cat.png", *tiny, "--show", written, "--overwrite").code == 0
    assert figure.read_bytes() == before
    for options, said in (
        (("--show", "patch"), "--show: 'patch' needs a patch"),
        (("--show", "mean", "--at", "1,2"), "--at and --xy need a map of a patch"),
        (("--show", "mean@1,2"), "takes no patch"),
        (("--show", "patch@1,2", "--xy", "3,3"), "--at and --xy need a map of a patch"),
    ):
        run = real("compare", "cat.png", *tiny, *options)
        assert (run.code, run.out) == (2, "")
        assert said in run.err, options
