"""Names for kinds of arrays, and the checks of their shapes where a value is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]
    ByteArray = NDArray[np.uint8]
    BoolArray = NDArray[np.bool_]
    IntArray = NDArray[np.int64]


def check_shape(owner: str, name: str, array: Any, expected: tuple[int | None, ...]) -> None:
    """Raise ValueError unless ``array`` has the expected shape; None stands for any length."""
    shape = tuple(array.shape)
    wrong = len(shape) != len(expected) or any(
        want is not None and have != want for have, want in zip(shape, expected, strict=False)
    )
    if wrong:
        wanted = tuple("any" if n is None else n for n in expected)
        raise ValueError(f"{owner}.{name} has shape {shape}, expected {wanted}")


def check_dtype(owner: str, name: str, array: Any, expected: str) -> None:
    """Raise ValueError unless ``array`` holds numbers of the expected type, by numpy's name."""
    if array.dtype.name != expected:
        raise ValueError(f"{owner}.{name} is {array.dtype.name}, expected {expected}")
