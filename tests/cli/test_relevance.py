"""``attnviz relevance`` as a user meets it: its target, its files, and what it refuses."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

import attnviz
from attnviz.cli.figure_set import read_figure_set
from attnviz.domain import RelevanceMethod
from attnviz.domain.kinds import RelevanceRequest
from attnviz.errors import UsageError
from tests.helpers.command_line import arrays, files_below, meta
from tests.helpers.photos import save_scene


@pytest.fixture
def second(tmp_path):
    save_scene(tmp_path / "second.png", 48, 40)
    return tmp_path / "second.png"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """Options of a supervised ViT of 7 classes."""
    return supervised(tmp_path_factory.mktemp("classifier") / "classifier.safetensors", 7)


def supervised(path, classes):
    """Options of a supervised ViT whose weights are written to a file."""
    torch.manual_seed(0)
    module = timm.create_model(
        "vit_small_patch16_224",
        embed_dim=64,
        depth=3,
        num_heads=2,
        img_size=64,
        num_classes=classes,
    )
    torch.nn.init.normal_(module.head.weight)
    save_file(module.state_dict(), path)
    sizes = ("width=64", "depth=3", "heads=2", "size=64")
    return (
        "--model", "vit_small_patch16_224", "--checkpoint", path, "--dpi", "30",
        *(word for size in sizes for word in ("--model-arg", size)),
    )  # fmt: skip


@pytest.mark.parametrize("method", RelevanceMethod)
def test_a_folder_compared_with_one_picture_is_as_from_python(
    real, tiny, tiny_weights, photos, second, tmp_path, method
):
    run = real(
        "relevance", photos, *tiny, "--like", second, "--method", method, "--save-data",
        "--workers", "0", "--out", "o",
    )  # fmt: skip
    assert run.code == 0, run.err
    stems = ("1", "10", "2", "deep/er/3")
    assert files_below(tmp_path / "o") == [
        f"{stem}.relevance.{kind}" for stem in stems for kind in ("npz", "png")
    ]
    model = attnviz.load_model(checkpoint=tiny_weights, heads=2)
    maps = attnviz.relevance(
        model, attnviz.prepare(photos / "10.png", model), like=second, method=str(method)
    )
    saved = arrays(tmp_path / "o/10.relevance.npz")
    np.testing.assert_array_equal(saved["relevance"], maps.relevance)
    np.testing.assert_array_equal(saved["prefix"], maps.prefix)
    assert (saved["value"], saved["heads"].tolist()) == (np.float32(maps.value), [0, 1])
    assert (maps.like.name, maps.relevance.shape) == ("second.png", (4, 6))
    assert -1 <= maps.value < 1
    assert maps.relevance.std() > 0


def test_a_class_is_told_with_its_logit_and_probability(real, classifier, photos, tmp_path):
    run = real("relevance", photos / "1.png", *classifier, "--class", "0", "--json", "--save-data")
    assert run.code == 0, run.err
    record = json.loads(run.out)
    (row,) = record["table"]
    assert row["target"] == "class 0"
    assert 0 < row["probability"] < 1
    assert row["value"] == pytest.approx(arrays(tmp_path / "attnviz-out/1.relevance.npz")["value"])
    # Class 0 and layer 0 are no less than others: what is recorded draws the same again.
    assert record["options"]["class"] == 0
    again = shlex.split(real("info", "attnviz-out/1.relevance.png").out.splitlines()[-1])
    assert again[:2] == ["attnviz", "relevance"]
    before = (tmp_path / "attnviz-out/1.relevance.png").read_bytes()
    (tmp_path / "attnviz-out/1.relevance.png").unlink()
    assert real(*again[1:]).code == 0
    assert (tmp_path / "attnviz-out/1.relevance.png").read_bytes() == before


def test_one_output_has_no_probability(real, photos, tmp_path):
    """A regression: the softmax of its only logit would be 1 whatever the image shows."""
    options = supervised(tmp_path / "regression.safetensors", 1)
    run = real("relevance", photos / "1.png", *options, "--class", "0", "--json", "--format", "svg")
    assert run.code == 0, run.err
    (row,) = json.loads(run.out)["table"]
    assert (row["target"], "probability" in row) == ("class 0", False)
    drawn = (tmp_path / "attnviz-out/1.relevance.svg").read_text()
    assert "class 0" in drawn
    assert "probability" not in drawn


def test_pictures_are_drawn_again_when_the_second_picture_changes(
    real, tiny, photos, second, tmp_path
):
    command = (
        "relevance", photos / "1.png", *tiny, "--like", "second.png", "--skip-existing", "--json",
    )  # fmt: skip
    told = [json.loads(real(*command).out)["status"] for _ in range(2)]
    second.rename(tmp_path / "moved.png")
    moved = [word if word != "second.png" else "moved.png" for word in command]
    told.append(json.loads(real(*moved).out)["status"])
    save_scene(tmp_path / "second.png", 40, 48)
    told.append(json.loads(real(*command).out)["status"])
    assert told == ["done", "skipped", "skipped", "done"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "relevance needs a target: --like or --class"),
        (("--like", "1.png", "--class", "1"), "--like and --class exclude each other"),
        (("--like", "none.png"), "--like: none.png is not a file"),
        (("--like", "photos"), "--like: photos is not a file"),
        (("--class", "-1"), "--class: -1 is out of range"),
        (("--class", "1"), "--class: tiny.pth has no classifier"),
        (("--class", "cat"), "valid integer"),
        (("--class", "1", "--method", "lrp"), "'--method': 'lrp' is not one of 'chefer'"),
        (("--like", "1.png", "--precision", "float16"), "vanish in float16"),
    ],
)
def test_a_target_that_cannot_be_is_refused_in_a_line(
    real, tiny, photos, tmp_path, arguments, said
):
    save_scene(tmp_path / "1.png", 40, 40)
    run = real("relevance", photos / "1.png", *tiny, *arguments)
    assert run.code == 2
    assert said in run.err
    assert files_below(tmp_path / "attnviz-out") == []


def test_random_weights_have_no_classes_though_the_model_may(real, photos):
    run = real("relevance", photos / "1.png", "--model", "demo", "--random-weights", "--class", "1")
    assert run.code == 2
    assert "--class: random weights come without a classifier" in run.err


@pytest.mark.parametrize("method", ["chefer", "gradient-rollout"])
def test_a_picture_is_like_itself_without_a_gradient(real, tiny, photos, tmp_path, method):
    """What would be left is rounding, drawn at full contrast."""
    photo = photos / "1.png"
    asked = ("--like", photo, "--method", method, "--save-data", "--dpi", "30")
    run = real("relevance", photo, *tiny, *asked)
    assert run.code == 0, run.err
    saved = arrays(next((tmp_path / "attnviz-out").glob("*.npz")))
    assert saved["value"] == pytest.approx(1, abs=1e-6)
    assert not saved["relevance"].any()
    assert not saved["prefix"].any()
    other = real("relevance", photos / "10.png", *tiny, *asked, "--out", "other")
    assert other.code == 0, other.err
    assert arrays(next((tmp_path / "other").glob("*.npz")))["relevance"].any()


def test_a_class_beyond_the_last_is_refused(real, classifier, photos):
    run = real("relevance", photos / "1.png", *classifier, "--class", "7")
    assert run.code == 2
    assert "--class 7 does not exist: vit_small_patch16_224 has classes 0 to 6" in run.err


def test_a_second_picture_that_is_none_ends_the_run(real, tiny, photos, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    run = real("relevance", photos, *tiny, "--like", "broken.png")
    assert run.code == 1
    assert "broken.png" in run.err
    assert "Traceback" not in run.err
    assert files_below(tmp_path / "attnviz-out") == []


@pytest.mark.parametrize(("method", "free"), [("chefer", 6e6), ("contribution", 8e5)])
def test_a_picture_too_large_for_the_memory_costs_itself(
    real, tiny, photos, second, tmp_path, monkeypatch, method, free
):
    monkeypatch.setattr("attnviz.attention.memory.free_bytes", lambda _device: free)
    save_scene(tmp_path / "large.png", 400, 400)
    run = real(
        "relevance", "large.png", photos / "1.png", *tiny, "--like", second, "--method", method,
        "--size", "original",
    )  # fmt: skip
    assert run.code == 1
    assert "large.png" in run.err
    assert "the largest square that fits is about --size " in run.err
    assert files_below(tmp_path / "attnviz-out") == ["1.relevance.png", "failures.csv"]


def test_half_precision_is_done_or_refused(real, tiny, photos, second, tmp_path):
    common = ("relevance", photos / "1.png", *tiny, "--like", second, "--save-data", "--out")
    assert real(*common, "full").code == 0
    assert real(*common, "half", "--precision", "bfloat16").code == 0
    full, half = (
        arrays(tmp_path / folder / "1.relevance.npz")["relevance"] for folder in ("full", "half")
    )
    assert np.corrcoef(full.ravel(), half.ravel())[0, 1] > 0.95
    run = real(*common, "float16", "--precision", "float16")
    assert run.code == 2
    assert "vanish in float16" in run.err


def test_a_batch_has_the_numbers_of_its_pictures(real, tiny, photos, second, tmp_path):
    common = ("relevance", photos / "1.png", photos / "2.jpg", *tiny, "--like", second)
    for size in ("1", "2"):
        run = real(*common, "--save-data", "--batch-size", size, "--workers", "0", "--out", size)
        assert run.code == 0, run.err
    for stem in "12":
        one, two = (arrays(tmp_path / f / f"{stem}.relevance.npz")["relevance"] for f in "12")
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4 * one.max())


def test_a_configuration_may_name_the_class(request_of, tmp_path):
    path = tmp_path / "options.toml"
    path.write_text('class = 3\nmethod = "gradient-rollout"\n', encoding="utf-8")
    made = request_of("relevance", "a.png", "--config", str(path)).command
    assert made == RelevanceRequest(RelevanceMethod.GRADIENT_ROLLOUT, 3)


def test_a_figure_set_finds_the_second_picture_beside_it(tmp_path):
    save_scene(tmp_path / "second.png", 40, 40)
    path = tmp_path / "figures.toml"
    path.write_text(
        '[[figure]]\ncommand = "relevance"\nimages = "a.png"\nlike = "second.png"\n',
        encoding="utf-8",
    )
    (figure,) = read_figure_set(path)
    assert figure.request.command.like == tmp_path / "second.png"
    path.write_text(
        '[[figure]]\ncommand = "relevance"\nimages = "a.png"\nclass = -1\n', encoding="utf-8"
    )
    with pytest.raises(UsageError, match=r"figures\.toml:4: --class: -1 is out of range"):
        read_figure_set(path)


def test_the_record_holds_the_hash_of_the_second_picture(real, tiny, photos, second, tmp_path):
    assert real("relevance", photos / "1.png", *tiny, "--like", second, "--save-data").code == 0
    record = meta(tmp_path / "attnviz-out/1.relevance.npz")
    assert record["like_sha256"] == attnviz.read(second).sha256
    assert real("heads", photos / "1.png", *tiny, "--save-data").code == 0
    assert meta(tmp_path / "attnviz-out/1.heads.npz")["like_sha256"] is None
