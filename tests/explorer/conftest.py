"""Pages to test, each made and opened once, and a browser to open them in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.explorer.pages import Opened, made_by_command, made_of
from tests.helpers.photos import save_scene

NAME = "<img src=x onerror=document.title='caught'>.png"
"""The name of an image that would run, were it ever taken for markup."""

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def demo_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an image of 96 x 144 with a hostile name under the demo model: 12 x 18 cells."""
    folder = tmp_path_factory.mktemp("demo")
    return made_by_command(save_scene(folder / NAME, 96, 144), "--model", "demo", "--save-data")


@pytest.fixture(scope="session")
def register_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A portrait image, 6 x 4 cells, under a model with CLS and three registers."""
    from tests.helpers.planted import tiny_vit

    folder = tmp_path_factory.mktemp("registers")
    return made_of(tiny_vit(registers=3, heads=3), save_scene(folder / "tall.png", 48, 32))


@pytest.fixture(scope="session")
def page_without_cls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A square image, 4 x 4 cells, under a model without prefix tokens."""
    from tests.helpers.planted import tiny_vit

    folder = tmp_path_factory.mktemp("nocls")
    return made_of(tiny_vit(cls=False), save_scene(folder / "square.png", 32, 32))


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Chromium, driven by Playwright. Without one: skipped, or failed where it is required."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _without("Playwright is not installed")
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        _without(f"no browser: none of {', '.join(CHROMIUM)} is on the PATH")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield opened
        opened.close()


def _without(reason: str) -> None:
    if os.environ.get("ATTNVIZ_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason}, and ATTNVIZ_REQUIRE_BROWSER=1 asks for it")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def open_pages() -> dict[Path, list[Opened]]:
    """Pages that stand open in the default window, for the next test."""
    return {}


@pytest.fixture
def show(browser, open_pages) -> Iterator[object]:
    """Show a page at a fragment; at the end it must have asked for nothing and raised nothing.

    Without ``context`` (what Playwright's new contexts take), pages stay open between tests.
    """
    shown: list[Opened] = []
    kept: list[Opened] = []

    def call(file: Path, fragment: str = "", **context: object) -> Opened:
        free = [] if context else open_pages.setdefault(file, [])
        if free:
            opened = free.pop()
            opened.restart(fragment)
        else:
            opened = Opened(browser, file, fragment, **context)
        shown.append(opened)
        if not context:
            kept.append(opened)
        return opened

    yield call
    for opened in shown:
        requests, problems = opened.requests, opened.problems
        if opened in kept and not requests and not problems:
            open_pages[opened.file].append(opened)
        else:
            opened.close()
        assert requests == []
        assert problems == []
