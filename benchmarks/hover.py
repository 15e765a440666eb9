"""How long an explorer page takes to respond to a hover: ``python -m benchmarks.hover PAGE.html``.

Chromium opens the page and the mouse moves over patches all over the image, one move per frame.
Two times are measured in the page: of the drawing itself (attention of all heads, colours, numbers,
until the pixels are handed to the browser), and from the browser's own time stamp of the pointer
event to the end of that drawing, which includes the wait for the next frame.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
MOVES = 200

RECORD = """
() => {
  window.measured = { drawing: [], event: [] };
  let draws = attnviz.timing.draws;
  document.getElementById("panels").addEventListener("pointermove", (event) => {
    const look = () => {
      if (attnviz.timing.draws === draws) return;
      draws = attnviz.timing.draws;
      measured.drawing.push(attnviz.timing.milliseconds);
      measured.event.push(performance.now() - event.timeStamp);
    };
    // Requested after the page's own callback of the same frame.
    requestAnimationFrame(look);
  });
}
"""


def main() -> None:
    """Print the median, the 95th percentile and the largest of both times, in milliseconds."""
    page_file = Path(sys.argv[1]).resolve()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(page_file.as_uri() + "#" + "".join(sys.argv[2:]))
        while not page.evaluate("!!window.attnviz && attnviz.timing.draws > 0"):
            page.wait_for_timeout(50)
        page.evaluate(RECORD)
        box = page.locator(".frame").first.bounding_box()
        assert box is not None
        for move in range(MOVES):
            # Steps of the golden ratio come near every patch without a pattern.
            x, y = (move * 0.618034) % 1, (move * 0.754878) % 1
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            page.evaluate("() => new Promise(requestAnimationFrame)")
        tokens = page.evaluate("attnviz.facts.grid[0] * attnviz.facts.grid[1]")
        times = page.evaluate("measured")
        print(f"{tokens} patches, {len(times['drawing'])} moves, {browser.version}")
        browser.close()
    for name, values in times.items():
        values.sort()
        median, p95 = values[len(values) // 2], values[int(0.95 * len(values))]
        print(f"{name:8} median {median:.1f}  95 % {p95:.1f}  largest {values[-1]:.1f} ms")


if __name__ == "__main__":
    main()
