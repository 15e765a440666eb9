"""Characters that DejaVu Sans lacks: from an installed font, or squares and one note."""

from __future__ import annotations

import io
import re
import shutil
import subprocess

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from attnviz.domain import DrawStyle
from attnviz.figures import draw
from attnviz.figures.names import missing_glyphs
from attnviz.figures.parts import fonts, theme
from tests.figures import samples
from tests.figures.rendering import pixels_of, words_of
from tests.helpers.command_line import attnviz

CAT, DOG = "\u732b", "\u72ac"
FAMILY = "Attnviz Test Sans"


def make_font(path):
    """A font with one glyph, a black square over the whole of an em, for the cat alone."""
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "cat"])
    builder.setupCharacterMap({ord(CAT): "cat"})
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 800), (1000, 800), (1000, 0)):
        pen.lineTo(corner)
    pen.closePath()
    glyph = pen.glyph()
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "cat": glyph})
    builder.setupHorizontalMetrics({".notdef": (500, 0), "cat": (1000, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": FAMILY, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(path)


@pytest.fixture
def installed(monkeypatch):
    """A function that says which fonts are installed."""
    manager = font_manager.fontManager
    before = list(manager.ttflist)

    def install(*paths):
        for cached in (fonts.advance, fonts._fallback):
            cached.cache_clear()
        monkeypatch.setattr(fonts, "system_fonts", lambda: tuple(map(str, paths)))

    yield install
    manager.ttflist[:] = before
    manager._findfont_cached.cache_clear()
    for cached in (fonts.advance, fonts._fallback):
        cached.cache_clear()


def figure_named(name):
    image = samples.image_of(samples.photograph(), (4, 6), name=name)
    return draw(samples.score_maps((4, 6)), image, samples.model_info(), DrawStyle(dpi=100))[0]


def test_a_letter_comes_from_the_font_that_has_it(installed, tmp_path):
    make_font(tmp_path / "some.ttf")
    (tmp_path / "damaged.ttf").write_bytes(b"not a font")
    installed(tmp_path / "damaged.ttf", tmp_path / "some.ttf")
    assert theme.printable(f"a{CAT}b{DOG}\n") == f"a{CAT}b\u25a1\u25a1"
    assert theme.text_width(CAT, 72.0) == pytest.approx(1.0)
    figure = figure_named(f"{CAT}.png")
    assert f"{CAT}.png" in words_of(figure)
    # The title begins at 0.03 inches; its first letter is a square of 7.5 pt, 10 px at 100 dpi.
    dark = (pixels_of(figure)[6:11, 4:12] < 60).all(axis=2)
    assert dark.all()


@pytest.mark.parametrize("image_format", ["pdf", "svg"])
def test_vector_files_have_the_letter_as_text(installed, tmp_path, image_format):
    make_font(tmp_path / "some.ttf")
    installed(tmp_path / "some.ttf")
    stream = io.BytesIO()
    figure_named(f"{CAT}.png").savefig(stream, format=image_format)
    if image_format == "svg":
        text = stream.getvalue().decode("utf-8")
        (style,) = re.findall(rf"<text style=\"([^\"]*)\"[^>]*>{CAT}", text)
        assert f"'DejaVu Sans', '{FAMILY}'" in style
        assert text.count(FAMILY) == 1  # other texts stay as they were
        return
    assert b"/Type3" not in stream.getvalue()
    if shutil.which("pdftotext"):
        found = subprocess.run(
            ["pdftotext", "-", "-"], input=stream.getvalue(), capture_output=True, check=True
        )
        assert f"{CAT}.png" in found.stdout.decode("utf-8")


def test_without_such_a_font_there_are_squares_and_a_note(installed):
    installed()
    assert theme.printable(f"{CAT}.png") == "\u25a1.png"
    assert "\u25a1.png" in words_of(figure_named(f"{CAT}.png"))
    assert missing_glyphs(["a.png", "\u00e9.png", "\u03a9.png"]) == ()
    (note,) = missing_glyphs([f"{CAT}.png", f"{CAT}{DOG}.png"])
    assert f"{CAT} {DOG}:" in note
    assert "fonts-noto-cjk" in note
    (note,) = missing_glyphs(["\u0e01\u0e02\u0e03\u0e04\u0e05\u0e06\u0e07.png"])  # Thai
    assert "and 2 more" in note
    assert "fonts-noto-core" in note


def test_a_run_says_it_once(installed, tmp_path, capsys):
    installed()
    for name in (f"{CAT}.png", f"{CAT}{CAT}.png"):
        shutil.copy(samples.PHOTOGRAPHS / "car.png", tmp_path / name)
    out = tmp_path / "out"
    command = ("score", tmp_path, "--model", "demo", "--device", "cpu", "--workers", "0")
    assert attnviz(*command, "--out", out, "--dpi", "40") == 0
    messages = capsys.readouterr().err
    assert messages.count("fonts-noto-cjk") == 1
    assert len(list(out.glob("*.png"))) == 2


def test_a_hidden_character_needs_no_font(installed):
    installed()
    assert fonts.missing_characters("a\n\u200e\udcff") == ""
