"""Who may import whom. The layers are in pyproject.toml (import-linter); the rest is here."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.warm import WarmServer

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "attnviz"
HEAVY = ("torch", "torchvision", "timm", "matplotlib", "numpy", "PIL", "transformers", "ray")
TORCH_FOLDERS = ("models", "attention")

LIGHT_COMMANDS = (
    ["--help"],
    ["--version"],
    ["models"],
    ["models", "--json"],
    *([command, "--help"] for command in ("heads", "render", "info", "eval", "evolve", "explore")),
)

PROBE = """
import sys
{before}
from attnviz.cli.app import main
code = main(sys.argv[1:])
heavy = [name for name in {heavy!r} if name in sys.modules]
print("code", code, "heavy", *heavy, file=sys.stderr)
"""


@pytest.fixture
def heavy_imports(light_server: WarmServer) -> Callable[..., list[str]]:
    """The heavy packages that a command has imported when it is through."""

    def call(arguments: list[str], before: str = "") -> list[str]:
        source = PROBE.format(before=before, heavy=HEAVY)
        run = light_server.run(*arguments, source=source)
        words = run.stderr.split()
        assert words[:3] == ["code", "0", "heavy"], run.stderr
        return words[3:]

    return call


def imported(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside functions, by full name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def files_importing(package: str) -> set[str]:
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(name == package or name.startswith(f"{package}.") for name in imported(path))
    }


def test_the_layers_hold() -> None:
    run = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("arguments", LIGHT_COMMANDS)
def test_what_only_tells_imports_nothing_heavy(arguments: list[str], heavy_imports) -> None:
    assert heavy_imports(arguments) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["heads", "missing.jpg"],
        ["heads", "sample_images/cat.jpg", "--model", "dinov2_vitg14", "--layer", "45"],
        ["render", "configs/demo.toml", "--list"],
        ["render", "configs/gallery.toml", "--list"],
        ["heads", "sample_images/cat.jpg", "--checkpoint", "configs/demo.toml"],
        ["heads", "sample_images/cat.jpg", "--checkpoint", "configs"],
        ["heads", "sample_images/cat.jpg", "--checkpoint", "cnn.safetensors"],
        ["heads", "sample_images/cat.jpg", "--checkpoint", "missing.pth"],
        ["compare", "sample_images/cat.jpg", "--checkpoint", "cnn.safetensors"],
        ["explore", "sample_images/cat.jpg", "--checkpoint", "cnn.safetensors"],
        ["eval", "sample_images", "sample_images", "--checkpoint", "cnn.safetensors"],
        ["evolve", "cnn.safetensors", "--image", "sample_images/cat.jpg"],
        ["info", "docs/figures/car.heads.png"],
    ],
    ids=" ".join,
)
def test_what_is_told_before_the_weights_imports_no_torch(
    arguments: list[str], light_server: WarmServer, tmp_path: Path
) -> None:
    # In a folder without figures: where `make demo` has drawn some, their weights are looked at.
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for name in ("sample_images", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    header = b'{"conv.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "cnn.safetensors").write_bytes(content)
    torch = [name for name in HEAVY if name in ("torch", "torchvision", "timm", "transformers")]
    source = PROBE.format(before="", heavy=torch)
    run = light_server.run(*arguments, source=source, cwd=tmp_path)
    assert run.stderr.split()[-1] == "heavy", run.stderr


def test_the_test_of_heavy_imports_can_fail(heavy_imports) -> None:
    assert heavy_imports(["--version"], before="import numpy") == ["numpy"]


def test_timm_is_imported_by_one_file() -> None:
    assert files_importing("timm") == {"models/build.py"}


def test_torch_stays_in_its_folders() -> None:
    folders = {path.split("/", maxsplit=1)[0] for path in files_importing("torch")}
    assert folders <= {*TORCH_FOLDERS, "stages", "api"}


def test_nothing_draws_through_pyplot_or_parses_with_click() -> None:
    assert files_importing("matplotlib.pyplot") == set()
    assert files_importing("pylab") == set()
    assert files_importing("click") == set()


def test_the_search_for_imports_finds_them(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from matplotlib import pyplot\n    import timm.layers\n")
    assert {"matplotlib.pyplot", "timm.layers"} <= imported(file)
    assert files_importing("typer")


def test_only_the_command_line_and_the_writers_of_files_print_or_write() -> None:
    prints = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                prints.add(path.relative_to(PACKAGE).parts[0])
    assert prints == {"cli"}
