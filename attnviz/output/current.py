"""Whether the files of an image exist already, made in the same way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attnviz.domain import Provenance, sha256_of
from attnviz.output.read_record import read_record
from attnviz.output.record import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from attnviz.domain.requests import OutputRequest
    from attnviz.output.plan import OutputPlan

IDENTITY = (
    *("command", "model", "weights", "weights_sha256", "image_sha256", "like_sha256"),
    *("options", "size", "mask_sha256", "neurons_sha256"),
)
"""The entries of a record that decide what a figure shows."""

_LOCATIONS = ("checkpoint", "like", "mask", "test-registers")
"""Options that say where something is; its hash says what it is."""


def identity(provenance: Provenance) -> dict[str, Any]:
    """The entries ``IDENTITY`` of the record, those that it has.

    Without test-time registers ``neurons_sha256`` is None, so that figures with some differ.
    """
    record = {"neurons_sha256": None, **json.loads(to_json(provenance))}
    return {key: record[key] for key in IDENTITY if key in record}


def differences(record: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """The entries of a record, or of its options, that are not as in ``wanted``, by name."""
    names = []
    for key, value in wanted.items():
        if key != "options":
            names += [key] if record.get(key) != value else []
            continue
        old = record.get("options") or {}
        both = sorted(old.keys() | value.keys())
        names += [n for n in both if n not in _LOCATIONS and old.get(n) != value.get(n)]
    return tuple(names)


def is_up_to_date(record: dict[str, Any] | None, provenance: Provenance) -> bool:
    """Whether a file with this record shows what would be drawn now: image, weights, options."""
    return record is not None and not differences(record, identity(provenance))


def outputs_up_to_date(plan: OutputPlan, output: OutputRequest, wanted: Mapping[str, Any]) -> bool:
    """Whether every file that would be written is there, and its record agrees with ``wanted``.

    That goes for each format, the data, and what the record names beside it: further pages,
    overlays, and the table of scores, which has no record and goes by its content.
    """
    if wanted["options"].get("csv") and not plan.path("csv").is_file():
        return False
    for path in recorded_paths(plan, output):
        record = read_record(path)
        if record is None or differences(record, wanted):
            return False
        beside = record.get("beside", {})
        if not all(_sidecar_up_to_date(plan, tail, beside[tail], wanted) for tail in beside):
            return False
    return True


def rows_up_to_date(
    plan: OutputPlan,
    output: OutputRequest,
    options: Mapping[str, Any],
    rows: Sequence[tuple[str, str | None]],
    like_sha256: str | None = None,
    neurons_sha256: str | None = None,
) -> bool:
    """The same of a figure of several rows: made with these options, of these rows in this order.

    rows: SHA-256 of the image and of the weights, None for random weights. like_sha256: of the
    second image. neurons_sha256: of the neurons of test-time registers.
    """
    wanted = [list(row) for row in rows]
    for path in recorded_paths(plan, output):
        record = read_record(path)
        if record is None or record.get("options") != options:
            return False
        if record.get("like_sha256") != like_sha256:
            return False
        if record.get("neurons_sha256") != neurons_sha256:
            return False
        made = [[row["image_sha256"], row["weights_sha256"]] for row in record.get("rows", ())]
        if made != wanted:
            return False
    return True


def _sidecar_up_to_date(
    plan: OutputPlan, tail: str, digest: str | None, wanted: Mapping[str, Any]
) -> bool:
    path = plan.path(tail)
    if digest is None:
        record = read_record(path)
        return record is not None and not differences(record, wanted)
    try:
        return sha256_of(path.read_bytes()) == digest
    except OSError:
        return False


def recorded_paths(plan: OutputPlan, output: OutputRequest) -> list[Path]:
    """The files of an image that stand for all: each format's first page, and the data."""
    leads = [plan.path(image_format.value, plan.lead) for image_format in output.formats]
    return [*leads, *([plan.path("npz")] if output.save_data else [])]
