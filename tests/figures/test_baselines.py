"""Every kind of figure against the image of it that was looked at and kept."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from tests.figures.cases import CASES
from tests.figures.rendering import pixels_of, texts_of, word_boxes

FOLDER = Path(__file__).parent / "baselines"
TOLERANCE = 4.0
"""Root mean square difference, 0..255: room for another FreeType, not for a moved panel."""


class Page(NamedTuple):
    """What these tests ask of one page of a figure."""

    pixels: np.ndarray
    width: float
    height: float
    boxes: list
    smallest_text: float


@functools.cache
def pages_of(name):
    """The pages of a case, drawn once for all tests; the figures are not kept."""
    return [
        Page(
            pixels_of(figure),
            figure.bbox.width,
            figure.bbox.height,
            word_boxes(figure),
            min(text.get_fontsize() for text in texts_of(figure)),
        )
        for figure in CASES[name]()
    ]


@pytest.mark.parametrize("name", CASES)
def test_figure_is_as_its_baseline(name):
    pages = pages_of(name)
    assert len(list(FOLDER.glob(f"{name}.[0-9].png"))) == len(pages)
    for number, page in enumerate(pages, 1):
        kept = np.asarray(Image.open(FOLDER / f"{name}.{number}.png").convert("RGB"), float)
        drawn = page.pixels.astype(float)
        assert drawn.shape == kept.shape
        assert np.sqrt(((drawn - kept) ** 2).mean()) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_texts_neither_overlap_nor_leave_the_page(name):
    for page in pages_of(name):
        for index, (words, (left, bottom, right, top)) in enumerate(page.boxes):
            assert left >= -1, words
            assert bottom >= -1, words
            assert right <= page.width + 1, words
            assert top <= page.height + 1, words
            for others, (l2, b2, r2, t2) in page.boxes[:index]:
                across = min(right, r2) - max(left, l2)
                along = min(top, t2) - max(bottom, b2)
                # Line boxes include ascent and descent, so neighbours may touch by a little.
                assert across <= 1 or along <= 0.35 * min(top - bottom, t2 - b2), (words, others)


def test_all_text_is_at_least_seven_points():
    for name in CASES:
        for page in pages_of(name):
            assert page.smallest_text >= 7.0
