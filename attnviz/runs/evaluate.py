"""Evaluation of a model over images with masks. Prints nothing; yields events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnviz.attention.checks import check_request
from attnviz.domain import (
    ImageFile,
)
from attnviz.domain.evaluation import EvaluationRequest
from attnviz.domain.events import Done, Event, Failed, Started
from attnviz.errors import AttnvizError, UsageError
from attnviz.images.find import FoundImages, find_images
from attnviz.images.mask import MASK_NOTE, mask_notes, read_mask
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.runs.jaccard import ImageScores, score_image
from attnviz.stages.plan import check_before_loading
from attnviz.stages.single import SingleImage

MASK_SUFFIX = ".mask"
"""What a mask may have after the stem of its image: ``cat.mask.png`` for ``cat.jpg``."""


@dataclass(frozen=True)
class Scored(Done):
    """One image is scored."""

    scores: ImageScores = field(kw_only=True)


def evaluate(request: EvaluationRequest, model: Backbone | None = None) -> Iterator[Event]:
    """Score every image that has a mask: one ``Started``, then ``Scored`` or ``Failed`` for each.

    ``model``: the one that the request names, if it is loaded already.

    Raises:
        AttnvizError: Nothing can be done at all: the options, the model, or no image has a mask.
    """
    found = find_images(request.inputs.inputs)
    pairs, unmatched = pair_with_masks(found, find_images([request.masks]))
    if found.files and not pairs:
        raise UsageError(
            f"no image has a mask of the same name in {request.masks}",
            "a mask is a PNG file with the stem of its image: cat.png or cat.mask.png",
        )
    if pairs:
        if model is None:
            for command in request.commands:
                check_before_loading(command, request.model, request.inputs)
            model = load_backbone(request.model)
        for command in request.commands:
            check_request(model.info, command)
        check_size(model.info.patch, request.inputs.size, request.inputs.fit)
        notes = (*model.notes, *_unmatched_note(unmatched))
        yield Started(len(pairs) + len(found.missing), model.info, notes, found.skipped)
        known: set[str] = set()
        for file, mask in pairs:
            try:
                yield _without_known(_score(request, model, file, mask), known)
            except AttnvizError as problem:
                yield Failed(str(file.path), problem)
    for name, error in found.missing:
        yield Failed(name, error)


def pair_with_masks(
    images: FoundImages, masks: FoundImages
) -> tuple[list[tuple[ImageFile, Path]], tuple[Path, ...]]:
    """Each image with the mask of its stem in the same sub-folder, and the images without one.

    Masks among the images are not images themselves.

    Raises:
        UsageError: The masks cannot be found.
    """
    for _, error in masks.missing:
        raise UsageError(f"masks: {error.message}", error.hint)
    by_stem: dict[Path, Path] = {}
    for file in sorted(masks.files, key=lambda file: file.relative.stem.endswith(MASK_SUFFIX)):
        if file.path.suffix.lower() == ".png":
            stem = file.relative.with_suffix("")
            by_stem[stem.with_name(stem.name.removesuffix(MASK_SUFFIX))] = file.path
    pairs, unmatched = [], []
    for file in images.files:
        stem = file.relative.with_suffix("")
        mask = by_stem.get(stem)
        if mask is not None and mask != file.path:
            pairs.append((file, mask))
        elif not stem.name.endswith(MASK_SUFFIX):
            unmatched.append(file.path)
    return pairs, tuple(unmatched)


def _unmatched_note(unmatched: tuple[Path, ...]) -> tuple[str, ...]:
    if not unmatched:
        return ()
    more = f" and {len(unmatched) - 1} more" if len(unmatched) > 1 else ""
    return (f"left out, without a mask: {unmatched[0].name}{more}",)


def _without_known(scored: Scored, known: set[str]) -> Scored:
    """Without the notes that an earlier mask had too; ``known`` remembers those."""
    notes = tuple(note for note in scored.notes if note not in known)
    known.update(note for note in notes if note.startswith(MASK_NOTE))
    return replace(scored, notes=notes)


def _score(request: EvaluationRequest, model: Backbone, file: ImageFile, mask_path: Path) -> Scored:
    image = read_input(file, request.inputs)
    mask = read_mask(mask_path, image.size)
    single = SingleImage.of(model, image, request.inputs, verify=request.model.verify)
    heads, rollout = request.commands
    scores = score_image(
        single.maps(heads).attention,
        single.maps(rollout).rollout,
        single.prepared.geometry,
        mask.pixels,
        request.threshold,
    )
    notes = (*single.prepared.image.notes, *mask_notes(mask), *single.notes)
    return Scored(file, (), notes=notes, scores=scores)
