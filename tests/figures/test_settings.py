"""A user's own settings of matplotlib change no byte of a figure, whatever key they hold."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest

from attnviz.domain import DrawStyle
from attnviz.figures.parts.caption import sheet_of
from attnviz.figures.parts.layout import Rect

KEYS = [key for key in dict.keys(mpl.rcParamsDefault) if not key.startswith(("backend", "_"))]
GROUPS = {
    name: list(keys) for name, keys in itertools.groupby(sorted(KEYS), lambda k: k.split(".")[0])
}
PDF_GROUPS = {"agg", "figure", "font", "image", "lines", "patch", "path", "pdf", "ps", "savefig"}
"""What a PDF is most likely to depend on; all other keys are changed together."""
METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
OTHER_VALUES = (
    True, False, 37, 3, 0.37, "red", "serif", "italic", "bold", "tight", "round", "miter", "jet",
    "both", "major", ["red"], [1.0, 2.0], [0.1, 0.2, 0.3], 42, "cycler('color', ['red'])", "xpdf",
    "None",
)  # fmt: skip
"""Candidates for a valid value of a key that is not its default."""


def other_value(key):
    """A valid value of this key that is not its default, or None if none is found."""
    default = dict.__getitem__(mpl.rcParamsDefault, key)
    validate = mpl.RcParams.validate[key]
    for candidate in (*getattr(validate, "valid", ()), *OTHER_VALUES):
        try:
            value = validate(candidate)
        except (ValueError, TypeError, RuntimeError, AttributeError):
            continue
        if value is not None and str(value) != str(default):
            return value
    return None


CHANGES = {key: value for key in KEYS if (value := other_value(key)) is not None}


def small_figure():
    """One of everything that a page can hold."""
    sheet = sheet_of(DrawStyle(width=2.0, dpi=40), ["a_1 $x$"])
    page = sheet.room(1.0)
    page.image(lambda size: np.full((*size, 3), 90, np.uint8), Rect(0.1, 0.1, 0.5, 0.5))
    page.stroke([[0.1, 0.1], [0.5, 0.7], [1.2, 0.3]], "#0072b2", 1.3, dashed=True)
    page.block(Rect(1.0, 0.1, 0.3, 0.3), "#e69f00")
    page.text(0.1, 0.8, "Head 3", bold=True)
    page.text(1.7, 0.8, "up", rotated=True)
    page.y += 1.0
    return sheet.figures()[0]


def saved(image_format):
    stream = io.BytesIO()
    figure = small_figure()
    figure.savefig(stream, format=image_format, metadata=METADATA[image_format])
    return stream.getvalue()


def saved_under(keys, image_format):
    with mpl.rc_context():
        dict.update(mpl.rcParams, {key: CHANGES[key] for key in keys if key in CHANGES})
        return saved(image_format)


def test_nearly_every_key_has_another_value():
    assert len(CHANGES) > 0.99 * len(KEYS), sorted(set(KEYS) - set(CHANGES))


@pytest.mark.parametrize("image_format", ["png", "svg"])
def test_no_single_key_changes_a_byte(image_format):
    plain = saved(image_format)
    assert not [key for key in CHANGES if saved_under([key], image_format) != plain]


def test_no_group_of_keys_changes_a_byte_of_a_pdf():
    plain = saved("pdf")
    groups = {name: keys for name, keys in GROUPS.items() if name in PDF_GROUPS}
    groups["others"] = [key for key in KEYS if key.split(".")[0] not in PDF_GROUPS]
    changed = [name for name, keys in groups.items() if saved_under(keys, "pdf") != plain]
    assert not changed


def test_the_keys_do_change_other_figures():
    """What this file changes is what figures depend on: matplotlib's own are not the same."""

    def plain_figure():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2, 1))
        figure.subplots().grid()
        figure.axes[0].plot([1, 2])
        stream = io.BytesIO()
        figure.savefig(stream, format="png", metadata=METADATA["png"])
        return stream.getvalue()

    before = plain_figure()
    for group in ("grid", "lines"):
        with mpl.rc_context():
            dict.update(
                mpl.rcParams, {key: CHANGES[key] for key in GROUPS[group] if key in CHANGES}
            )
            assert plain_figure() != before, group


DRAWING = """
import hashlib, io
from attnviz.domain import DrawStyle
from attnviz.figures import draw
from tests.figures import samples
image = samples.image_of(samples.photograph(), (3, 4))
maps = samples.matrix_maps((3, 4), 2)
for page in draw(maps, image, samples.model_info(heads=2), DrawStyle(width=3.35, dpi=40)):
    stream = io.BytesIO()
    page.savefig(stream, format="png", metadata={"Software": None})
    print(hashlib.sha256(stream.getvalue()).hexdigest())
"""


def test_a_matplotlibrc_of_other_values_changes_no_byte(tmp_path):
    """In a process of its own: some keys are read when matplotlib is imported."""
    settings = ("image.lut", "font.family", "text.color", "savefig.bbox", "lines.linewidth",
                "figure.autolayout", "patch.linewidth", "text.hinting")  # fmt: skip
    values = CHANGES | {"image.lut": 37}
    path = tmp_path / "matplotlibrc"
    lines = [f"{key}: {_as_text(values[key])}" for key in settings]
    path.write_text("\n".join(lines).replace("#", ""), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-c", DRAWING]
    result = subprocess.run(
        command,
        check=False,
        env=os.environ | {"MATPLOTLIBRC": str(path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    stream = io.StringIO()
    exec(DRAWING.replace("print(", "print_("), {"print_": lambda line: stream.write(line + "\n")})
    assert result.stdout == stream.getvalue()
    assert len(result.stdout.split()) == 2
    assert hashlib.sha256(b"").hexdigest() not in result.stdout


def _as_text(value):
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
