"""The page in a real browser, opened from its file."""

from __future__ import annotations

import io
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import numpy as np
import pytest
from PIL import Image

from attnviz.domain.mass_mask import mass_mask
from tests.explorer.conftest import NAME
from tests.helpers.command_line import arrays

WITHIN = 2e-3


def test_a_hover_shows_what_the_patch_attends_to(show, demo_page):
    opened = show(demo_page)
    assert opened.text("#headline").startswith("CLS · layer 5 · mean of heads · H ")
    before = opened.heat()
    opened.hover(4, 7)
    assert (opened.heat() != before).any()
    row = opened.attention(5, 1 + 4 * 18 + 7).mean(axis=0)
    entropy = -(row * np.log(row)).sum()
    expected = f"Row 4, column 7 · layer 5 · mean of heads · H {entropy:.2f}"
    assert opened.text("#headline") == expected
    patches = row[1:].reshape(12, 18)
    # Opacity is the root of the level, so the brightest cell is the most attended one.
    heat = opened.heat()[..., 3]
    assert heat[np.unravel_index(patches.argmax(), patches.shape)] == round(0.85 * 255)
    level = patches / patches.max()
    assert np.abs(heat / 255 - 0.85 * np.sqrt(level)).max() < 0.07
    cell = patches[4, 7]
    assert f"row 4, column 7: {cell:#.4g}" in opened.text("#numbers")


def test_numbers_are_those_of_the_data_files(show, demo_page):
    opened = show(demo_page)
    saved = demo_page.parent / "saved"
    layers = arrays(saved / "saved.layers.npz")
    for layer in range(6):
        row = opened.attention(layer, 0)
        assert np.abs(row[:, 1:].reshape(4, 12, 18) - layers["attention"][layer]).max() < WITHIN
        assert np.abs(row[:, :1] - layers["prefix"][layer]).max() < WITHIN
        entropy = -(row * np.log(row)).sum(axis=-1)
        assert np.abs(entropy - layers["entropy"][layer]).max() < WITHIN
    patch = arrays(saved / "saved.patch.npz")
    for query, (r, c) in enumerate(patch["cells"]):
        row = opened.attention(5, int(1 + r * 18 + c))
        assert np.abs(row[:, 1:].reshape(4, 12, 18) - patch["attention"][query]).max() < WITHIN
    rollout = arrays(saved / "saved.rollout.npz")
    rows = np.array(opened.page.evaluate("attnviz.rollout().then((rows) => Array.from(rows))"))
    last = rows.reshape(6, -1)[-1]
    assert np.abs(last[1:].reshape(12, 18) - rollout["rollout"]).max() < 1e-6


def test_the_numbers_at_the_side_are_those_of_the_row(show, demo_page):
    opened = show(demo_page, "query=2.3&hold=1&layer=5&head=1")
    row = opened.attention(5, 1 + 2 * 18 + 3)[1]
    numbers = opened.text("#numbers")
    entropy = -(row * np.log(row)).sum()
    assert f"{entropy:.2f} nats, {100 * entropy / np.log(217):.0f} % of ln N" in numbers
    best = np.argsort(-row[1:], kind="stable")[:5]
    cells = [f"row {i // 18}, column {i % 18}" for i in best]
    assert [line for line in opened.text("#highest").splitlines() if "row" in line] == cells
    assert f"{row[1:].max() / row[1:].mean():#.4g} \N{MULTIPLICATION SIGN} mean" in numbers
    values = [line for line in opened.text("#highest").splitlines() if line and "row" not in line]
    assert values == [f"{row[1 + i]:#.4g}" for i in best]


