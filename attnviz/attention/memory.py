"""How much memory a run needs, estimated before it starts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from attnviz.attention.blocks import max_rows
from attnviz.attention.discovery import BLOCK_VALUES
from attnviz.attention.faithful_cost import images_in_a_pass
from attnviz.attention.rollout import KEEP_LIMIT_BYTES
from attnviz.domain import DiscoverMethod, ModelInfo, RelevanceMethod, Size
from attnviz.domain.kinds import (
    CommandRequest,
    DiscoverRequest,
    FaithfulRequest,
    MatrixRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
    kind_of,
)
from attnviz.domain.options import resolve
from attnviz.errors import MemoryNeededError

WIDTHS = 14
"""Floats a token at the peak of a block, in units of the model's width: tokens, their norm, q, k
and v, or the hidden layer of the MLP before and after its activation."""

KEPT_WIDTHS = 26
"""Floats a token that a block keeps for the backward pass, in the same units: inputs and outputs of
its norms, attention and activation, and a gradient. Measured: 13 in plain blocks, 24 in gated."""

CONTRIBUTION_WIDTHS = 4
"""Floats a token that contributions to CLS need besides the pass, in the same units."""

SPECTRUM_BYTES = 56
"""Bytes a token and channel at the peak of the low-frequency energy: the tokens in float64, their
spectrum, and what is filtered of it, each of complex numbers of 16 bytes."""

MAX_CELLS = 1000
"""Blocks of patches along each side of a drawn matrix, at most: a page at 300 dpi has fewer pixels
for it. With fewer patches each is a block of its own."""

WHOLE_LIMIT_BYTES = 2_000_000_000
"""Size of the whole matrices of one image, before and after softmax together, at most."""

SHARE = 0.9
"""Share of the free memory that a run may plan to use."""

UNKNOWN_BATCH = 1 << 16
"""Images in a batch, at most, where the free memory is unknown."""


def largest_batch(
    info: ModelInfo, size: Size, request: CommandRequest, device: torch.device
) -> int:
    """How many images of a model input size fit together, at least 1.

    Raises:
        MemoryNeededError: Not even one fits.
    """
    check_memory(info, size, request, device)
    free = free_bytes(device)
    if free is None:
        return UNKNOWN_BATCH
    return max(1, int(SHARE * free / needed_bytes(info, tokens_of(info, size), request, device)))


def check_memory(
    info: ModelInfo, size: Size, request: CommandRequest, device: torch.device
) -> None:
    """Raise unless one image of a model input size fits into memory.

    Raises:
        MemoryNeededError: It does not fit; the message gives the largest size that does.
    """
    free = free_bytes(device)
    if free is None:
        return
    needed = needed_bytes(info, tokens_of(info, size), request, device)
    if needed <= SHARE * free:
        return
    raise MemoryNeededError(
        f"a model input of {size} needs about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
        f"the largest square that fits is about --size {largest_side(info, request, device, free)}",
    )


def fits_beside(info: ModelInfo, size: Size, command: CommandRequest, count: int) -> bool:
    """Whether ``count`` images of one size fit into the CPU's memory at the same time."""
    cpu = torch.device("cpu")
    free = free_bytes(cpu)
    if free is None:
        return True
    return count * needed_bytes(info, tokens_of(info, size), command, cpu) < SHARE * free


def multiplications(info: ModelInfo, size: Size) -> float:
    """Approximate number of multiplications in a plain pass of one image.

    In a block of width w every token takes 12 w^2 for the weights and 2 N w for attention.
    """
    tokens = tokens_of(info, size)
    return float(info.depth * tokens * info.width * (12 * info.width + 2 * tokens))


@contextmanager
def memory_errors(size: Size) -> Iterator[None]:
    """Turn the out-of-memory errors of torch and Python into MemoryNeededError.

    Raises:
        MemoryNeededError: The work at this model input size does not fit.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise MemoryNeededError(
            f"out of memory at {size} pixels",
            "give a smaller --size, a smaller --batch-size, or --device cpu",
        ) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise MemoryNeededError(
            f"out of memory at {size} pixels", "give a smaller --size"
        ) from error


def needed_bytes(
    info: ModelInfo, tokens: int, command: CommandRequest, device: torch.device
) -> int:
    """Estimated peak in bytes of one image's pass, beyond the loaded weights."""
    block = info.heads * max_rows(info.heads, tokens, device) * tokens
    activations = 4 * (WIDTHS * info.width * tokens + block)
    extra = kind_of(command).extra_bytes
    return activations + (0 if extra is None else int(resolve(extra)(info, tokens, command)))


