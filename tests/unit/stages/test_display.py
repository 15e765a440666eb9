"""Maps that show, draw and save their own figure, and leave nothing behind."""

from __future__ import annotations

import base64
import gc
import io
import weakref
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import attnviz
from attnviz import figures
from attnviz.domain import DrawStyle
from attnviz.domain.kinds import KINDS, HeadsRequest
from attnviz.errors import UsageError
from attnviz.output.encode import page_image
from attnviz.output.read_record import read_record
from attnviz.stages import display
from attnviz.stages.display import PNG, SCREEN_DPI, SVG, TEXT
from tests.helpers.command_line import attnviz as command
from tests.helpers.planted import tiny_vit

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)


@pytest.fixture(scope="module")
def model():
    return tiny_vit()


@pytest.fixture(scope="module")
def maps(model):
    return attnviz.heads(model, PIXELS)


def shown(maps, **asked):
    """What a notebook gets of maps, without the metadata."""
    data, _ = maps._repr_mimebundle_(**asked)
    return data


def pixels_of(bundle):
    return np.asarray(Image.open(io.BytesIO(bundle[PNG])))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_shows_itself(kind, model):
    more = {"like": PIXELS[::-1].copy()} if kind in ("relevance", "match") else {}
    found = getattr(attnviz, kind)(model, PIXELS, **more).styled(width=4)
    bundle = shown(found)
    assert set(bundle) == {PNG, TEXT}
    assert bundle[TEXT].startswith(f"{type(found).__name__}(tiny, array: ")
    page = pixels_of(bundle)
    assert page.shape[1] == 4 * SCREEN_DPI
    assert page.std() > 20  # not an empty page
    _, metadata = found._repr_mimebundle_()
    assert metadata == {PNG: {"alt": f"{kind} of array, tiny"}}


def test_what_is_shown_is_the_figure_of_draw(model, maps):
    (figure,) = attnviz.draw(maps, attnviz.prepare(PIXELS, model), model)
    np.testing.assert_array_equal(
        pixels_of(shown(maps)), np.asarray(page_image(figure, SCREEN_DPI))
    )


def test_the_options_are_those_of_draw(model, maps):
    style = DrawStyle(cmap="viridis", scale="shared", width=3.35)
    (figure,) = attnviz.draw(maps, attnviz.prepare(PIXELS, model), model, style, threshold=0.5)
    expected = np.asarray(page_image(figure, SCREEN_DPI))
    options = {"cmap": "viridis", "scale": "shared", "width": "column", "threshold": 0.5}
    np.testing.assert_array_equal(pixels_of(shown(maps.styled(**options))), expected)
    drawn = np.asarray(page_image(maps.figure(**options), SCREEN_DPI))
    np.testing.assert_array_equal(drawn, expected)
    assert maps.source.style == DrawStyle()  # the maps themselves are as they were


def test_svg_is_drawn_on_request_alone(maps):
    bundle = shown(maps, include=[SVG])
    assert set(bundle) == {SVG}
    assert "Head 1" in bundle[SVG]
    assert set(shown(maps, exclude=[PNG])) == {TEXT}
    assert set(shown(maps, include=[TEXT])) == {TEXT}


def test_several_pages_are_one_below_the_other(model):
    found = attnviz.qkv(model, PIXELS, parts=("q", "k")).styled(width=3)
    pages = found.figures()
    assert len(pages) > 1
    images = [page_image(page, SCREEN_DPI) for page in pages]
    whole = pixels_of(shown(found))
    assert whole.shape[0] == sum(image.height for image in images)
    np.testing.assert_array_equal(whole[-images[-1].height :], np.asarray(images[-1]))
    root = ET.fromstring(shown(found, include=[SVG])[SVG])
    tops = [float(page.get("y")) for page in root]
    heights = [72 * page.get_size_inches()[1] for page in pages]
    np.testing.assert_allclose(tops, np.cumsum([0, *heights[:-1]]), atol=0.01)
    with pytest.raises(UsageError, match=f"has {len(pages)} pages"):
        found.figure()


@pytest.fixture
def drawn(monkeypatch):
    """Weak references to every figure that maps draw of themselves."""
    references = []

    def draw(*args, **options):
        pages = figures.draw(*args, **options)
        references.extend(map(weakref.ref, pages))
        return pages

    monkeypatch.setattr(display, "draw", draw)
    return references


def test_a_figure_that_was_shown_is_gone(maps, drawn):
    kept = maps.figure(width=2)
    for _ in range(3):
        shown(maps.styled(width=2))
    gc.collect()
    assert [reference() for reference in drawn] == [kept, None, None, None]


@pytest.mark.slow(reason="draws a hundred figures")
def test_a_hundred_shown_figures_leave_no_object(model):
    small, counts = attnviz.rollout(model, PIXELS).styled(width=2), []
    for cell in range(101):
        shown(small)
        if cell in (0, 100):
            gc.collect()
            counts.append(len(gc.get_objects()))
    assert counts[1] - counts[0] < 100


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg", "npz"])
def test_what_is_saved_says_how_it_was_made(suffix, maps, tmp_path):
    (written,) = maps.save(tmp_path / f"my.figure.{suffix}", threshold=0.6)
    assert written.path == tmp_path / f"my.figure.{suffix}"
    record = read_record(written.path)
    assert record["options"] == {
        "layer": -1, "query": "cls", "threshold": 0.6, "width": 7.0, "dpi": 200, "cmap": "inferno",
        "scale": "panel", "interpolation": "nearest", "alpha": 0.85,
    }  # fmt: skip
    assert (record["command"], record["image"], record["in_python"]) == ("heads", "array", True)


