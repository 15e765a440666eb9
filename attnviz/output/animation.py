"""Pages of one size as the frames of a looping GIF."""

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
"""How long a frame is shown, and the last one before the loop starts again."""

_COLOURS = 255


def write_gif(
    frames: Sequence[Figure], path: Path, dpi: int, provenance: Provenance
) -> WrittenFile:
    """The frames under one palette, so that no colour flickers; the comment is the record.

    Raises:
        OutputError: It cannot be written.
    """
    from PIL import Image

    images = []
    for frame in frames:
        drawn = io.BytesIO()
        frame.savefig(drawn, format="png", dpi=dpi)
        images.append(Image.open(drawn).convert("RGB"))
    strip = Image.new("RGB", (images[0].width, sum(each.height for each in images)))
    for number, each in enumerate(images):
        strip.paste(each, (0, number * images[0].height))
    palette = strip.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT)
    paletted = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in images]
    encoded = io.BytesIO()
    paletted[0].save(
        encoded,
        format="GIF",
        save_all=True,
        append_images=paletted[1:],
        duration=[FRAME_MS] * (len(paletted) - 1) + [LAST_MS],
        loop=0,
        comment=to_json(provenance).encode(),
    )
    with complete_file(path) as stream:
        stream.write(encoded.getvalue())
    return WrittenFile(path, "animation")
