"""Options that several kinds have, and the arrays of their maps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from attnviz.domain.forms import CELLS, INDEX, INDICES, POINTS
from attnviz.domain.forms import QUERY as QUERY_FORM
from attnviz.domain.options import option, switch
from attnviz.domain.query import Query

if TYPE_CHECKING:
    from attnviz.domain.kinds.kind import Arrays

LAYER = partial(option, -1, INDEX, "Layer (block), from 0; -1 is the last, -2 the one before.")
HEADS_OPTION = partial(
    option, None, INDICES, "Heads to take, e.g. 0,2 or 0-3; -1 is the last.", show="all"
)
DISTANCE = partial(
    switch,
    "Also the mean attention distance of each head, in input pixels.",
    on=True,
    flags=("--distance/--no-distance",),
)
OVERLAY_ONLY = partial(
    switch, "Only clean overlays, one PNG file a map, at the image's own size; no figure."
)
QUERY = partial(
    option,
    Query.CLS,
    QUERY_FORM,
    "Whose attention: the CLS token's, the mean over all patches, the latent query of a model that "
    "pools by attention (SigLIP), or a register's.",
)
CELLS_OPTION = partial(option, (), CELLS, name="at", show="the centre patch of each quadrant")
POINTS_OPTION = partial(option, (), POINTS, name="xy")


def given_arrays(**values: Any) -> Arrays:
    """Arrays by name, those that are None left out; indices become int64."""
    import numpy as np

    return {
        name: value if isinstance(value, np.ndarray) else _index_array(value)
        for name, value in values.items()
        if value is not None
    }


def _index_array(value: int | tuple[int, ...]) -> Any:
    import numpy as np

    return np.array(value, np.int64) if isinstance(value, tuple) else np.array(value)
