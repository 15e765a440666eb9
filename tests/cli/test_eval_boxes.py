"""``attnviz eval --boxes``: planted objects against boxes, worked by hand; files that are wrong."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import attnviz
from attnviz.attention import discover as discover_module
from attnviz.domain import Box, DiscoverMethod, ImageFile
from attnviz.errors import UsageError
from attnviz.images.boxes import boxes_of, read_boxes
from attnviz.runs.corloc import corloc, overlap
from tests.helpers.photos import save_scene

HEAD = "image,left,top,right,bottom\n"


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Two pictures, landscape and portrait, whose object is their cells (1..2, 1..2)."""
    save_scene(tmp_path / "photos" / "a.png", 80, 120)
    save_scene(tmp_path / "photos" / "deep" / "b.jpg", 120, 80)

    def vectors_of(_model, batch, _layer, _part):
        grid = batch.shape[2] // 8, batch.shape[3] // 8
        inside = np.zeros(grid, bool)
        inside[1:3, 1:3] = True
        ways = np.array([[1, -0.1], [-0.1, 1]], np.float32)
        return [ways[np.where(inside.ravel(), 0, 1)]]

    monkeypatch.setattr(discover_module, "joined_vectors", vectors_of)
    return ("eval", "photos", "--size", "32")


def boxes(tmp_path, *rows):
    (tmp_path / "boxes.csv").write_text(HEAD + "".join(f"{row}\n" for row in rows), "utf-8")
    return "--boxes", "boxes.csv"


# The shorter side of 80 pixels is 4 patches, so a cell is 20 pixels: both objects are 20..60.
def test_corloc_by_hand(real, tiny, judged, tmp_path):
    # a: 40 x 40 in 40 x 60 is 2/3. b: shifted by 20 is 800 / 2400 = 1/3, and beside it.
    given = boxes(tmp_path, "a.png,20,20,60,80", "deep/b,40,20,80,60", "deep/b,0,80,20,120")
    methods = ("--method", "lost", "--method", "tokencut", "--method", "spectral")
    run = real(*judged, *tiny[:4], *given, *methods, "--format", "csv")
    assert run.code == 0, run.err
    expected = [[f"CorLoc {method}", "0.5"] for method in DiscoverMethod]
    assert list(csv.reader(io.StringIO(run.out)))[1:] == expected


def test_half_an_overlap_is_not_enough_and_any_box_will_do(real, tiny, judged, tmp_path):
    # a: 40 x 40 in 40 x 80 is 1/2. b: the second box is the object.
    given = boxes(tmp_path, "a,20,0,60,80", "b.jpg,0,0,10,10", "b.jpg,20,20,60,60")
    run = real(*judged, *tiny[:4], *given)
    assert run.code == 0, run.err
    assert run.out == "CorLoc (IoU > 0.5), tokencut: 50.0 % of 2 images\n"


def test_beside_the_jaccard_index(real, tiny, judged, tmp_path):
    save_scene(tmp_path / "masks" / "a.png", 80, 120)
    given = boxes(tmp_path, "deep/b.jpg,20,20,60,60")
    run = real(*judged[:2], "masks", *judged[2:], *tiny[:4], *given, "--format", "json")
    assert run.code == 0, run.err
    told = json.loads(run.out)
    assert (told["pictures"], told["pictures_with_boxes"]) == (1, 1)
    assert told["corloc"] == {"tokencut": 1.0}
    assert len(told["heads"]) == 2
    assert "left out of Jaccard, without a mask: b.jpg" in run.err
    assert "left out of CorLoc, without a box: a.png" in run.err


def test_the_boxes_are_those_of_discover(real, tiny, tiny_weights, tmp_path):
    path = save_scene(tmp_path / "photos" / "c.png", 48, 64)
    model = attnviz.load_model(checkpoint=tiny_weights, heads=2)
    image = attnviz.prepare(path, model, size=48)
    found = attnviz.discover(model, image, method="lost", layer=0).box
    given = boxes(tmp_path, "c," + ",".join(map(str, found.ltrb)))
    call = ("eval", "photos", *tiny[:4], "--size", "48", *given, "--method", "lost")
    assert "100.0 % of 1 images" in real(*call, "--layer", "0").out


