"""``attnviz features`` through the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import attnviz
from tests.helpers.command_line import arrays, meta
from tests.helpers.photos import save_scene


@pytest.fixture
def photo(tmp_path):
    return save_scene(tmp_path / "photo.png", 40, 56)


def test_the_data_file_is_what_python_computes(real, tiny, tiny_weights, photo, tmp_path):
    call = ("--at", "1,2", "--xy", "50,3", "--foreground", "--outlier-threshold", "3")
    run = real("features", photo, *tiny, *call, "--save-data")
    assert run.code == 0, run.err
    saved = arrays(tmp_path / "attnviz-out" / "photo.features.npz")
    model = attnviz.load_model(checkpoint=tiny_weights, heads=2)
    maps = attnviz.features(
        model,
        attnviz.prepare(photo, model),
        cells=((1, 2),),
        points=((50, 3),),
        foreground=True,
        outlier_threshold=3.0,
    )
    assert sorted(saved) == sorted(
        ["tokens", "norm", "prefix_norm", "components", "explained", "similarity", "cells",
         "foreground", "first"]
    )  # fmt: skip
    for name, values in saved.items():
        np.testing.assert_array_equal(values, getattr(maps, name))
    assert saved["cells"].tolist() == [[1, 2], [0, 5]]
    options = meta(tmp_path / "attnviz-out" / "photo.features.npz")["options"]
    told = {key: options[key] for key in ("at", "xy", "foreground", "outlier-threshold")}
    assert told == {
        "at": ["1,2"],
        "xy": ["50.0,3.0"],
        "foreground": True,
        "outlier-threshold": 3.0,
    }
    assert "layer" not in options


def test_a_layer_is_told_and_saved(real, tiny, photo, tmp_path):
    run = real("features", photo, *tiny, "--layer", "0", "--save-data", "--json")
    assert run.code == 0, run.err
    assert arrays(tmp_path / "attnviz-out" / "photo.features.npz")["layer"] == 0
    record = json.loads(run.out)
    assert record["options"]["layer"] == 0
    assert [row["token"] for row in record["table"]] == ["CLS", "patches"]
    patches = record["table"][1]
    assert patches["norm_min"] <= patches["norm_median"] <= patches["norm_max"]


def test_the_table_counts_outliers(real, tiny, photo, tmp_path):
    run = real("features", photo, *tiny, "--outlier-threshold", "1e9", "--json")
    assert [row["outliers"] for row in json.loads(run.out)["table"]] == [0, 0]
    run = real("features", photo, *tiny, "--outlier-threshold", "1e-9", "--json", "--save-data")
    saved = arrays(tmp_path / "attnviz-out" / "photo.features.npz")
    counts = [row["outliers"] for row in json.loads(run.out)["table"]]
    assert counts == [1, saved["norm"].size]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--flip-foreground",), "--flip-foreground needs --foreground"),
        (("--outlier-threshold", "0"), "--outlier-threshold: 0 is out of range"),
        (("--layer", "x"), "--layer: 'x' is not a layer number"),
        (("--layer", "4"), "layer 4 does not exist"),
        (("--at", "1"), "--at: '1' is not a patch"),
        (("--heads", "0"), "No such option: --heads"),
    ],
)
def test_wrong_use_is_one_line(real, tiny, photo, options, said):
    run = real("features", photo, *tiny, *options)
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    assert "Traceback" not in run.err


def test_a_place_outside_is_the_pictures_fault(real, tiny, photo):
    run = real("features", photo, *tiny, "--at", "99,0")
    assert run.code == 1
    assert "cell 99,0 lies outside the grid" in run.err


def test_a_model_without_a_class_token_has_a_foreground_too(real, photo):
    run = real(
        "features", photo, "--model", "vit_base_patch16_siglip_224", "--random-weights", "--dpi",
        "30", "--model-arg", "depth=1", "--model-arg", "width=24", "--model-arg", "heads=2",
        "--foreground",
    )  # fmt: skip
    assert run.code == 0, run.err