def test_keys_choose_layer_head_view_and_query(show, demo_page):
    opened = show(demo_page)
    opened.press("ArrowDown", "ArrowDown", "ArrowUp")
    assert opened.state()["layer"] == 4
    opened.press("ArrowUp", "ArrowUp")  # there is no layer 6
    assert opened.state()["layer"] == 5
    opened.press("ArrowRight", "ArrowRight")
    assert opened.state()["head"] == 0
    for key, head in (("3", 3), ("7", 3), ("m", "mean"), ("x", "max")):
        opened.press(key)
        assert opened.state()["head"] == head, key
    opened.press("a")
    assert opened.page.locator(".panel:visible").count() == 6
    assert "Head 3" in opened.text(".panel:nth-child(6)")
    opened.press("o")
    assert opened.text("#headline").startswith("Rollout up to layer 5 · H ")
    opened.press("o")
    opened.page.locator("#panels").focus()
    opened.press("ArrowRight", "ArrowRight", "ArrowDown")  # from CLS to the centre, and on
    assert opened.text("#headline").startswith("Row 7, column 10")
    assert "Row 7, column 10" in opened.text("#spoken")
    opened.press("p", "Escape")
    assert opened.state()["pins"] == [1 + 7 * 18 + 10]
    assert not opened.state()["held"]


def test_every_control_is_reached_by_tab_and_has_a_name(show, demo_page):
    opened = show(demo_page, "pins=1.1")
    seen = set()
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        name = opened.page.evaluate(
            "(() => { const e = document.activeElement;"
            " return e === document.body ? '' : e.id || e.name || e.textContent; })()"
        )
        seen.add(name)
        named = opened.page.evaluate(
            "(() => { const e = document.activeElement; return e === document.body"
            " || !!(e.ariaLabel || e.textContent.trim() || e.labels?.length); })()"
        )
        assert named, name
    assert {"panels", "lock", "pin", "views", "layer", "heads", "kept", "opacity", "scales",
            "cmap", "save", "link", "reset", "CLS"} <= seen  # fmt: skip


def test_the_slider_keeps_the_cells_that_hold_the_mass(show, demo_page):
    opened = show(demo_page, "query=6.6&hold=1&head=2")
    opened.slide("kept", 60)
    row = opened.attention(5, 1 + 6 * 18 + 6)[2]
    patches = row[1:].astype(np.float32).reshape(12, 18)
    kept = mass_mask(patches, 0.6)
    dimmed = (opened.heat()[..., :3].max(axis=-1) < 30) & (opened.heat()[..., 3] == 168)
    assert (dimmed == ~kept).all()
    mass = patches[kept].sum() / patches.sum()
    assert f"{kept.sum()} of 216 cells hold {100 * mass:.0f} %" in opened.text("#numbers")
    opened.slide("kept", 100)
    assert "all 216 cells" in opened.text("#numbers")


def test_the_shared_scale_starts_at_zero_and_holds_all_heads(show, demo_page):
    opened = show(demo_page, "view=heads&scale=shared&query=3.3&hold=1")
    rows = opened.attention(5, 1 + 3 * 18 + 3)[:, 1:]
    assert opened.text("#low") == "0"
    assert float(opened.text("#high")) == pytest.approx(rows.max(), rel=1e-3)
    heat = opened.heat(2)[..., 3] / 255
    assert np.abs(heat.ravel() - 0.85 * np.sqrt(rows[0] / rows.max())).max() < 0.05


def test_colours_and_opacity_change_the_overlay(show, demo_page):
    opened = show(demo_page, "query=3.3&hold=1")
    before = opened.heat()
    opened.page.locator("#cmap").select_option("viridis")
    opened.settle()
    assert (opened.heat()[..., :3] != before[..., :3]).any()
    opened.slide("opacity", 0)
    assert (opened.heat()[..., 3] == 0).all()


def test_pins_stand_side_by_side(show, demo_page):
    opened = show(demo_page)
    for cell in ((2, 2), (9, 15)):
        opened.page.mouse.click(*opened.centre(*cell))
        opened.settle()
        opened.press("p", "Escape")
    opened.hover(5, 5)
    captions = opened.page.locator(".panel:visible figcaption").all_inner_texts()
    assert [text.splitlines()[0] for text in captions] == [
        "row 5, column 5",
        "1 · row 2, column 2",
        "2 · row 9, column 15",
    ]
    alone = show(demo_page, "query=9.15&hold=1")
    assert (opened.heat(2) == alone.heat()).all()
    opened.page.get_by_role("button", name="unpin row 2, column 2").click()
    opened.settle()
    assert opened.state()["pins"] == [1 + 9 * 18 + 15]
    assert (opened.heat(1) == alone.heat()).all()


