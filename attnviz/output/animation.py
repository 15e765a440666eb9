"""Pages of one size as the frames of a GIF that runs on and on."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from attnviz.domain import WrittenFile
from attnviz.output.atomic import complete_file
from attnviz.output.record import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from attnviz.domain import Provenance

FRAME_MS = 700
LAST_MS = 2100
"""How long a frame stands, and the last one before it all begins again."""

_COLOURS = 255


def write_gif(
    frames: Sequence[Figure], path: Path, dpi: int, provenance: Provenance
) -> WrittenFile:
    """The frames under one palette, so that no colour flickers; the comment is the record.

    Raises:
        OutputError: It cannot be written.
    """
    from PIL import Image

    pictures = []
    for frame in frames:
        drawn = io.BytesIO()
        frame.savefig(drawn, format="png", dpi=dpi)
        pictures.append(Image.open(drawn).convert("RGB"))
    strip = Image.new("RGB", (pictures[0].width, sum(each.height for each in pictures)))
    for number, each in enumerate(pictures):
        strip.paste(each, (0, number * pictures[0].height))
    palette = strip.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT)
    paletted = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in pictures]
    packed = io.BytesIO()
    paletted[0].save(
        packed,
        format="GIF",
        save_all=True,
        append_images=paletted[1:],
        duration=[FRAME_MS] * (len(paletted) - 1) + [LAST_MS],
        loop=0,
        comment=to_json(provenance).encode(),
    )
    with complete_file(path) as stream:
        stream.write(packed.getvalue())
    return WrittenFile(path, "animation")
