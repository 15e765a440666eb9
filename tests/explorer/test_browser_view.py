"""What is shown, and where: the query that stays, pins and heads, the scale, the window's fold."""

from __future__ import annotations

import numpy as np
import pytest

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

NEEDED = ("#save", "#link", "#reset", "#tokens", "#views", "#layer", "#heads", "#scales", "#cmap",
          "#kept", "#opacity", "#numbers", "#highest")  # fmt: skip


def captions(opened):
    """The first lines of the captions of the panels in view."""
    texts = opened.page.locator(".panel:visible figcaption").all_inner_texts()
    return [text.splitlines()[0] for text in texts]


def is_reachable(opened, selector):
    """Whether the middle of an element can be clicked without scrolling."""
    return opened.page.locator(selector).evaluate(
        """(node) => {
            const box = node.getBoundingClientRect();
            const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
            return box.bottom <= innerHeight && box.top >= 0 && node.contains(hit);
        }"""
    )


def test_the_last_patch_stays_until_another_is_chosen_or_escape(show, demo_page):
    opened = show(demo_page)
    before = opened.heat()
    opened.hover(4, 17)
    on_patch = opened.heat()
    assert (on_patch != before).any()
    box = opened.page.locator("#layer").bounding_box()
    for x, y in ((920, 400), (box["x"] + 9, box["y"] + 9)):  # beside the image, on the slider
        opened.page.mouse.move(x, y)
        opened.settle()
        assert (opened.heat() == on_patch).all()
        assert "outside the image" in opened.text("#numbers")
    opened.slide("layer", 3)
    assert opened.text("#headline").startswith("Row 4, column 17 · layer 3")
    opened.wait("location.hash.includes('query=4.17&')")
    opened.hover(1, 1)
    assert opened.text("#headline").startswith("Row 1, column 1")
    opened.page.mouse.move(2, 2)
    opened.slide("layer", 5)
    opened.press("Escape")
    assert opened.text("#headline").startswith("CLS · layer 5")
    assert (opened.heat() == before).all()


def test_a_finger_that_scrolls_the_page_chooses_nothing(show, demo_page):
    opened = show(demo_page, **PHONE)
    touch = opened.context.new_cdp_session(opened.page)
    x, y = opened.centre(5, 5)
    points = [{"x": x, "y": y}]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points})
    opened.settle()
    touch.send("Input.dispatchTouchEvent", {"type": "touchCancel", "touchPoints": []})
    opened.settle()
    assert opened.text("#headline").startswith("CLS")
    assert opened.state()["query"] == 0


@pytest.mark.parametrize("fragment", ["", "view=heads&pins=1.1"])
def test_all_that_is_needed_stands_above_the_fold(show, demo_page, fragment):
    opened = show(demo_page, fragment)
    assert opened.page.viewport_size == {"width": 1280, "height": 800}
    needed = NEEDED if not fragment else NEEDED[:-1]
    for selector in needed:
        box = opened.page.locator(selector).bounding_box()
        assert box["y"] + box["height"] <= 800, selector


def test_a_phone_keeps_the_layer_slider_within_reach(show, demo_page):
    opened = show(demo_page, "view=heads", **PHONE)
    for y in (0, 200, 10_000):
        opened.page.evaluate(f"scrollTo(0, {y})")
        opened.settle()
        assert is_reachable(opened, "#layer"), y
    # Nothing is hidden for good behind the bar at the bottom.
    assert is_reachable(opened, "details:last-child > summary")
    opened.slide("layer", 2)
    assert opened.state()["layer"] == 2


def test_the_scale_starts_at_zero_and_shows_where_uniform_lies(show, demo_page):
    opened = show(demo_page, "query=8.8&hold=1")
    patches = opened.attention(5, 1 + 8 * 18 + 8).mean(axis=0)[1:].reshape(12, 18)
    shown = opened.heat()[..., 3] / 255
    assert np.abs(shown - 0.85 * np.sqrt(patches / patches.max())).max() < 0.02
    assert shown.min() > 0.3  # an even map is nearly one colour, not structure
    assert opened.text("#low") == "0"
    tick = "parseFloat(document.getElementById('uniform').style.left)"
    assert opened.page.evaluate(tick) == pytest.approx(100 / 217 / patches.max(), rel=1e-4)
    assert opened.text("#scale-words") == "uniform 1/N = 0.0046"
    opened.page.get_by_label("Min\N{EN DASH}max").check()
    opened.settle()
    assert opened.heat()[..., 3].min() == 0
    share = (1 / 217 - patches.min()) / np.ptp(patches)
    assert opened.page.evaluate(tick) == pytest.approx(100 * share, rel=1e-3)


def test_a_pin_of_the_held_query_is_drawn_once(show, demo_page):
    opened = show(demo_page, "query=2.2&hold=1&pins=9.15_2.2")
    assert captions(opened) == ["1 · row 9, column 15", "2 · row 2, column 2"]
    assert opened.text("#headline").startswith("Row 2, column 2")
    assert opened.text("#numbers-of") == "2 · row 2, column 2"
    marks = [opened.page.locator(".frame").nth(i).locator(".marker:visible") for i in range(2)]
    assert [mark.all_inner_texts() for mark in marks] == [["1"], ["1", "2"]]
    alone = show(demo_page, "query=2.2&hold=1")
    assert (opened.heat(1) == alone.heat()).all()
    opened.press("Escape")
    assert captions(opened) == ["CLS", "1 · row 9, column 15", "2 · row 2, column 2"]


def test_all_heads_has_the_mean_and_the_maximum(show, demo_page):
    opened = show(demo_page, "view=heads&query=3.3&hold=1")
    assert captions(opened) == ["Mean", "Max", "Head 0", "Head 1", "Head 2", "Head 3"]
    rows = opened.attention(5, 1 + 3 * 18 + 3)[:, 1:]
    for panel, row in enumerate([rows.mean(axis=0), rows.max(axis=0), *rows]):
        shown = opened.heat(panel)[..., 3].ravel() / 255
        assert np.abs(shown - 0.85 * np.sqrt(row / row.max())).max() < 0.05, panel


def test_pins_show_in_all_heads_each_on_rows_of_its_own(show, demo_page):
    opened = show(demo_page, "view=heads&query=3.3&hold=1&pins=8.8_0.0")
    names = ["Mean", "Max", "Head 0", "Head 1", "Head 2", "Head 3"]
    pins = [f"{pin} · {name}" for pin in (1, 2) for name in names]
    assert captions(opened) == names + pins
    boxes = [opened.page.locator(".frame").nth(i).bounding_box() for i in range(18)]
    starts = [boxes[i] for i in (0, 6, 12)]
    assert len({box["x"] for box in starts}) == 1
    assert len({box["y"] for box in starts}) == 3
    alone = show(demo_page, "view=heads&query=8.8&hold=1")
    for panel in range(6):
        assert (opened.heat(6 + panel) == alone.heat(panel)).all(), panel
    opened.hover(5, 5, 8)
    assert opened.text("#numbers-of") == "1 · Head 0"
    # A pin is added without leaving the view, and the held query, once pinned, is not doubled.
    opened.press("p")
    assert opened.state()["view"] == "heads"
    assert captions(opened) == [f"{pin} · {name}" for pin in (1, 2, 3) for name in names]
