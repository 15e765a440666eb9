"""``faithful``: which map says what matters to the model, by deletion, insertion and SaCo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import Baseline
from attnviz.domain.forms import choice, number
from attnviz.domain.kinds.common import LAYER, given_arrays
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.near_names import did_you_mean
from attnviz.domain.options import Form, option, switch
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.kinds.kind import Arrays, Row

NAMES = ("mean", "max", "head:3", "rollout", "relevance", "score", "contribution", "random")
"""The maps that can be measured, as they are written; heads have their own number."""

RANDOM_ORDERS = 10
"""Random orders that every map is compared with."""

GROUPS = 10
"""K of SaCo: the groups of cells of neighbouring ranks (Wu et al. 2024)."""

RANDOM_ROW, DEVIATION_ROW = "random orders", "random orders, s.d."
"""Rows of the table: mean and standard deviation over the random orders."""

_HEAD = re.compile(r"head:([+-]?\d{1,6})", re.ASCII)


def map_names(texts: Sequence[str]) -> tuple[str, ...]:
    """The maps that ``--show`` names, each once; one text may hold several, between commas.

    Raises:
        UsageError: No such map, or none at all.
    """
    names = tuple(dict.fromkeys(part.strip() for text in texts for part in text.split(",")))
    for name in names:
        if name not in NAMES and head_of(name) is None:
            known = [*NAMES[:2], "head", *NAMES[3:]]
            hint = "write head:3" if name == "head" else did_you_mean(name, known)
            raise UsageError(
                f"--show: no map is called {name!r}", hint or f"one of {', '.join(NAMES)}"
            )
    if not names:
        raise UsageError("--show: no map is named", f"one or more of {', '.join(NAMES)}")
    return names


def head_of(name: str) -> int | None:
    """The head of a map that is called ``head:3``; None for the other maps."""
    match = _HEAD.fullmatch(name)
    return None if match is None else int(match[1])


_MAPS = Form(
    read=lambda _option, texts: map_names(texts),
    write=list,
    metavar="MAP",
    repeated=True,
    offered=NAMES,
)


@dataclass(frozen=True)
class FaithfulRequest(CommandRequest):
    """Which maps are measured, and how.

    ``baseline`` None: the mean colour for deletion, the blurred image for insertion. ``chefer``:
    the protocol of Chefer et al. 2021.

    Raises:
        UsageError: No such map, or a baseline that is not that of ``chefer``.
    """

    show: tuple[str, ...] = option(
        ("mean", "rollout", "relevance"),
        _MAPS,
        "A map to measure, or several after commas: mean, max, head:3, rollout, relevance, score, "
        "contribution, random; repeatable.",
    )
    layer: int = LAYER()
    class_index: int | None = option(
        None,
        number("N", least=0, type=int),
        "Measure the probability of this class, from 0, of the weights' own classifier.",
        name="class",
        show="the cosine similarity to the output for the whole image",
    )
    baseline: Baseline | None = option(
        None,
        choice(Baseline),
        "What deleted cells are painted with, and what insertion starts from.",
        show="mean for deletion, blur for insertion",
    )
    chefer: bool = switch(
        "The protocol of Chefer et al. 2021: black, 10 to 90 % of the cells, no insertion."
    )
    seed: int = option(
        0, number("N", least=0, most=2**32 - 1, type=int), "Seed of the random orders."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "show", map_names(self.show))
        if self.baseline is not None:
            object.__setattr__(self, "baseline", Baseline(self.baseline))
        if self.chefer and self.baseline not in (None, Baseline.BLACK):
            raise UsageError(
                f"--chefer paints cells black, --baseline {self.baseline} contradicts it",
                "leave one of them out",
            )

    @property
    def needs_cls(self) -> bool:
        """Whether only a model with a CLS token can do it."""
        return "score" in self.show or "contribution" in self.show

    @property
    def needs_gradients(self) -> bool:
        """Whether something is differentiated, which float16 has no range for."""
        return "relevance" in self.show

    @property
    def baselines(self) -> tuple[Baseline, Baseline]:
        """Of deletion and of insertion."""
        if self.chefer:
            return Baseline.BLACK, Baseline.BLACK
        return self.baseline or Baseline.MEAN, self.baseline or Baseline.BLUR


@dataclass(frozen=True, eq=False)
class Curves:
    """Values of f after part of the cells is deleted or inserted, S steps, float32.

    highest, lowest (M, S): of each map, the cells with the highest values first, and last.
    random (R, S): of random orders.
    """

    highest: FloatArray
    lowest: FloatArray
    random: FloatArray


@dataclass(frozen=True, eq=False)
class FaithfulMaps(Maps):
    """How f changes when the cells of an image are changed in the order of M maps.

    names: of the maps, heads counted from 0. maps (M, gh, gw): the maps, raw. shares (S,): of the
    cells that are changed, 0..1. deletion; insertion, None in Chefer's protocol. influence (M, K):
    f of the whole image minus f without a group of cells, groups from the highest values to the
    lowest. saco (M,): -1..1. value: f of the whole image. class_index: whose probability f is;
    None: f is a cosine similarity. baselines: of deletion and insertion.
    """

    names: tuple[str, ...]
    maps: FloatArray
    shares: FloatArray
    deletion: Curves
    insertion: Curves | None
    influence: FloatArray
    saco: FloatArray
    value: float
    layer: int
    baselines: tuple[Baseline, Baseline]
    class_index: int | None = None
    chefer: bool = False

    def __post_init__(self) -> None:
        count, steps = len(self.names), self.shares.size
        check_shape("FaithfulMaps", "maps", self.maps, (count, None, None))
        check_shape("FaithfulMaps", "influence", self.influence, (count, None))
        check_shape("FaithfulMaps", "saco", self.saco, (count,))
        for curves in self.curves.values():
            check_shape("FaithfulMaps", "highest", curves.highest, (count, steps))
            check_shape("FaithfulMaps", "lowest", curves.lowest, (count, steps))
            check_shape("FaithfulMaps", "random", curves.random, (None, steps))

    @property
    def curves(self) -> dict[str, Curves]:
        """The curves by name: ``deletion``, and where there is one ``insertion``."""
        more = {} if self.insertion is None else {"insertion": self.insertion}
        return {"deletion": self.deletion, **more}

    def area(self, curve: FloatArray) -> float:
        """The area under a curve (S,) by trapezoids, divided by its width: its mean height."""
        import numpy as np

        x, y = self.shares.astype(np.float64), curve.astype(np.float64)
        if x[-1] <= x[0]:  # fewer than two numbers of cells
            return float(y.mean())
        area = (np.diff(x) * (y[1:] + y[:-1]) / 2).sum()  # np.trapezoid came with numpy 2
        return float(area / (x[-1] - x[0]))

    def arrays(self) -> Arrays:
        """Arrays maps, shares, deletion, deletion_lowest, deletion_random, ..., saco, layer."""
        import numpy as np

        curves: dict[str, Any] = {}
        for name, each in self.curves.items():
            curves[name] = each.highest
            curves[f"{name}_lowest"] = each.lowest
            curves[f"{name}_random"] = each.random
        return given_arrays(
            names=np.array(self.names),
            maps=self.maps,
            shares=self.shares,
            **curves,
            influence=self.influence,
            saco=self.saco,
            value=np.array(self.value, np.float32),
            layer=self.layer,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a map: areas under the curves, highest values first and lowest first, and SaCo.

        Then the mean and the standard deviation over the random orders.
        """
        import numpy as np

        rows: list[Row] = [{"map": name} for name in (*self.names, RANDOM_ROW, DEVIATION_ROW)]
        for name, curves in self.curves.items():
            random = [self.area(each) for each in curves.random]
            pairs = zip(curves.highest, curves.lowest, strict=True)
            areas: list[tuple[float, float | None]] = [
                (self.area(high), self.area(low)) for high, low in pairs
            ]
            areas += [(float(np.mean(random)), None), (float(np.std(random, ddof=1)), None)]
            for row, (highest, lowest) in zip(rows, areas, strict=True):
                row |= {name: highest, f"{name}_reversed": lowest}
        for row, saco in zip(rows, (*self.saco.tolist(), None, None), strict=True):
            row["saco"] = saco
        return tuple(rows)


FAITHFUL = Kind(
    name="faithful",
    help="""Which map says what matters to the model: deletion, insertion and SaCo of each.

    The cells of the image are changed in the order of each map, and the output for the changed
    image is compared with that for the whole one, without labels. Random orders and the reversed
    order are measured as well. It takes hundreds of plain passes for each image.

    Example: attnviz faithful photo.jpg --show mean,head:3,rollout,relevance
    """,
    request=FaithfulRequest,
    maps=FaithfulMaps,
    compute="attnviz.attention.faithful:faithful_maps",
    draw="attnviz.figures.faithful:draw_faithful",
    check="attnviz.attention.checks:check_faithful",
    cost="attnviz.attention.faithful_cost:cost_text",
    computed_with=("black",),
    extra_bytes="attnviz.attention.memory:faithful_bytes",
    summarised="attnviz.runs.mean_scores:MeanScores",
    unused=("alpha",),
)
