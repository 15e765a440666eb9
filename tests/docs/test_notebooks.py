"""The notebooks run from top to bottom without a warning, and are kept with what they show."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from tools.run_notebooks import complaints, executed

ROOT = Path(__file__).resolve().parents[2]
PATHS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MOST_BYTES = 2_000_000
EACH = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)

FIGURES = {"five_lines": 3, "dinov2_attention": 6, "training": 4}
"""Cells of each that show an image."""

COUNT = """\
import gc
import sys
from matplotlib.figure import Figure
gc.collect()
assert "matplotlib.pyplot" not in sys.modules
sum(issubclass(type(each), Figure) for each in gc.get_objects())
"""
"""How many figures are alive after all cells; none was made by pyplot."""


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def figures_in(notebook):
    """The images that cells show, one list of outputs a cell with any."""
    shown = []
    for cell in notebook.cells:
        data = [each.get("data", {}) for each in cell.get("outputs", ())]
        images = [each["image/png"] for each in data if "image/png" in each]
        if images:
            shown.append(images)
    return shown


def check_outputs(notebook, name):
    """Figures where they belong, each once and not empty; no error and no warning."""
    assert complaints(notebook) == []
    assert all(output.output_type != "error" for output in outputs(notebook))
    shown = figures_in(notebook)
    assert [len(images) for images in shown] == [1] * FIGURES[name]
    for (image,) in shown:
        pixels = Image.open(io.BytesIO(base64.b64decode(image))).convert("L")
        assert pixels.width > 400
        low, high = pixels.getextrema()
        assert low < 40
        assert high > 250


def test_there_are_three():
    assert {path.stem for path in PATHS} == set(FIGURES)


@EACH
def test_a_notebook_is_kept_with_its_outputs_and_small(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    check_outputs(notebook, path.stem)
    assert path.stat().st_size < MOST_BYTES
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))  # run once, from top to bottom
    assert notebook.metadata.kernelspec.name == "python3"
    assert str(ROOT) not in path.read_text(encoding="utf-8")


def test_the_model_of_the_tutorial_is_changed_in_one_line():
    path = next(path for path in PATHS if path.stem == "dinov2_attention")
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells]
    code = "\n".join(cells)
    assert code.count('MODEL = "demo"') == 1
    assert code.count('load_model("') == 0
    assert code.count("load_model(MODEL)") == 1


@EACH
@pytest.mark.slow(reason="starts a Jupyter kernel, and imports torch in it")
def test_a_notebook_runs_from_top_to_bottom_without_a_warning(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    kept = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(COUNT))
    notebook = executed(notebook)
    counted = notebook.cells.pop()
    assert counted.outputs[0].data["text/plain"] == "0"
    check_outputs(notebook, path.stem)
    for cell, before in zip(notebook.cells, kept.cells, strict=True):
        assert cell.source == before.source
        kinds = [sorted(output.get("data", {})) for output in cell.get("outputs", ())]
        assert kinds == [sorted(output.get("data", {})) for output in before.get("outputs", ())]


def test_a_warning_would_be_seen():
    cell = nbformat.v4.new_code_cell("import warnings\nwarnings.warn('caught')")
    cell.outputs = [nbformat.v4.new_output("stream", name="stderr", text="UserWarning: caught")]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    assert complaints(notebook) == ["UserWarning: caught"]
    cell.outputs[0].name = "stdout"
    assert complaints(notebook) == []


def test_the_outputs_survive_nbconvert():
    from nbconvert import HTMLExporter

    path = next(path for path in PATHS if path.stem == "five_lines")
    page, _ = HTMLExporter().from_filename(str(path))
    assert len(re.findall(r'<img [^>]*src="data:image/png', page)) == FIGURES["five_lines"]
    assert page.count('srcdoc="&lt;!doctype html&gt;') == 1
