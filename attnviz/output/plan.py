"""All destinations, settled before a model loads or an image is read.

An image's files are ``STEM.COMMAND.SUFFIX``, with a part before the suffix for further pages and
overlays: ``cat.heads.png``, ``cat.heads.2.png``, ``cat.heads.head3.png``. Inputs whose names would
collide, also on a disk that ignores case, keep more of their path, so that every input has its own
stem. The same inputs in any order give the same names.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.errors import UsageError
from attnviz.output.atomic import probe, sweep
from attnviz.output.name import COMMAND, STEM, check_placeholders, filled, has_placeholder
from attnviz.storage import same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from attnviz.domain import ImageFile
    from attnviz.domain.requests import OutputRequest

NAME_BYTES = 255
"""Longest file name that common file systems take."""

_TAIL_BYTES = 32
"""Kept free behind a stem, for a command, a part and a suffix: ``.rollout.head127.png``."""

LONGEST_STEM = NAME_BYTES - _TAIL_BYTES

_HASH_DIGITS = 10


@dataclass(frozen=True)
class OutputPlan:
    """Where one image's files go: the folder, and how their names begin.

    lead: the part of the name of the file that stands for all of them; "" is the figure.
    """

    folder: Path
    stem: str
    command: str
    lead: str = ""

    def path(self, suffix: str, part: str = "") -> Path:
        """The file with this suffix (``png``, ``npz``, ``csv``), or with a part before it."""
        return self.folder / ".".join(filter(None, (self.stem, self.command, part, suffix)))

    def tail(self, path: Path) -> str:
        """What follows ``STEM.COMMAND.`` in the name of one of these files."""
        return path.name.removeprefix(f"{self.stem}.{self.command}.")

    def page(self, suffix: str, number: int) -> Path:
        """A page of the figure, counted from 1; the first has the plain name."""
        return self.path(suffix, str(number) if number > 1 else "")


def plan_outputs(
    files: Sequence[ImageFile],
    command: str,
    request: OutputRequest,
    values: Mapping[str, str] | None = None,
    lead: str = "",
) -> dict[ImageFile, OutputPlan]:
    """One plan an image, in the order of ``files``, no two of which share a name.

    ``values``: those of the placeholders of ``--name`` that are the same for all images.
    ``lead``: see ``OutputPlan``.

    Raises:
        UsageError: A figure would overwrite one of the input images, several images would
            share one ``--name``, or it has a placeholder without a value.
    """
    name = f"{{{STEM}}}" if request.name is None else request.name
    stems = _unique_stems(files, name, values or {COMMAND: command})
    plans = {
        file: OutputPlan(_below(request.folder, file), stem, command, lead)
        for file, stem in zip(files, stems, strict=True)
    }
    _keep_inputs(plans, request)
    return plans


def check_page_file(target: Path, *images: Path) -> None:
    """Raise for a path that the explorer page of images cannot be written to.

    Raises:
        UsageError: A folder, one of the images, or another suffix than .html.
    """
    if target.is_dir():
        raise UsageError(f"--out: {target} is a folder", "name the file: --out page.html")
    if any(same_file(target, image) for image in images):
        raise UsageError(f"the page {target} would overwrite the image", "choose another --out")
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"--out: a page is HTML, and {target.name} does not end in .html",
            f"--out {target.with_suffix('.html')}",
        )


def check_folder(folder: Path, plans: Iterable[OutputPlan] = ()) -> None:
    """Prove that the output folder can be written, before anything slow begins.

    It is made by the first file that is written to it.

    Partial files of killed runs there, and in the folders of ``plans``, are removed.

    Raises:
        UsageError: A file is in the way, there is no permission, or the disk is full.
    """
    hint = "choose another folder with --out"
    try:
        probe(folder)
        for each in {folder, *(plan.folder for plan in plans)}:
            sweep(each)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"--out: {folder} is not a folder, a file is in the way", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--out: {folder} cannot be written ({reason})", hint) from error


def check_name(text: str) -> str:
    """The stem of file names: no path, known placeholders, short enough for a file system.

    Raises:
        UsageError: Anything else.
    """
    if not text.strip() or set(text) & set("/\\\0") or text in (".", ".."):
        raise UsageError(f"--name: {text!r} is not a file name", "use --out for the folder")
    if len(os.fsencode(text)) > LONGEST_STEM:
        raise UsageError(f"--name: {text[:20]!r}... is too long, at most {LONGEST_STEM} bytes")
    check_placeholders(text)
    return text


def _below(folder: Path, file: ImageFile) -> Path:
    inner = file.relative.parent
    if inner.is_absolute() or ".." in inner.parts:
        raise ValueError(f"ImageFile.relative leaves the output folder: {file.relative}")
    return folder / inner


def _keep_inputs(plans: Mapping[ImageFile, OutputPlan], request: OutputRequest) -> None:
    inputs = {os.path.abspath(file.path) for file in plans}  # noqa: PTH100  (no links followed)
    for plan in plans.values():
        for image_format in request.formats:
            path = plan.path(image_format.value, plan.lead)
            if os.path.abspath(path) in inputs:  # noqa: PTH100
                raise UsageError(
                    f"the figure {path} would overwrite an input image",
                    "choose another folder with --out",
                )


def _unique_stems(files: Sequence[ImageFile], name: str, values: Mapping[str, str]) -> list[str]:
    """A name for every file; those that collide move on together to the next value of {stem}."""
    level = [0] * len(files)
    while True:
        stems = [
            shortened_stem(filled(name, {**values, STEM: _NAMINGS[n](file)}))
            for n, file in zip(level, files, strict=True)
        ]
        keys = [_key(file, stem) for file, stem in zip(files, stems, strict=True)]
        count = Counter(keys)
        movable = [
            index
            for index, key in enumerate(keys)
            if count[key] > 1 and level[index] < len(_NAMINGS) - 1
        ]
        if not movable:
            if not has_placeholder(name, STEM) and max(count.values(), default=1) > 1:
                raise UsageError(
                    f"--name: {name!r} can name the figure of one image, and there are "
                    f"{len(files)}",
                    f"leave it out, or put {{{STEM}}} into it: the image's own name",
                )
            return stems
        for index in movable:
            level[index] += 1


def _key(file: ImageFile, stem: str) -> tuple[str, str]:
    """Equal for names that some file system takes for the same."""
    folder, name = (
        unicodedata.normalize("NFC", text).casefold() for text in (str(file.relative.parent), stem)
    )
    return folder, name


def _plain(file: ImageFile) -> str:
    return shortened_stem(file.relative.stem)


def _with_suffix(file: ImageFile) -> str:
    return shortened_stem(file.relative.name)


def _with_folder(file: ImageFile) -> str:
    folder = file.path.parent.name
    return shortened_stem(f"{folder}-{file.relative.name}" if folder else file.relative.name)


def _with_hash(file: ImageFile) -> str:
    return shortened_stem(f"{file.relative.name}-{_digest(os.fsencode(file.path))}")


_NAMINGS: tuple[Callable[[ImageFile], str], ...] = (_plain, _with_suffix, _with_folder, _with_hash)


def shortened_stem(stem: str) -> str:
    """The stem, or its beginning and a hash of all of it where file names would grow too long."""
    encoded = os.fsencode(stem)
    if len(encoded) <= LONGEST_STEM:
        return stem
    beginning = encoded[: LONGEST_STEM - _HASH_DIGITS - 1].decode("utf-8", "ignore")
    return f"{beginning}-{_digest(encoded)}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]
