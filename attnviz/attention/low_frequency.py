"""The low-frequency energy factor of VTC-LFC (Wang et al. 2022, as its code computes it)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import FloatArray

CUTOFF = 0.15
"""Width of the low-pass: its Gaussian has a standard deviation of half this share of the tokens."""


def low_pass(count: int) -> NDArray[np.float64]:
    """The gain (n,) of each of ``count`` Fourier coefficients, 0 to 1, in the order of the FFT.

    1 - exp(-(k - (n - 1) / 2)^2 / (2 (CUTOFF n / 2)^2)): low at the middle of the spectrum, where
    the highest frequencies are. The authors centre it at (n - 1) / 2, where n / 2 would be
    symmetric, so that filtered tokens are complex; their modulus is taken.
    """
    offset = np.arange(count) - (count - 1) / 2
    gain: NDArray[np.float64] = 1 - np.exp(-(offset**2) / (2 * (CUTOFF / 2 * count) ** 2))
    return gain


def low_frequency_energy(tokens: FloatArray) -> FloatArray:
    """The low-frequency energy factor (n,) float32 of patches (n, width) in reading order.

    lfe_j = sum_c |x~_jc| / mean_j' sum_c |x_j'c|, where x~ is x low-passed along the patches, each
    channel by itself. 0 where all tokens are 0.
    """
    values = tokens.T.astype(np.float64)  # width, n
    filtered = np.fft.ifft(np.fft.fft(values, axis=1) * low_pass(values.shape[1]), axis=1)
    size = float(np.abs(values).sum(axis=0).mean())
    energy = np.abs(filtered).sum(axis=0)
    return np.asarray(energy / size if size > 0 else energy, np.float32)
