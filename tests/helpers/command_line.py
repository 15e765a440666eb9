"""The real command line, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.cli.app import main
from attnviz.output.read_record import read_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def attnviz(*arguments: object) -> int:
    """Run ``attnviz ARGUMENTS``; the exit code."""
    return main([str(argument) for argument in arguments])


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a data file, without its record."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files if name != "meta"}


def meta(path: Path) -> dict[str, Any]:
    """The record of a data file."""
    record = read_record(path)
    assert record is not None
    return record


def assert_same_arrays(
    left: Mapping[str, NDArray[Any]], right: Mapping[str, NDArray[Any]], within: float = 0.0
) -> None:
    """Same names, shapes, types, and values within an absolute distance."""
    assert left.keys() == right.keys()
    for name, values in left.items():
        other = right[name]
        assert (values.shape, values.dtype) == (other.shape, other.dtype), name
        if values.dtype.kind in "bU":
            assert (values == other).all(), name
        else:
            assert np.abs(values - other).max(initial=0) <= within, name


def files_below(folder: Path) -> list[str]:
    """Every file below a folder, hidden ones too, as sorted relative names."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
