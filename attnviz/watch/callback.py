"""The callback: every so many steps the figures of a few pictures, from the live model's twin."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attnviz.attention.compute import check_command
from attnviz.domain import DrawStyle, Fit, ImageFormat, WrittenFile
from attnviz.domain.events import Failed, Skipped
from attnviz.domain.options import command_name
from attnviz.domain.requests import (
    CommandRequest,
    FeaturesRequest,
    HeadsRequest,
    InputRequest,
    LayersRequest,
    ModelRequest,
    OutputRequest,
    PatchRequest,
    RolloutRequest,
    RunRequest,
    ScoreRequest,
    SizeRequest,
)
from attnviz.errors import UsageError
from attnviz.images.find import find_images
from attnviz.images.fit import check_size
from attnviz.models.training import is_first_process, twin_of, undisturbed
from attnviz.output.plan import check_folder
from attnviz.stages.draw import job_of, render
from attnviz.stages.model import ModelStage
from attnviz.stages.plan import plan_request
from attnviz.stages.read import ReadStage, Ready
from attnviz.storage import path_of
from attnviz.watch.board import Board, open_board

FIGURES: dict[str, type[CommandRequest]] = {
    "heads": HeadsRequest,
    "layers": LayersRequest,
    "rollout": RolloutRequest,
    "patch": PatchRequest,
    "score": ScoreRequest,
    "features": FeaturesRequest,
}

_log = logging.getLogger("attnviz.watch")


@dataclass(eq=False)
class Watch:
    """Draws figures of fixed pictures while a model trains, and leaves the training as it is.

    images: files, folders or globs. figures: names of commands, or requests with options of their
    own (``HeadsRequest(layer=5)``). Step 1200 goes into ``out/step00001200/cat.heads.png``.
    tensorboard: a folder for events, or a SummaryWriter that is open already. name: what figures
    call the model. size, fit, mean, std: as on the command line. What goes wrong in a step is
    logged as a warning, once, and never raised unless ``strict``.

    Raises:
        AttnvizError: At once, for pictures, figures or a folder that cannot be used.
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

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UsageError(f"every={self.every} is no number of steps", "1 or more")
        self._commands = tuple(_command(figure) for figure in self.figures)
        names = [command_name(command) for command in self._commands]
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
            raise UsageError("there is no picture to watch with", "images=[...]")
        self._formats = tuple(ImageFormat(each) for each in self.formats)
        self._board: Board | None = None
        self._warned = False
        if is_first_process():
            check_folder(path_of(self.out))
            if self.tensorboard is not None:
                self._board = open_board(self.tensorboard)

    def __call__(self, model: Any, step: int) -> tuple[Path, ...]:
        """Draw if ``step`` is a multiple of ``every``; the files that were written."""
        return self.draw(model, step) if int(step) % self.every == 0 else ()

    def draw(self, model: Any, step: int) -> tuple[Path, ...]:
        """Draw at this step whatever its number; the files that were written."""
        if not is_first_process():
            return ()
        try:
            with undisturbed(model):
                return tuple(file.path for file in self._files(model, int(step)))
        except Exception as error:
            if self.strict:
                raise
            # A warning that a filter turns into an error would end the training: hence a log.
            level, self._warned = logging.DEBUG if self._warned else logging.WARNING, True
            _log.log(level, "attention was not drawn at step %s: %s", step, error)
            return ()

    def _files(self, model: Any, step: int) -> Iterator[WrittenFile]:
        twin = twin_of(model, self.name)
        twin.info = replace(
            twin.info, name=f"{twin.info.name}, step {step}", weights=f"in training, step {step}"
        )
        for command in self._commands:
            check_command(twin.info, command)
        check_size(twin.info.patch, self.size, self._inputs.fit)
        for command in self._commands:
            request = self._request(command, step)
            _, plans = plan_request(request)
            reader = ReadStage(request, twin.info, twin.device.type)
            pictures = (_at(step, reader.read(file, plan)) for file, plan in plans.items())
            for seen in ModelStage(request, twin).outcomes(pictures):
                if isinstance(seen, Failed):
                    raise seen.error
                if isinstance(seen, Skipped):
                    continue
                plan = plans[seen.ready.file]
                written = render(job_of(request, plan, seen.ready, seen.maps))
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


def _command(figure: str | CommandRequest) -> CommandRequest:
    if not isinstance(figure, str):
        return figure
    if figure not in FIGURES:
        raise UsageError(f"no figure is called {figure!r}", f"one of {', '.join(FIGURES)}")
    return FIGURES[figure]()


def _at(step: int, picture: Ready | Skipped | Failed) -> Ready | Skipped | Failed:
    """The picture with the step in its record."""
    if not isinstance(picture, Ready):
        return picture
    return replace(picture, provenance=replace(picture.provenance, step=step))
