"""The font of all figures, and installed fonts for the characters that it lacks.

Figures are set in DejaVu Sans, which ships with matplotlib. Names of files may have other letters
(Chinese, Japanese, Korean, ...): these come from an installed font that has them.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.font_manager import FontProperties, get_font

FAMILY = "DejaVu Sans"
_FILES = {False: "DejaVuSans.ttf", True: "DejaVuSans-Bold.ttf"}

_PREFERRED = (
    "notosanscjk",
    "sourcehansans",
    "notosans",
    "wqy",
    "droidsansfallback",
    "nanumgothic",
    "sans",
    "gothic",
)
"""Parts of file names, in lower case, of the fonts that are tried first."""
_UNSUITABLE = ("bold", "italic", "oblique", "thin", "light", "black", "color", "mono", "lastresort")
"""Parts of file names of fonts that are tried last."""

_CJK = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "HANGUL",
    "BOPOMOFO",
    "IDEOGRAPHIC",
    "FULLWIDTH",
    "HALFWIDTH",
)
"""First words of the Unicode names of Chinese, Japanese and Korean characters."""


def font_file(*, bold: bool = False) -> str:
    """The file of DejaVu Sans, for text that is drawn without matplotlib."""
    return str(Path(mpl.get_data_path()) / "fonts" / "ttf" / _FILES[bold])


def font(size: float, text: str = "", *, bold: bool = False) -> FontProperties:
    """The font for a text: DejaVu Sans, followed by what some of its characters need."""
    return _properties(size, _families(text), bold=bold)


@lru_cache(maxsize=64)
def _properties(size: float, families: tuple[str, ...], *, bold: bool) -> FontProperties:
    # Everything is given: what is not would come from the user's own settings.
    return FontProperties(
        family=[FAMILY, *families],
        style="normal",
        variant="normal",
        weight="bold" if bold else "normal",
        stretch="normal",
        size=size,
        math_fontfamily="dejavusans",
    )


def _families(text: str) -> tuple[str, ...]:
    """The families besides DejaVu Sans that a text needs, each once."""
    if text.isascii():
        return ()
    lacking = (character for character in text if _own_advance(character, bold=False) is None)
    families = (_fallback(character) for character in lacking)
    return tuple(dict.fromkeys(family for family in families if family))


@lru_cache(maxsize=4096)
def advance(character: str, *, bold: bool = False) -> float | None:
    """The width of a character in em, or None if no font has a glyph for it."""
    own = _own_advance(character, bold=bold)
    if own is not None:
        return own
    family = _fallback(character)
    if family is None:
        return None
    weight = "bold" if bold else "normal"
    path = font_manager.fontManager.findfont(FontProperties(family=[family], weight=weight))
    return _advance_in(path, character)


@lru_cache(maxsize=4096)
def _own_advance(character: str, *, bold: bool) -> float | None:
    path = Path(mpl.get_data_path(), "fonts", "ttf", _FILES[bold])
    return _advance_in(str(path), character)


def _advance_in(path: str, character: str) -> float | None:
    face = get_font(path)
    if not face.get_char_index(ord(character)):
        return None
    face.set_size(100.0, 72.0)
    return float(face.load_char(ord(character)).linearHoriAdvance) / 65536 / 100


@lru_cache(maxsize=4096)
def _fallback(character: str) -> str | None:
    """The family of an installed font with a glyph for this character, known to matplotlib."""
    if is_hidden(character):
        return None
    for path in system_fonts():
        try:
            if _advance_in(path, character) is None:
                continue
            family: str = get_font(path).family_name
        except (OSError, RuntimeError):
            continue  # damaged, or made of bitmaps
        # The list that matplotlib keeps of all fonts may be older than this font.
        if all(entry.fname != path for entry in font_manager.fontManager.ttflist):
            font_manager.fontManager.addfont(path)
        return family
    return None


@lru_cache(maxsize=1)
def system_fonts() -> tuple[str, ...]:
    """The paths of all installed fonts, upright sans-serif ones first."""
    return tuple(sorted(font_manager.findSystemFonts(), key=_order))


def _order(path: str) -> tuple[int, int, str]:
    name = "".join(Path(path).stem.lower().replace("-", "").replace("_", "").split())
    rank = next((i for i, part in enumerate(_PREFERRED) if part in name), len(_PREFERRED))
    return sum(part in name for part in _UNSUITABLE), rank, path


def is_hidden(character: str) -> bool:
    """Whether a character has no glyph in any font: controls, line ends, surrogates."""
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def missing_characters(text: str) -> str:
    """The characters of a text that no installed font has, each once; figures have squares."""
    characters = dict.fromkeys(unicodedata.normalize("NFC", text))
    return "".join(c for c in characters if not is_hidden(c) and advance(c) is None)


def package_for(characters: str) -> str:
    """The Debian package of a font that has these characters."""
    names = (unicodedata.name(character, "") for character in characters)
    if any(name.startswith(_CJK) for name in names):
        return "fonts-noto-cjk"
    return "fonts-noto-core"
