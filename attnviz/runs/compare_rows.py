"""The rows of a comparison: their titles, their notes, and their numbers as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.domain import ComparedRow, FigureImage
from attnviz.domain.row_statistics import highest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import ComparedMap, Provenance, RgbImage


@dataclass(frozen=True, eq=False)
class Result:
    """One image under one model: its maps by name, how they were made, and notes of the check."""

    image: RgbImage
    maps: dict[str, ComparedMap]
    provenance: Provenance
    notes: tuple[str, ...]


def rows_of(results: Sequence[Result], *, several: bool) -> list[ComparedRow]:
    """Rows with titles that say what differs: the model, the image, or both.

    several: images were asked for, however many of them could be shown.
    """
    labels = {_model_label(result, results) for result in results}
    rows = []
    for result in results:
        made = result.provenance
        name, label = Path(made.image).name, _model_label(result, results)
        title = ((name,) if several else ()) + ((label,) if len(labels) > 1 else ())
        image = FigureImage(result.image.pixels, made.geometry, name)
        rows.append(ComparedRow(title, label, made.model, image, result.maps))
    return rows


def _model_label(result: Result, results: Sequence[Result]) -> str:
    """The model's name; where two share it, the name of the weights."""
    model = result.provenance.model
    if model.random_weights:
        return f"{model.name} (random)"
    weights = {
        (other.weights, other.weights_sha256)
        for other in (each.provenance.model for each in results)
        if other.name == model.name
    }
    return model.weights if len(weights) > 1 else model.title


def notes_of(results: Sequence[Result], *, several: bool) -> tuple[str, ...]:
    """What to say of the images, of maps that are not there, and of the check of each model."""
    labels = {_model_label(result, results) for result in results}
    notes = []
    for result in results:
        before = f"{result.image.file.path}: " if several else ""
        notes += [before + note for note in result.image.notes]
        missing = {name: each.reason for name, each in result.maps.items() if each.reason}
        notes += [f"{before}{name}: {reason}" for name, reason in missing.items()]
        if len(labels) > 1:
            before += f"{_model_label(result, results)}: "
        notes += [before + note for note in result.notes]
    return tuple(dict.fromkeys(notes))


_NOWHERE = dict.fromkeys(("max", "max_row", "max_column"))


def table_of(rows: Sequence[ComparedRow], made: Sequence[Provenance]) -> tuple[dict[str, Any], ...]:
    """The lowest, mean and highest value of every map, components left out."""
    several = len({each.image for each in made}) > 1
    return tuple(
        {
            **({"image": provenance.image} if several else {}),
            "row": " · ".join(row.title) or row.label,
            "map": name,
            "min": None if each.reason else float(each.values.min()),
            "mean": None if each.reason else float(each.values.mean()),
            **(_NOWHERE if each.reason else highest(each.values)),
        }
        for row, provenance in zip(rows, made, strict=True)
        for name, each in row.maps.items()
        if not each.is_colours
    )
