"""The page as a file, read without a browser."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
import zlib
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from attnviz.domain import Box, FitGeometry, Size
from attnviz.explorer import document
from attnviz.explorer import page as page_module
from attnviz.explorer import pair as pair_module
from attnviz.explorer.picture import data_address, seen
from tests.explorer.conftest import NAME
from tests.explorer.pages import attention_of_factors, blocks, facts, unpack
from tests.helpers.command_line import arrays
from tests.helpers.pictures import scene

ROOT = Path(__file__).resolve().parents[2]


class Elements(HTMLParser):
    """Every start tag with its attributes, and the text of the title."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.title = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "title" and not self.title:
            self.title = data


def parsed(file):
    elements = Elements()
    elements.feed(file.read_text(encoding="utf-8"))
    return elements


def attention_of(file, layer, row):
    """softmax(q k^T) of one token, (H, N), from nothing but the file."""
    page = facts(file)
    index = page["layers"].index(layer)
    tokens = len(page["prefix"]) + page["grid"][0] * page["grid"][1]
    shape = (page["ranks"][index], page["heads"], tokens)
    data = base64.b64decode(blocks(file)[f"layer-{layer}"])
    layer = unpack(data, shape, page["steps"][index])
    return attention_of_factors(layer, slice(row, row + 1))[:, 0]


def test_its_numbers_are_those_of_the_data_files(demo_page):
    saved = demo_page.parent / "saved"
    layers = arrays(saved / "saved.layers.npz")
    for layer in range(6):
        row = attention_of(demo_page, layer, 0)
        assert np.abs(row[:, 1:].reshape(4, 12, 18) - layers["attention"][layer]).max() < 2e-3
    patch = arrays(saved / "saved.patch.npz")
    for query, (r, c) in enumerate(patch["cells"]):
        row = attention_of(demo_page, 5, int(1 + r * 18 + c))
        assert np.abs(row[:, 1:].reshape(4, 12, 18) - patch["attention"][query]).max() < 2e-3
    rollout = arrays(saved / "saved.rollout.npz")
    rows = np.frombuffer(zlib.decompress(base64.b64decode(blocks(demo_page)["rollout"])), "<f4")
    assert np.abs(rows.reshape(6, -1)[-1, 1:].reshape(12, 18) - rollout["rollout"]).max() < 1e-6


def test_the_policy_names_exactly_what_stands_in_the_page(demo_page):
    text = demo_page.read_text(encoding="utf-8")
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    for rule, content in (("script-src", blocks(demo_page)["code"]), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert "http" not in policy
    assert text.index("Content-Security-Policy") < text.index("<style")


def test_nothing_is_loaded_from_elsewhere(demo_page):
    loading = {"src", "href", "srcset", "action", "data", "poster", "background"}
    for tag, attributes in parsed(demo_page).tags:
        for name in loading & attributes.keys():
            assert attributes[name].startswith("data:"), (tag, name)
        assert "style" not in attributes  # the policy would refuse it
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"https?://", re.sub(r'"address":"[^"]*"', "", blocks(demo_page)["code"]))


def test_a_hostile_name_stays_text(demo_page):
    elements = parsed(demo_page)
    assert "img" not in [tag for tag, _ in elements.tags]
    assert elements.title.startswith(NAME)
    assert facts(demo_page)["name"] == NAME
    assert json.loads(blocks(demo_page)["record"])["image"].endswith(NAME)


@pytest.mark.parametrize("name", ["</script><b>", "<!--<script>", "a\u202eb\x00.png", "\udcff.jpg"])
def test_no_name_ends_a_script_or_breaks_the_encoding(name):
    text = document.json_text({"name": document.readable(name)})
    assert "<" not in text
    assert json.loads(text)["name"].isprintable() or "\N{REPLACEMENT CHARACTER}" in text
    text.encode("utf-8")
    html.escape(document.readable(name)).encode("utf-8")


def test_it_says_how_it_was_made(demo_page):
    record = json.loads(blocks(demo_page)["record"])
    assert (record["command"], record["model"], record["grid"]) == ("explore", "demo", [12, 18])
    assert record["options"] == {"model": "demo", "fit": "aspect", "precision": "float32"}
    assert len(record["image_sha256"]) == 64


