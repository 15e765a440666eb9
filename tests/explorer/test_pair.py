"""The page of two images: as a file, and in a browser."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zlib

import numpy as np
import pytest

import attnviz
from attnviz.attention.descriptors import joined_layers
from attnviz.attention.pair_factors import pair_factors
from attnviz.attention.units import unit_vectors
from attnviz.domain import Part
from attnviz.domain.kinds import MatchRequest
from tests.explorer.conftest import NAME
from tests.explorer.pages import blocks, facts
from tests.helpers import command_line
from tests.helpers.photos import save_scene

WITHIN = 1e-3
GRIDS = ((12, 18), (14, 10))


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """The page of a landscape image with a hostile name and a portrait one, by the demo model."""
    folder = tmp_path_factory.mktemp("pair")
    save_scene(folder / NAME, 96, 144)
    save_scene(folder / "tall.png", 112, 80)
    with contextlib.chdir(folder):
        arguments = ("explore", NAME, "tall.png", "--model", "demo", "--size", "original")
        assert command_line.attnviz(*arguments, "-q", "-o", "page.html") == 0
    return folder / "page.html"


@pytest.fixture(scope="session")
def vectors(pair):
    """The unit keys of both images in every layer, (n, D)."""
    model = attnviz.load_model("demo")
    units = []
    for name in (NAME, "tall.png"):
        image = attnviz.prepare(pair.parent / name, model, size="original")
        layers = joined_layers(model, model.batch([image]), range(6), Part.KEY)
        units.append([unit_vectors(layer[0]).astype(float) for layer in layers])
    return units


def test_the_file_holds_the_cosines_of_every_layer(pair, vectors):
    page = facts(pair)
    assert page["names"] == [NAME, "tall.png"]
    assert page["grids"] == [list(grid) for grid in GRIDS]
    assert (page["layers"], page["start"]) == ([0, 1, 2, 3, 4, 5], 4)
    for layer in range(6):
        data = zlib.decompress(base64.b64decode(blocks(pair)[f"layer-{layer}"]))
        shape = (2, page["ranks"][layer], 12 * 18 + 14 * 10)
        low, high = np.frombuffer(data, np.uint8).reshape(shape).astype(int)
        folded = low + 256 * high
        values = np.where(folded % 2, -(folded + 1) // 2, folded // 2) * page["steps"][layer]
        cosines = values[:, : 12 * 18].T @ values[:, 12 * 18 :]
        assert np.abs(cosines - vectors[0][layer] @ vectors[1][layer].T).max() < WITHIN


def test_it_says_how_it_was_made_and_loads_nothing(pair):
    record = json.loads(blocks(pair)["record"])
    assert record["options"]["like"] == "tall.png"
    assert "no-rollout" not in record["options"]
    assert len(record["like_sha256"]) == 64
    assert record["like_sha256"] != record["image_sha256"]
    text = pair.read_text(encoding="utf-8")
    assert "<img" not in text.replace("\\u003cimg", "").replace("&lt;img", "")
    assert not re.search(r"https?://", text)


def test_rounding_leaves_the_cosines():
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((n, 96)) @ np.diag(0.9 ** np.arange(96)) for n in (50, 30))
    units = [unit_vectors(each.astype(np.float32)) for each in (first, second)]
    factors = pair_factors(*units)
    values = factors.values * factors.step
    cosines = values[:, :50].T @ values[:, 50:]
    assert np.abs(cosines - units[0].astype(float) @ units[1].T).max() < WITHIN
    assert factors.values.shape[0] < 96  # what rounds to nothing is dropped
    zero = pair_factors(np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32))
    assert zero.values.shape == (0, 5)


def run(tmp_path, capsys, *arguments):
    capsys.readouterr()
    with contextlib.chdir(tmp_path):
        code = command_line.attnviz("explore", *arguments)
    return code, *capsys.readouterr()


def test_the_second_image_by_option_and_the_same_bytes(tmp_path, capsys):
    for name in ("a.png", "b.png"):
        save_scene(tmp_path / name, 40, 48)
    shown = ("--model", "demo", "--layers", "0,2", "--verify")
    code, out, err = run(tmp_path, capsys, "a.png", "b.png", *shown)
    assert (code, out) == (0, "attnviz-out/a-and-b.explore.html\n"), err
    assert "verified: attention times V" in err
    assert run(tmp_path, capsys, "a.png", "--like", "b.png", *shown, "-o", "p.html")[0] == 0
    made = [tmp_path / "attnviz-out" / "a-and-b.explore.html", tmp_path / "p.html"]
    assert made[0].read_bytes() == made[1].read_bytes()
    assert (facts(made[0])["layers"], facts(made[0])["start"]) == ([0, 2], 2)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("a.png", "gone.png"), 2, "gone.png is not a file"),
        (("a.png", "b.png", "--like", "a.png"), 2, "two images at most"),
        (("a.png", "b.png", "-o", "b.png"), 2, "would overwrite the image"),
        (("a.png", "broken.png"), 1, "broken.png"),
        (("a.png", "b.png", "--layers", "6"), 2, "layer 6 does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(tmp_path, capsys, arguments, code, reason):
    for name in ("a.png", "b.png"):
        save_scene(tmp_path / name, 16, 16)
    (tmp_path / "broken.png").write_bytes(b"not an image")
    before = command_line.files_below(tmp_path)
    exit_code, out, err = run(tmp_path, capsys, *arguments, "--model", "demo")
    assert (exit_code, out) == (code, "")
    assert reason in err
    assert "Traceback" not in err
    assert command_line.files_below(tmp_path) == before


def centre(opened, image, row, column):
    box = opened.page.locator(".frame").nth(image).bounding_box()
    rows, columns = GRIDS[image]
    return box["x"] + box["width"] * (column + 0.5) / columns, box["y"] + box["height"] * (
        row + 0.5
    ) / rows


def hover(opened, image, row, column):
    opened.page.mouse.move(*centre(opened, image, row, column))
    opened.settle()


def heat(opened, image):
    """(gh, gw, 4): the colours over an image."""
    pixels = (
        opened.page.locator(".frame canvas")
        .nth(image)
        .evaluate(
            "(canvas) => Array.from(canvas.getContext('2d')"
            ".getImageData(0, 0, canvas.width, canvas.height).data)"
        )
    )
    return np.array(pixels, np.uint8).reshape(*GRIDS[image], 4)


@pytest.mark.parametrize(("image", "row", "column"), [(0, 4, 7), (1, 11, 2)])
def test_a_hover_lights_up_the_other_image(show, pair, vectors, image, row, column):
    opened = show(pair)
    hover(opened, image, row, column)
    other = 1 - image
    cell = row * GRIDS[image][1] + column
    units = vectors[image][4], vectors[other][4]
    cosines = units[1] @ units[0][cell]
    shown = np.array(opened.page.evaluate(f"attnviz.cosines(4, {image}, {cell})"))
    assert np.abs(shown - cosines).max() < WITHIN
    best = int(cosines.argmax())
    place = tuple(map(int, np.unravel_index(best, GRIDS[other])))
    mutual = int((units[0] @ units[1][best]).argmax()) == cell
    names = (NAME, "tall.png")
    expected = f"{names[image]} ({row}, {column}) → {names[other]} {place} · cosine "
    assert opened.text("#headline").startswith(expected)
    assert abs(float(opened.text("#headline")[len(expected) :][:5]) - cosines[best]) < 2e-3
    assert ("mutual nearest" in opened.text("#headline")) == mutual
    assert not heat(opened, image).any()
    alpha = heat(opened, other)[..., 3]
    assert alpha[place] == alpha.max() == round(0.85 * 255)
    level = (cosines - cosines.min()) / (cosines.max() - cosines.min())
    assert np.abs(alpha.ravel() / 255 - 0.85 * np.sqrt(level)).max() < 0.07
    assert opened.text("#highest li:first-child").split()[0:2] == [
        f"({place[0]},", f"{place[1]})"
    ]  # fmt: skip


def test_a_click_holds_and_the_link_brings_it_back(show, pair):
    opened = show(pair)
    opened.page.mouse.click(*centre(opened, 1, 5, 3))
    opened.settle()
    hover(opened, 0, 1, 1)
    assert opened.text("#headline").startswith("tall.png (5, 3) → ")
    state = opened.state()
    assert (state["image"], state["cell"], state["held"]) == (1, 53, True)
    opened.slide("layer", 2)
    opened.wait("location.hash.includes('layer=2')")
    fragment = opened.page.evaluate("location.hash.slice(1)")
    again = show(pair, fragment)
    assert again.state() == opened.state()
    assert again.text("#headline") == opened.text("#headline")
    opened.press("Escape")
    hover(opened, 0, 1, 1)
    assert opened.text("#headline").startswith(f"{NAME} (1, 1) → ")


def test_the_keyboard_moves_and_crosses(show, pair):
    opened = show(pair, "layer=4&image=0&patch=2.3&hold=1")
    opened.press("Shift+ArrowRight", "Shift+ArrowDown")
    assert opened.text("#headline").startswith(f"{NAME} (3, 4) → tall.png ")
    there = re.search(r"tall.png (\(\d+, \d+\))", opened.text("#headline"))[1]
    opened.press("o")
    assert opened.text("#headline").startswith(f"tall.png {there} → ")
    opened.press("[")
    assert opened.text("#headline").endswith("layer 3")
    assert "layer 3" in opened.text("#spoken")


def test_damaged_data_is_told(show, pair, tmp_path):
    text = pair.read_text(encoding="utf-8")
    data = blocks(pair)["layer-2"]
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace(data, data[:-40] + "A" * 40), encoding="utf-8")
    opened = show(broken)
    opened.slide("layer", 2)
    opened.wait("!document.getElementById('notice').hidden")
    assert "Layer 2 cannot be read" in opened.text("#notice")
    opened.slide("layer", 3)
    opened.wait("document.getElementById('notice').hidden")


def test_the_page_agrees_with_match(pair, vectors):
    model = attnviz.load_model("demo")
    first, second = (
        attnviz.prepare(pair.parent / name, model, size="original") for name in (NAME, "tall.png")
    )
    maps = attnviz.match(model, first, like=second, pairs="all")
    assert maps.layer == facts(pair)["start"]
    cosines = vectors[0][4] @ vectors[1][4].T
    np.testing.assert_allclose(maps.best.ravel(), cosines.max(axis=1), atol=1e-6)
    assert MatchRequest("b").part == "k"
