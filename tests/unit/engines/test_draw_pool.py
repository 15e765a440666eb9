"""Drawing processes: they stay free of torch, and one that dies costs one picture."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest

from attnviz import api
from attnviz.domain import DrawStyle, Provenance
from attnviz.domain.kinds import HeadsRequest
from attnviz.domain.requests import OutputRequest
from attnviz.engines import draw_pool
from attnviz.engines.draw_pool import Renderer, default_workers
from attnviz.errors import OutputError
from attnviz.output.plan import OutputPlan
from attnviz.stages.draw import RenderJob
from tests.helpers.deadly import write_forever
from tests.helpers.planted import tiny_vit


class Deadly:
    """Ends the process that unpickles it, as a crash in a library would."""

    def __reduce__(self):
        return os._exit, (3,)


class Curious:
    """Arrives in a worker as whether that process has torch."""

    def __reduce__(self):
        return eval, ("__import__('sys').modules.get('torch') is not None",)


@pytest.fixture
def job(tmp_path):
    import numpy as np

    pixels = np.random.default_rng(0).integers(0, 255, (24, 40, 3), dtype=np.uint8)
    model = tiny_vit()
    image = api.prepare(pixels, model, size="original")
    return RenderJob(
        maps=api.heads(model, image),
        pixels=pixels,
        provenance=Provenance("heads", model.info, "p.png", "0" * 64, image.geometry),
        style=replace(DrawStyle(), dpi=50),
        command=HeadsRequest(),
        output=OutputRequest(tmp_path),
        plan=OutputPlan(tmp_path, "p", "heads"),
    )


def named(job, stem):
    return replace(job, plan=OutputPlan(job.plan.folder, stem, "heads"))


@pytest.mark.parametrize(
    ("images", "cores", "ready", "workers"),
    [(1, 8, False, 0), (1, 8, True, 1), (2, 1, False, 1), (2, 2, False, 1),
     (2, 6, True, 5), (900, 64, True, 8)],
)  # fmt: skip
def test_how_many_processes_draw(monkeypatch, images, cores, ready, workers):
    monkeypatch.setattr(draw_pool, "available_cores", lambda: cores)
    monkeypatch.setattr(draw_pool, "is_ready", lambda: ready)
    assert default_workers(images) == workers


def test_a_process_that_dies_costs_only_its_own_picture(job):
    jobs = [named(job, "a"), replace(job, pixels=Deadly()), named(job, "b"), named(job, "c")]
    outcomes = []
    with Renderer(2) as renderer:
        pending = [renderer.submit(one) for one in jobs]
        for one in pending:
            try:
                outcomes.append([file.path.name for file in renderer.result(one)])
            except OutputError as error:
                outcomes.append(str(error))
        after = renderer.result(renderer.submit(named(job, "d")))
    assert outcomes[0] == ["a.heads.png"]
    assert "died" in outcomes[1]
    assert outcomes[2:] == [["b.heads.png"], ["c.heads.png"]]
    assert after[0].path.is_file()
    assert not list(job.plan.folder.glob(".*"))


def test_processes_and_this_process_write_the_same_bytes(job):
    with Renderer(0) as here, Renderer(1) as there:
        ours = here.result(here.submit(named(job, "a")))[0].path.read_bytes()
        theirs = there.result(there.submit(named(job, "a")))[0].path.read_bytes()
    assert ours == theirs


def test_drawing_processes_have_no_torch():
    with Renderer(1) as renderer:
        assert renderer._pool is not None
        assert renderer._pool.submit(bool, Curious()).result() is False


def test_drawing_processes_ignore_the_interrupt_of_a_terminal():
    """Else each would print a traceback, and the figure that it draws would be lost."""
    with Renderer(1) as renderer:
        assert renderer._pool is not None
        handler = renderer._pool.submit(signal.getsignal, signal.SIGINT).result()
        process = next(iter(renderer._pool._processes))
        os.kill(process, signal.SIGINT)
        assert renderer._pool.submit(os.getpid).result() == process
    assert handler is signal.SIG_IGN


def test_a_figure_that_takes_long_is_cut_short_and_leaves_nothing(job, monkeypatch):
    monkeypatch.setattr("attnviz.engines.draw_pool.PATIENCE_SECONDS", 0.3)
    folder = job.plan.folder
    begun = []

    def interrupted():
        with Renderer(1) as renderer:
            assert renderer._pool is not None
            renderer.result(renderer.submit(named(job, "a")))
            renderer._pool.submit(write_forever, folder)
            while not list(folder.glob(".attnviz-*")):
                time.sleep(0.01)
            begun.append(time.monotonic())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - begun[0] < 2
    assert [path.name for path in folder.iterdir()] == ["a.heads.png"]


def test_the_test_for_torch_can_fail():
    import pickle

    assert pickle.loads(pickle.dumps(Curious())) is True
