"""``attnviz info`` of a video prints the command that draws it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from attnviz.domain.video import VideoFormat
from attnviz.output.plan import OutputPlan
from attnviz.output.video import open_sink, record_path
from tests.helpers.command_line import attnviz
from tests.helpers.provenance import provenance

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("form", list(VideoFormat))
def test_info_prints_the_command_of_a_video(
    tmp_path: Path, form: VideoFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("av")
    plan = OutputPlan(tmp_path, "clip", "heads")
    sink = open_sink(plan, form, (32, 48), provenance(), 0.1)
    for grey in (50, 150):
        sink.add(np.full((32, 48, 3), grey, np.uint8), grey / 1000)
    sink.finish()
    assert attnviz("info", record_path(plan, form)) == 0
    assert "attnviz heads" in capsys.readouterr().out