def test_a_click_holds_the_query_and_a_second_lets_it_go(show, demo_page):
    opened = show(demo_page)
    opened.page.mouse.click(*opened.centre(2, 9))
    opened.hover(8, 8)
    assert opened.text("#headline").startswith("Row 2, column 9")
    assert "row 8, column 8: " in opened.text("#numbers")
    opened.page.mouse.click(*opened.centre(2, 9))
    opened.hover(8, 8)
    assert opened.text("#headline").startswith("Row 8, column 8")


def test_the_link_restores_the_view(show, demo_page):
    first = show(demo_page)
    first.page.mouse.click(*first.centre(3, 4))
    first.press("p", "2", "ArrowDown")
    first.slide("kept", 70)
    first.slide("opacity", 60)
    first.page.locator("#cmap").select_option("cividis")
    first.page.get_by_label("Shared").check()
    first.page.mouse.move(5, 5)
    first.settle()
    first.wait("location.hash.includes('shared')")
    fragment = first.page.evaluate("location.hash.slice(1)")
    assert parse_qs(fragment)["pins"] == ["3.4"]
    second = show(demo_page, fragment)
    assert second.state() == first.state()
    assert (second.heat() == first.heat()).all()
    assert second.text("#numbers") == first.text("#numbers")
    # Going back to another link in the same page follows too.
    second.page.evaluate("location.hash = '#view=heads&layer=0'")
    second.wait("document.querySelectorAll('.panel:not([hidden])').length === 6")


def test_a_fragment_that_makes_no_sense_is_the_start(show, demo_page):
    wild = (
        "view=x&layer=99&head=44&query=99.99&kept=-3&colours=constructor&pins=a_9999.0_&opacity=1e9"
    )
    opened = show(demo_page, wild)
    assert opened.state() == show(demo_page).state()


def test_the_view_is_saved_as_a_png(show, demo_page):
    opened = show(demo_page, "view=heads&query=3.3&hold=1")
    with opened.page.expect_download() as waiting:
        opened.page.locator("#save").click()
    download = waiting.value
    assert download.suggested_filename.endswith(".attention.png")
    assert "<" not in download.suggested_filename
    with Image.open(download.path()) as image:
        assert image.format == "PNG"
        pixels = np.asarray(image.convert("RGB"))
    # Six panels of an image 3 : 2, so wider than high, and not blank.
    assert pixels.shape[1] > 3 * 400
    colours = pixels.astype(int) @ [1 << 16, 1 << 8, 1]
    assert len(np.unique(colours)) > 1000


def test_panels_keep_the_shape_of_the_image(show, demo_page, register_page):
    for page, aspect in ((demo_page, 144 / 96), (register_page, 32 / 48)):
        for fragment in ("", "view=heads"):
            box = show(page, fragment).page.locator(".frame").first.bounding_box()
            assert box["width"] / box["height"] == pytest.approx(aspect, rel=0.02)


def test_registers_are_queries_and_no_patches(show, register_page):
    opened = show(register_page)
    assert opened.page.locator("#tokens button").all_inner_texts() == ["CLS", "R1", "R2", "R3"]
    opened.page.get_by_role("button", name="R2").click()
    opened.settle()
    assert opened.text("#headline").startswith("R2 · layer 2")
    row = opened.attention(2, 2).mean(axis=0)
    assert row.sum() == pytest.approx(1)
    assert len(row) == 4 + 24
    patches = row[4:].reshape(6, 4)
    heat = opened.heat()
    assert heat.shape == (6, 4, 4)
    assert heat[..., 3].argmax() == patches.argmax()
    opened.hover(5, 3)
    assert "row 5, column 3: " in opened.text("#numbers")
    assert opened.page.locator("#numbers").inner_text().count("R3") == 1
    restored = show(register_page, "query=r3&hold=1")
    assert restored.text("#headline").startswith("R3")


