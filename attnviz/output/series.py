"""One NPZ file of the arrays of all frames, along a first axis T, written as they come."""

from __future__ import annotations

import io
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from attnviz.domain import WrittenFile
from attnviz.errors import OutputError
from attnviz.output.atomic import as_output_error, complete_file
from attnviz.output.record import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from attnviz.domain.video import FrameTime
    from attnviz.output.record import Made

_BLOCK = 1 << 20


class ArraySeries:
    """Arrays of frames, kept in temporary files that go with the process, until ``finish``.

    Besides the arrays of the maps: frame (T,) int64 and seconds (T,) float64.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spools: dict[str, BinaryIO] = {}
        self._forms: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self._frames = 0

    def add(self, arrays: Mapping[str, NDArray[Any]], time: FrameTime) -> None:
        """The arrays of the next frame, under the same names and of the same shapes as before.

        Raises:
            OutputError: Another shape than before, or the disk is full.
        """
        more = {"frame": np.array(time.index, np.int64), "seconds": np.array(time.seconds)}
        try:
            for name, values in {**arrays, **more}.items():
                self._append(name, np.asarray(values))
        except OSError as error:
            raise as_output_error(self._path, error) from error
        self._frames += 1

    def _append(self, name: str, values: NDArray[Any]) -> None:
        form = values.shape, values.dtype
        if name not in self._forms:
            self._forms[name] = form
            self._spools[name] = tempfile.TemporaryFile()  # type: ignore[assignment]  # noqa: SIM115
        if self._forms[name] != form:
            raise OutputError(
                f"--save-data: array {name} has another shape in frame {self._frames}",
                "leave --save-data out for this video",
            )
        self._spools[name].write(np.ascontiguousarray(values).tobytes())

    def finish(self, made: Made) -> WrittenFile:
        """The file with all frames, and ``meta``: the record.

        Raises:
            OutputError: It cannot be written.
        """
        with (
            complete_file(self._path) as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
        ):
            for name, spool in self._spools.items():
                shape, dtype = self._forms[name]
                self._member(archive, name, (self._frames, *shape), dtype, spool)
            meta = np.array(to_json(made))
            self._member(archive, "meta", (), meta.dtype, io.BytesIO(meta.tobytes()))
        self.close()
        return WrittenFile(self._path, "data")

    def _member(
        self,
        archive: zipfile.ZipFile,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        content: BinaryIO,
    ) -> None:
        # Dated as numpy dates members, so that equal arrays are equal files.
        member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": shape,
        }
        content.seek(0)
        with archive.open(member, "w", force_zip64=True) as target:
            np.lib.format.write_array_header_1_0(target, header)  # type: ignore[arg-type]
            while block := content.read(_BLOCK):
                target.write(block)

    def close(self) -> None:
        """Drop what is kept."""
        for spool in self._spools.values():
            spool.close()
        self._spools.clear()