def test_the_saved_arrays_and_table_are_those_of_the_maps(maps, tmp_path):
    maps.save(str(tmp_path / "x.npz"))
    with np.load(tmp_path / "x.npz") as saved:
        np.testing.assert_array_equal(saved["attention"], maps.attention)
    maps.save(tmp_path / "x.csv")
    saved = pd.read_csv(tmp_path / "x.csv")
    pd.testing.assert_frame_equal(saved, maps.to_pandas(), rtol=1e-6)
    assert maps.table == list(maps.rows())
    assert [row["head"] for row in maps.table] == [0, 1]


def test_the_record_names_no_command(maps, tmp_path, capfd):
    maps.save(tmp_path / "x.png")
    assert command("info", str(tmp_path / "x.png")) == 0
    out, err = capfd.readouterr()
    assert "drawn by the Python interface" in err
    assert "\nattnviz heads" not in out


def test_further_pages_go_beside_the_first(model, tmp_path):
    found = attnviz.qkv(model, PIXELS, parts=("q", "k")).styled(width=3)
    written = found.save(tmp_path / "x.png", dpi=30)
    names = [file.path.name for file in written]
    assert names == ["x.png", *(f"x.{n}.png" for n in range(2, len(found.figures()) + 1))]
    assert len(found.save(tmp_path / "x.pdf", dpi=30)) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"treshold": 0.5}, "no option 'treshold'"),
        ({"norm": "log"}, "no option 'norm'"),
        ({"threshold": 2}, "threshold: 2 is out of range"),
        ({"cmap": "nope"}, "no colour map is called 'nope'"),
        ({"dpi": "many"}, "dpi: 'many' is not a value"),
        ({"width": [3]}, "width"),
        ({"scale": "fixed"}, "needs --limits"),
    ],
)
def test_wrong_options_are_refused(options, reason, maps):
    with pytest.raises(UsageError, match=reason):
        maps.styled(**options)


def test_options_without_an_effect_are_refused(model):
    with pytest.raises(UsageError, match="no option 'alpha'"):
        attnviz.score(model, PIXELS).styled(alpha=0.5)


def test_wrong_destinations_are_refused(model, maps, tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(PIXELS).save(path)
    with pytest.raises(UsageError, match="would overwrite the image"):
        attnviz.heads(model, path).save(path)
    with pytest.raises(UsageError, match="does not end in"):
        maps.save(tmp_path / "x.gif")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        maps.save(tmp_path / "folder.png")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder.png", "image.png"]


def test_maps_without_an_image_say_what_draws_them(maps):
    bare = type(maps)(*(getattr(maps, name) for name in (
        "attention", "prefix", "entropy", "distance", "layer", "heads"
    )))  # fmt: skip
    assert bare._repr_mimebundle_() is None
    with pytest.raises(UsageError, match="does not know its image") as caught:
        bare.figure()
    assert "attnviz.draw(maps, image, model)" in caught.value.hint


def test_a_hint_is_printed_with_the_error():
    error = UsageError("wrong", "do this")
    assert error.__notes__ == ["do this"]


def test_maps_of_several_images_are_in_their_order(model):
    other = PIXELS[:, :32].copy()
    images = [PIXELS, attnviz.prepare(other, model), PIXELS[::-1].copy(), other]
    found = attnviz.compute_maps(model, images, HeadsRequest(layer=1))
    for image, each in zip(images, found, strict=True):
        alone = attnviz.heads(model, image, layer=1)
        np.testing.assert_allclose(each.attention, alone.attention, rtol=0, atol=1e-6)
    names = [each.source.provenance.image for each in found]
    assert names == ["image 0", "array", "image 2", "image 3"]
    assert base64.b64encode(shown(found[0])[PNG])
    (named,) = attnviz.compute_maps(model, [PIXELS], "heads")
    assert type(named) is type(found[0])


@pytest.mark.parametrize("function", ["heads", "relevance", "explore", "prepare", "qkv"])
def test_a_bare_module_is_not_a_model(function, model):
    calls = {"prepare": (PIXELS, model.module)}
    with pytest.raises(UsageError, match="type VisionTransformer is not a loaded model") as caught:
        getattr(attnviz, function)(*calls.get(function, (model.module, PIXELS)))
    assert "attnviz.wrap(module)" in caught.value.hint


def test_the_image_may_be_a_path(model, tmp_path):
    path = Path(tmp_path / "scene.png")
    Image.fromarray(PIXELS).save(path)
    found = attnviz.heads(model, str(path))
    np.testing.assert_array_equal(found.attention, attnviz.heads(model, PIXELS).attention)
    assert "scene.png" in shown(found, include=[TEXT])[TEXT]
