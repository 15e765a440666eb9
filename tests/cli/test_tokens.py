"""``attnviz matrix`` and ``attnviz qkv`` through the command line, with a tiny checkpoint."""

from __future__ import annotations

import json

import numpy as np
import pytest

import attnviz
from attnviz.attention import memory
from attnviz.output.read_record import read_record
from tests.helpers.command_line import arrays, assert_same_arrays, files_below


@pytest.fixture(scope="module")
def model(tiny_weights):
    return attnviz.load_model(checkpoint=tiny_weights, heads=2)


@pytest.fixture
def photo(photos):
    return photos / "10.png"


def test_the_whole_matrices_are_saved_and_are_those_of_the_python_interface(
    real, tiny, photo, tmp_path, model
):
    run = real("matrix", photo, *tiny, "--layer", "-2", "--save-data", "-f", "pdf", "-o", "o")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "o") == ["10.matrix.npz", "10.matrix.pdf"]
    saved = arrays(tmp_path / "o/10.matrix.npz")
    maps = attnviz.matrix(model, attnviz.prepare(photo, model), layer=2, whole=True)
    assert saved.pop("layer") == 2
    assert saved.pop("heads").tolist() == [0, 1]
    expected = {name: getattr(maps, name) for name in
                ("attention", "logits", "token_entropy", "to_cls", "received")}  # fmt: skip
    assert_same_arrays(saved, expected, within=1e-6)
    assert saved["attention"].shape == (2, 25, 25)
    assert saved["attention"].sum(axis=2) == pytest.approx(1)
    # What the other command shows of the same layer is a row of it.
    heads = attnviz.heads(model, attnviz.prepare(photo, model), layer=2)
    assert saved["attention"][:, 0, 1:].reshape(2, 4, 6) == pytest.approx(heads.attention, abs=1e-6)
    assert saved["to_cls"] == pytest.approx(heads.to_cls, abs=1e-6)
    assert saved["received"] == pytest.approx(heads.received, abs=1e-5)
    assert saved["received"] == pytest.approx(saved["attention"].sum(axis=1), abs=1e-5)


def test_without_save_data_no_whole_matrix_is_held(request_of):
    assert not request_of("matrix", "a.jpg").command.whole
    assert request_of("matrix", "a.jpg", "--save-data").command.whole


def test_whole_matrices_beyond_the_limit_cost_one_line(real, tiny, photo, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "WHOLE_LIMIT_BYTES", 5000)
    run = real("matrix", photo, *tiny, "--save-data", "-o", "o")
    assert run.code == 1
    assert "Traceback" not in run.err
    assert "the whole matrices of 2 heads and 25 tokens take" in run.err
    assert "omit --save-data" in run.err
    assert real("matrix", photo, *tiny, "-o", "o").code == 0


def test_colours_change_with_norm_and_numbers_do_not(real, tiny, photo, tmp_path):
    for norm in ("log", "linear"):
        run = real("matrix", photo, *tiny, "--norm", norm, "--save-data", "-o", norm)
        assert run.code == 0, run.err
        assert read_record(tmp_path / norm / "10.matrix.png")["options"]["norm"] == norm
    one, other = (arrays(tmp_path / norm / "10.matrix.npz") for norm in ("log", "linear"))
    assert_same_arrays(one, other)
    pages = [(tmp_path / norm / "10.matrix.png").read_bytes() for norm in ("log", "linear")]
    assert pages[0] != pages[1]


def test_a_page_a_part_and_the_record_draws_it_again(real, tiny, photo, tmp_path):
    run = real("qkv", photo, *tiny, "-o", "o")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "o") == ["10.qkv.2.png", "10.qkv.3.png", "10.qkv.png"]
    run = real("qkv", photo, *tiny, "--part", "v", "--part", "q", "-o", "o")
    assert run.code == 0, run.err
    assert read_record(tmp_path / "o/10.qkv.png")["options"]["part"] == ["v", "q"]
    run = real("info", "o/10.qkv.png")
    assert "--part v --part q" in run.out


def test_vectors_are_saved_by_part_and_the_table_has_them(real, tiny, photo, tmp_path, model):
    run = real("qkv", photo, *tiny, "--part", "k", "--heads", "1", "--save-data", "--json")
    assert run.code == 0, run.err
    record = json.loads(run.out)
    saved = arrays(tmp_path / "attnviz-out/10.qkv.npz")
    maps = attnviz.qkv(model, attnviz.prepare(photo, model))
    assert set(saved) == {
        "key", "key_norm", "key_pca", "key_explained", "key_pca_all", "key_explained_all",
        "layer", "heads",
    }  # fmt: skip
    assert saved["key"] == pytest.approx(maps.vectors[1, 1:], abs=1e-6)
    assert saved["key_pca"].shape == (1, 4, 6, 3)
    first, joined = record["table"]
    assert (first["part"], first["head"], joined["head"]) == ("k", "1", "all")
    assert (first["tokens"], first["width"]) == saved["key"].shape[1:]
    assert first["mean"] == pytest.approx(float(saved["key"].mean()), abs=1e-6)
    assert first["std"] == pytest.approx(float(saved["key"].std()), rel=1e-4)
    assert first["norm_max"] == pytest.approx(float(saved["key_norm"].max()), rel=1e-5)


@pytest.mark.parametrize(
    ("command", "option", "text"),
    [("matrix", "--norm", "square"), ("qkv", "--part", "w"), ("matrix", "--layer", "x")],
)
def test_what_cannot_be_asked(real, photo, tmp_path, command, option, text):
    run = real(command, photo, option, text, "-o", "o")
    assert (run.code, run.out) == (2, "")
    assert option in run.err
    assert not (tmp_path / "o").exists()


def test_a_picture_of_one_patch_and_one_that_is_all_alike(real, tiny, tmp_path):
    from PIL import Image

    Image.new("RGB", (40, 40), "white").save(tmp_path / "white.png")
    for command in ("matrix", "qkv"):
        for size in ("8x8", "16x16"):
            run = real(command, "white.png", *tiny, "--size", size, "--save-data", "-o", size)
            assert run.code == 0, run.err
            for name, values in arrays(tmp_path / size / f"white.{command}.npz").items():
                assert np.isfinite(values).all(), name
