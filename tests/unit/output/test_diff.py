"""Comparing files: what counts, by how much, and the picture of a difference."""

from __future__ import annotations

import dataclasses
import functools
import subprocess

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from attnviz.domain import ImageFormat
from attnviz.output import rasterise
from attnviz.output.diff import compare, diff_image, drawing_of
from attnviz.output.plan import OutputPlan
from attnviz.output.write import write_array_png, write_figures, write_npz
from tests.helpers.provenance import provenance


def drawn(folder, made, line=0.5):
    figure = Figure(figsize=(1, 1))
    figure.add_subplot().axhline(line)
    plan = OutputPlan(folder, "cat", "heads")
    return {
        path.path.suffix: path.path
        for path in write_figures([figure], plan, tuple(ImageFormat), 30, made)
    }


def test_versions_and_paths_inside_are_no_difference(tmp_path):
    one = drawn(tmp_path / "1", provenance())
    two = drawn(tmp_path / "2", provenance(image="x.png", versions={"torch": "99"}))
    for suffix, path in one.items():
        assert path.read_bytes() != two[suffix].read_bytes()
        assert compare(path, two[suffix], 0) is None, suffix


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_another_drawing_differs(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(rasterise, "_SVG_WAYS", ())  # the bytes tell it as well
    one = drawn(tmp_path / "1", provenance())[suffix]
    two = drawn(tmp_path / "2", provenance(), line=0.6)[suffix]
    assert compare(one, two, 0.5) is not None
    if suffix != ".png":
        assert drawing_of(one) != drawing_of(two)


def test_frames_of_an_animation_are_compared(tmp_path):
    def animation(name, *shades):
        frames = [Image.new("P", (4, 4)) for _ in shades]
        for frame, shade in zip(frames, shades, strict=True):
            frame.putpalette([shade] * 3)
        path = tmp_path / f"{name}.gif"
        frames[0].save(path, save_all=True, append_images=frames[1:], comment=name.encode())
        return path

    one = animation("one", 10, 200)
    assert compare(one, animation("two", 10, 200), 0) is None
    words = compare(one, animation("three", 10, 190), 0.5).words
    assert words.startswith("frame 2: RMS 10, largest 10 of 255")
    assert compare(one, animation("four", 10, 90, 200), 0.5).words == "has 2 frames, not 3"


def test_what_was_asked_for_is_compared_too(tmp_path):
    one = drawn(tmp_path / "1", provenance())[".svg"]
    options = {"layer": 3, "size": "32x40"}
    two = drawn(tmp_path / "2", provenance(options=options, image_sha256="cd" * 32))[".svg"]
    words = compare(one, two, 0).words
    assert words == (
        "was made with another image_sha256, layer -1, not 3, threshold 0.1, not its default"
    )
    model = dataclasses.replace(provenance().model, weights_sha256="ef" * 32)
    three = drawn(tmp_path / "3", provenance(model=model))[".svg"]
    assert compare(one, three, 0).words == "was made with another weights_sha256"


def test_the_difference_of_pixels_by_hand(tmp_path):
    before = np.full((10, 20, 3), 100, np.uint8)
    after = before.copy()
    after[0, :4, 1] += 30
    for name, pixels in (("a", before), ("b", after)):
        write_array_png(pixels, tmp_path / f"{name}.png", provenance())
    rms = np.sqrt(4 * 30**2 / (10 * 20 * 3))
    assert compare(tmp_path / "a.png", tmp_path / "b.png", rms + 1e-9) is None
    found = compare(tmp_path / "a.png", tmp_path / "b.png", rms - 1e-9)
    assert found.words == "RMS 2.45, largest 30 of 255, 2 % of the pixels"
    assert found.image.shape == (10, 3 * 20 + 16, 3)
    assert found.image[:, -20:].max(axis=2).nonzero()[1].tolist() == [0, 1, 2, 3]
    assert found.image.max() == 255


def test_pictures_of_other_sizes_differ(tmp_path):
    for name, size in (("a", (10, 20)), ("b", (12, 18))):
        write_array_png(np.zeros((*size, 3), np.uint8), tmp_path / f"{name}.png", provenance())
    found = compare(tmp_path / "a.png", tmp_path / "b.png", 255)
    assert found.words == "is 10x20 pixels large, not 12x18"
    assert found.image.shape == (12, 3 * 20 + 16, 3)


def test_equal_pictures_have_a_black_difference():
    picture = diff_image(np.full((2, 2, 3), 9, np.uint8), np.full((2, 2, 3), 9, np.uint8))
    assert not picture[:, -2:].any()


def test_files_that_cannot_be_compared_differ(tmp_path):
    made = drawn(tmp_path / "1", provenance())[".png"]
    assert compare(tmp_path / "gone.png", made, 255).words == "is not there"
    (tmp_path / "text.png").write_text("x")
    words = compare(tmp_path / "text.png", made, 255).words
    assert words == "has no record of how it was made; is not a PNG file"
    Image.open(made).convert("RGB").save(tmp_path / "again.png")
    assert compare(tmp_path / "again.png", made, 0).words == "has no record of how it was made"


def test_numbers_within_float32_rounding_pass(tmp_path):
    base = np.full((2, 3), 0.5, np.float32)
    cases = {"same": base, "near": base + 1e-6, "far": base + 1e-4, "nan": base * np.nan}
    for name, values in cases.items():
        write_npz(tmp_path / f"{name}.npz", {"attention": values}, provenance())
    write_npz(tmp_path / "shape.npz", {"attention": base[:1]}, provenance())
    write_npz(tmp_path / "other.npz", {"rollout": base}, provenance())
    expected = tmp_path / "same.npz"
    assert compare(expected, tmp_path / "near.npz", 0) is None
    told = {
        n: compare(expected, tmp_path / f"{n}.npz", 0) for n in ("far", "nan", "shape", "other")
    }
    assert told["far"].words == "attention differs by up to 0.0001"
    assert told["nan"].words == "attention differs by up to nan"
    assert told["shape"].words == "attention has shape (2, 3), not (1, 3)"
    assert told["other"].words == "holds attention, not rollout"


@pytest.mark.parametrize("suffix", [".pdf", ".svg"])
def test_drawings_are_compared_by_what_they_draw(suffix, tmp_path, monkeypatch):
    # Drawn once each: a browser takes seconds to start.
    monkeypatch.setattr(rasterise, "pages_of", functools.cache(rasterise.pages_of))
    one = drawn(tmp_path / "1", provenance())[suffix]
    if rasterise.pages_of(one) is None:
        pytest.skip(f"nothing here draws {suffix}")
    # A number that is written in another way, and labels that say something else.
    same = tmp_path / "2" / one.name
    same.parent.mkdir()
    content = one.read_bytes()
    same.write_bytes(content.replace(b"endobj", b" endobj", 1).replace(b"</svg>", b"<g/></svg>"))
    assert drawing_of(one) != drawing_of(same)
    assert compare(one, same, 0.01) is None
    other = drawn(tmp_path / "3", provenance(), 0.6)[suffix]
    difference = compare(one, other, 0.5)
    (before,), (after,) = rasterise.pages_of(one), rasterise.pages_of(other)
    rms = float(np.sqrt(np.mean((before.astype(float) - after) ** 2)))
    assert difference.words.startswith(f"RMS {rms:.3g}, ")
    np.testing.assert_array_equal(difference.image, diff_image(before, after))
    assert compare(one, other, rms + 0.01) is None


def test_pages_of_a_pdf_are_compared_one_by_one(tmp_path):
    def pages(name, lines):
        figures = [Figure(figsize=(1, 1)) for _ in lines]
        for figure, y in zip(figures, lines, strict=True):
            figure.add_subplot().axhline(y)
        plan = OutputPlan(tmp_path / name, "cat", "heads")
        return write_figures(figures, plan, [ImageFormat.PDF], 30, provenance())[0].path

    two = pages("two", [0.5, 0.5])
    if rasterise.pages_of(two) is None:
        pytest.skip("nothing here draws PDF")
    assert compare(two, pages("moved", [0.5, 0.7]), 0.5).words.startswith("page 2: RMS ")
    assert compare(two, pages("three", [0.5] * 3), 0.5).words == "has 2 pages, not 3"


def test_without_a_program_that_draws_the_bytes_decide(tmp_path, monkeypatch):
    monkeypatch.setattr(rasterise, "_PDF_WAYS", ())
    monkeypatch.setattr(rasterise, "_SVG_WAYS", ())
    one, two = (drawn(tmp_path / str(y), provenance(), y) for y in (0.5, 0.5 + 1e-6))
    words = compare(one[".pdf"], two[".pdf"], 255).words
    assert words == "is another drawing (pdftoppm or the package pypdfium2 would tell how far)"
    assert compare(one[".svg"], two[".svg"], 255).words.startswith("is another drawing (rsvg-conv")


def test_a_program_that_fails_or_hangs_is_passed_by_for_the_next(tmp_path, monkeypatch):
    path = drawn(tmp_path, provenance())[".pdf"]
    tried = []

    def failing(problem):
        def way(_path):
            tried.append(problem)
            raise problem

        return way

    problems = [
        ImportError("no such package"), FileNotFoundError("pdftoppm"), ValueError("damaged"),
        subprocess.CalledProcessError(1, "pdftoppm"), subprocess.TimeoutExpired("pdftoppm", 60),
    ]  # fmt: skip
    page = np.zeros((2, 2, 3), np.uint8)
    monkeypatch.setattr(rasterise, "_PDF_WAYS", (*map(failing, problems), lambda _path: [page]))
    assert rasterise.pages_of(path)[0] is page
    assert tried == problems
    monkeypatch.setattr(rasterise, "_PDF_WAYS", tuple(map(failing, problems)))
    assert rasterise.pages_of(path) is None
