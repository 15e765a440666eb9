"""Files of object boxes: a CSV table with the columns image, left, top, right, bottom.

A row is one box, in pixel edges of the upright image: (0, 0, width, height) is all of it. An image
may have several. It is named by its path below the input folder or its name, with or without its
suffix.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from attnviz.domain import Box, ImageFile, Size
from attnviz.errors import ImageError, UsageError
from attnviz.images.names import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Boxes = Mapping[str, tuple[Box, ...]]

COLUMNS = ("image", "left", "top", "right", "bottom")
_HINT = f"a CSV file with the columns {', '.join(COLUMNS)}, a row for every box"


def read_boxes(path: Path) -> Boxes:
    """The boxes of a file, by the name of their image.

    Raises:
        UsageError: The file cannot be read, or a row is not a box; the message has its line.
    """
    name = printable(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--boxes: {name} cannot be read ({error.strerror})", _HINT) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--boxes: {name} is not a text in UTF-8", _HINT) from error
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise UsageError(f"--boxes: {name} has no column {missing[0]!r}", _HINT)
    boxes: dict[str, tuple[Box, ...]] = {}
    for row in rows:
        where = f"--boxes: {name}, line {rows.line_num}"
        key = (row["image"] or "").strip()
        if not key:
            raise UsageError(f"{where}: names no image", _HINT)
        boxes[key] = (*boxes.get(key, ()), _box(where, [row[column] for column in COLUMNS[1:]]))
    if not boxes:
        raise UsageError(f"--boxes: {name} holds no box", _HINT)
    return boxes


def boxes_of(boxes: Boxes, file: ImageFile) -> tuple[Box, ...]:
    """The boxes of an image, by the most precise of its names that the file has; () for none."""
    relative = file.relative
    names = (relative.as_posix(), relative.with_suffix("").as_posix(), relative.name, relative.stem)
    return next((boxes[name] for name in names if name in boxes), ())


def check_inside(boxes: tuple[Box, ...], size: Size) -> None:
    """Raise ImageError for a box that reaches beyond its image."""
    for box in boxes:
        if min(box) < 0 or box.right > size.width or box.bottom > size.height:
            sides = ", ".join(f"{value:g}" for value in box.ltrb)
            raise ImageError(
                f"the box {sides} reaches beyond the image, "
                f"which is {size.width} pixels wide and {size.height} high",
                "boxes are left, top, right, bottom in pixel edges of the upright image, from 0",
            )


def _box(where: str, values: list[str | None]) -> Box:
    try:
        left, top, right, bottom = (float(value or "") for value in values)
    except ValueError as error:
        raise UsageError(f"{where}: a side of the box is not a number", _HINT) from error
    if not all(map(math.isfinite, (left, top, right, bottom))):
        raise UsageError(f"{where}: a side of the box is not finite", _HINT)
    if not (left < right and top < bottom):
        raise UsageError(
            f"{where}: the box is empty, left must be below right and top below bottom", _HINT
        )
    return Box(top, left, bottom, right)
