"""Scores, low-frequency energy and their product, as VTC-LFC's own code gave them.

The function ``selector`` of Daner-Wang/VTC-LFC on the weights of tests/helpers/formula_weights.py,
in blocks 5 and 11, of a square of 784 patches and of a rectangle of 20 x 28 with 4 registers.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.conftest import DATA, Original

RELATIVE = 1e-4
NAMES = {path.stem.removesuffix("_lfe"): path for path in sorted(DATA.glob("*_lfe.npz"))}


def test_both_files_are_here():
    assert list(NAMES) == ["dino_vits8_224x224", "dinov2_vits14_reg_280x392"]


@pytest.mark.parametrize("layer", [5, 11])
@pytest.mark.parametrize("name", NAMES)
def test_the_score_with_low_frequency_energy(name, layer, saved):
    original = Original(DATA / f"{name}.npz")
    found = saved(original, "score", "--lfe", "--layer", str(layer))
    with np.load(NAMES[name]) as stored:
        attention, lfe, score = (
            stored[f"lfe{layer}_{part}"] for part in ("attention", "lfe", "score")
        )
    np.testing.assert_allclose(found["cls_term"] + found["patch_term"], attention, rtol=RELATIVE)
    np.testing.assert_allclose(found["lfe"], lfe, rtol=RELATIVE)
    np.testing.assert_allclose(found["score"], score, rtol=RELATIVE)
    # What is kept is decided by the product: half of the patches by default.
    kept = np.sort(score.ravel())[::-1][: score.size // 2]
    assert found["kept"].sum() == kept.size
    np.testing.assert_allclose(np.sort(found["score"][found["kept"]])[::-1], kept, rtol=RELATIVE)
