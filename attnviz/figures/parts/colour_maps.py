"""Names of colour maps."""

from __future__ import annotations

from attnviz.domain.colour_maps import PACKAGED
from attnviz.domain.near_names import did_you_mean
from attnviz.errors import UsageError


def check_cmap(name: str) -> str:
    """The name of a matplotlib colour map; matplotlib is imported only for unusual ones.

    Raises:
        UsageError: No such colour map; the hint has near matches.
    """
    if name in PACKAGED:
        return name
    from matplotlib import colormaps

    if name in colormaps:
        return name
    raise UsageError(f"--cmap: no colour map is called {name!r}", did_you_mean(name, colormaps))
