"""Every kind of figure against the image of it that was looked at and kept."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.figures.cases import CASES
from tests.figures.rendering import pixels_of, texts_of, word_boxes

figures_of = functools.cache(lambda name: CASES[name]())
"""The figures of a case, drawn once for all tests."""

FOLDER = Path(__file__).parent / "baselines"
TOLERANCE = 4.0
"""Root mean square difference, 0..255: room for another FreeType, not for a moved panel."""


@pytest.mark.parametrize("name", CASES)
def test_figure_is_as_its_baseline(name):
    figures = figures_of(name)
    assert len(list(FOLDER.glob(f"{name}.[0-9].png"))) == len(figures)
    for number, figure in enumerate(figures, 1):
        kept = np.asarray(Image.open(FOLDER / f"{name}.{number}.png").convert("RGB"), float)
        drawn = pixels_of(figure).astype(float)
        assert drawn.shape == kept.shape
        assert np.sqrt(((drawn - kept) ** 2).mean()) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_texts_neither_overlap_nor_leave_the_page(name):
    for figure in figures_of(name):
        width, height = figure.bbox.width, figure.bbox.height
        boxes = word_boxes(figure)
        for index, (words, (left, bottom, right, top)) in enumerate(boxes):
            assert left >= -1, words
            assert bottom >= -1, words
            assert right <= width + 1, words
            assert top <= height + 1, words
            for others, (l2, b2, r2, t2) in boxes[:index]:
                across = min(right, r2) - max(left, l2)
                along = min(top, t2) - max(bottom, b2)
                # Line boxes include ascent and descent, so neighbours may touch by a little.
                assert across <= 1 or along <= 0.35 * min(top - bottom, t2 - b2), (words, others)


def test_all_text_is_at_least_seven_points():
    for name in CASES:
        for figure in figures_of(name):
            assert min(text.get_fontsize() for text in texts_of(figure)) >= 7.0