def test_images_without_a_box_are_left_out(real, tiny, judged, tmp_path):
    run = real(*judged, *tiny[:4], *boxes(tmp_path, "b,20,20,60,60"))
    assert "100.0 % of 1 images" in run.out
    assert "left out, without a box: a.png" in run.err


def test_a_box_beyond_its_image_costs_that_image(real, tiny, judged, tmp_path):
    given = boxes(tmp_path, "a,20,20,60,81", "b,20,20,60,60")
    run = real(*judged, *tiny[:4], *given)
    assert run.code == 1
    assert "the box 20, 20, 60, 81 reaches beyond the image" in run.err
    assert "100.0 % of 1 images" in run.out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("image,left,top,right\na,1,2,3\n", "has no column 'bottom'"),
        ("", "has no column 'image'"),
        (HEAD, "holds no box"),
        (HEAD + "a,1,2,3,x\n", "line 2: a side of the box is not a number"),
        (HEAD + "a,1,2,3,4\na,1,2,3\n", "line 3: a side of the box is not a number"),
        (HEAD + "a,1,2,nan,4\n", "line 2: a side of the box is not finite"),
        (HEAD + "a,3,2,3,4\n", "line 2: the box is empty"),
        (HEAD + ",1,2,3,4\n", "line 2: names no image"),
        (HEAD + "other,1,2,3,4\n", "has no box of any of the images"),
    ],
)
def test_files_that_are_wrong(real, tiny, judged, tmp_path, text, reason):
    (tmp_path / "boxes.csv").write_text(text, "utf-8")
    run = real(*judged, *tiny[:4], "--boxes", "boxes.csv")
    assert (run.code, run.out) == (2, "")
    assert reason in run.err
    assert "boxes.csv" in run.err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--boxes", "gone.csv"), "gone.csv cannot be read"),
        ((), "eval needs masks or boxes"),
        (("masks", "--method", "lost"), "--method needs --boxes"),
    ],
)
def test_wrong_use(real, tiny, judged, options, reason):
    run = real(*judged, *options, *tiny[:4])
    assert (run.code, run.out) == (2, "")
    assert reason in run.err


def test_a_file_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "boxes.csv").write_bytes(HEAD.encode() + b"\xff\xfe,1,2,3,4\n")
    with pytest.raises(UsageError, match="not a text in UTF-8"):
        read_boxes(tmp_path / "boxes.csv")


def test_the_most_precise_name_counts(tmp_path):
    rows = ["cat,0,0,1,1", "cat.png,0,0,2,2", "x/cat,0,0,3,3", "x/cat.png,0,0,4,4"]
    for count in range(1, 5):
        boxes(tmp_path, *rows[:count])
        known = read_boxes(tmp_path / "boxes.csv")
        file = ImageFile(Path("in/x/cat.png"), Path("x/cat.png"))
        assert boxes_of(known, file) == (Box(0, 0, count, count),)
        assert boxes_of(known, ImageFile(Path("dog.png"), Path("dog.png"))) == ()


def test_overlaps_by_hand():
    assert overlap(Box(0, 0, 2, 2), Box(0, 0, 2, 2)) == 1
    assert overlap(Box(0, 0, 2, 2), Box(1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert overlap(Box(0, 0, 2, 2), Box(0, 2, 2, 4)) == 0
    assert overlap(Box(0, 0, 2, 2), Box(5, 5, 6, 6)) == 0
    assert overlap(Box(1, 1, 1, 1), Box(1, 1, 1, 1)) == 0
    lost, cut = DiscoverMethod.LOST, DiscoverMethod.TOKENCUT
    assert corloc([{lost: 0.5, cut: 0.51}, {lost: 0.9, cut: 0.6}]) == {lost: 0.5, cut: 1.0}
