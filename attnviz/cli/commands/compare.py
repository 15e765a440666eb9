"""``attnviz compare``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.cli.commands.figure import INPUTS
from attnviz.cli.map_names import at_places, parse_maps
from attnviz.cli.panels import (
    IMAGES,
    MODEL,
    OUTPUT,
    PRINT,
    SHARED_SCALE_DRAWING,
    Given,
    Panel,
    PrintRequest,
)
from attnviz.cli.report import Report
from attnviz.cli.run import check_weights
from attnviz.domain import DEFAULT_MODEL, MapKind, RelevanceMethod
from attnviz.domain.comparison import CompareRequest, MapSpec
from attnviz.domain.drawing import SharedScaleStyle
from attnviz.domain.forms import CELLS, INDEX, INDICES, PATH, POINTS, TEXT, choice, number
from attnviz.domain.kinds import MatchRequest, RelevanceRequest
from attnviz.domain.options import Form, option
from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest
from attnviz.errors import UsageError
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_TEXTS = replace(TEXT, repeated=True, write=list)
_MAPS = Form(
    read=lambda _option, texts: parse_maps(texts or ["mean"]),
    write=lambda specs: [str(spec) for spec in specs],
    metavar="MAP",
    repeated=True,
)


@dataclass(frozen=True)
class ColumnOptions:
    """The columns of a comparison."""

    maps: tuple[MapSpec, ...] = option(
        (),
        _MAPS,
        "A column, or several after commas: mean, max, head:3, heads, rollout, score, relevance, "
        "pca, foreground, norm, patch@ROW,COLUMN, cosine@X,Ypx, entropy, to-cls, and of q, k, v "
        "such as k-pca, k-norm, k-pca:3; repeatable.",
        name="show",
        show="mean",
    )
    cells: tuple[tuple[int, int], ...] = option(
        (),
        CELLS,
        "Of --show patch and cosine: a patch by row and column in the grid, from 0; repeatable.",
        name="at",
    )
    points: tuple[tuple[float, float], ...] = option(
        (),
        POINTS,
        "Of --show patch and cosine: a patch by a pixel of the original image; repeatable.",
        name="xy",
    )
    layer: int | None = option(
        None,
        INDEX,
        "Layer (block), from 0; -1 is the last.",
        show="the last; for tokens the model's output",
    )
    layers: tuple[int, ...] | None = option(
        None, INDICES, "Several layers side by side instead, e.g. 3,7,11 or 6-11."
    )
    method: RelevanceMethod = option(
        RelevanceMethod.CHEFER,
        choice(RelevanceMethod),
        "Of --show relevance: how it is carried through the layers.",
    )
    class_index: int | None = option(
        None,
        number("N", least=0, type=int),
        "Of --show relevance: what speaks for this class, from 0, of the weights' own classifier.",
        name="class",
    )
    like: Path | None = option(
        None,
        PATH,
        "Of --show relevance and match: the second image.",
        metavar="IMAGE",
    )

    @property
    def relevance(self) -> RelevanceRequest | None:
        """What computes relevance, if any of its options is given; --like may be of match alone."""
        shown = {each.kind for each in self.maps}
        like = self.like if self.match is None or MapKind.RELEVANCE in shown else None
        if self.class_index is None and like is None and self.method is RelevanceMethod.CHEFER:
            return None
        return RelevanceRequest(self.method, self.class_index, like)

    @property
    def match(self) -> MatchRequest | None:
        """What computes the map of that name, if it is shown and has its second image."""
        shown = any(each.kind is MapKind.MATCH for each in self.maps)
        return MatchRequest(self.like) if shown and self.like is not None else None


@dataclass(frozen=True)
class RowOptions:
    """The rows of a comparison, where every other command takes one model."""

    models: Sequence[str] = option(
        (),
        _TEXTS,
        "A model to compare, or several after commas; repeatable.",
        name="model",
        flags=("--model", "--models"),
        metavar="NAME",
        show=f"{DEFAULT_MODEL}, or none with a checkpoint",
    )
    checkpoints: Sequence[str] = option(
        (),
        _TEXTS,
        "Weights to compare, with the model's name where the file does not say it; repeatable.",
        name="checkpoint",
        metavar="[NAME=]PATH",
    )


def compare(given: Given, inputs: INPUTS) -> int:
    """Models, checkpoints or images side by side, on one scale, in one figure.

    A row for every image and model, a column for every map. --model and --checkpoint (a path, or
    NAME=PATH) may be repeated; --scale is shared, a scale for each kind of map. --model-arg and
    --checkpoint-key are of the checkpoints where there are any; --random-weights is of the models
    that are named.

    Example: attnviz compare photo.jpg --model demo --checkpoint mine.pth --show mean,rollout,pca
    """
    request = compare_request(given, inputs)
    for model in request.models:
        check_weights(model)
    from attnviz.runs.collect import collect_outputs
    from attnviz.runs.compare import compare as events

    printing: PrintRequest = given.make(PrintRequest)
    report = Report(as_json=printing.json, quiet=printing.quiet)
    return report.consume(collect_outputs(request, events(request)))


def compare_request(given: Given, inputs: INPUTS) -> CompareRequest:
    """Every option read and checked as far as it can be without a model or an image.

    Raises:
        UsageError: A value that no model could honour.
    """
    given.refuse(SharedScaleStyle, ("alpha",), "compare")
    columns: ColumnOptions = given.make(ColumnOptions)
    return CompareRequest(
        models=_models(given),
        inputs=given.make(InputRequest, inputs=tuple(inputs)),
        output=given.make(OutputRequest),
        shown=at_places(columns.maps, columns.cells, columns.points),
        layer=columns.layer,
        style=given.make(SharedScaleStyle),
        layers=columns.layers,
        relevance=columns.relevance,
        match=columns.match,
    )


PANELS = (
    Panel(None, ColumnOptions),
    Panel(MODEL.title, RowOptions),
    MODEL.without("model", "checkpoint"),
    IMAGES,
    SHARED_SCALE_DRAWING,
    OUTPUT,
    PRINT,
)


def _models(given: Given) -> tuple[ModelRequest, ...]:
    """One request a row: the models that are named, then the checkpoints, in the order given."""
    rows: RowOptions = given.make(RowOptions)
    names = [name.strip() for text in rows.models for name in text.split(",")]
    if not all(names):
        raise UsageError("--model: a name between commas is empty", "e.g. --model dino_vits8,demo")
    shared: ModelRequest = given.make(ModelRequest)
    named = replace(shared, args={}, checkpoint_key=None) if rows.checkpoints else shared
    of_checkpoints = replace(shared, random_weights=False)
    requests = [replace(named, name=name) for name in names]
    for text in rows.checkpoints:
        name, path = _name_and_path(text)
        requests.append(replace(of_checkpoints, name=name, checkpoint=path))
    if shared.random_weights and rows.checkpoints and not names:
        raise UsageError("--random-weights needs --model: checkpoints have weights of their own")
    if shared.checkpoint_key is not None and not rows.checkpoints:
        raise UsageError("--checkpoint-key needs --checkpoint")
    requests = requests or [shared]
    for index, request in enumerate(requests):
        if request in requests[:index]:
            raise UsageError(f"{request.name or request.checkpoint} would be compared with itself")
    return tuple(requests)


def _name_and_path(text: str) -> tuple[str | None, Path]:
    """``NAME=PATH``, or a path alone; a path that exists as it is written is one.

    Raises:
        UsageError: There is nothing at the path.
    """
    from attnviz.domain.parse import check_checkpoint

    name, equals, path = text.partition("=")
    if not equals or path_of(text).exists():
        return None, check_checkpoint(path_of(text))
    return name, check_checkpoint(path_of(path))
