"""Names of colour maps."""

from __future__ import annotations

from attnviz.domain import DEFAULT_CMAP
from attnviz.domain.near_names import did_you_mean
from attnviz.errors import UsageError


def check_cmap(name: str) -> str:
    """The name of a matplotlib colour map; matplotlib is imported only for other than the default.

    Raises:
        UsageError: No such colour map; the hint has near matches.
    """
    if name == DEFAULT_CMAP:
        return name
    from matplotlib import colormaps

    if name in colormaps:
        return name
    raise UsageError(f"--cmap: no colour map is called {name!r}", did_you_mean(name, colormaps))
