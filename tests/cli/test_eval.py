"""``attnviz eval``: planted attention against masks, and the numbers worked by hand."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image

import attnviz
from attnviz.domain import HeadsMaps, RolloutMaps, RolloutOptions
from attnviz.domain.kinds import HeadsRequest
from attnviz.images.find import find_images
from attnviz.runs import evaluate as evaluation_run
from attnviz.runs.evaluate import pair_with_masks
from attnviz.runs.jaccard import score_image
from attnviz.stages import single
from tests.helpers.photos import save_scene
from tests.helpers.planted import tiny_vit

HEADS = np.array([[7, 1, 1, 1], [1, 4, 4, 1]], np.float32).reshape(2, 2, 2) / 20
ROLLOUT = np.array([[1, 1], [1, 9]], np.float32) / 20


@pytest.fixture
def planted(monkeypatch):
    """Every picture has these maps; the commands that asked for them."""
    asked = []

    def maps_of(_model, images, command, _reference):
        asked.append(command)
        assert images[0].geometry.grid == (2, 2)
        prefix, two = np.zeros((2, 1), np.float32), np.zeros(2, np.float32)
        if isinstance(command, HeadsRequest):
            return [HeadsMaps(HEADS, prefix, two, None, 3, (0, 1))]
        none = np.zeros((0, 2, 2), np.float32)
        return [
            RolloutMaps(
                ROLLOUT, prefix[0], ROLLOUT, RolloutOptions(), 3, (), none, prefix[:0], (0,)
            )
        ]

    monkeypatch.setattr(single, "maps_of", maps_of)
    return asked


@pytest.fixture
def judged(tmp_path):
    """Two pictures of 40 x 40 pixels, so 2 x 2 cells of 20: objects in one and in two cells."""
    for name, cells in (("a.png", [(0, 0)]), ("deep/b.jpg", [(0, 1), (1, 1)])):
        save_scene(tmp_path / "photos" / name, 40, 40)
        mask = np.zeros((40, 40), np.uint8)
        for row, column in cells:
            mask[20 * row : 20 * row + 20, 20 * column : 20 * column + 20] = 1
        path = (tmp_path / "masks" / name).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(path)
    return ("eval", "photos", "masks", "--size", "16")


# Image a, object {0}: head 0 keeps {0}: 1; head 1 keeps {1, 2}: 0; the mean 8 : 5 : 5 : 2 keeps
# {0, 1}: 1/2; the rollout keeps {3}: 0. Image b, object {1, 3}: 0; 1/3; 1/3; 1/2.
EXPECTED = {
    "head 0": 1 / 2,
    "head 1": 1 / 6,
    "best fixed head (0)": 1 / 2,
    "best head per image": (1 + 1 / 3) / 2,
    "mean map": (1 / 2 + 1 / 3) / 2,
    "rollout": 1 / 4,
    "highest cell on the object": 1 / 2,
}


def test_the_numbers_as_csv(real, tiny, judged, planted):
    run = real(*judged, *tiny[:4], "--format", "csv", "--layer", "-2", "--query", "mean")
    assert run.code == 0, run.err
    head, *rows = csv.reader(io.StringIO(run.out))
    assert head == ["map", "value"]
    assert {name: float(value) for name, value in rows} == pytest.approx(EXPECTED)
    assert run.err.splitlines()[-1] == "2 of 2 done"
    heads, rollout = planted[:2]
    assert (heads.layer, heads.query, rollout.query) == (-2, "mean", "mean")
    assert rollout.options == RolloutOptions()


def test_the_numbers_as_a_table(real, tiny, judged, planted):
    run = real(*judged, *tiny[:4])
    assert run.code == 0, run.err
    lines = [line.split() for line in run.out.splitlines() if line.strip()]
    told = {" ".join(words[:-1]): words[-1] for words in lines}
    for name, value in list(EXPECTED.items())[:-1]:
        assert float(told[name]) == pytest.approx(value, abs=5e-5), name
    assert run.out.splitlines()[-1] == "highest cell on the object: 50.0 % of 2 images"


def test_the_numbers_as_json(real, tiny, judged, planted):
    run = real(*judged, *tiny[:4], "--format", "json", "--threshold", "0.3", "-q")
    told = json.loads(run.out)
    assert (told["model"], told["pictures"], told["threshold"]) == ("tiny.pth", 2, 0.3)
    assert told["heads"] == pytest.approx([1 / 2, 1 / 4])  # head 1 keeps {1} alone
    assert told["best_head_per_image"] == pytest.approx((1 + 1 / 2) / 2)
    assert told["peak_on_object"] == 0.5
    assert run.err == ""


def test_real_attention_agrees_with_the_python_interface(
    real, tiny, judged, tiny_weights, tmp_path
):
    run = real(*judged[:3], *tiny[:4], "--size", "48", "--format", "json")
    model = attnviz.load_model(checkpoint=tiny_weights, heads=2)
    scores = []
    for name in ("a.png", "deep/b.jpg"):
        image = attnviz.prepare(tmp_path / "photos" / name, model, size=48)
        mask = Image.open((tmp_path / "masks" / name).with_suffix(".png"))
        scores.append(
            score_image(
                attnviz.heads(model, image).attention,
                attnviz.rollout(model, image).rollout,
                image.geometry,
                np.asarray(mask) > 0,
            )
        )
    told = json.loads(run.out)
    assert told["mean_map"] == np.mean([score.mean_map for score in scores])
    assert told["rollout"] == np.mean([score.rollout for score in scores])
    assert told["heads"] == np.mean([score.heads for score in scores], axis=0).tolist()


def test_models_without_a_class_token_are_judged_by_the_mean_query(real, judged, monkeypatch):
    model = tiny_vit(cls=False)
    monkeypatch.setattr(evaluation_run, "load_backbone", lambda _request: model)
    refused = real(*judged, "--random-weights")
    assert (refused.code, "--query mean" in refused.err) == (2, True)
    run = real(*judged, "--random-weights", "--query", "mean", "--format", "json")
    assert run.code == 0, run.err
    assert json.loads(run.out)["query"] == "mean"


def test_verify_checks_every_image_and_fails_on_wrong_attention(
    real, tiny, judged, wrong_attention
):
    run = real(*judged, *tiny[:4], "--verify")
    assert run.code == 0, run.err
    for name in ("photos/a.png", "photos/deep/b.jpg"):
        assert f"note: {name}: verified: attention times V is the model's own output" in run.err
    wrong_attention()
    assert real(*judged, *tiny[:4]).code == 0
    run = real(*judged, *tiny[:4], "--verify")
    assert (run.code, run.out) == (1, "")
    assert run.err.splitlines()[-1] == "0 of 2 done, 2 failed"


@pytest.mark.parametrize("alpha", [255, 0])
def test_alpha_that_is_the_same_everywhere_says_nothing_and_that_is_said_once(
    real, tiny, judged, planted, tmp_path, alpha
):
    plain = real(*judged, *tiny[:4], "--format", "csv")
    for path in (tmp_path / "masks").rglob("*.png"):
        grey = Image.open(path).point(lambda value: 255 * value)
        Image.merge("RGBA", (grey, grey, grey, Image.new("L", grey.size, alpha))).save(path)
    run = real(*judged, *tiny[:4], "--format", "csv")
    assert run.out == plain.out
    assert run.err.count("the mask is read by its colours, since its alpha channel hides") == 1
    assert "the mask is" not in plain.err


def test_a_mask_that_does_not_fit_costs_its_picture(real, tiny, judged, planted, tmp_path):
    Image.new("L", (40, 39), 1).save(tmp_path / "masks" / "a.png")
    save_scene(tmp_path / "photos" / "alone.png", 40, 40)
    run = real(*judged, *tiny[:4], "--format", "json")
    assert run.code == 1
    assert "a.png is 39x40 pixels large, its image 40x40" in run.err
    assert "left out, without a mask: alone.png" in run.err
    assert json.loads(run.out)["pictures"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("photos", "gone"), 2, "masks: gone does not exist"),
        (("photos", "photos/deep"), 2, "no image has a mask"),
        (("gone", "masks"), 1, "gone does not exist"),
        (("photos", "masks", "--threshold", "0"), 2, "--threshold: 0 is out of range"),
        (("photos", "masks", "--layer", "9"), 2, "layer 9 does not exist"),
        (("photos",), 2, "eval needs masks or boxes"),
    ],
)
def test_wrong_use(real, tiny, judged, arguments, code, reason):
    run = real("eval", *arguments, *tiny[:4])
    assert (run.code, run.out) == (code, "")
    assert reason in run.err


def test_a_config_gives_options_and_its_errors_have_lines(real, tiny, judged, planted, tmp_path):
    path = tmp_path / "eval.toml"
    path.write_text("format = 'json'\nsize = 16\nlayer = -1\n")
    assert json.loads(real(*judged[:3], *tiny[:4], "--config", "eval.toml").out)["pictures"] == 2
    path.write_text("format = 'json'\nthreshold = 3\n")
    run = real(*judged[:3], *tiny[:4], "--config", "eval.toml")
    assert run.err.startswith("error: eval.toml:2: --threshold: 3 is out of range")


def test_masks_beside_their_pictures_are_no_pictures(tmp_path):
    for name in ("a.jpg", "a.mask.png", "b.png", "b.mask.png", "c.jpg", "c.png", "d.jpg", "d.gif"):
        (tmp_path / name).touch()
    found = find_images([str(tmp_path)])
    pairs, alone = pair_with_masks(found, found)
    assert [(picture.path.name, mask.name) for picture, mask in pairs] == [
        ("a.jpg", "a.mask.png"), ("b.png", "b.mask.png"), ("c.jpg", "c.png")
    ]  # fmt: skip
    assert [path.name for path in alone] == ["c.png", "d.gif", "d.jpg"]
