"""The Python interface: load a model, prepare pictures, get maps as arrays, draw a figure.

    import attnviz

    model = attnviz.load_model("dino_vits8")
    image = attnviz.prepare("cat.jpg", model)
    maps = attnviz.heads(model, image, layer=-1)
    maps.attention.shape                     # (H, gh, gw)
    figure, = attnviz.draw(maps, image, model)
    figure.savefig("cat.heads.pdf")

The command line does its work through the same functions.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attnviz import figures
from attnviz.attention.compute import check_command, compute
from attnviz.domain import (
    DEFAULT_MAX_PIXELS,
    DrawStyle,
    FeaturesMaps,
    Fit,
    HeadsMaps,
    ImageFile,
    LayersMaps,
    Maps,
    MatrixMaps,
    PatchMaps,
    Picture,
    Positions,
    Precision,
    PreparedImage,
    QkvMaps,
    RelevanceMaps,
    RgbImage,
    RolloutMaps,
    RolloutOptions,
    ScoreMaps,
    sha256_of,
)
from attnviz.domain.requests import (
    CommandRequest,
    FeaturesRequest,
    HeadsRequest,
    InputRequest,
    LayersRequest,
    MatrixRequest,
    ModelRequest,
    PatchRequest,
    QkvRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
    SizeRequest,
)
from attnviz.errors import ImageError
from attnviz.images import fit as fitting
from attnviz.images.read import read_image
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.stages.reference import read_second, refer_to
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import ByteArray

_Maps = TypeVar("_Maps", bound=Maps)


def load_model(
    name: str | None = None,
    *,
    checkpoint: str | Path | None = None,
    checkpoint_key: str | None = None,
    random_weights: bool = False,
    device: str = "auto",
    precision: Precision | str = Precision.FLOAT32,
    positions: Positions | str | None = None,
    **sizes: int,
) -> Backbone:
    """A model by name, from a checkpoint, or both; ``sizes`` as ``--model-arg`` (depth=6, ...).

    Raises:
        UsageError: A name, device, size or path that does not exist.
        CheckpointError: Weights that cannot be had or read, or do not fit the model.
    """
    return load_backbone(
        ModelRequest(
            name=name,
            checkpoint=None if checkpoint is None else path_of(checkpoint),
            checkpoint_key=checkpoint_key,
            random_weights=random_weights,
            device=device,
            precision=Precision(precision),
            positions=None if positions is None else Positions(positions),
            args=sizes,
        )
    )


def read(source: str | Path | ByteArray) -> RgbImage:
    """A picture from a file, or from an array (height, width, 3) uint8 in sRGB.

    Raises:
        ImageError: The file cannot be read, or the array is of another kind.
    """
    if isinstance(source, str | Path):
        path = path_of(source)
        return read_image(ImageFile(path, Path(path.name)), max_pixels=DEFAULT_MAX_PIXELS)
    try:
        name = Path("array")
        return RgbImage(ImageFile(name, name), source, sha256_of(source.tobytes()))
    except ValueError as error:
        raise ImageError(str(error), "give an array (height, width, 3) of uint8") from error


def prepare(
    source: str | Path | ByteArray | RgbImage,
    model: Backbone,
    *,
    size: SizeRequest = None,
    fit: Fit | str = Fit.ASPECT,
) -> PreparedImage:
    """A picture as the model sees it; the geometry that places maps on it travels with it.

    Raises:
        ImageError: It cannot be read.
        UsageError: A size that the model cannot take.
    """
    image = source if isinstance(source, RgbImage) else read(source)
    return fitting.prepare(image, model.info, size, Fit(fit))


def compute_maps(
    model: Backbone, images: Sequence[PreparedImage], command: CommandRequest
) -> list[Maps]:
    """What a command asks for, of pictures of one input size, in one pass: one result a picture.

    Raises:
        UsageError: Something in the request is out of range for this model.
        ImageError: A point to look from lies outside a picture.
        AttentionError: The captured attention breaks an invariant.
    """
    check_command(model.info, command)
    reference = read_second(model, command, InputRequest(()))
    geometries = [image.geometry for image in images]
    return compute(model, model.batch(images), geometries, command, reference)


def heads(model: Backbone, image: PreparedImage, **request: Any) -> HeadsMaps:
    """The CLS attention of every head of a layer; keywords are the fields of ``HeadsRequest``."""
    return _one(model, image, HeadsRequest(**request), HeadsMaps)


def layers(model: Backbone, image: PreparedImage, **request: Any) -> LayersMaps:
    """The CLS attention of every layer; keywords are the fields of ``LayersRequest``."""
    return _one(model, image, LayersRequest(**request), LayersMaps)


def rollout(model: Backbone, image: PreparedImage, **request: Any) -> RolloutMaps:
    """Attention rollout; keywords are those of ``RolloutRequest`` and of ``RolloutOptions``."""
    names = {field.name for field in dataclasses.fields(RolloutOptions)}
    options = {name: request.pop(name) for name in names & request.keys()}
    if options:
        request["options"] = RolloutOptions(**options)
    return _one(model, image, RolloutRequest(**request), RolloutMaps)


def patch(model: Backbone, image: PreparedImage, **request: Any) -> PatchMaps:
    """The attention of chosen patches; keywords are the fields of ``PatchRequest``."""
    return _one(model, image, PatchRequest(**request), PatchMaps)


def score(model: Backbone, image: PreparedImage, **request: Any) -> ScoreMaps:
    """The VTC-LFC token score; keywords are the fields of ``ScoreRequest``."""
    return _one(model, image, ScoreRequest(**request), ScoreMaps)


def relevance(
    model: Backbone,
    image: PreparedImage,
    *,
    like: str | Path | ByteArray | RgbImage | PreparedImage | None = None,
    **request: Any,
) -> RelevanceMaps:
    """What counts for a class (``class_index``), or for likeness to a second picture (``like``).

    The other keywords are the fields of ``RelevanceRequest``.
    """
    second = like
    if like is not None and not isinstance(like, PreparedImage):
        second = prepare(like, model)
    path = second.image.file.path if isinstance(second, PreparedImage) else None
    command = RelevanceRequest(like=path, **request)
    check_command(model.info, command)
    reference = refer_to(model, second) if isinstance(second, PreparedImage) else None
    batch = model.batch([image])
    (found,) = compute(model, batch, [image.geometry], command, reference)
    assert isinstance(found, RelevanceMaps)
    return found


def features(model: Backbone, image: PreparedImage, **request: Any) -> FeaturesMaps:
    """The output tokens; keywords are the fields of ``FeaturesRequest``."""
    return _one(model, image, FeaturesRequest(**request), FeaturesMaps)


def matrix(model: Backbone, image: PreparedImage, **request: Any) -> MatrixMaps:
    """The attention matrices of a layer; keywords are the fields of ``MatrixRequest``."""
    return _one(model, image, MatrixRequest(**request), MatrixMaps)


def qkv(model: Backbone, image: PreparedImage, **request: Any) -> QkvMaps:
    """Queries, keys and values of a layer; keywords are the fields of ``QkvRequest``."""
    return _one(model, image, QkvRequest(**request), QkvMaps)


def _one(
    model: Backbone, image: PreparedImage, command: CommandRequest, kind: type[_Maps]
) -> _Maps:
    found = compute_maps(model, [image], command)[0]
    assert isinstance(found, kind)
    return cast("_Maps", found)


def draw(
    maps: Maps,
    image: PreparedImage,
    model: Backbone,
    style: DrawStyle | None = None,
    **options: Any,
) -> tuple[Figure, ...]:
    """The figure of some maps as matplotlib figures, one a page; usually one.

    ``options`` are those of the kind of figure: ``threshold`` (heads), ``each_head`` (layers,
    patch), ``norm`` (matrix). Nothing is shown or written.
    """
    picture = Picture(image.image.pixels, image.geometry, image.image.file.path.name)
    return figures.draw(maps, picture, model.info, style or DrawStyle(), **options)