def test_a_model_without_cls_starts_at_the_centre(show, page_without_cls):
    opened = show(page_without_cls)
    assert opened.text("#headline").startswith("Row 2, column 2")
    assert not opened.page.locator("#tokens").is_visible()
    assert "Prefix" not in opened.text("#numbers")
    opened.press("c")
    assert opened.text("#headline").startswith("Row 2, column 2")
    opened.press("o")
    assert "mean over patches" in opened.text("#hint")
    rows = np.array(opened.page.evaluate("attnviz.rollout().then((rows) => Array.from(rows))"))
    assert np.allclose(rows.reshape(3, 16).sum(axis=1), 1, atol=1e-5)


def test_a_hostile_name_is_only_text(show, demo_page):
    opened = show(demo_page)
    assert opened.text("h1") == NAME
    assert opened.page.title().startswith(NAME)
    assert opened.page.locator("main img").count() == opened.page.locator(".panel").count()
    opened.press("o", "a")
    assert opened.page.title() != "caught"


def test_the_policy_refuses_network_and_foreign_code(show, demo_page):
    with listening() as (address, hits):
        opened = show(demo_page, viewport={"width": 800, "height": 600})
        refused = opened.page.evaluate(
            """async (address) => {
                const seen = [];
                document.addEventListener("securitypolicyviolation", (event) =>
                    seen.push(event.effectiveDirective));
                await fetch(address).catch(() => {});
                new Image().src = address + "x.png";
                navigator.sendBeacon(address);
                const code = document.createElement("script");
                code.textContent = "document.title = 'caught'";
                document.body.append(code);
                document.body.setAttribute("style", "color: red");
                await new Promise((done) => setTimeout(done, 300));
                return seen;
            }""",
            address,
        )
        assert {"connect-src", "img-src", "script-src-elem", "style-src-attr"} <= set(refused)
        assert opened.page.title() != "caught"
        assert hits == []
        with urllib.request.urlopen(address):
            assert hits == ["/"]  # it would have been seen
    # The browser tells of each refusal, and of requests that it did not let out.
    assert opened.problems
    opened.problems.clear()
    opened.requests.clear()


@contextmanager
def listening():
    """A server of this machine: its address, and the paths that it was asked for."""
    hits = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            hits.append(self.path)
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", hits
        finally:
            server.shutdown()
            thread.join()


def test_a_finger_chooses_the_patch_that_it_came_down_on(show, demo_page):
    """A finger stays for some frames, in which the page already shows what it points at."""
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    opened = show(demo_page, **phone)
    (x, y), before = opened.centre(8, 12), opened.centre(0, 0)
    touch = opened.context.new_cdp_session(opened.page)
    points = [{"x": x, "y": y}]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points})
    opened.settle()
    assert opened.text("#headline").startswith("Row 8, column 12")
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    opened.wait("attnviz.state.held")
    opened.settle()
    assert opened.text("#headline").startswith("Row 8, column 12")
    assert opened.centre(0, 0) == before
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(show, demo_page, scheme):
    opened = show(demo_page, "query=1.1&hold=1", color_scheme=scheme)
    ratios = opened.page.evaluate("""() => {
        const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const light = (rgb) => rgb.map((c) => c / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const ground = (node) => {
            for (; node; node = node.parentElement) {
                const colour = getComputedStyle(node).backgroundColor;
                if (!/, 0\\)$|transparent/.test(colour)) return parse(colour);
            }
        };
        const pairs = {};
        for (const selector of ["h1", "#model", "#headline", "#hint", "h2", "dt", "dd", "#lock",
                                "#pin", "#views label:first-child", "summary", "#low"]) {
            const node = document.querySelector(selector);
            const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))];
            pairs[selector] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        }
        return pairs;
    }""")
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}
    image = Image.open(
        io.BytesIO(opened.page.screenshot(clip={"x": 0, "y": 0, "width": 400, "height": 20}))
    )
    assert (np.asarray(image.convert("L")).mean() > 128) == (scheme == "light")


def test_a_hover_is_drawn_within_a_frame(show, demo_page):
    """Small here; docs/explorer.md has the time at 3,601 tokens."""
    opened = show(demo_page)
    times = []
    for step in range(30):
        opened.hover(step % 12, (5 * step) % 18)
        times.append(opened.page.evaluate("attnviz.timing.milliseconds"))
    assert sorted(times)[len(times) // 2] < 16
