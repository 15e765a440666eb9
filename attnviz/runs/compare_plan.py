"""Where a comparison goes, and whether it is up to date, without loading a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.domain import ImageFile
from attnviz.domain.comparison import comparison_options
from attnviz.domain.register_neurons import read_neurons
from attnviz.output.current import recorded_paths, rows_up_to_date
from attnviz.output.name import STEM, has_placeholder, name_values
from attnviz.output.plan import OutputPlan, plan_outputs
from attnviz.stages.plan import second_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain.comparison import CompareRequest

COMMAND = "compare"


def comparison_plan(request: CompareRequest, files: Sequence[ImageFile]) -> OutputPlan:
    """Where the figure of these images goes: named after the first, unless ``--name`` names it."""
    first, output = files[0], request.output
    named = replace(first, relative=Path(first.relative.name))
    own_name = output.name is None or has_placeholder(output.name, STEM)
    if own_name and len(files) > 1:
        more = f"{first.relative.stem}-and-{len(files) - 1}-more"
        named = ImageFile(first.path, Path(f"{more}{first.relative.suffix}"))
    layer = "last" if request.layer is None else request.layer
    values = name_values(COMMAND, request.models, layer)
    return plan_outputs([named], COMMAND, output, values)[named]


def comparison_up_to_date(
    request: CompareRequest, plan: OutputPlan, image_digests: Sequence[str]
) -> bool:
    """Whether all files exist, made of the same images and weights with the same options.

    image_digests: SHA-256 of every image, in the order of the rows.
    """
    if not all(path.is_file() for path in recorded_paths(plan, request.output)):
        return False
    # It imports torch, which is not needed where nothing exists yet.
    from attnviz.models.digest import weights_digest

    digests = []
    for model in request.models:
        digest = None if model.random_weights else weights_digest(model)
        if digest is None and not model.random_weights:
            return False
        digests.append(digest)
    rows = [(image, digest) for image in image_digests for digest in digests]
    options = json.loads(json.dumps(comparison_options(request)))
    like = None if request.relevance is None else second_digest(request.relevance)
    listed = request.models[0].test_registers
    neurons = None if listed is None else read_neurons(listed).digest
    return rows_up_to_date(plan, request.output, options, rows, like, neurons)
