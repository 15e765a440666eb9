"""The explorer page as the output of a notebook cell."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

import attnviz
from attnviz.errors import UsageError
from attnviz.explorer.page import SCRIPTS
from tests.helpers.planted import tiny_vit

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)


@pytest.fixture(scope="module")
def page():
    return attnviz.explore(tiny_vit(), PIXELS, layers=(0, -1), height=600)


def test_the_frame_carries_the_whole_page(page):
    cell = page._repr_html_()
    assert cell.isascii()
    (carried,) = re.findall(r'<iframe srcdoc="([^"]*)"', cell)
    assert html.unescape(carried).encode() == page.html
    assert 'height="600"' in cell
    assert 'sandbox="allow-scripts allow-downloads"' in cell
    assert b"https://" not in page.html.split(b"<body>")[0]
    assert repr(page).startswith("ExplorerPage(array, ")
    assert len(SCRIPTS) > 1


def test_the_page_is_that_of_the_command(page, tmp_path):
    written = page.save(tmp_path / "page.html")
    assert written.path.read_bytes() == page.html
    assert b'"layers":[0,2]' in page.html
    without = attnviz.explore(tiny_vit(), PIXELS, rollout=False)
    assert b'"rollout":null' in without.html


def test_wrong_use_is_refused(page, tmp_path):
    with pytest.raises(UsageError, match="does not end in"):
        page.save(tmp_path / "page.png")
    with pytest.raises(UsageError, match="layer 7 does not exist"):
        attnviz.explore(tiny_vit(), PIXELS, layers=(7,))


def test_it_works_in_a_frame_of_a_document_in_another_encoding(browser, page, tmp_path):
    path = tmp_path / "cell.html"
    path.write_text(f"<!doctype html><meta charset=latin-1>{page._repr_html_()}")
    tab = browser.new_page()
    problems = []
    tab.on("console", lambda message: problems.append(message.text))
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(path.as_uri())
    frame = tab.frames[1]
    frame.wait_for_selector("#panels canvas")
    frame.click("#panels", position={"x": 100, "y": 100})
    tab.wait_for_timeout(400)  # longer than the link waits for a pause
    assert frame.inner_text("#headline").startswith("Row ")
    assert frame.is_hidden("#link")
    with tab.expect_download() as download:
        frame.click("#save")
    assert download.value.suggested_filename == "array.attention.png"
    assert problems == []
    tab.close()


def test_it_survives_a_saved_notebook_and_nbconvert(browser, tmp_path):
    from nbconvert import HTMLExporter

    notebook = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "five_lines.ipynb"
    page, _ = HTMLExporter().from_filename(str(notebook))
    path = tmp_path / "five_lines.html"
    path.write_text(page, encoding="utf-8")
    tab = browser.new_page()
    tab.goto(path.as_uri(), wait_until="domcontentloaded")
    tab.locator("iframe").scroll_into_view_if_needed()
    frame = tab.frames[1]
    frame.wait_for_selector("#headline:has-text('CLS')")
    assert frame.inner_text("#name") == "cat.jpg"
    tab.close()
