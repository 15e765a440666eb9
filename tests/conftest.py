"""What holds for all tests together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.command_line import files_below


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(pytestconfig: pytest.Config) -> Iterator[None]:
    """No test writes to the folder that commands write to when nobody says where."""
    folder = Path(pytestconfig.rootpath) / "attnviz-out"
    before = files_below(folder)
    yield
    assert files_below(folder) == before
