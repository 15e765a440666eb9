"""What holds for all tests together: what is slow, what is shared, what nobody leaves behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Test processes side by side share the cores; torch reads this when it is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    assert "torch" not in sys.modules
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from attnviz.engines import draw_pool
from tests.helpers.command_line import files_below
from tests.helpers.warm import WarmServer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts its background jobs so, and programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW_FIXTURES = {
    "browser": "drives a browser",
    "cluster": "starts a Ray cluster",
}
"""What makes every test that uses it one for ``make test-all``."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what a fixture makes slow; a mark without its reason is an error."""
    for item in items:
        for fixture in SLOW_FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow(reason=SLOW_FIXTURES[fixture]))
        for mark in item.iter_markers("slow"):
            if not mark.kwargs.get("reason"):
                raise pytest.UsageError(f"{item.nodeid}: slow needs a reason")


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(pytestconfig: pytest.Config) -> Iterator[None]:
    """No test writes to the folder that commands write to when nobody says where."""
    folder = Path(pytestconfig.rootpath) / "attnviz-out"
    before = files_below(folder)
    yield
    assert files_below(folder) == before


@pytest.fixture(autouse=True)
def _drawn_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody asks for drawing processes there are none: a run starts them anew.

    Processes of their own (the servers below) are not touched by this.
    """
    monkeypatch.setattr(draw_pool, "default_workers", lambda _images: 0)
    monkeypatch.setattr(draw_pool, "make_ready", lambda: None)


@pytest.fixture(scope="session")
def light_server() -> Iterator[WarmServer]:
    """Starts processes that have imported the command line, and nothing heavy."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    server = WarmServer("import attnviz.__main__, attnviz.cli.app, typer.rich_utils")
    yield server
    server.close()


@pytest.fixture(scope="session")
def torch_server(light_server: WarmServer) -> Iterator[WarmServer]:
    """Starts processes that have imported torch, but neither timm, matplotlib nor the hub.

    For tests of variables that those read when they are imported.
    """
    server = light_server.fork("import torch")
    yield server
    server.close()


@pytest.fixture(scope="session")
def warm_server(torch_server: WarmServer) -> Iterator[WarmServer]:
    """Starts processes that have imported all that a run needs, as the command line imports it."""
    server = torch_server.fork(
        "from attnviz.domain.process import claim_process\n"
        "claim_process()\n"
        "import attnviz.engines.local, attnviz.figures.heads, attnviz.models.load\n"
        "import attnviz.runs.collect, attnviz.runs.command\n"
        "import matplotlib.backends.backend_agg, matplotlib.backends.backend_pdf\n"
        "import matplotlib.backends.backend_svg\n"
        "from attnviz.models.build import import_timm\n"
        "import_timm()\n"
    )
    yield server
    server.close()
