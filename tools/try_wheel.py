"""Use the built wheel as its users do: ``python tools/try_wheel.py dist``.

The wheel is installed into a fresh environment outside the checkout, and draws there. The
environment holds the wheel and what its metadata requires, directly or through other packages, and
nothing else: a package that is imported but not declared is missing there, as it is for users. The
required packages are links to those of the environment that runs this: nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    PathDistribution,
    distribution,
    distributions,
)
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
IMAGE = ROOT / "sample_images" / "car.png"
PYTHON_ITSELF = {"__pycache__", ".DS_Store"}


def main() -> int:
    """Compare the wheel with the source, install it alone, and draw with it."""
    (wheel,) = Path(sys.argv[1]).resolve().glob("attnviz-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    lacking = sorted(set(package_files()) - packed)
    if lacking:
        print(f"{wheel.name} lacks {', '.join(lacking)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="attnviz-wheel-") as folder:
        place = Path(folder)
        install_alone(wheel, place / "env")
        draw(place / "env" / "bin", place)
    print(f"{wheel.name} draws, alone in an environment of what it requires")
    return 0


def package_files() -> Iterator[str]:
    """What the wheel has to hold: all files of the package."""
    for path in sorted((ROOT / "attnviz").rglob("*")):
        if path.is_file() and not PYTHON_ITSELF & set(path.parts):
            yield path.relative_to(ROOT).as_posix()


def install_alone(wheel: Path, place: Path) -> None:
    """A new environment with the wheel and what it requires."""
    call(sys.executable, "-m", "venv", "--without-pip", str(place))
    python = str(place / "bin" / "python")
    site = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (
            zipfile.Path(archive, name.removesuffix("METADATA"))
            for name in archive.namelist()
            if name.endswith(".dist-info/METADATA")
        )
        required = closure(PathDistribution(metadata))
    link(required, place / site)
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    call(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    call(*pip, "check")


def closure(root: Distribution) -> dict[str, Distribution]:
    """The installed distributions that one requires, directly or through others, by name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(root, "")]
    while waiting:
        package, extra = waiting.pop()
        for line in package.requires or ():
            wanted = Requirement(line)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(wanted.name)
            for chosen in ("", *sorted(wanted.extras)):
                if (name, chosen) in seen:
                    continue
                seen.add((name, chosen))
                try:
                    found[name] = distribution(name)
                except PackageNotFoundError:
                    sys.exit(f"{package.name} requires {wanted}, which is not installed here")
                waiting.append((found[name], chosen))
    return found


def link(required: dict[str, Distribution], site: Path) -> None:
    """The modules and data of the required distributions, as links.

    A folder is one link, unless another distribution has files in it: then each file is.
    """
    owners: dict[str, set[str]] = {}
    for package in distributions():
        name = canonicalize_name(package.name)  # read from its metadata each time
        for file in package.files or ():
            owners.setdefault(file.parts[0], set()).add(name)
    for package in required.values():
        for file in package.files or ():
            top = file.parts[0]
            if top == "..":  # a script or a manual page
                continue
            part = Path(top) if owners[top] <= required.keys() else Path(file)
            target = site / part
            if not target.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(str(package.locate_file(part)))


def draw(commands: Path, place: Path) -> None:
    """A figure with the weights of the package, and an explorer page with its scripts."""
    attnviz, out = str(commands / "attnviz"), place / "out"
    home = call(
        str(commands / "python"), "-c", "import attnviz; print(attnviz.__file__)", cwd=place
    )
    if not Path(home.strip()).is_relative_to(commands.parent):
        sys.exit(f"attnviz was imported from {home.strip()}, not from the wheel")
    image = place / IMAGE.name
    image.write_bytes(IMAGE.read_bytes())
    call(attnviz, "heads", image.name, "--model", "demo", "--out", "out", cwd=place)
    call(attnviz, "explore", image.name, "--model", "demo", "--out", "out/car.html", cwd=place)
    for name, start in (("car.heads.png", b"\x89PNG"), ("car.html", b"<!doctype html>")):
        if not (out / name).read_bytes().lower().startswith(start.lower()):
            sys.exit(f"{name} is not what its name says")


def call(*command: str, cwd: Path | None = None) -> str:
    """Run a command that knows nothing of the checkout; what it says is shown if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603 - commands of this file
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        sys.exit(f"{' '.join(command)} failed with exit code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
