"""Frames of videos, animated images and folders: which, when, and the right way up."""

from __future__ import annotations

import struct
import sys
import weakref
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import ImageFile
from attnviz.domain.requests import InputRequest
from attnviz.domain.video import FrameTime, VideoRequest, chosen_frames
from attnviz.errors import ImageError, UsageError
from attnviz.images.frames import is_film, is_video, open_frames

if TYPE_CHECKING:
    from pathlib import Path

av = pytest.importorskip("av")
AS_VIDEO = VideoRequest(as_video=True)
GREYS = tuple(range(20, 220, 25))


def _clip(path: Path, codec: str, pix: str, size: tuple[int, int] = (48, 64), **more: Any) -> Path:
    """Eight frames, each of one grey; ``ticks``: their times in tenths of a second."""
    ticks = more.get("ticks", range(len(GREYS)))
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10, options={"g": "1"})
        stream.height, stream.width, stream.pix_fmt = *size, pix
        stream.codec_context.time_base = Fraction(1, 10)
        for grey, tick in zip(GREYS, ticks, strict=True):
            frame = av.VideoFrame.from_ndarray(np.full((*size, 3), grey, np.uint8), format="rgb24")
            frame.pts, frame.time_base = tick, Fraction(1, 10)
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)
    return path


def _read(path: Path, request: VideoRequest = AS_VIDEO) -> tuple[list[Any], Any]:
    source = open_frames(ImageFile(path, path), InputRequest((str(path),)), request)
    return list(source.frames(chosen_frames(source.times(), request))), source


def _greys(frames: list[Any]) -> list[float]:
    return [float(each.pixels.mean()) for each in frames]


@pytest.mark.parametrize(
    ("name", "codec", "pix"),
    [
        ("a.mp4", "libx264", "yuv420p"),
        ("a.mov", "libx264", "yuv420p"),
        ("a.mkv", "libx264", "yuv420p"),
        ("a.webm", "libvpx-vp9", "yuv420p"),
        ("a.avi", "mpeg4", "yuv420p"),
    ],
)
def test_every_container_gives_each_frame_at_its_time(
    tmp_path: Path, name: str, codec: str, pix: str
) -> None:
    path = _clip(tmp_path / name, codec, pix)
    assert is_film(path)
    frames, source = _read(path)
    assert [each.time.index for each in frames] == list(range(8))
    assert [each.time.seconds for each in frames] == pytest.approx(np.arange(8) / 10, abs=2e-3)
    assert frames[0].pixels.shape == (48, 64, 3)
    assert _greys(frames) == pytest.approx(GREYS, abs=4)
    assert source.notes == []


def test_a_range_begins_at_its_own_frame(tmp_path: Path) -> None:
    frames, _ = _read(
        _clip(tmp_path / "a.mp4", "libx264", "yuv420p"), VideoRequest(frames=(3, 8, 2))
    )
    assert [each.time.index for each in frames] == [3, 5, 7]
    assert _greys(frames) == pytest.approx([GREYS[i] for i in (3, 5, 7)], abs=4)


def test_variable_rate_keeps_the_time_stamps(tmp_path: Path) -> None:
    ticks = (0, 1, 2, 7, 8, 20, 21, 30)
    frames, _ = _read(_clip(tmp_path / "a.mkv", "libx264", "yuv420p", ticks=ticks))
    assert [each.time.seconds for each in frames] == pytest.approx(np.array(ticks) / 10, abs=2e-3)
    assert _greys(frames) == pytest.approx(GREYS, abs=4)


def test_odd_sizes(tmp_path: Path) -> None:
    frames, _ = _read(_clip(tmp_path / "a.mkv", "ffv1", "yuv444p", (33, 47)))
    assert frames[0].pixels.shape == (33, 47, 3)


def test_a_cut_file_gives_the_frames_before_the_cut_and_says_so(tmp_path: Path) -> None:
    path = _clip(tmp_path / "a.avi", "mjpeg", "yuvj420p")
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"movi") + (len(data) - data.rindex(b"movi")) // 2])
    frames, source = _read(path)
    count = len(frames)
    assert 0 < count < 8
    assert [each.time.index for each in frames] == list(range(count))
    assert _greys(frames) == pytest.approx(GREYS[:count], abs=4)
    assert any("its end is missing" in note or "damaged" in note for note in source.notes)


def test_what_is_no_video_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"\0\0\0\x18ftypisom" + bytes(100))
    with pytest.raises(ImageError, match=r"a\.mp4"):
        _read(path)


