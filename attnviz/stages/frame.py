"""One frame of a video, drawn as pixels: the whole figure, or a few maps over the picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import FigureImage, Size
from attnviz.domain.kinds import kind_of
from attnviz.figures import draw
from attnviz.figures.parts.held import beyond, holding

if TYPE_CHECKING:
    from attnviz.domain import ByteArray, ComparedMap, DrawStyle, FitGeometry, Maps, ModelInfo
    from attnviz.domain.kinds import CommandRequest
    from attnviz.figures.parts.held import Ends
    from attnviz.output.plan import OutputPlan

LONGEST_SIDE = 1920
"""Of a frame that is a whole figure, in pixels: what every player shows."""
PAPER = 255


@dataclass(frozen=True, eq=False)
class DrawnFrame:
    """A frame as it is encoded.

    pixels: (h, w, 3) uint8; None where only the limits were asked for. own: the colour limits that
    it would have by itself. clipped: whether it has values beyond those that it was drawn with.
    pages: of the figure; a frame is the first.
    """

    pixels: ByteArray | None
    own: list[Ends]
    clipped: bool = False
    pages: int = 1


@dataclass(frozen=True, eq=False)
class FrameJob:
    """Everything that a drawing process needs for one frame.

    pixels: (h, w, 3) uint8, the frame of the video. panels: the maps over the picture, by name;
    None for the whole figure. over: without the plain picture. notes: what is said at the foot.
    held: the limits of all frames; None only notes the frame's own, and draws nothing.
    """

    maps: Maps
    panels: dict[str, ComparedMap] | None
    pixels: ByteArray
    geometry: FitGeometry
    model: ModelInfo
    style: DrawStyle
    command: CommandRequest
    plan: OutputPlan
    name: str
    over: bool = False
    notes: tuple[str, ...] = ()
    held: tuple[Ends, ...] | None = None

    def run(self) -> DrawnFrame:
        """Draw it.

        Raises:
            AttnvizError: As the figure of an image.
        """
        image = FigureImage(self.pixels, self.geometry, self.name, self.notes)
        with holding(self.held or ()) as own:
            if self.panels is None:
                pixels, pages = self._figure(image)
            else:
                from attnviz.figures.video import draw_panels

                pixels, pages = (
                    draw_panels(
                        self.panels,
                        image,
                        self.model,
                        self.style,
                        over=self.over,
                        measure=self.held is None,
                    ),
                    1,
                )
        if self.held is None:
            return DrawnFrame(None, own)
        return DrawnFrame(pixels, own, beyond(own, self.held), pages)

    def _figure(self, image: FigureImage) -> tuple[ByteArray | None, int]:
        from attnviz.output.encode import page_image

        kind = kind_of(self.command)
        options = {name: getattr(self.command, name) for name in kind.drawn_with}
        style = self.style
        figures = draw(self.maps, image, self.model, style, **options)
        if self.held is None:
            return None, len(figures)
        longest = max(float(side) for side in figures[0].get_size_inches())
        dpi = min(style.dpi, int(LONGEST_SIDE / longest))
        return np.asarray(page_image(figures[0], dpi)), len(figures)


def fitted(pixels: ByteArray, size: Size) -> ByteArray:
    """The frame at the size of the first: what a line more or less at the foot adds or takes."""
    if pixels.shape[:2] == size:
        return pixels
    out = np.full((*size, 3), PAPER, np.uint8)
    height, width = min(size.height, pixels.shape[0]), min(size.width, pixels.shape[1])
    out[:height, :width] = pixels[:height, :width]
    return out
