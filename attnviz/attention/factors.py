"""Queries and keys as small integers, without changing the attention that they give.

softmax(q k^T) stays the same when one vector is subtracted from all keys of a head, and when q
becomes q M and k becomes k M^-T. So keys are centred, and both are rotated to the axes of the
singular value decomposition q k^T = U S V^T: q' = U sqrt(S), k' = V sqrt(S). Most columns are small
then. All are rounded to one step, chosen by what rounding does to the logits: small columns need
few bits, and the errors of all columns count alike. Where float16 needs 13 bits a number after
compression, the same accuracy takes 9 or less.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from attnviz.attention.relative_bias import full_bias
from attnviz.domain import LayerFactors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from attnviz.domain import FloatArray, RelativeBias

BITS = 9.0
"""Bits per number that a layer may take before compression: 12 layers of ViT-S/8 at 224 pixels are
11 MB then. A layer gets the finest step within that, but none finer than float16."""

COARSEST = 4e-3
"""Root mean square by which rounding may change a logit where more bits would be needed."""

ATTENTION_ERROR = 1.5e-3
"""Largest error of a sampled attention value; the step is refined until it is met. Less than the
2e-3 that the page promises, since not all rows are sampled."""

SAMPLE_ROWS = 64
"""Sampled rows per head: half of them spread evenly, half those of the longest q'."""

LIMIT = 32767
"""Largest integer that is stored."""


def factorize(query: FloatArray, key: FloatArray, bias: RelativeBias | None = None) -> LayerFactors:
    """Rotate and round one layer's scaled queries and keys, both (H, N, d) float32.

    bias: what the layer adds to its logits; it is kept as it is.
    """
    with _one_thread():
        q, k = torch.from_numpy(query), torch.from_numpy(key)
        left, right = _balance(q.double(), k.double())  # H, N, R
        sample = _sample(left)  # H, S
        step = _step(left, right, _float16_error(q, k, sample))
        added = None if bias is None else _rows(full_bias(bias), sample)  # H, S, N
        exact = _attention(_rows(left, sample), right, added)
        while True:
            rounded = (left / step).round_(), (right / step).round_()
            approximate = _attention(_rows(rounded[0], sample) * step, rounded[1] * step, added)
            finest = 2 * max(part.abs().max().item() for part in rounded) >= LIMIT
            if finest or (approximate - exact).abs().max().item() <= ATTENTION_ERROR:
                break
            step /= 2**0.25
        # H, N, R -> R, H, N
        integers = [part.permute(2, 0, 1).short().contiguous().numpy() for part in rounded]
    return LayerFactors(integers[0], integers[1], step, bias)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use the calling thread only.

    A head's matrices are small, and what their decompositions split among threads is smaller still:
    the threads mostly wait for each other, busily.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _balance(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Q' and k' (H, N, R), whose product is q (k - mean k)^T; R = min(N, d).

    From d x d matrices alone: with q^T q = L L^T and L^T (k^T k) L = A S^2 A^T,
    q' = q L^-T A sqrt(S) and k' = k L A / sqrt(S). The product holds for any L that has an inverse.
    """
    key = key - key.mean(dim=1, keepdim=True)
    width = query.shape[-1]
    gram = query.mT @ query  # H, d, d
    ridge = 1e-12 * gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    ridge = torch.where(ridge > 0, ridge, 1.0)[:, None, None]
    lower = torch.linalg.cholesky(gram + ridge * torch.eye(width, dtype=gram.dtype))
    key_rest = key @ lower  # H, N, d
    squares, axes = torch.linalg.eigh(key_rest.mT @ key_rest)
    rank = min(query.shape[1:])
    squares, axes = (part.flip(-1)[..., :rank] for part in (squares, axes))  # largest first
    sizes = squares.clamp(min=0).sqrt()[:, None]  # H, 1, R
    # Columns below the accuracy of the squares hold nothing; they must not be divided by nothing.
    floor = (1e-8 * sizes[..., :1]).clamp(min=torch.finfo(sizes.dtype).tiny)
    left = query @ (torch.linalg.solve_triangular(lower.mT, axes, upper=True) * sizes.sqrt())
    right = key_rest @ (axes / torch.maximum(sizes, floor).sqrt())
    return left, right


def _step(left: Tensor, right: Tensor, float16_error: float) -> float:
    """The step for q' and k' (H, N, R): the finest that ``BITS`` and float16 allow."""
    # A logit sums R products; rounding a factor is a uniform error of variance step^2 / 12.
    size = (left.square().sum(-1).mean() + right.square().sum(-1).mean()).item()
    if size == 0:
        return 1.0
    spread = torch.stack([_spread(left), _spread(right)]).numpy()  # 2, H, R
    largest = max(left.abs().max().item(), right.abs().max().item())
    step = COARSEST * math.sqrt(12 / size)
    finest = max(float16_error * math.sqrt(12 / size), largest / LIMIT)
    finer = step / 2**0.25
    while finer >= finest and _bits(spread, finer) <= BITS:
        step, finer = finer, finer / 2**0.25
    return max(step, largest / LIMIT)


def _spread(values: Tensor) -> Tensor:
    """Standard deviation of each column (H, R) of (H, N, R)."""
    # torch's own is several times slower along this axis.
    return (values.square().mean(dim=1) - values.mean(dim=1).square()).clamp(min=0).sqrt()


def _bits(spread: NDArray[np.float64], step: float) -> float:
    """Mean entropy of the rounded numbers, were each column drawn from a normal distribution."""
    return float(np.log2(1 + math.sqrt(2 * math.pi * math.e) * spread / step).mean())


def _float16_error(query: Tensor, key: Tensor, sample: Tensor) -> float:
    """Root mean square by which float16 queries and keys would change the sampled logits."""
    rows = _rows(query, sample)
    rough_rows, rough_key = rows.half().float(), key.half().float()
    error = (rough_rows - rows) @ key.mT + rough_rows @ (rough_key - key).mT  # H, S, N
    # What is the same for a whole row does not change its softmax.
    size = (error - error.mean(dim=-1, keepdim=True)).square().mean().sqrt().item()
    return size if math.isfinite(size) else 0.0  # beyond 65,504 float16 is infinite


def _sample(left: Tensor) -> Tensor:
    """Indices of each head's sampled query tokens, (H, S)."""
    heads, tokens, _ = left.shape
    count = min(SAMPLE_ROWS // 2, tokens)
    even = torch.from_numpy(np.linspace(0, tokens - 1, count).astype(np.int64))
    longest = left.square().sum(-1).argsort(dim=-1, descending=True, stable=True)[:, :count]
    return torch.cat([even.expand(heads, count), longest], dim=1)


def _rows(values: Tensor, sample: Tensor) -> Tensor:
    """The sampled rows (H, S, R) of (H, N, R)."""
    return values.gather(1, sample[..., None].expand(-1, -1, values.shape[-1]))


def _attention(query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
    logits = query @ key.mT
    return (logits if bias is None else logits + bias).softmax(dim=-1)
