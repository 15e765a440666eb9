"""Videos that are written: their frames, times, records, and what is left of a broken run."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import ImageFile
from attnviz.domain.requests import InputRequest
from attnviz.domain.video import VideoFormat, VideoRequest
from attnviz.images.frames import open_frames
from attnviz.output.plan import OutputPlan
from attnviz.output.read_record import read_record
from attnviz.output.record import to_json
from attnviz.output.video import open_sink, record_path, video_path
from tests.helpers.provenance import provenance

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ByteArray
    from attnviz.output.video.sink import VideoSink

av = pytest.importorskip("av")
FILES = [form for form in VideoFormat if form is not VideoFormat.FRAMES]
FORMS = list(VideoFormat)
GREYS = (40, 80, 120, 160, 200)
TIMES = (0.0, 0.1, 0.2, 0.5, 0.6)


def _frame(grey: int, size: tuple[int, int]) -> ByteArray:
    return np.full((*size, 3), grey, np.uint8)


def _sink(plan: OutputPlan, form: VideoFormat, size: tuple[int, int] = (32, 48)) -> VideoSink:
    sink = open_sink(plan, form, size, provenance(), 0.1)
    for grey, seconds in zip(GREYS, TIMES, strict=True):
        sink.add(_frame(grey, size), seconds)
    return sink


def _read(path: Path) -> list[Any]:
    source = open_frames(
        ImageFile(path, path), InputRequest((str(path),)), VideoRequest(as_video=True)
    )
    return list(source.frames(source.times()))


@pytest.mark.parametrize("form", FORMS)
def test_each_frame_stands_at_its_time(tmp_path: Path, form: VideoFormat) -> None:
    plan = OutputPlan(tmp_path, "clip", "heads")
    _sink(plan, form).finish()
    frames = _read(video_path(plan, form))
    assert [float(each.pixels.mean()) for each in frames] == pytest.approx(GREYS, abs=5)
    if form is not VideoFormat.FRAMES:
        assert [each.time.seconds for each in frames] == pytest.approx(TIMES, abs=2e-3)


@pytest.mark.parametrize("form", FORMS)
def test_the_record_is_read_back(tmp_path: Path, form: VideoFormat) -> None:
    plan = OutputPlan(tmp_path, "clip", "heads")
    _sink(plan, form).finish()
    record = read_record(record_path(plan, form))
    assert record is not None
    assert record["command"] == "heads"
    assert record["model"] == "tiny"
    if form is not VideoFormat.FRAMES:
        import json

        assert record == json.loads(to_json(provenance()))


def test_mp4_plays_in_a_browser(tmp_path: Path) -> None:
    plan = OutputPlan(tmp_path, "clip", "heads")
    _sink(plan, VideoFormat.MP4, (33, 47)).finish()
    path = video_path(plan, VideoFormat.MP4)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert (stream.height, stream.width) == (34, 48)
    boxes, data, at = [], path.read_bytes(), 0
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        boxes.append(kind)
        at += length
    assert boxes.index(b"moov") < boxes.index(b"mdat")  # the index first: it plays as it arrives


def test_webm_is_vp9(tmp_path: Path) -> None:
    plan = OutputPlan(tmp_path, "clip", "heads")
    _sink(plan, VideoFormat.WEBM).finish()
    with av.open(str(video_path(plan, VideoFormat.WEBM))) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("vp9", "yuv420p")


@pytest.mark.parametrize("form", [VideoFormat.GIF, VideoFormat.WEBP])
def test_animated_images_loop(tmp_path: Path, form: VideoFormat) -> None:
    plan = OutputPlan(tmp_path, "clip", "heads")
    _sink(plan, form).finish()
    with Image.open(video_path(plan, form)) as image:
        assert image.info["loop"] == 0
        assert image.n_frames == len(GREYS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", FILES)
def test_a_run_that_stops_leaves_what_plays(tmp_path: Path, form: VideoFormat) -> None:
    plan = OutputPlan(tmp_path, "clip", "heads")
    written = _sink(plan, form).finish(partial=True)
    assert [path.name for path in tmp_path.iterdir()] == [written[0].path.name]
    assert "partial" in written[0].path.name
    assert len(_read(written[0].path)) == len(GREYS)


@pytest.mark.parametrize("form", FILES)
def test_an_abandoned_video_leaves_nothing(tmp_path: Path, form: VideoFormat) -> None:
    _sink(OutputPlan(tmp_path, "clip", "heads"), form).abandon()
    assert list(tmp_path.iterdir()) == []
