"""Writes ``attnviz/data/colour_maps.npz``: ``python tools/write_colour_maps.py``.

The tables are matplotlib's own; a test compares them with the installed version.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from attnviz.domain.colour_maps import PACKAGED

FILE = Path(__file__).parents[1] / "attnviz" / "data" / "colour_maps.npz"


def main() -> None:
    """Write the tables of all packaged colour maps."""
    levels = np.arange(256) / 255
    tables = {name: mpl.colormaps[name](levels, bytes=True)[:, :3] for name in PACKAGED}
    np.savez_compressed(FILE, allow_pickle=False, **tables)


if __name__ == "__main__":
    main()
