"""The command line in this process: with a run that only records its requests, and for real with a
tiny checkpoint.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import attnviz.runs
from attnviz.cli.app import main
from attnviz.domain.events import Event
from attnviz.domain.requests import RunRequest
from tests.helpers.command_line import attnviz as attnviz_command_line
from tests.helpers.photos import save_scene


@dataclass
class FakePipeline:
    """Yields ``events``; an exception among them is raised instead."""

    events: Iterable[Event | BaseException] = ()
    requests: list[RunRequest] = field(default_factory=list)
    closed: bool = False

    def run(self, request: RunRequest) -> Iterator[Event]:
        self.requests.append(request)
        try:
            for event in self.events:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.closed = True


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePipeline:
    monkeypatch.chdir(tmp_path)  # the list of failures is written there
    fake = FakePipeline()
    module = types.ModuleType("attnviz.runs.command")
    module.run = fake.run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "attnviz.runs.command", module)
    monkeypatch.setattr(attnviz.runs, "command", module, raising=False)
    return fake


@pytest.fixture
def attnviz_command(pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]):
    def call(*arguments: str) -> Outcome:
        code = main(arguments)
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def request_of(pipeline: FakePipeline, attnviz_command):
    """The request that a command line gives; it must be accepted."""

    def call(*arguments: str) -> RunRequest:
        outcome = attnviz_command(*arguments)
        assert pipeline.requests, outcome.err
        return pipeline.requests.pop()

    return call


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 4 layers, 2 heads and patches of 8 in DINO's layout; native size 32."""
    # Imported here: most tests of the command line need no torch.
    from tests.helpers import checkpoints

    return checkpoints.save(tmp_path_factory.mktemp("weights") / "tiny.pth", checkpoints.original())


@pytest.fixture
def tiny(tiny_weights: Path) -> tuple[str, ...]:
    """The options that choose the tiny checkpoint, with figures that are quick to draw."""
    return ("--checkpoint", str(tiny_weights), "--model-arg", "heads=2", "--dpi", "30")


@pytest.fixture
def wrong_attention(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it to have rows computed that ``--verify`` must find wrong: all of one layer by 1 %."""
    from attnviz.attention import verify

    def plant() -> None:
        row_blocks = verify.row_blocks

        def wrong(call, *, output):
            yield from row_blocks(call, output=output)
            if call.layer == 2:
                output *= 1.01

        monkeypatch.setattr(verify, "row_blocks", wrong)

    return plant


@pytest.fixture
def real(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The whole command line in this process, run in the test's own folder."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        with contextlib.chdir(tmp_path):
            code = attnviz_command_line(*arguments)
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of small images of two sizes, one of them in a sub-folder."""
    folder = tmp_path / "photos"
    for name, height, width in (("1.png", 40, 40), ("2.jpg", 40, 40), ("10.png", 48, 72),
                                ("deep/er/3.png", 40, 40)):  # fmt: skip
        save_scene(folder / name, height, width)
    return folder
