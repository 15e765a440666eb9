"""Where an explorer page goes, and what its record says, without loading a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.domain import DEFAULT_OUT, ImageFile
from attnviz.domain.options import request_options
from attnviz.errors import UsageError
from attnviz.images.find import find_images
from attnviz.output.plan import check_page_file, shortened_stem

if TYPE_CHECKING:
    from attnviz.domain.explorer import ExploreRequest
    from attnviz.images.find import FoundImages

COMMAND = "explore"
PAGE = ".explore.html"
"""How the name of a page ends unless the user names it."""


def page_plan(request: ExploreRequest) -> tuple[FoundImages, Path]:
    """The image, and the file of its page.

    Raises:
        AttnvizError: Not one image, or a file that cannot be a page.
    """
    found = find_images(request.inputs.inputs)
    for _, error in found.missing:
        raise error
    if len(found.files) != 1:
        raise UsageError(
            f"a page shows one image, and {len(found.files)} were given", "name one image"
        )
    (file,) = found.files
    target = request.file or default_file(file, request.like)
    if request.like is not None and not request.like.is_file():
        raise UsageError(f"the second image: {request.like} is not a file")
    check_page_file(target, file.path, *([] if request.like is None else [request.like]))
    return found, target


def default_file(file: ImageFile, like: Path | None = None) -> Path:
    """Where the page of an image, or of two, goes unless the user says otherwise."""
    stem = file.path.stem if like is None else f"{file.path.stem}-and-{like.stem}"
    return Path(DEFAULT_OUT) / f"{shortened_stem(stem)}{PAGE}"


def page_options(request: ExploreRequest) -> dict[str, Any]:
    """The options that shape a page, as its record keeps them."""
    return request_options(request, request.model, request.inputs)
