"""Run docs/notebooks from top to bottom and keep their outputs: python tools/run_notebooks.py.

Each runs in a kernel of its own, in its own folder. Metadata that would change with every run
(times, language versions) is left out. An error, or anything on standard error, ends the script.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbclient import NotebookClient

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
SECONDS = 300
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(notebook: nbformat.NotebookNode, folder: Path = FOLDER) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run now, in a folder."""
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    client.execute()
    notebook.metadata = nbformat.from_dict(KERNEL)
    return notebook


def complaints(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells wrote to standard error: warnings, above all."""
    return [
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "stream" and output.name == "stderr"
    ]


def main(names: Sequence[str]) -> None:
    """Run the notebooks of these names, or all."""
    paths = [FOLDER / name for name in names] or sorted(FOLDER.glob("*.ipynb"))
    for path in paths:
        notebook = executed(nbformat.read(path, as_version=4))
        if found := complaints(notebook):
            raise SystemExit(f"{path.name} writes to standard error:\n{''.join(found)}")
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
