"""The callback: figures of a few images every N steps, from a snapshot of the live model."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attnviz.attention.checks import check_request
from attnviz.domain import DrawStyle, Fit, ImageFormat, WrittenFile
from attnviz.domain.events import Failed, Skipped
from attnviz.domain.kinds import CommandRequest, kind_of, request_of
from attnviz.domain.requests import (
    InputRequest,
    ModelRequest,
    OutputRequest,
    RunRequest,
    SizeRequest,
)
from attnviz.errors import UsageError
from attnviz.images.find import find_images
from attnviz.images.sizes import check_size
from attnviz.models.training import is_first_process, snapshot_backbone, undisturbed
from attnviz.models.wrap import compared
from attnviz.output.plan import check_folder
from attnviz.stages.draw import job_of, render
from attnviz.stages.model import ModelStage
from attnviz.stages.plan import check_before_loading, plan_request
from attnviz.stages.read import PreparedJob, ReadStage
from attnviz.storage import path_of
from attnviz.watch.board import Board, open_board

_log = logging.getLogger("attnviz.watch")


@dataclass(eq=False)
class Watch:
    """Draws figures of the same images while a model trains, without changing the training.

    images: files, folders or globs. figures: names in ``attnviz.domain.kinds.KINDS``, or requests
    with their own options (``HeadsRequest(layer=5)``). Step 1200 is written to
    ``out/step00001200/cat.heads.png``. tensorboard: a folder for events, or an open SummaryWriter.
    name: the model's name in figures. size, fit, mean, std: as on the command line. The first
    failure is logged as a warning, further ones at debug level; with ``strict`` they are raised.
    verify: as of ``attnviz.wrap``, at the first step that is drawn.

    Raises:
        AttnvizError: At once, if the images, the figures or the folder cannot be used.
    """

    images: Sequence[str | Path]
    figures: Sequence[str | CommandRequest] = ("heads", "rollout")
    every: int = 500
    out: str | Path = "attention"
    tensorboard: Any = None
    name: str | None = None
    size: SizeRequest = None
    fit: Fit = Fit.ASPECT
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    formats: Sequence[ImageFormat | str] = (ImageFormat.PNG,)
    save_data: bool = False
    style: DrawStyle = field(default_factory=DrawStyle)
    strict: bool = False
    verify: bool = True

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UsageError(f"every={self.every} is not a number of steps", "give 1 or more")
        self._commands = tuple(request_of(figure) for figure in self.figures)
        names = [kind_of(command).name for command in self._commands]
        if len(set(names)) < len(names):
            raise UsageError("two figures of one kind would share a name", "use a second Watch")
        self._inputs = InputRequest(
            inputs=tuple(map(str, _listed(self.images))),
            size=self.size,
            fit=self.fit,
            mean=self.mean,
            std=self.std,
        )
        found = find_images(self._inputs.inputs, exclude=path_of(self.out))
        for _, error in found.missing:
            raise error
        if not found.files:
            raise UsageError("there are no images to draw", "give images=[...]")
        self._formats = tuple(ImageFormat(each) for each in self.formats)
        self._board: Board | None = None
        self._warned = False
        self._verified = not self.verify
        for command in self._commands:
            check_before_loading(command, ModelRequest())
        if is_first_process():
            check_folder(path_of(self.out))
            if self.tensorboard is not None:
                self._board = open_board(self.tensorboard)

    def __call__(self, model: Any, step: int) -> tuple[Path, ...]:
        """Draw if ``step`` is a multiple of ``every``; returns the files written."""
        return self.draw(model, step) if int(step) % self.every == 0 else ()

    def draw(self, model: Any, step: int) -> tuple[Path, ...]:
        """Draw at this step, whatever its number; returns the files written."""
        if not is_first_process():
            return ()
        try:
            with undisturbed(model):
                return tuple(file.path for file in self._files(model, int(step)))
        except Exception as error:
            if self.strict:
                raise
            # Logged, since a warning filter may turn warnings into errors and end the training.
            level, self._warned = logging.DEBUG if self._warned else logging.WARNING, True
            _log.log(level, "attention was not drawn at step %s: %s", step, error)
            return ()

    def _files(self, model: Any, step: int) -> Iterator[WrittenFile]:
        snapshot = snapshot_backbone(model, self.name)
        if not self._verified:
            compared(model, snapshot)
            self._verified = True
        snapshot.info = replace(
            snapshot.info,
            name=f"{snapshot.info.name}, step {step}",
            weights=f"in training, step {step}",
        )
        for command in self._commands:
            check_request(snapshot.info, command)
        check_size(snapshot.info.patch, self.size, self._inputs.fit)
        for command in self._commands:
            request = self._request(command, step)
            _, plans = plan_request(request)
            reader = ReadStage(request, snapshot.info, snapshot.device.type)
            jobs = (_with_step(step, reader.read(file, plan)) for file, plan in plans.items())
            for outcome in ModelStage(request, snapshot).outcomes(jobs):
                if isinstance(outcome, Failed):
                    raise outcome.error
                if isinstance(outcome, Skipped):
                    continue
                plan = plans[outcome.job.file]
                written = render(job_of(request, plan, outcome.job, outcome.maps))
                yield from written
                if self._board is not None:
                    self._board.show(f"attention/{plan.stem}.{plan.command}", written, step)

    def _request(self, command: CommandRequest, step: int) -> RunRequest:
        formats = self._formats
        if self._board is not None and ImageFormat.PNG not in formats:
            formats = (ImageFormat.PNG, *formats)
        return RunRequest(
            command=command,
            model=ModelRequest(),
            inputs=self._inputs,
            output=OutputRequest(path_of(self.out) / f"step{step:08d}", formats, self.save_data),
            style=self.style,
            batch_size=1,
        )


def _listed(images: Sequence[str | Path]) -> Sequence[str | Path]:
    return [images] if isinstance(images, str | Path) else images


def _with_step(
    step: int, outcome: PreparedJob | Skipped | Failed
) -> PreparedJob | Skipped | Failed:
    """The job with the step in its record."""
    if not isinstance(outcome, PreparedJob):
        return outcome
    return replace(outcome, provenance=replace(outcome.provenance, step=step))
