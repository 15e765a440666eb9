"""``attnviz render --check``: what was drawn just now, compared with the files that are there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.cli.report import Report
from attnviz.storage import is_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnviz.domain.events import Done
    from attnviz.runs.figure_set import PlannedFigure


def check_set(
    figures: Sequence[PlannedFigure], diff_folder: Path, tolerance: float, **printing: bool
) -> int:
    """Draw a set into a temporary folder and compare; the exit code, 1 where a file differs.

    ``printing``: ``as_json`` and ``quiet`` as for any run.
    """
    from attnviz.runs.figure_set import draw_set, place_of

    with tempfile.TemporaryDirectory(prefix="attnviz-check-") as name:
        drawn = Path(name)
        folders = {place_of(figure, drawn): figure.planned.folder for figure in figures}
        report = _CheckReport(folders, diff_folder, tolerance, **printing)
        return report.consume(event for _, event in draw_set(figures, into=drawn))


class _CheckReport(Report):
    """Reads the events of the run that draws, and compares every file as it comes.

    Standard output gets one line a file that differs: its path and by how much; as JSON one record
    a file (``status`` same or differs). An image of each difference that can be seen goes to
    ``diff_folder``, as PNG.
    """

    def __init__(
        self,
        folders: Mapping[Path, Path],
        diff_folder: Path,
        tolerance: float,
        *,
        as_json: bool,
        quiet: bool,
    ) -> None:
        super().__init__(as_json=as_json, quiet=quiet)
        self._folders = folders
        self._diff_folder = diff_folder
        self._tolerance = tolerance
        local = [f.absolute() for f in folders.values() if not is_address(str(f))]
        self._common = Path(os.path.commonpath(local)) if local else Path()
        self._compared = 0
        self._differing = 0

    def _finish_one(self, event: Done) -> None:
        self._done += 1
        for file in event.written:
            self._compare(file.path)
            file.path.unlink()

    def _compare(self, drawn: Path) -> None:
        from attnviz.output.diff import compare

        (folder,) = self._folders.keys() & set(drawn.parents)
        expected = self._folders[folder] / drawn.relative_to(folder)
        difference = compare(expected, drawn, self._tolerance)
        self._compared += 1
        record: dict[str, Any] = {"status": "same", "path": str(expected)}
        if difference is not None:
            self._differing += 1
            record |= {"status": "differs", "how": difference.words}
            if difference.image is not None:
                record["picture"] = str(self._save(expected, difference.image))
        if self._as_json:
            self._emit(record)
        elif difference is not None:
            see = f", see {record['picture']}" if "picture" in record else ""
            self._print(f"{expected}: {difference.words}{see}")

    def _save(self, expected: Path, pixels: Any) -> Path:
        from PIL import Image

        from attnviz.output.atomic import complete_file

        path = self._diff_folder / self._relative(expected)
        if path.suffix != ".png":
            path = path.with_name(f"{path.name}.png")
        with complete_file(path) as stream:
            Image.fromarray(pixels).save(stream, format="PNG")
        return path

    def _relative(self, expected: Path) -> Path:
        if is_address(str(expected)):
            return Path(*expected.parts[1:])
        return expected.absolute().relative_to(self._common)

    def _finish(self) -> int:
        code = super()._finish()
        return max(code, 1) if self._differing else code

    def _summary(self) -> str:
        files = f"{self._compared} file{'s' * (self._compared != 1)} compared"
        return f"{super()._summary()}; {files}, {self._differing or 'none'} differ" + (
            "s" if self._differing == 1 else ""
        )
