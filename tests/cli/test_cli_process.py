"""The command as a process of its own: what only a real one shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attnviz import __version__
from attnviz.cli.commands import COMMANDS
from attnviz.models.catalogue import MODELS
from tests.helpers.processes import alive, children_of
from tests.helpers.warm import ForkedProcess, WarmServer

FAKE = """
import sys, time, types
import attnviz.runs
from pathlib import Path
from attnviz.domain import ImageFile, WrittenFile
from attnviz.domain.events import Done, Started

def run(request):
    yield Started({total}, None)
    for count in range({total}):
        name = Path(f"{{count}}.jpg")
        yield Done(ImageFile(name, name), (WrittenFile(Path({name}), "figure"),))
        time.sleep({pause})

module = types.ModuleType("attnviz.runs.command")
module.run = run
sys.modules["attnviz.runs.command"] = attnviz.runs.command = module
sys.argv = ["attnviz", "heads", "a.jpg", *sys.argv[1:]]
from attnviz.__main__ import main
sys.exit(main())
"""


STUCK = """
        import hashlib
        from attnviz.engines.draw_pool import _start_pool
        sys.modules["__main__"] = types.ModuleType("__main__")
        pool = _start_pool(1)
        pool.submit(int).result()
        pool.submit(time.sleep, 60)
        print("drawing", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**8)
"""


def fake(total: int = 3, pause: float = 0, name: str = "f'{count}.png'") -> str:
    """A program: ``attnviz heads`` with a run that only says what it has done."""
    return FAKE.format(total=total, pause=pause, name=name)


def test_the_console_script_is_there() -> None:
    script = Path(sys.executable).parent / "attnviz"
    run = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"attnviz {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str, light_server: WarmServer) -> None:
    shown = {"COLUMNS": "200", "NO_COLOR": "1"}
    run = light_server.run(command, "--help", environment=shown)
    assert (run.returncode, run.stderr) == (0, "")
    assert f"Example: attnviz {command} " in run.stdout
    assert light_server.run(command, "-h").returncode == 0


def test_no_arguments_show_the_help(light_server: WarmServer) -> None:
    run = light_server.run()
    shown = run.stdout + run.stderr
    assert all(command in shown for command in COMMANDS)
    assert "Traceback" not in shown


def test_wrong_use_gives_2_and_one_clear_line(light_server: WarmServer) -> None:
    run = light_server.run("heads", "a.jpg", "--sise", "480")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.splitlines() == [
        "error: No such option: --sise (Possible options: --distance, --size, --stride)",
        "  see 'attnviz heads --help'",
    ]


@pytest.mark.parametrize("more", [[], ["--engine", "ray"]])
def test_a_wrong_input_is_told_before_torch_is_imported(
    more: list[str], tmp_path: Path, light_server: WarmServer
) -> None:
    program = """
