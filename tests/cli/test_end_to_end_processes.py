"""Whole runs as processes of their own: environments, drawing processes, interrupts."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.engines.draw_pool import Renderer
from tests.helpers.command_line import arrays, assert_same_arrays, files_below
from tests.helpers.photos import save_scene
from tests.helpers.processes import alive, children_of

TORCH_FREE = ("torch", "timm", "transformers", "typer")
MANY = 16
CLAIMED = "from attnviz.domain.process import claim_process\nclaim_process()\n"
LAYERS_AND_ROLLOUT = """
# A script as people write them, without `if __name__ == "__main__":`.
import sys
from attnviz.cli.app import main

for command in ("layers", "rollout"):
    assert main([command, *sys.argv[1:]]) == 0
"""


def test_fused_attention_in_timm_changes_no_map(torch_server, tiny, photos, tmp_path):
    """Hooks on the dropout behind softmax would find nothing where attention is fused.

    The processes that draw must not run the script again.
    """
    script = tmp_path / "script.py"
    script.write_text(LAYERS_AND_ROLLOUT)
    for name, setting in (("unset", None), ("off", "0"), ("on", "1")):
        # A script of somebody's own imports more than attnviz alone: once is enough.
        claimed = CLAIMED if setting else ""
        run = torch_server.run(
            photos / "10.png", *tiny, "--save-data", "--out", tmp_path / name,
            source=claimed + LAYERS_AND_ROLLOUT, path=script,
            environment={"TIMM_FUSED_ATTN": setting},
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        assert "Traceback" not in run.stderr
    for command in ("layers", "rollout"):
        unset, off, on = (
            arrays(tmp_path / name / f"10.{command}.npz") for name in ("unset", "off", "on")
        )
        for other in (off, on):
            for name, values in unset.items():
                assert_same_arrays(
                    {name: values}, {name: other[name]}, 1e-4 if name == "distance" else 1e-5
                )
        if command == "layers":
            assert unset["attention"].shape == (4, 2, 4, 6)


@pytest.mark.parametrize(
    "environment",
    [
        {"DISPLAY": None, "MPLBACKEND": None},
        {"DISPLAY": ":99", "MPLBACKEND": "TkAgg"},
        {"DISPLAY": None, "MPLBACKEND": "TkAgg"},
    ],
)
def test_no_display_is_needed_and_none_is_asked(torch_server, tiny, photos, tmp_path, environment):
    run = torch_server.run(
        "heads", photos / "1.png", photos / "10.png", *tiny, "--out", tmp_path / "o",
        environment=environment,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines()[-1] == "2 of 2 done"
    assert files_below(tmp_path / "o") == ["1.heads.png", "10.heads.png"]


def test_the_users_matplotlibrc_changes_no_byte(torch_server, tiny, photos, tmp_path):
    (tmp_path / "rc").mkdir()
    (tmp_path / "rc" / "matplotlibrc").write_text(
        "font.size: 40\naxes.facecolor: red\nsavefig.dpi: 400\nimage.interpolation: bilinear\n"
        "image.origin: lower\nsavefig.bbox: tight\n"
    )
    for name, setting in (("own", str(tmp_path / "rc")), ("none", None)):
        run = torch_server.run(
            "heads", photos / "1.png", *tiny, "--out", tmp_path / name,
            environment={"MPLCONFIGDIR": setting},
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
    own, none = ((tmp_path / name / "1.heads.png").read_bytes() for name in ("own", "none"))
    assert own == none


def test_nothing_but_paths_on_stdout_and_no_stray_line_on_stderr(
    warm_server, tiny, photos, tmp_path
):
    run = warm_server.run("patch", photos, *tiny, "--quiet", "--out", tmp_path / "o")
    assert (run.returncode, run.stderr) == (0, "")
    assert all(Path(line).is_file() for line in run.stdout.splitlines())
    assert len(run.stdout.splitlines()) == 4


def test_drawing_processes_never_import_torch(real, tiny, photos, monkeypatch):
    """Asked of a process that has just drawn figures, while this one holds torch."""
    found = {}
    leave = Renderer.__exit__

    def ask_and_leave(self, *arguments):
        for name in ("attnviz.figures", *TORCH_FREE):
            asked = f"{name!r} in __import__('sys').modules"
            found[name] = self._pool.submit(eval, asked).result()
        return leave(self, *arguments)

    monkeypatch.setattr(Renderer, "__exit__", ask_and_leave)
    assert real("heads", photos, *tiny, "--workers", "1").code == 0
    assert "torch" in sys.modules
    assert found == {"attnviz.figures": True} | dict.fromkeys(TORCH_FREE, False)


@pytest.fixture
def many(tmp_path):
    folder = tmp_path / "many"
    for number in range(MANY):
        save_scene(folder / f"{number}.png", 40, 40)
    return folder


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("whole_terminal", [False, True])
def test_an_interrupt_leaves_whole_figures_and_no_process(
    warm_server, tiny, many, tmp_path, workers, whole_terminal
):
    out = tmp_path / "o"
    # Ctrl-C reaches the whole foreground group of a terminal; kill -INT one process.
    process = warm_server.start(
        "heads", many, *tiny, "--workers", workers, "--out", out, new_session=True
    )
    first = process.stdout.readline().strip()
    assert first.endswith(".heads.png")
    children = children_of(process.pid)
    assert bool(children) == (workers != "0")
    if whole_terminal:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("stopped: ")
    until = time.monotonic() + 30
    while any(map(alive, children)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(alive, children))
    # What has its name is whole, and nothing half written is left beside it.
    written = files_below(out)
    assert 1 <= len(written) < MANY
    assert {Path(line).name for line in [first, *rest.splitlines()]} <= set(written)
    for name in written:
        assert name.endswith(".heads.png")
        with Image.open(out / name) as image:
            assert np.asarray(image).std() > 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("whole_terminal", [False, True])
def test_an_interrupt_of_a_real_model_at_work_ends_everything_in_two_seconds(
    warm_server, tmp_path, whole_terminal
):
    folder = tmp_path / "in"
    for number in range(12):
        save_scene(folder / f"{number}.png", 300, 400)
    process = warm_server.start(
        "heads", folder, "--model", "dino_vits8", "--random-weights", "--dpi", "300",
        "--workers", "2", "--out", tmp_path / "o", new_session=True,
    )  # fmt: skip
    first = process.stdout.readline().strip()
    children = children_of(process.pid)
    assert children
    begun = time.monotonic()
    if whole_terminal:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    while any(map(alive, children)) and time.monotonic() - begun < 10:
        time.sleep(0.01)
    assert time.monotonic() - begun < 2
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("stopped: ")
    # No figure is half there, and no temporary file is left.
    written = {Path(line).name for line in [first, *rest.splitlines()]}
    assert written <= set(files_below(tmp_path / "o"))
    for name in files_below(tmp_path / "o"):
        assert name.endswith(".heads.png")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_ctrl_c_of_a_terminal_does_not_reach_a_process_that_is_being_made_ready(
    warm_server, tmp_path
):
    """Else the server of the drawing processes ends with a traceback while it imports."""
    save_scene(tmp_path / "in" / "1.png", 40, 40)
    process = warm_server.start("heads", tmp_path / "in", "--model", "demo", "--out", tmp_path)
    servers: list[int] = []
    until = time.monotonic() + 60
    while not servers and time.monotonic() < until:
        servers = [
            child
            for child in children_of(process.pid)
            if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()
            # By then its imports have begun, and matplotlib's are still to come.
            and "_multiarray_umath" in Path(f"/proc/{child}/maps").read_text()
        ]
    assert servers
    os.kill(servers[0], signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "Traceback" not in err


def test_the_next_run_goes_on_where_the_interrupt_came(warm_server, tiny, many, tmp_path):
    command = ("heads", many, *tiny, "--workers", "0", "--out", tmp_path / "o", "--skip-existing")
    process = warm_server.start(*command)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    run = warm_server.run(*command)
    assert run.returncode == 0, run.stderr
    done, skipped = len(run.stdout.splitlines()), MANY - len(run.stdout.splitlines())
    assert run.stderr.splitlines()[-1] == f"{done} of {MANY} done, {skipped} skipped"
    assert skipped >= 1
    assert len(files_below(tmp_path / "o")) == MANY
