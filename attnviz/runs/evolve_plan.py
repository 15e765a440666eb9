"""Where the figure of checkpoints goes, and what its record says, without loading a model."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.domain.evolution import Rows
from attnviz.domain.requests import RunRequest, run_options
from attnviz.errors import UsageError
from attnviz.images.find import find_images
from attnviz.output.name import MODEL, has_placeholder, name_values
from attnviz.output.plan import OutputPlan, plan_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import ImageFile
    from attnviz.domain.evolution import EvolutionRequest

COMMAND = "evolve"


def evolution_plan(request: EvolutionRequest) -> tuple[ImageFile, OutputPlan]:
    """The image, and where its figure goes.

    Raises:
        AttnvizError: Not one image, or a name that cannot be given.
    """
    found = find_images(request.inputs.inputs)
    for _, error in found.missing:
        raise error
    if len(found.files) != 1:
        raise UsageError(f"--image: {len(found.files)} images, and the figure shows one")
    (file,) = found.files
    last = request.checkpoints[-1]
    if request.output.name is not None and has_placeholder(request.output.name, MODEL):
        # What the checkpoints count may be in the files alone, which torch reads.
        from attnviz.runs.checkpoint_names import name_checkpoints

        last = name_checkpoints(request.checkpoints).paths[-1]
    layer = None if request.rows is Rows.LAYERS else request.layer
    values = name_values(COMMAND, [replace(request.model, checkpoint=last)], layer)
    return file, plan_outputs([file], COMMAND, request.output, values)[file]


def evolution_options(request: EvolutionRequest) -> dict[str, Any]:
    """Every option that shapes the numbers or the drawing, by its name, for JSON."""
    run = RunRequest(request.command, request.model, request.inputs, request.output, request.style)
    options = {"rows": request.rows.value, **run_options(run)}
    del options["no-distance"]
    if request.mask is not None:
        options |= {"mask": str(request.mask), "threshold": request.threshold}
    return options


def joined_digest(digests: Sequence[str]) -> str:
    """One hash for all checkpoints, of their hashes in their order: any change changes it."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
