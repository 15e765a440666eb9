"""Evaluation of a model over images with masks or boxes. Prints nothing; yields events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from attnviz.attention.checks import check_request
from attnviz.domain import (
    Box,
    DiscoverMaps,
    ImageFile,
)
from attnviz.domain.evaluation import EvaluationRequest
from attnviz.domain.events import Done, Event, Failed, Started
from attnviz.errors import AttnvizError, UsageError
from attnviz.images.boxes import boxes_of, check_inside, read_boxes
from attnviz.images.find import FoundImages, find_images
from attnviz.images.mask import MASK_NOTE, mask_notes, read_mask
from attnviz.images.read import read_input
from attnviz.images.sizes import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.runs.corloc import Overlaps, overlap
from attnviz.runs.jaccard import ImageScores, score_image
from attnviz.stages.plan import check_before_loading
from attnviz.stages.single import SingleImage

MASK_SUFFIX = ".mask"
"""What a mask may have after the stem of its image: ``cat.mask.png`` for ``cat.jpg``."""


@dataclass(frozen=True)
class Judged:
    """An image, and what is known of its object: a mask, boxes, or both."""

    file: ImageFile
    mask: Path | None = None
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Scored(Done):
    """One image is scored: by its mask, None without one, and its boxes, {} without."""

    scores: ImageScores | None = field(kw_only=True)
    overlaps: Overlaps = field(kw_only=True, default_factory=dict)


def evaluate(request: EvaluationRequest, model: Backbone | None = None) -> Iterator[Event]:
    """Score every image that has a mask or a box: one ``Started``, then ``Scored`` or ``Failed``.

    ``model``: the one that the request names, if it is loaded already.

    Raises:
        AttnvizError: Nothing can be done at all: the options, the model, or no image has a mask or
            a box.
    """
    found = find_images(request.inputs.inputs)
    judged, unmatched = _judged(request, found)
    if judged:
        if model is None:
            for command in request.commands:
                check_before_loading(command, request.model, request.inputs)
            model = load_backbone(request.model)
        for command in request.commands:
            check_request(model.info, command)
        check_size(model.info.patch, request.inputs.size, request.inputs.fit)
        notes = (*model.notes, *unmatched)
        yield Started(len(judged) + len(found.missing), model.info, notes, found.skipped)
        known: set[str] = set()
        for each in judged:
            try:
                yield _without_known(_score(request, model, each), known)
            except AttnvizError as problem:
                yield Failed(str(each.file.path), problem)
    for name, error in found.missing:
        yield Failed(name, error)


def _judged(request: EvaluationRequest, found: FoundImages) -> tuple[list[Judged], tuple[str, ...]]:
    """The images with a mask or a box, and notes on those without.

    Raises:
        UsageError: There are images, and none has one.
    """
    files, masks, notes = found.files, {}, []
    if request.masks is not None:
        pairs, unmatched = pair_with_masks(found, find_images([request.masks]))
        masks = dict(pairs)
        judged_or_not = {*(file.path for file in masks), *unmatched}  # but no masks among them
        files = tuple(file for file in files if file.path in judged_or_not)
        if found.files and not masks:
            raise UsageError(
                f"no image has a mask of the same name in {request.masks}",
                "a mask is a PNG file with the stem of its image: cat.png or cat.mask.png",
            )
        notes += _left_out(unmatched, "a mask", "Jaccard" if request.boxes else "")
    boxes: dict[ImageFile, tuple[Box, ...]] = {}
    if request.boxes is not None:
        known = read_boxes(request.boxes)
        boxes = {file: boxes_of(known, file) for file in files}
        if files and not any(boxes.values()):
            raise UsageError(
                f"--boxes: {request.boxes} has no box of any of the images",
                "the column image has their names, or their paths below the input folder",
            )
        without = tuple(file.path for file, those in boxes.items() if not those)
        notes += _left_out(without, "a box", "CorLoc" if request.masks else "")
    judged = (Judged(file, masks.get(file), boxes.get(file, ())) for file in files)
    return [each for each in judged if each.mask is not None or each.boxes], tuple(notes)


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


def _left_out(unmatched: tuple[Path, ...], what: str, score: str) -> list[str]:
    """A note on the images that lack something; score: of which alone they are left out."""
    if not unmatched:
        return []
    more = f" and {len(unmatched) - 1} more" if len(unmatched) > 1 else ""
    of = f" of {score}" if score else ""
    return [f"left out{of}, without {what}: {unmatched[0].name}{more}"]


def _without_known(scored: Scored, known: set[str]) -> Scored:
    """Without the notes that an earlier mask had too; ``known`` remembers those."""
    notes = tuple(note for note in scored.notes if note not in known)
    known.update(note for note in notes if note.startswith(MASK_NOTE))
    return replace(scored, notes=notes)


def _score(request: EvaluationRequest, model: Backbone, judged: Judged) -> Scored:
    image = read_input(judged.file, request.inputs)
    mask = None if judged.mask is None else read_mask(judged.mask, image.size)
    check_inside(judged.boxes, image.size)
    single = SingleImage.of(model, image, request.inputs, verify=request.model.verify)
    scores = None
    if mask is not None:
        heads, rollout = request.segmenting
        scores = score_image(
            single.maps(heads).attention,
            single.maps(rollout).rollout,
            single.prepared.geometry,
            mask.pixels,
            request.threshold,
        )
    overlaps: Overlaps = {}
    for method, command in request.locating.items() if judged.boxes else ():
        found = cast("DiscoverMaps", single.maps(command)).box
        overlaps[method] = max(overlap(found, box) for box in judged.boxes)
    notes = (*single.prepared.image.notes, *(mask_notes(mask) if mask else ()), *single.notes)
    return Scored(judged.file, (), notes=notes, scores=scores, overlaps=overlaps)