import sys
from attnviz.cli.app import main
code = main(sys.argv[1:])
print(code, sorted({"torch", "timm", "ray"} & set(sys.modules)))
"""
    run = light_server.run("heads", tmp_path / "missing.jpg", *more, source=program, cwd=tmp_path)
    assert run.returncode == 0
    assert run.stdout == "1 []\n"
    assert "missing.jpg does not exist" in run.stderr


def test_the_models_as_table_and_as_records(tmp_path: Path, light_server: WarmServer) -> None:
    cache = {"HF_HUB_CACHE": str(tmp_path)}
    table = light_server.run("models", environment=cache)
    assert (table.returncode, table.stderr) == (0, "")
    rows = [line.split() for line in table.stdout.splitlines()]
    assert [row[0] for row in rows[1:]] == list(MODELS)
    row = next(row for row in rows if row[0] == "dinov2_vitb14_reg")
    assert row[1:] == ["14", "768", "12", "12", "4", "518", "87", "M", "Apache-2.0", "no"]
    run = light_server.run("models", "--json", environment=cache)
    records = [json.loads(line) for line in run.stdout.splitlines()]
    assert {record["name"]: record["heads"] for record in records} == {
        name: spec.heads for name, spec in MODELS.items()
    }


def test_cached_weights_are_seen(tmp_path: Path, light_server: WarmServer) -> None:
    folder = tmp_path / "models--timm--vit_small_patch8_224.dino"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "model.safetensors").touch()
    run = light_server.run("models", "--json", environment={"HF_HUB_CACHE": str(tmp_path)})
    records = [json.loads(line) for line in run.stdout.splitlines()]
    assert [record["name"] for record in records if record["cached"]] == [
        "dino_vits8",
        "demo",
    ]


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        ("attnviz ", 1, set(COMMANDS)),
        ("attnviz heads --model dino_vitb", 3, {"dino_vitb8", "dino_vitb16"}),
        ("attnviz heads --cmap in", 3, {"inferno"}),
        ("attnviz heads --scale ", 3, {"panel", "shared", "fixed"}),
        ("attnviz rollout --discard-r", 2, {"--discard-ratio"}),
    ],
)
def test_the_shell_completes_commands_options_and_values(
    words: str, position: int, expected: set[str], light_server: WarmServer
) -> None:
    shell = {"_ATTNVIZ_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    run = light_server.run(environment=shell)
    assert set(run.stdout.split()) == expected


def test_a_closed_pipe_ends_the_run_quietly(light_server: WarmServer) -> None:
    process = light_server.start(source=fake(total=10_000, pause=0.001))
    assert process.stdout.readline() == "0.png\n"
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=30) == 1
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
    process.close()


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_an_interrupt_ends_quickly_with_130_and_no_traceback(light_server: WarmServer) -> None:
    process = light_server.start(source=fake(total=1000, pause=0.05))
    assert process.stdout.readline() == "0.png\n"
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < 2
    assert process.returncode == 130
    assert err.startswith("stopped: ")
    assert err.rstrip().endswith("of 1000 done")


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_an_interrupt_does_not_wait_for_a_long_step(light_server: WarmServer) -> None:
    """Python itself would handle it when the step is over; this one takes a minute.

    The processes that draw are busy as well, and gone with it. How far the run came is said.
    """
    source = fake(total=1000, pause=1.25).replace("time.sleep(1.25)", STUCK.strip())
    process = light_server.start(source=source)
    assert process.stdout.readline() == "0.png\n"
    assert process.stdout.readline() == "drawing\n"
    time.sleep(0.5)  # until it is in that step
    children = children_of(process.pid)
    assert children
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, err = process.communicate(timeout=50)
    assert time.monotonic() - begun < 2
    assert (process.returncode, err) == (130, "stopped: 1 of 1000 done\n")
    while any(map(alive, children)) and time.monotonic() - begun < 10:
        time.sleep(0.01)
    assert not any(map(alive, children))


INTERRUPTED_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["attnviz", "models"]
from attnviz.__main__ import main
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("module", ["attnviz.domain", "attnviz.cli.app", "rich.table"])
def test_an_interrupt_while_modules_are_imported_gives_no_traceback(module: str) -> None:
    """In processes of their own from the start: in others nothing is left to import."""
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT.format(module=module)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


@pytest.fixture
def slowly(light_server: WarmServer) -> Iterator[Callable[..., ForkedProcess]]:
    """Start a run that waits for five seconds after each picture, and end it."""
    started = []

    def start(*arguments: str) -> ForkedProcess:
        started.append(light_server.start(*arguments, source=fake(total=2, pause=5)))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_each_path_is_there_as_soon_as_its_picture_is_done(slowly) -> None:
    begun = time.monotonic()
    assert slowly().stdout.readline() == "0.png\n"
    assert time.monotonic() - begun < 5


def test_each_record_is_there_as_soon_as_its_picture_is_done(slowly) -> None:
    begun = time.monotonic()
    assert json.loads(slowly("--json").stdout.readline())["status"] == "done"
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("encoding", "name", "line"),
    [
        ("utf-8", "\udcff\u732b.png", b"\xff\xe7\x8c\xab.png"),
        ("ascii", "\udcff.png", b"\xff.png"),
        ("ascii", "caf\xe9 \u732b\U0001f408.png", b"caf\\xe9 \\u732b\\U0001f408.png"),
        ("cp1252", "caf\xe9 \u732b.png", b"caf\xe9 \\u732b.png"),
        ("cp1252:strict", "\u732b\udcff\u0416.png", b"\\u732b\xff\\u0416.png"),
    ],
)
def test_no_encoding_stops_a_run(encoding: str, name: str, line: bytes) -> None:
    """In processes of their own from the start: the encoding is chosen there.

    What it lacks is escaped; bytes that are no text go out as they are.
    """
    run = subprocess.run(
        [sys.executable, "-c", fake(total=4, name=repr(name))],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [line] * 4
    assert run.stderr.splitlines()[-1] == b"4 of 4 done"


ENDING = """
import atexit, sys

class Last:
    def __del__(self):
        sys.__stdout__.write("taken apart")

kept = [Last()]
kept.append(kept)
atexit.register(print, "asked for the end")
sys.argv = ["attnviz", "--version"]
from attnviz.__main__ import main
main()
"""


def test_the_process_does_what_was_asked_for_the_end_and_leaves(light_server: WarmServer) -> None:
    """Standard output is a pipe here, so that nothing is printed before it is flushed."""
    run = light_server.run(source=ENDING)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == f"attnviz {__version__}\nasked for the end\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_a_failure() -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "attnviz", "--version"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert run.returncode == 1
    assert run.stderr == "error: standard output cannot be written (No space left on device)\n"
