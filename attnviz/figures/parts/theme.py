"""What all figures share: font, sizes, colours, and how numbers and names become text."""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING

from attnviz.figures.parts import fonts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import Size

TITLE_PT = 7.5
TEXT_PT = 7.0
LINE_INCHES = 0.132
"""Distance between two baselines of 7 pt text."""

INK = "#1a1a1a"
QUIET = "#5f5f5f"
RULE = "#c9c9c9"
WARNING = "#b00020"

TO = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

_MISSING = "\N{WHITE SQUARE}"

# The first six are those of Okabe and Ito (2008). Each further colour is the one farthest from all
# before it under normal vision and full protanopia, deuteranopia and tritanopia (Machado et al.
# 2009), measured in OKLab: the fewer the heads, the larger the difference.
HEAD_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
    "#692d1e",
    "#1e1ea5",
    "#a51e69",
    "#b4c396",
    "#a53cff",
    "#695a00",
    "#692dd2",
    "#a578ff",
    "#00e1d2",
    "#a55a4b",
    "#4b2d69",
    "#c30fa5",
    "#e1c32d",
    "#005a5a",
    "#b4a569",
    "#d23cd2",
    "#a5c3ff",
    "#782d87",
)


def head_colour(head: int) -> str:
    """The colour of a head in every figure, by its index in the model. Repeats after 24 heads."""
    return HEAD_COLOURS[head % len(HEAD_COLOURS)]


def rgb_of(colour: str) -> tuple[int, int, int]:
    """Red, green and blue, 0..255, of a "#rrggbb" colour."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def hex_of(rgb: Sequence[int]) -> str:
    """``#rrggbb`` of red, green and blue, 0..255."""
    red, green, blue = rgb
    return f"#{red:02x}{green:02x}{blue:02x}"


def ink_on(colour: str) -> str:
    """Dark or white text, whichever is more readable on a colour."""
    red, green, blue = rgb_of(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def printable(text: str) -> str:
    """The text on one line; characters without a glyph become squares."""
    characters = []
    for character in unicodedata.normalize("NFC", text):
        missing = fonts.is_hidden(character) or fonts.advance(character) is None
        characters.append(_MISSING if missing else character)
    return "".join(characters)


def text_width(text: str, size: float = TEXT_PT, *, bold: bool = False) -> float:
    """Width of printable text in inches."""
    return sum(fonts.advance(character, bold=bold) or 0.6 for character in text) * size / 72


def shorten(text: str, width: float, size: float = TEXT_PT) -> str:
    """The text, or as much of its beginning and end as fits in ``width`` inches."""
    if text_width(text, size) <= width:
        return text
    for keep in range(len(text) - 1, 1, -1):
        head = (keep + 1) // 2
        short = f"{text[:head].rstrip()}…{text[len(text) - (keep - head) :].lstrip()}"
        if text_width(short, size) <= width:
            return short
    return "…"


def wrap(
    parts: list[str], width: float, size: float = TEXT_PT, separator: str = " · "
) -> list[str]:
    """The parts joined into lines of at most ``width`` inches, broken at parts, else at words."""
    lines: list[str] = []
    for part in parts:
        if lines and text_width(lines[-1] + separator + part, size) <= width:
            lines[-1] += separator + part
            continue
        words = part.split(" ")
        lines.append(words[0])
        for word in words[1:]:
            if text_width(f"{lines[-1]} {word}", size) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
    return [shorten(line, width, size) for line in lines]


def size_text(size: Size) -> str:
    """Height and width, ``224x336``."""
    return f"{size.height}{TIMES}{size.width}"


def range_text(first: int, last: int) -> str:
    """A range of integers, ``0-11``."""
    return f"{first}{TO}{last}"


def number(value: float, digits: int = 2) -> str:
    """A short decimal: 0.012, 5.9, 120; scientific notation below 0.001 and from 100,000."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    exponent = int(power)
    if -3 <= exponent < 5:
        return f"{value:.{max(0, digits - 1 - exponent)}f}"
    return f"{mantissa}e{exponent}"


def number_pair(low: float, high: float) -> tuple[str, str]:
    """The two ends of a scale to the same decimal place, with enough digits to tell them apart.

    At least nine steps of the last digit lie between them. A low end is "0" only if it is 0 or
    negligible: less than a fiftieth of the high end, or a thousandth if it is negative.
    """
    largest = max(abs(low), abs(high))
    for digits in range(2, 7):
        exponent = _exponent(largest, digits)
        step = 10.0 ** (exponent - digits + 1)
        hidden = largest / (50 if low > 0 else 1000) < abs(low) <= step / 2
        if high - low >= 9 * step and not hidden:
            break
    rounded = [round(end / step) * step for end in (low, high)]
    first, last = (number(end, digits + _exponent(end, digits) - exponent) for end in rounded)
    return first, last


def _exponent(value: float, digits: int) -> int:
    """The power of ten of the first digit of a value written with ``digits`` digits."""
    return int(f"{value:.{digits - 1}e}".split("e")[1]) if value else 0


def share(value: float) -> str:
    """A share of one as a percentage: 3.1 %, 42 %, and "< 0.1 %" or "> 99.9 %" near the ends."""
    percent = 100 * value
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100 * (1 - 1e-6):
        return "> 99.9 %"
    whole = 9.95 <= percent < 99.5 or percent >= 100 * (1 - 1e-6)
    return f"{percent:.0f} %" if whole else f"{percent:.1f} %"
