"""Explorer pages as tests make, read and use them."""

from __future__ import annotations

import contextlib
import json
import re
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.domain import LayerFactors
from attnviz.domain.requests import InputRequest, ModelRequest
from tests.helpers.command_line import attnviz

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.models.backbone import Backbone

SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)


def made_by_command(image: Path, *options: str, cells: tuple[str, str] = ("2,3", "11,17")) -> Path:
    """``page.html`` beside the image and, with --save-data, what the other commands save.

    cells: of ``patch``.
    """
    folder = image.parent
    page = folder / "page.html"
    with contextlib.chdir(folder):
        model = [option for option in options if option != "--save-data"]
        assert attnviz("explore", image.name, *model, "-q", "-o", page.name) == 0
        if "--save-data" in options:
            saved = ("--name", "saved", "--save-data", "--dpi", "30", "-q", "--out", "saved")
            for command in (
                ("layers",),
                ("rollout",),
                ("patch", "--at", cells[0], "--at", cells[1]),
            ):
                assert attnviz(*command, image.name, *model, *saved) == 0
    return page


def made_of(model: Backbone, image: Path) -> Path:
    """The page of an image under a model in memory, at the size of the image."""
    from attnviz.domain.events import Done
    from attnviz.domain.explorer import ExploreRequest
    from attnviz.runs.explore import explore

    page = image.with_name("page.html")
    inputs = InputRequest((str(image),), size="original")
    *_, last = explore(ExploreRequest(ModelRequest(), inputs, file=page), model)
    assert isinstance(last, Done), last
    return page


def blocks(page: Path) -> dict[str, str]:
    """The page's data by the identifiers of its script elements; code under ``code``."""
    result = {}
    for attributes, content in SCRIPT.findall(page.read_text(encoding="utf-8")):
        name = re.search(r'id="([^"]*)"', attributes)
        result[name[1] if name else "code"] = content
    return result


def facts(page: Path) -> dict[str, Any]:
    """What the page says of itself."""
    result: dict[str, Any] = json.loads(blocks(page)["facts"])
    return result


def unpack(data: bytes, shape: tuple[int, int, int], step: float) -> LayerFactors:
    """A layer from its block in a page; shape (R, H, N). The page's own code does the same."""
    low, high = np.frombuffer(zlib.decompress(data), np.uint8).reshape(2, 2, *shape).astype(int)
    folded = low + 256 * high
    query, key = np.where(folded % 2, -(folded + 1) // 2, folded // 2).astype(np.int16)
    return LayerFactors(query, key, step)


def attention_of_factors(layer: LayerFactors, rows: slice = slice(None)) -> NDArray[np.float64]:
    """softmax(q' k'^T) of some query tokens, (H, R, N), in float64."""
    query = (layer.query[:, :, rows] * layer.step).transpose(1, 2, 0)
    logits = query @ (layer.key * layer.step).transpose(1, 0, 2)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class Opened:
    """A page in the browser. ``requests``: what it asked for besides itself; ``problems``: errors
    on its console, and what it raised.
    """

    def __init__(self, browser: Any, file: Path, fragment: str, **context: Any) -> None:
        options = {"viewport": {"width": 1280, "height": 800}, **context}
        self.file = file
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.problems: list[str] = []
        address = file.as_uri()
        self.context.on("request", lambda request: self._asked(request.url, address))
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(f"{address}#{fragment}" if fragment else address)
        self.settle()

    def restart(self, fragment: str) -> None:
        """What a fresh page at this fragment would show; the mouse leaves, the focus too."""
        self.page.mouse.move(2, 2)
        self.page.evaluate(
            """(fragment) => {
                document.activeElement.blur();
                for (const node of document.querySelectorAll("main *")) node.scrollTop = 0;
                document.getElementById("spoken").textContent = "";
                attnviz.timing.draws = 0;
                history.replaceState(null, "", "#" + fragment);
                dispatchEvent(new HashChangeEvent("hashchange"));
            }""",
            fragment,
        )
        self.settle()

    def _asked(self, url: str, address: str) -> None:
        # Addresses of data and blobs are parts of the page.
        if url.split("#", maxsplit=1)[0] != address and not url.startswith(("data:", "blob:")):
            self.requests.append(url)

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(message.text)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.wait("window.attnviz && attnviz.timing.draws > 0")
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def wait(self, condition: str) -> None:
        """Wait for an expression to be true. Playwright's own way needs eval, which is refused."""
        end = time.monotonic() + 20
        while not self.page.evaluate(f"!!({condition})"):
            assert time.monotonic() < end, f"never: {condition}"
            self.page.wait_for_timeout(20)

    def state(self) -> dict[str, Any]:
        """What is looked at."""
        state: dict[str, Any] = self.page.evaluate("({ ...attnviz.state })")
        return state

    def text(self, selector: str) -> str:
        """The text of an element."""
        return str(self.page.locator(selector).inner_text()).replace("\N{NO-BREAK SPACE}", " ")

    def hover(self, row: int, column: int, panel: int = 0) -> None:
        """Move the mouse to the middle of a cell."""
        self.page.mouse.move(*self.centre(row, column, panel))
        self.settle()

    def centre(self, row: int, column: int, panel: int = 0) -> tuple[float, float]:
        """The middle of a cell in the window."""
        box = self.page.locator(".frame").nth(panel).bounding_box()
        rows, columns = self.page.evaluate("attnviz.facts.grid")
        return (
            box["x"] + box["width"] * (column + 0.5) / columns,
            box["y"] + box["height"] * (row + 0.5) / rows,
        )

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()

    def slide(self, identifier: str, value: int) -> None:
        """Put a slider to a value, as a user's drag does."""
        self.page.locator(f"#{identifier}").fill(str(value))
        self.settle()

    def attention(self, layer: int, token: int) -> NDArray[np.float64]:
        """(H, N) as the page computes it."""
        rows = self.page.evaluate(
            "async ([layer, token]) => (await attnviz.attention(layer, token))"
            ".map((row) => Array.from(row))",
            [layer, token],
        )
        return np.array(rows)

    def heat(self, panel: int = 0) -> NDArray[np.uint8]:
        """(gh, gw, 4): the colours over the image of a panel."""
        pixels = (
            self.page.locator(".frame canvas")
            .nth(panel)
            .evaluate(
                "(canvas) => Array.from(canvas.getContext('2d')"
                ".getImageData(0, 0, canvas.width, canvas.height).data)"
            )
        )
        rows, columns = self.page.evaluate("attnviz.facts.grid")
        return np.array(pixels, np.uint8).reshape(rows, columns, 4)

    def close(self) -> None:
        """Close it."""
        self.context.close()
