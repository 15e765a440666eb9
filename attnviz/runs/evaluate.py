"""The evaluation of a model over pictures with masks; what happens is yielded as events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from attnviz.attention.compute import check_command
from attnviz.attention.memory import largest_batch
from attnviz.domain import (
    DEFAULT_MASS,
    HeadsMaps,
    ImageFile,
    Maps,
    PreparedImage,
    Query,
    RolloutMaps,
)
from attnviz.domain.events import Done, Event, Failed, Started
from attnviz.domain.requests import (
    CommandRequest,
    HeadsRequest,
    InputRequest,
    ModelRequest,
    RolloutRequest,
)
from attnviz.errors import AttnvizError, UsageError
from attnviz.images.find import FoundImages, find_images
from attnviz.images.fit import check_size, prepare
from attnviz.images.mask import MASK_NOTE, mask_notes, read_mask
from attnviz.images.read import read_input
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.runs.jaccard import PictureScores, score_picture
from attnviz.stages.model import maps_of

MARK = ".mask"
"""What a mask may have behind its picture's stem: ``cat.mask.png`` for ``cat.jpg``."""


@dataclass(frozen=True)
class EvaluationRequest:
    """Which model is judged, on which pictures, with which masks (a file, folder or glob)."""

    model: ModelRequest
    inputs: InputRequest
    masks: str
    layer: int = -1
    threshold: float = DEFAULT_MASS
    query: Query = Query.CLS


@dataclass(frozen=True)
class Scored(Done):
    """One picture is judged."""

    scores: PictureScores = field(kw_only=True)


def evaluate(request: EvaluationRequest, model: Backbone | None = None) -> Iterator[Event]:
    """Judge every picture that has a mask: one ``Started``, then ``Scored`` or ``Failed`` each.

    ``model``: the one that the request names, where it is loaded already.

    Raises:
        AttnvizError: Nothing can be done at all: the options, the model, or no mask for any
            picture.
    """
    found = find_images(request.inputs.inputs)
    pairs, alone = pair_with_masks(found, find_images([request.masks]))
    if found.files and not pairs:
        raise UsageError(
            f"no picture has a mask of its own name in {request.masks}",
            "a mask is a PNG file with the stem of its picture: cat.png or cat.mask.png",
        )
    if pairs:
        model = model or load_backbone(request.model)
        heads = HeadsRequest(layer=request.layer, distance=False, query=request.query)
        rollout = RolloutRequest(query=request.query)
        for command in (heads, rollout):
            check_command(model.info, command)
        check_size(model.info.patch, request.inputs.size, request.inputs.fit)
        notes = (*model.notes, *_left_out(alone))
        yield Started(len(pairs) + len(found.missing), model.info, notes, found.skipped)
        told: set[str] = set()
        for file, mask in pairs:
            try:
                scores, notes = _score(request, model, (heads, rollout), file, mask)
            except AttnvizError as problem:
                yield Failed(str(file.path), problem)
            else:
                yield Scored(file, (), notes=_told_once(notes, told), scores=scores)
    for name, error in found.missing:
        yield Failed(name, error)


def pair_with_masks(
    pictures: FoundImages, masks: FoundImages
) -> tuple[list[tuple[ImageFile, Path]], tuple[Path, ...]]:
    """Each picture with the mask of its stem in the same sub-folder, and those without one.

    Masks that stand among the pictures are no pictures themselves.

    Raises:
        UsageError: The masks cannot be found.
    """
    for _, error in masks.missing:
        raise UsageError(f"masks: {error.message}", error.hint)
    known: dict[Path, Path] = {}
    for file in sorted(masks.files, key=lambda file: file.relative.stem.endswith(MARK)):
        if file.path.suffix.lower() == ".png":
            key = file.relative.with_suffix("")
            known[key.with_name(key.name.removesuffix(MARK))] = file.path
    pairs, alone = [], []
    for file in pictures.files:
        key = file.relative.with_suffix("")
        mask = known.get(key)
        if mask is not None and mask != file.path:
            pairs.append((file, mask))
        elif not key.name.endswith(MARK):
            alone.append(file.path)
    return pairs, tuple(alone)


def _left_out(alone: tuple[Path, ...]) -> tuple[str, ...]:
    if not alone:
        return ()
    more = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
    return (f"left out, without a mask: {alone[0].name}{more}",)


def _told_once(notes: tuple[str, ...], told: set[str]) -> tuple[str, ...]:
    """The notes, without what was told of an earlier mask; ``told`` remembers."""
    fresh = tuple(note for note in notes if note not in told)
    told.update(note for note in notes if note.startswith(MASK_NOTE))
    return fresh


def _score(
    request: EvaluationRequest,
    model: Backbone,
    commands: tuple[HeadsRequest, RolloutRequest],
    file: ImageFile,
    mask_path: Path,
) -> tuple[PictureScores, tuple[str, ...]]:
    inputs = request.inputs
    image = read_input(file, inputs)
    mask = read_mask(mask_path, image.size)
    picture = prepare(image, model.info, inputs.size, inputs.fit, inputs.mean, inputs.std)
    heads, rollout = (_maps(model, picture, command) for command in commands)
    if not isinstance(heads, HeadsMaps) or not isinstance(rollout, RolloutMaps):
        raise TypeError("maps of another kind than asked for")
    scores = score_picture(
        heads.attention, rollout.rollout, picture.geometry, mask.pixels, request.threshold
    )
    return scores, (*picture.image.notes, *mask_notes(mask))


def _maps(model: Backbone, picture: PreparedImage, command: CommandRequest) -> Maps:
    # Asked for its error: it names the largest size that fits.
    largest_batch(model.info, picture.geometry.model_input, command, model.device)
    return maps_of(model, [picture], command)[0]