def test_tokens_are_called_by_their_kind(register_page, page_without_cls):
    assert facts(register_page)["prefix"] == ["CLS", "R1", "R2", "R3"]
    assert facts(register_page)["grid"] == [6, 4]
    assert facts(page_without_cls)["prefix"] == []
    assert facts(page_without_cls)["rollout"]["query"] == "mean"


def test_colour_maps_are_matplotlibs(demo_page):
    tables = facts(demo_page)["cmaps"]
    assert list(tables) == list(document.CMAPS)
    table = np.frombuffer(base64.b64decode(tables["viridis"]), np.uint8).reshape(256, 3)
    assert np.abs(table / 255 - colormaps["viridis"].colors).max() < 1 / 255


def test_every_source_is_in_the_package_and_every_script_in_the_page(demo_page):
    web = files("attnviz.explorer").joinpath("web")
    names = {item.name for item in web.iterdir()}
    scripts = {*page_module.SCRIPTS, *pair_module.SCRIPTS}
    assert names == {*scripts, "explore.css", "template.html", "pair.html"}
    code = blocks(demo_page)["code"]
    for name in page_module.SCRIPTS:
        assert web.joinpath(name).read_text(encoding="utf-8") in code


def test_the_same_input_gives_the_same_bytes(demo_page, tmp_path, monkeypatch):
    from tests.helpers.command_line import attnviz

    monkeypatch.chdir(demo_page.parent)
    again = tmp_path / "again.html"
    assert attnviz("explore", NAME, "--model", "demo", "-q", "-o", again) == 0
    assert again.read_bytes() == demo_page.read_bytes()


@pytest.mark.parametrize("image", ["cat.jpg", "astronaut.jpg", "flower.png"])
def test_the_pages_among_the_documents_are_what_the_code_writes(image, tmp_path, monkeypatch):
    """``make docs`` writes them again. Numbers may differ in their last digits from machine to
    machine."""
    from tests.helpers.command_line import attnviz

    monkeypatch.chdir(ROOT)
    fresh, kept = tmp_path / "page.html", ROOT / "docs" / "explorer" / f"{image[:-4]}.html"
    assert attnviz("explore", f"sample_images/{image}", "--model", "demo", "-q", "-o", fresh) == 0
    new, old = facts(fresh), facts(kept)
    for name in new.keys() - {"picture", "steps"}:
        assert new[name] == old[name], name
    assert blocks(fresh)["code"] == blocks(kept)["code"]
    style = re.compile(r"<style>(.*?)</style>", re.DOTALL)
    assert style.findall(fresh.read_text("utf-8")) == style.findall(kept.read_text("utf-8"))
    for layer, token in ((0, 0), (3, 90), (5, 140)):
        ours, theirs = (attention_of(page, layer, token) for page in (fresh, kept))
        assert np.abs(ours - theirs).max() < 1e-3


def geometry(region, original=(60, 90), model_input=(32, 48)):
    return FitGeometry(Size(*original), Size(*model_input), 8, Box(*region))


def test_the_picture_is_what_the_model_saw():
    pixels = scene(60, 90)
    whole = seen(pixels, geometry((0, 0, 60, 90)))
    assert np.array_equal(np.asarray(whole), pixels)
    part = seen(pixels, geometry((10, 20, 50, 80)))
    assert np.array_equal(np.asarray(part), pixels[10:50, 20:80])
    padded = np.asarray(seen(pixels, geometry((0, 0, 80, 120))))
    assert padded.shape == (80, 120, 3)
    assert (padded[60:] == 235).all()
    assert (padded[:, 90:] == 235).all()
    assert np.array_equal(padded[:60, :90], pixels)


def test_large_pictures_shrink_and_small_ones_are_lossless():
    large = seen(scene(1500, 3000), geometry((0, 0, 1500, 3000), (1500, 3000), (32, 64)))
    assert (large.height, large.width) == (512, 1024)
    assert data_address(large).startswith("data:image/jpeg;base64,")
    small = seen(scene(60, 90), geometry((0, 0, 60, 90)))
    kind, data = data_address(small).split(",")
    assert kind == "data:image/png;base64"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), scene(60, 90))
