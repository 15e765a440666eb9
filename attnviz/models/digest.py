"""The hash of the weights that a request means, without building a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import DEFAULT_MODEL
from attnviz.models.catalogue import find_spec, packaged_weights
from attnviz.models.weights.digest import digest_of
from attnviz.models.weights.hub import cached_folder, cached_weights, repository_of
from attnviz.models.weights.locate import WEIGHTS_FILES

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
    repository = repository_of(name)
    if repository is not None:
        return cached_folder(repository)
    # It imports torch and timm, which models of the catalogue do without.
    from attnviz.models import build

    if build.find_family(name) is None:
        return None
    timm_repository, file = build.hub_repository(name) or ("", None)
    if not timm_repository:
        return None
    return cached_weights(timm_repository, (file,) if file else WEIGHTS_FILES)
