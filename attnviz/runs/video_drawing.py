"""The frames of one video: through the model, drawn, and encoded in their order."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from statistics import median
from typing import Any

from attnviz.domain import RgbImage, Size
from attnviz.domain.events import Done, Failed, FrameDone, Interrupted
from attnviz.domain.kinds import kind_of
from attnviz.domain.options import resolve
from attnviz.engines import draw_pool
from attnviz.engines.ahead import ahead
from attnviz.engines.draw_pool import Renderer
from attnviz.engines.replicas import replicated
from attnviz.errors import ImageError
from attnviz.figures.parts.held import joined
from attnviz.output.video import open_sink
from attnviz.stages.frame import FrameJob, fitted
from attnviz.stages.frame_model import ComputedFrame, FrameStage, PreparedFrame
from attnviz.stages.read import prepare_image
from attnviz.stages.smooth import mean_of, windows

AHEAD = 4


class Drawing:
    def __init__(self, video, source, chosen, sample, provenance, record):
        self.v, self.source, self.chosen, self.sample = video, source, chosen, sample
        self.provenance, self.record = provenance, record
        self.held = ()
        self.fixed = []

    def events(self):
        v = self.v
        others = v.panels.others if v.panels else ()
        stage = FrameStage(v.request, v.model, others)
        workers = v.request.workers
        if workers is None:
            workers = draw_pool.default_workers(len(self.chosen))
        with Renderer(workers) as renderer:
            kept = {c.job.time.index: c for c in self._computed(stage, self.sample, {})}
            columns = zip(*[(c.maps, *c.others) for c in kept.values()], strict=True)
            for column in columns:
                fix = kind_of(column[0]).over_frames
                self.fixed.append(None if fix is None else resolve(fix)(column))
            pend = [renderer.submit(self._job(self._item(c), None)) for c in kept.values()]
            self.held = joined([renderer.result(p).own for p in pend])
            kept = {i: (c.maps, c.others) for i, c in kept.items()}
            yield from self._main(renderer, stage, kept, workers)

    def _computed(self, stage, times, kept):
        def jobs():
            with closing(ahead(self.source.frames(times), AHEAD)) as frames:
                for frame in frames:
                    image = RgbImage(self.v.file, frame.pixels, self.provenance.image_sha256)
                    if image.size != self.provenance.geometry.original:
                        raise ImageError(
                            f"frame {frame.time.index} is {image.size} pixels large, the first is "
                            f"{self.provenance.geometry.original}",
                            "all frames of a video have one size",
                        )
                    prepared = prepare_image(image, self.v.model.info, self.v.request.inputs)
                    job = PreparedFrame(self.v.file, prepared, self.provenance, False, frame.time)
                    known = kept.pop(frame.time.index, None)
                    yield job if known is None else ComputedFrame(job, known[0], (), known[1])

        waiting = {}
        order = deque(times)
        with closing(replicated(stage, len(times)).outcomes(jobs())) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, Failed):
                    raise outcome.error
                waiting[outcome.job.time.index] = outcome
                while order and order[0].index in waiting:
                    yield waiting.pop(order.popleft().index)

    def _item(self, computed):
        every = [
            each if fix is None else fix(each)
            for fix, each in zip(self.fixed, (computed.maps, *computed.others), strict=True)
        ]
        panels = self.v.panels.of(every[0], tuple(every[1:])) if self.v.panels else None
        return computed.job, every[0], panels

    def _job(self, item, held):
        job, maps, panels = item
        v = self.v
        t = job.time
        notes = (f"frame {t.index}, {t.seconds:.2f} s",)
        if v.panels is None:
            notes = (f"colour limits of {len(self.sample)} frames", *notes)
        if v.request.video.smooth:
            notes = (*notes, f"mean of {v.request.video.smooth} frames")
        return FrameJob(
            maps,
            panels,
            job.prepared.image.pixels,
            job.prepared.geometry,
            v.info,
            v.request.style,
            v.request.command,
            v.plan,
            v.file.path.name,
            v.request.video.over,
            notes,
            held,
        )

    def _smooth(self, items):
        count = v = self.v.request.video.smooth
        if not v:
            yield from items
            return
        for centre, around in windows(items, count):
            job, maps, panels = centre
            mean = mean_of([a[1] for a in around], maps)
            names = panels and {n: mean_of([a[2][n] for a in around], panels[n]) for n in panels}
            yield job, mean, names

    def _main(self, renderer, stage, kept, workers):
        v = self.v
        gaps = [b.seconds - a.seconds for a, b in zip(self.chosen, self.chosen[1:], strict=False)]
        step = median(gaps) if gaps else 0.04
        start = self.chosen[0].seconds
        sink, size, done, last, clipped = None, None, 0, 0.0, 0
        pending = deque()
        writer = ThreadPoolExecutor(1)
        writes: deque[Future[Any]] = deque()
        try:
            items = (self._item(c) for c in self._computed(stage, self.chosen, kept))
            feed = self._smooth(items)
            ended = False
            while not ended or pending:
                item = next(feed, None)
                ended = item is None
                if item is not None:
                    pending.append((item[0].time, renderer.submit(self._job(item, self.held))))
                while pending and (ended or len(pending) > 2 * workers):
                    time, job = pending.popleft()
                    drawn = renderer.result(job)
                    clipped += drawn.clipped
                    if sink is None:
                        size = Size(*drawn.pixels.shape[:2])
                        sink = open_sink(v.plan, v.form, size, self.record, step)
                    writes.append(
                        writer.submit(sink.add, fitted(drawn.pixels, size), time.seconds - start)
                    )
                    while len(writes) > AHEAD:
                        writes.popleft().result()
                    done, last = done + 1, time.seconds
                    yield FrameDone(v.file, done, len(self.chosen))
            while writes:
                writes.popleft().result()
            written = sink.finish()
        except (KeyboardInterrupt, GeneratorExit) as stop:
            writer.shutdown(wait=True)
            if sink is not None:
                written = sink.finish(partial=True)
                if isinstance(stop, KeyboardInterrupt):
                    yield Interrupted(v.file, written, done, len(self.chosen), last)
            raise
        except BaseException:
            writer.shutdown(wait=True)
            if sink is not None:
                sink.abandon()
            raise
        writer.shutdown()
        notes = list(dict.fromkeys(self.source.notes))
        if clipped:
            notes.append(f"{clipped} of {done} frames have values beyond the colour limits")
        yield Done(v.file, written, dict(self.record), (), tuple(notes))
