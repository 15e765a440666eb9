"""One video: its frames go through the same stages as images, and into one file in their order.

Colour limits are those of some frames spread over the whole video, which go through the model
first; their maps are kept, so that no frame is computed twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.domain import ImageFile, RgbImage
from attnviz.domain.events import UP_TO_DATE, Failed, Skipped
from attnviz.domain.kinds import kind_of
from attnviz.domain.requests import run_options
from attnviz.domain.video import FrameTime, chosen_frames
from attnviz.errors import AttnvizError, ImageError
from attnviz.images.frames import form_of, has_own_times, open_frames, video_digest
from attnviz.output.current import differences, identity
from attnviz.output.read_record import read_record
from attnviz.output.record import to_dict
from attnviz.output.video import record_path
from attnviz.runs.video_panels import VideoPanels
from attnviz.stages.draw import about
from attnviz.stages.plan import second_digest
from attnviz.stages.read import prepare_image, provenance_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from attnviz.domain import Provenance
    from attnviz.domain.events import Event
    from attnviz.domain.requests import RunRequest
    from attnviz.domain.video import Frame
    from attnviz.figures.parts.held import Ends
    from attnviz.models.backbone import Backbone
    from attnviz.output.plan import OutputPlan

SAMPLE = 24
"""Frames that decide the colour limits and the components of a video."""
AHEAD = 4
"""Decoded frames that wait for the model, and drawn ones that wait to be encoded."""


def draw_video(
    request: RunRequest, model: Backbone, file: ImageFile, plan: OutputPlan
) -> Generator[Event, None, None]:
    """Draw one video: a ``FrameDone`` a frame, then one ``Done``, ``Skipped`` or ``Failed``."""
    try:
        yield from _Video(request, model, file, plan).events()
    except AttnvizError as error:
        yield Failed(str(file.path), about(file, error))


def spread(times: Sequence[FrameTime], count: int) -> tuple[FrameTime, ...]:
    """Up to ``count`` of the frames at equal distances, the first and the last among them."""
    if len(times) <= count:
        return tuple(times)
    return tuple(times[round(n * (len(times) - 1) / (count - 1))] for n in range(count))


class _Video:
    def __init__(
        self, request: RunRequest, model: Backbone, file: ImageFile, plan: OutputPlan
    ) -> None:
        video, output, command = request.video, request.output, request.command
        numbers = output.every_number or output.save_data
        if video.panel is not None and not numbers:
            command = command.for_maps_alone()
        self.request = replace(request, command=command)
        self.model, self.file, self.plan = model, file, plan
        self.info = model.info.with_statistics(request.inputs.mean, request.inputs.std)
        self.form = form_of(file.path, video)
        self.panels = None if video.panel is None else VideoPanels(request, model.info)
        self.options = run_options(request)
        self.numbers = numbers
        self.fixed: list[Callable[[Any], Any] | None] = []
        self.held: tuple[Ends, ...] = ()
        self.notes: list[str] = []
        self.clipped = self.done = 0
        self.seconds = 0.0
        self.pages = 1

    def events(self) -> Generator[Event, None, None]:
        request, path = self.request, self.file.path
        source = open_frames(self.file, request.inputs, request.video)
        video = request.video if has_own_times(path) else replace(request.video, fps=None)
        times = source.times()
        chosen = chosen_frames(times, video)
        sample = spread(chosen, SAMPLE)
        provenance = self._provenance(next(source.frames(chosen[:1])))
        record = {
            **to_dict(provenance),
            "video": {
                "frames": len(chosen),
                "of": len(times),
                "first": chosen[0].index,
                "last": chosen[-1].index,
                "limits_of": len(sample),
            },
        }
        if request.output.skip_existing and self._is_up_to_date(provenance):
            yield Skipped(self.file, UP_TO_DATE)
            return
        source.notes.clear()
        from attnviz.runs.video_drawing import Drawing

        drawing = Drawing(self, source, chosen, sample, provenance, record)
        yield from drawing.events()

    def _provenance(self, first: Frame) -> Provenance:
        try:
            digest = video_digest(self.file.path)
        except OSError as error:
            raise ImageError(f"{self.file.path} cannot be read ({error})", "check it") from error
        request = self.request
        image = RgbImage(self.file, first.pixels, digest)
        return provenance_of(
            kind_of(request.command).name,
            prepare_image(image, self.model.info, request.inputs),
            self.info,
            self.model.device.type,
            self.options,
            second_digest(request.command),
        )

    def _is_up_to_date(self, provenance: Provenance) -> bool:
        output, wanted = self.request.output, identity(provenance)
        paths = [record_path(self.plan, self.form)]
        paths += [self.plan.path("npz")] if output.save_data else []
        if output.every_number:
            return False
        records = [read_record(path) for path in paths]
        return all(each is not None and not differences(each, wanted) for each in records)
