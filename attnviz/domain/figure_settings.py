"""The settings of matplotlib under which every figure is drawn and saved, whoever does it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HASH_SALT = "attnviz"

_SETTINGS: dict[str, Any] = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": HASH_SALT,
    "text.hinting": "no_hinting",
}
"""What differs from matplotlib's defaults: TrueType text in PDF, text that can be selected in SVG,
identifiers that depend on the drawing alone."""


@contextmanager
def figure_settings() -> Iterator[None]:
    """Matplotlib's own defaults with our changes, and nothing of a user's matplotlibrc."""
    import matplotlib as mpl

    with mpl.rc_context():
        present: Any = mpl.rcParams
        defaults: Any = mpl.rcParamsDefault
        # The dict's own methods: those of RcParams would check 340 valid values each time.
        new = {key: value for key, value in dict.items(defaults) if key != "backend"}
        dict.update(present, new | _SETTINGS)
        yield