@pytest.mark.parametrize(("suffix", "form"), [("gif", "GIF"), ("webp", "WEBP"), ("png", "PNG")])
def test_animated_images_have_the_times_of_their_frames(
    tmp_path: Path, suffix: str, form: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    images = [Image.new("RGB", (32, 24), (grey, grey, grey)) for grey in GREYS[:4]]
    more = {"lossless": True} if form == "WEBP" else {}
    images[0].save(
        path,
        form,
        save_all=True,
        append_images=images[1:],
        duration=[100, 200, 300, 100],
        loop=0,
        **more,
    )
    assert is_video(ImageFile(path, path), AS_VIDEO)
    assert not is_video(ImageFile(path, path), VideoRequest())
    frames, _ = _read(path)
    assert [each.time.seconds for each in frames] == pytest.approx([0, 0.1, 0.3, 0.6])
    assert _greys(frames) == pytest.approx(GREYS[:4], abs=2)


def test_pages_of_tiff_have_the_rate_that_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.tiff"
    images = [Image.new("RGB", (32, 24), (grey, grey, grey)) for grey in GREYS[:4]]
    images[0].save(path, save_all=True, append_images=images[1:])
    frames, _ = _read(path)
    assert [each.time.seconds for each in frames] == pytest.approx([0, 0.04, 0.08, 0.12])
    assert _greys(frames) == list(GREYS[:4])


def test_frames_of_gif_build_on_the_last(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    first = Image.new("RGBA", (32, 32), (200, 0, 0, 255))
    dot = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    dot.paste((0, 0, 200, 255), (0, 0, 8, 8))
    first.save(path, save_all=True, append_images=[dot], duration=100, disposal=1)
    frames, _ = _read(path)
    assert tuple(frames[1].pixels[4, 4]) == (0, 0, 200)
    assert tuple(frames[1].pixels[20, 20]) == (200, 0, 0)


def test_a_folder_is_sorted_by_number(tmp_path: Path) -> None:
    for number, grey in ((10, 200), (2, 100), (1, 50)):
        Image.new("RGB", (32, 32), (grey, grey, grey)).save(tmp_path / f"{number}.png")
    frames, _ = _read(tmp_path)
    assert _greys(frames) == [50, 100, 200]
    assert [each.time.seconds for each in frames] == pytest.approx([0, 0.04, 0.08])


def test_a_folder_ends_before_the_frame_that_cannot_be_read(tmp_path: Path) -> None:
    for number in range(3):
        Image.new("RGB", (32, 32)).save(tmp_path / f"{number}.png")
    (tmp_path / "2.png").write_bytes(b"no picture")
    frames, source = _read(tmp_path)
    assert len(frames) == 2
    assert "2.png" in source.notes[-1]


TIMES = tuple(FrameTime(index, index / 10) for index in range(20))


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (VideoRequest(frames=(0, 10, 3)), [0, 3, 6, 9]),
        (VideoRequest(start=0.5, end=0.8), [5, 6, 7]),
        (VideoRequest(fps=5), list(range(0, 20, 2))),
        (VideoRequest(fps=100), list(range(20))),
        (VideoRequest(frames=(4, None, None), fps=2), [4, 9, 14, 19]),
    ],
)
def test_which_frames_are_taken(request_: VideoRequest, wanted: list[int]) -> None:
    assert [each.index for each in chosen_frames(TIMES, request_)] == wanted


def test_no_frame_left_is_refused() -> None:
    with pytest.raises(UsageError, match="no frame is left"):
        chosen_frames(TIMES, VideoRequest(start=5))


def test_a_turned_mp4_is_upright(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    pixels = np.full((32, 64, 3), 40, np.uint8)
    pixels[:, :32] = 200
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width, stream.pix_fmt = 32, 64, "yuv420p"
        for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
            container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)
    data = bytearray(path.read_bytes())
    # The matrix of the track header: a quarter turn clockwise, as telephones write it.
    matrix = data.index(b"tkhd") + 4 + 40
    one = 1 << 16
    data[matrix : matrix + 36] = struct.pack(">9i", 0, one, 0, -one, 0, 0, 0, 0, 1 << 30)
    path.write_bytes(bytes(data))
    frames, _ = _read(path)
    assert frames[0].pixels.shape == (64, 32, 3)
    # Turned clockwise, the left half becomes the upper one.
    assert frames[0].pixels[:28].mean() == pytest.approx(200, abs=4)
    assert frames[0].pixels[36:].mean() == pytest.approx(40, abs=4)


def test_transparency_is_laid_on_white_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    pixels = np.zeros((32, 32, 4), np.uint8)
    pixels[:, :16, 3] = 255
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.height, stream.width, stream.pix_fmt = 32, 32, "bgra"
        frame = av.VideoFrame.from_ndarray(pixels, format="bgra")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    frames, source = _read(path)
    assert frames[0].pixels[:, :16].max() == 0
    assert frames[0].pixels[:, 16:].min() == 255
    assert source.notes == ["transparency laid on white"]


def test_without_pyav_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _clip(tmp_path / "a.mp4", "libx264", "yuv420p")
    monkeypatch.delitem(sys.modules, "attnviz.images.frames_film", raising=False)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImageError, match=r"a\.mp4 is a video") as caught:
        _read(path)
    assert caught.value.hint == "pip install 'attnviz[video]'"


def test_frames_are_read_one_by_one(tmp_path: Path) -> None:
    path = _clip(tmp_path / "a.mp4", "libx264", "yuv420p")
    source = open_frames(ImageFile(path, path), InputRequest((str(path),)), AS_VIDEO)
    alive: list[weakref.ref[Any]] = []
    for frame in source.frames(source.times()):
        alive = [each for each in alive if each() is not None]
        alive.append(weakref.ref(frame))
        assert len(alive) <= 2
    assert alive
