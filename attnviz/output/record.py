"""How a figure was made, as JSON that travels inside it.

PNG keeps it in a text chunk named ``attnviz``, PDF in the document's subject, SVG in its
description, NPZ in the array ``meta``, GIF in its comment, an explorer page in the element
``record``. It is ASCII, with sorted keys, and
without a date. ``write.py`` writes it, ``read_record.py`` reads it back, and ``current.py``
compares it with what is asked for.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnviz.domain import Provenance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import WrittenFile

Made = Provenance | Mapping[str, Any]
"""How a file was made: an image's provenance, or a record of more than one image."""

KEY = "attnviz"
VERSION = 1
"""Of the record's layout; a reader that meets a higher one reads what it knows."""


def to_dict(provenance: Provenance) -> dict[str, Any]:
    """The record as JSON-ready values; sizes as [height, width]."""
    model = dataclasses.asdict(provenance.model)
    for name in ("checkpoint_key", "test_registers", "stride"):
        if model[name] is None:
            del model[name]
    geometry = provenance.geometry
    rows = {"rows": [_row(row) for row in provenance.rows]} if provenance.rows else {}
    more: dict[str, Any] = {}
    if provenance.step is not None:
        more["step"] = provenance.step
    if provenance.checkpoints:
        more["checkpoints"] = [{"path": p, "sha256": s} for p, s in provenance.checkpoints]
    if provenance.mask_sha256 is not None:
        more["mask_sha256"] = provenance.mask_sha256
    if provenance.model.test_registers is not None:
        more["neurons_sha256"] = provenance.model.test_registers.neurons_sha256
    if model.pop("in_memory") or provenance.in_python:
        more["in_python"] = True
    return {
        **rows,
        **more,
        "record": VERSION,
        "command": provenance.command,
        "model": model.pop("name"),
        "weights": model.pop("weights"),
        "weights_sha256": model.pop("weights_sha256"),
        "random_weights": model.pop("random_weights"),
        "prefix": model["prefix"],
        "architecture": model,
        "image": provenance.image,
        "image_sha256": provenance.image_sha256,
        "like_sha256": provenance.like_sha256,
        "image_size": list(geometry.original),
        "size": list(geometry.model_input),
        "grid": list(geometry.grid),
        "region": list(geometry.region),
        "options": provenance.options,
        "device": provenance.device,
        "versions": provenance.versions,
    }


def _row(provenance: Provenance) -> dict[str, Any]:
    """The part of the record that belongs to one row of a figure with several."""
    whole = to_dict(provenance)
    return {
        key: whole[key]
        for key in (
            *("model", "weights", "weights_sha256", "random_weights"),
            *("image", "image_sha256", "image_size", "size", "grid", "region"),
        )
    }


def to_json(made: Made) -> str:
    """The record as one line of ASCII, the same bytes for the same values."""
    return json.dumps(_record(made), sort_keys=True, ensure_ascii=True, allow_nan=False)


def with_files(made: Made, beside: Mapping[str, str | None]) -> Mapping[str, Any]:
    """The record of a figure that is complete only with other files beside it.

    ``beside``: what follows ``STEM.COMMAND.`` in their names (``2.png``, ``head3.png``, ``csv``),
    each with the SHA-256 of its content where it carries no record of its own.
    """
    record = _record(made)
    return {**record, "beside": dict(beside)} if beside else record


def _record(made: Made) -> Mapping[str, Any]:
    return made if isinstance(made, Mapping) else to_dict(made)


def record_of(
    provenance: Provenance, written: Sequence[WrittenFile], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The record of a finished image: how it was made, its files, and its table of numbers."""
    return {
        **to_dict(provenance),
        "files": [{"path": str(file.path), "kind": file.kind} for file in written],
        "table": [dict(row) for row in rows],
    }
