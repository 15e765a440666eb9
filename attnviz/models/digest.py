"""Which weights a request means, told by their hash, without building a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import DEFAULT_MODEL
from attnviz.models import backbone
from attnviz.models.catalogue import find_spec, packaged_weights
from attnviz.models.weights.checkpoint import digest_of
from attnviz.models.weights.hub import WEIGHTS_FILES, cached_weights

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.requests import ModelRequest


def weights_digest(request: ModelRequest) -> str | None:
    """Hex SHA-256 of the weights that a request would load; None where they are not here.

    Raises:
        UsageError: A checkpoint that does not exist.
    """
    path = request.checkpoint or _local_weights(request.name or DEFAULT_MODEL)
    return None if path is None else digest_of(path)


def _local_weights(name: str) -> Path | None:
    spec = find_spec(name)
    if spec is not None and spec.packaged:
        path = packaged_weights(spec)
        return path if path.is_file() else None
    if spec is not None:
        return cached_weights(spec.repository)
    if backbone.find_family(name) is None:
        return None
    repository, file = backbone.hub_repository(name) or ("", None)
    return cached_weights(repository, (file,) if file else WEIGHTS_FILES) if repository else None
