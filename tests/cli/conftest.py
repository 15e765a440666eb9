"""The command line in this process, with a pipeline that only notes what it was asked to do."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

import attnviz
from attnviz.cli.app import main
from attnviz.events import Event
from attnviz.requests import RunRequest


@dataclass
class FakePipeline:
    """``events`` are what a run yields; an exception among them is raised in its place."""

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
def pipeline(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    fake = FakePipeline()
    module = types.ModuleType("attnviz.pipeline")
    module.run = fake.run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "attnviz.pipeline", module)
    monkeypatch.setattr(attnviz, "pipeline", module, raising=False)
    return fake


@pytest.fixture
def attnviz_command(pipeline: FakePipeline, capsys: pytest.CaptureFixture[str]):
    def call(*arguments: str) -> Outcome:
        code = main(arguments)
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def request_of(pipeline: FakePipeline, attnviz_command):
    """The request that a command line comes to; the command line must be accepted."""

    def call(*arguments: str) -> RunRequest:
        outcome = attnviz_command(*arguments)
        assert pipeline.requests, outcome.err
        return pipeline.requests.pop()

    return call
