"""Where an explorer page goes, and what its record says, without loading a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.domain import DEFAULT_OUT, ImageFile
from attnviz.domain.options import request_options
from attnviz.errors import UsageError
from attnviz.images.find import find_images
from attnviz.output.plan import shortened_stem
from attnviz.storage import same_file

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
    target = request.file or default_file(file)
    if target.is_dir():
        raise UsageError(f"--out: {target} is a folder", "name the file: --out page.html")
    if same_file(target, file.path):
        raise UsageError(f"the page {target} would overwrite the image", "choose another --out")
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"--out: a page is HTML, and {target.name} does not end in .html",
            f"--out {target.with_suffix('.html')}",
        )
    return found, target


def default_file(file: ImageFile) -> Path:
    """Where an image's page goes unless the user says otherwise."""
    return Path(DEFAULT_OUT) / f"{shortened_stem(file.path.stem)}{PAGE}"


def page_options(request: ExploreRequest) -> dict[str, Any]:
    """The options that shape a page, as its record keeps them."""
    return request_options(request, request.model, request.inputs)
