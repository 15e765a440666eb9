"""The page in people's hands: mouse, keys, finger, screen reader, and a file that is damaged."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from tests.explorer.pages import made_of
from tests.helpers.photos import save_scene

PHONE = {"viewport": {"width": 375, "height": 667}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def narrow_page(tmp_path_factory):
    """An image eight times as high as wide: 16 x 2 cells."""
    from tests.helpers.planted import tiny_vit

    folder = tmp_path_factory.mktemp("narrow")
    return made_of(tiny_vit(), save_scene(folder / "narrow.png", 128, 16))


def focused(opened):
    """The identifier or the text of what has the focus."""
    return opened.page.evaluate(
        "(() => { const e = document.activeElement;"
        " return e === document.body ? 'body' : e.id || e.textContent; })()"
    )


def test_the_numbers_are_of_the_panel_under_the_pointer(show, demo_page):
    token = 1 + 4 * 18 + 5
    opened = show(demo_page, "view=heads&query=4.5&hold=1")
    rows = opened.attention(5, token)
    assert opened.text("#numbers-of") == "Mean"
    for panel, row in enumerate([rows.mean(axis=0), rows.max(axis=0), *rows]):
        opened.hover(7, 7, panel)
        assert f"row 7, column 7: {row[1 + 7 * 18 + 7]:#.4g}" in opened.text("#numbers"), panel
        entropy = f"{-(row * np.log(row)).sum():.2f} nats" if panel != 1 else "none: a maximum"
        assert entropy in opened.text("#numbers")
    assert opened.text("#numbers-of") == "Head 3"
    pins = show(demo_page, "query=1.1&hold=1&pins=8.8")
    pins.hover(7, 7, 1)
    row = pins.attention(5, 1 + 8 * 18 + 8).mean(axis=0)
    assert f"row 7, column 7: {row[1 + 7 * 18 + 7]:#.4g}" in pins.text("#numbers")
    assert pins.text("#numbers-of") == "1 · row 8, column 8"


def test_captions_say_where_the_colours_of_each_map_begin_and_end(show, demo_page):
    opened = show(demo_page, "view=heads&scale=panel&query=4.5&hold=1")
    for head, row in enumerate(opened.attention(5, 1 + 4 * 18 + 5)):
        low, high = row[1:].min(), row[1:].max()
        caption = opened.text(f".panel:nth-child({head + 3}) figcaption")
        ends = caption.rsplit(" · ", 1)[1].split("\N{EN DASH}")
        assert [float(value) for value in ends] == pytest.approx([low, high], rel=0.06), head


def test_keys_act_on_the_patch_under_the_pointer(show, demo_page):
    opened = show(demo_page)
    opened.hover(4, 5)
    assert opened.page.get_by_role("button", name="CLS").get_attribute("aria-pressed") == "false"
    opened.press("p")
    assert opened.state()["pins"] == [1 + 4 * 18 + 5]
    assert opened.text("#pin") == "Unpin"
    opened.press("p")
    assert opened.state()["pins"] == []
    opened.hover(2, 2)
    opened.press("Shift+ArrowRight")
    assert opened.text("#headline").startswith("Row 2, column 3")


def test_arrow_keys_mean_layer_and_head_after_any_click(show, demo_page):
    opened = show(demo_page)
    for name in ("2", "One map"):
        opened.page.locator("label", has_text=name).first.click()
        opened.press("ArrowDown", "ArrowRight", "ArrowLeft")
        assert opened.state()["head"] == 2, name
    assert opened.state()["layer"] == 3
    opened.page.mouse.click(*opened.centre(2, 9))
    opened.press("ArrowUp", "ArrowLeft")
    state = opened.state()
    assert (state["layer"], state["head"], state["query"]) == (4, 1, 1 + 2 * 18 + 9)
    opened.page.locator("#panels").focus()
    opened.press("[", "[", "ArrowDown")
    state = opened.state()
    assert (state["layer"], state["query"]) == (2, 1 + 3 * 18 + 9)


def test_a_choice_at_the_side_holds_and_never_lets_go(show, demo_page):
    opened = show(demo_page)
    for _ in range(2):
        opened.page.locator(".cell").first.click()
        opened.settle()
        assert opened.state()["held"]
        opened.page.get_by_role("button", name="CLS").click()
        opened.settle()
        assert (opened.state()["query"], opened.state()["held"]) == (0, True)
    opened.page.locator("#reset").click()
    opened.settle()
    assert opened.state() == show(demo_page).state()


@pytest.mark.parametrize("fragment", ["", "pins=1.1", "view=heads"])
def test_an_image_of_any_shape_fits_the_window(show, narrow_page, fragment):
    opened = show(narrow_page, fragment)
    box = opened.page.locator(".frame").first.bounding_box()
    assert box["width"] / box["height"] == pytest.approx(1 / 8, rel=0.05)
    assert box["y"] + box["height"] <= 800


def test_the_image_stays_in_sight_while_its_controls_are_used(show, demo_page):
    pins = "_".join(f"{k}.{k}" for k in range(11))
    for fragment, context in ((f"pins={pins}", {}), ("", PHONE)):
        opened = show(demo_page, fragment, **context)
        opened.page.get_by_text("How this page was made").scroll_into_view_if_needed()
        opened.settle()
        box = opened.page.locator(".frame").first.bounding_box()
        height = opened.page.viewport_size["height"]
        assert 0 <= box["y"] <= box["y"] + box["height"] <= height


def test_no_more_pins_than_fit(show, demo_page):
    pins = "_".join(f"{k}.{k}" for k in range(11))
    opened = show(demo_page, f"pins={pins}")
    assert opened.page.locator("#pin").is_disabled()
    assert "the maximum" in opened.text("#hint")
    opened.press("p")
    assert len(opened.state()["pins"]) == 11
    opened.hover(3, 3)
    assert opened.page.locator("#pin").is_enabled()
    assert opened.text("#pin") == "Unpin"


def test_the_focus_stays_among_the_pins(show, demo_page):
    opened = show(demo_page, "pins=1.1_2.2")
    opened.page.get_by_role("button", name="unpin row 1, column 1").focus()
    opened.press("m")
    assert focused(opened).startswith("1 · (1, 1)")
    opened.press("Enter")
    assert focused(opened).startswith("1 · (2, 2)")
    opened.press("Enter")
    assert focused(opened) == "pin"


def test_a_screen_reader_announces_what_is_shown_now(show, demo_page):
    opened = show(demo_page)
    for _ in range(5):
        opened.press("ArrowDown")
        opened.wait("document.getElementById('spoken').textContent.length > 0")
        layer = opened.state()["layer"]
        opened.wait(f"document.getElementById('headline').textContent.includes('layer {layer}')")
        opened.settle()
        assert opened.text("#spoken") == f"{opened.text('#headline')}."
    opened.page.get_by_label("Max", exact=True).check()
    opened.settle()
    assert "maximum of heads" in opened.text("#spoken")
    opened.slide("kept", 100)
    assert opened.page.locator("#kept").get_attribute("aria-valuetext") == "all"
    assert opened.page.locator(".frame").first.get_attribute("aria-label") == opened.text(
        "#headline"
    )
    silent = opened.text("#spoken")
    opened.hover(3, 3)
    assert opened.text("#spoken") == silent


def test_what_is_chosen_shows_in_forced_colours(show, demo_page):
    opened = show(demo_page, "hold=1", forced_colors="active")
    colour = "(node) => getComputedStyle(node).backgroundColor"
    for chosen, other in (
        ("#lock", "#pin"),
        ("#views label:first-child", "#views label:last-child"),
    ):
        first, second = (opened.page.locator(each).evaluate(colour) for each in (chosen, other))
        assert first != second


def test_a_finger_dragged_over_the_image_leaves_the_query_where_it_is_lifted(show, demo_page):
    opened = show(demo_page, **PHONE)
    touch = opened.context.new_cdp_session(opened.page)
    for kind, cell in (("touchStart", (5, 2)), ("touchMove", (5, 6)), ("touchMove", (5, 9))):
        x, y = opened.centre(*cell)
        points = [{"x": x, "y": y}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        opened.settle()
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    opened.settle()
    state = opened.state()
    assert (state["query"], state["held"]) == (1 + 5 * 18 + 9, True)


def test_the_saved_figure_says_what_it_shows(show, demo_page):
    """Pins numbered, the colour bar, and at the foot all that decides how it looks."""
    sizes = []
    for fragment in ("kept=100", "kept=60", "pins=2.2"):
        opened = show(demo_page, f"query=6.6&hold=1&{fragment}")
        data = opened.page.evaluate("attnviz.figure()").removeprefix("data:image/png;base64,")
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            pixels = np.asarray(image.convert("RGB")).astype(int)
        sizes.append(pixels.shape)
        below = 17 + round(480 * 96 / 144)
        # The bright end of the colour bar.
        foot = pixels[below:].reshape(-1, 3)
        assert (np.abs(foot - (252, 255, 164)).max(axis=1) < 12).any()
    # A line more tells of the mass.
    assert sizes[1][0] > sizes[0][0]
    # The number of the pin: white with a black rim, inside the outline of row 2, column 2.
    side = 480 / 18
    top, left = (round(17 + 2 * side) + 5 for _ in range(2))
    inside = pixels[top : top + round(side) - 10, left : left + round(side) - 10].reshape(-1, 3)
    assert inside.min(axis=1).max() > 250
    assert inside.max(axis=1).min() < 5


def test_without_javascript_the_page_says_why_it_is_empty(browser, demo_page):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(demo_page.as_uri())
    assert "JavaScript is switched off" in page.locator("#notice").inner_text()
    assert not page.locator("main").is_visible()
    context.close()


def test_a_page_that_ends_early_says_so(browser, demo_page, tmp_path):
    text = demo_page.read_text(encoding="utf-8")
    cut = tmp_path / "cut.html"
    cut.write_text(text[: int(0.6 * len(text))], encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(cut.as_uri())
    assert "the file is incomplete" in page.locator("#notice").inner_text()
    assert not page.locator("main").is_visible()
    context.close()


def test_a_damaged_layer_is_named_and_the_others_go_on(show, demo_page, tmp_path):
    text = demo_page.read_text(encoding="utf-8")
    start = text.index('id="layer-3">') + len('id="layer-3">')
    broken = tmp_path / "broken.html"
    broken.write_text(
        text[: start + 400] + text[text.index("</script>", start) :], encoding="utf-8"
    )
    opened = show(broken, "layer=4")
    opened.press("ArrowDown")
    opened.wait("!document.getElementById('notice').hidden")
    assert opened.text("#notice").startswith("Layer 3 cannot be read")
    assert opened.text("#headline") == "Layer 3 cannot be read"
    assert opened.page.locator("#panels.stale").count() == 1
    opened.press("ArrowDown")
    opened.wait("document.getElementById('notice').hidden")
    opened.settle()
    assert opened.text("#headline").startswith("CLS · layer 2")
    assert opened.page.locator("#panels.stale").count() == 0
