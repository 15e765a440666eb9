"""The evaluation of a model over pictures with masks; what happens is yielded as events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from attnviz.attention.checks import check_request
from attnviz.attention.memory import check_memory
from attnviz.domain import (
    HeadsMaps,
    ImageFile,
    Maps,
    PreparedImage,
    RolloutMaps,
)
from attnviz.domain.evaluation import EvaluationRequest
from attnviz.domain.events import Done, Event, Failed, Started
from attnviz.domain.kinds import CommandRequest, HeadsRequest, RolloutRequest
from attnviz.errors import AttnvizError, UsageError
from attnviz.images.find import FoundImages, find_images
from attnviz.images.fit import check_size, prepare
from attnviz.images.mask import read_mask
from attnviz.images.read import read_image
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.runs.jaccard import PictureScores, score_picture
from attnviz.stages.model import maps_of

MARK = ".mask"
"""What a mask may have behind its picture's stem: ``cat.mask.png`` for ``cat.jpg``."""


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
            check_request(model.info, command)
        check_size(model.info.patch, request.inputs.size, request.inputs.fit)
        notes = (*model.notes, *_left_out(alone))
        yield Started(len(pairs) + len(found.missing), model.info, notes, found.skipped)
        for file, mask in pairs:
            try:
                scores = _score(request, model, (heads, rollout), file, mask)
            except AttnvizError as problem:
                yield Failed(str(file.path), problem)
            else:
                yield Scored(file, (), scores=scores)
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


def _score(
    request: EvaluationRequest,
    model: Backbone,
    commands: tuple[HeadsRequest, RolloutRequest],
    file: ImageFile,
    mask_path: Path,
) -> PictureScores:
    inputs = request.inputs
    image = read_image(file, max_pixels=inputs.max_pixels)
    mask = read_mask(mask_path, image.size)
    picture = prepare(image, model.info, inputs.size, inputs.fit, inputs.mean, inputs.std)
    heads, rollout = (_maps(model, picture, command) for command in commands)
    if not isinstance(heads, HeadsMaps) or not isinstance(rollout, RolloutMaps):
        raise TypeError("maps of another kind than asked for")
    return score_picture(
        heads.attention, rollout.rollout, picture.geometry, mask, request.threshold
    )


def _maps(model: Backbone, picture: PreparedImage, command: CommandRequest) -> Maps:
    check_memory(model.info, picture.geometry.model_input, command, model.device)
    return maps_of(model, [picture], command)[0]
