"""Draws the baselines again: ``python -m tests.figures.make_baselines``. Then look at them."""

from __future__ import annotations

from pathlib import Path

from tests.figures.cases import CASES
from tests.figures.rendering import png

FOLDER = Path(__file__).parent / "baselines"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.png"):
        old.unlink()
    for name, make in CASES.items():
        for number, figure in enumerate(make(), 1):
            path = FOLDER / f"{name}.{number}.png"
            path.write_bytes(png(figure, metadata={"Software": None}))
            print(path)


if __name__ == "__main__":
    main()