def relevance_bytes(info: ModelInfo, tokens: int, request: RelevanceRequest) -> int:
    """What the way back from the target takes beyond the pass, in bytes."""
    if request.method is RelevanceMethod.CONTRIBUTION:
        return 4 * CONTRIBUTION_WIDTHS * info.width * tokens
    return 4 * KEPT_WIDTHS * info.width * tokens * info.depth


def score_bytes(info: ModelInfo, tokens: int, request: ScoreRequest) -> int:
    """What the Fourier transforms of the low-frequency energy take beyond the pass, in bytes."""
    return SPECTRUM_BYTES * info.width * tokens if request.lfe else 0


def faithful_bytes(info: ModelInfo, tokens: int, request: FaithfulRequest) -> int:
    """What a pass of several changed images takes beyond that of one, or the gradient, in bytes."""
    passes = 4 * WIDTHS * info.width * tokens * (images_in_a_pass(tokens) - 1)
    gradient = 4 * KEPT_WIDTHS * info.width * tokens * info.depth
    return max(passes, gradient if request.needs_gradients else 0)


def matrix_bytes(info: ModelInfo, tokens: int, request: MatrixRequest) -> int:
    """What the matrices that are drawn, and the whole ones, take beyond the pass, in bytes."""
    heads = len(request.heads or range(info.heads))
    cells = 4 * 2 * heads * min(tokens, info.prefix + MAX_CELLS) ** 2
    return 2 * cells + (whole_bytes(heads, tokens) if request.whole else 0)


def discover_bytes(_info: ModelInfo, tokens: int, request: DiscoverRequest) -> int:
    """What the graph of the patches takes beyond the pass, in bytes; LOST needs rows alone."""
    if request.method is DiscoverMethod.LOST:
        return 5 * BLOCK_VALUES
    # Cosines in float32; for TokenCut also their mask, and weights in float64.
    each = 4 if request.method is DiscoverMethod.SPECTRAL else 4 + 1 + 8
    return each * tokens * tokens


def rollout_bytes(info: ModelInfo, tokens: int, request: RolloutRequest) -> int:
    """What the layers' matrices, or what makes them again, take beyond the pass, in bytes."""
    matrix = 4 * tokens * tokens
    layers = info.depth - request.options.start_layer % info.depth
    if matrix * layers <= KEEP_LIMIT_BYTES:
        return matrix * layers
    kept = 4 * 3 * info.width * tokens * layers  # q, k and v of every layer
    # To find the k-th smallest value of a matrix it may have to be copied.
    return kept + (2 * matrix if request.options.discard_ratio else 0)


def whole_bytes(heads: int, tokens: int) -> int:
    """Bytes of the whole matrices (heads, N, N), before and after softmax."""
    return 4 * 2 * heads * tokens * tokens


def check_whole(info: ModelInfo, heads: int, tokens: int) -> None:
    """Raise MemoryNeededError where the whole matrices of one image are too large to hold."""
    needed = whole_bytes(heads, tokens)
    if needed <= WHOLE_LIMIT_BYTES:
        return
    fitting = math.isqrt(WHOLE_LIMIT_BYTES // whole_bytes(heads, 1))
    cells = math.isqrt(max(fitting - info.prefix, 1))
    side = ((cells - 1) * info.step + info.patch) // info.patch * info.patch
    raise MemoryNeededError(
        f"the whole matrices of {heads} heads and {tokens:,} tokens take {needed / 1e9:.1f} GB, "
        f"more than the limit of {WHOLE_LIMIT_BYTES / 1e9:g} GB",
        f"omit --save-data, or choose fewer --heads or a --size of at most {side}",
    )


def tokens_of(info: ModelInfo, size: Size) -> int:
    """N of a model input size."""
    grid = info.grid_of(size)
    return info.prefix + grid.height * grid.width


def largest_side(
    info: ModelInfo, command: CommandRequest, device: torch.device, free: float
) -> int:
    """Side in pixels of the largest square input that fits, a multiple of the patch."""
    low, high = 1, 1 << 14
    while low < high:
        middle = (low + high + 1) // 2
        tokens = tokens_of(info, Size(middle * info.patch, middle * info.patch))
        if needed_bytes(info, tokens, command, device) <= SHARE * free:
            low = middle
        else:
            high = middle - 1
    return low * info.patch


def free_bytes(device: torch.device) -> float | None:
    """Memory in bytes that a run may use on a device now; None where it is unknown."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return float(free)
    if device.type != "cpu":
        return None
    limits = [limit for limit in (_available(), _address_space()) if limit is not None]
    return min(limits, default=None)


def _available() -> float | None:
    """Linux's own estimate of the memory available without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) * 1024
    return None


def _address_space() -> float | None:
    """What remains below the process's own limit (ulimit -v), where one is set."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or not math.isfinite(soft):
        return None
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return float(soft - pages * resource.getpagesize())
