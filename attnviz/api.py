"""The Python interface: load a model, prepare images, get maps as arrays, draw a figure.

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

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attnviz import figures
from attnviz.attention.checks import check_request
from attnviz.attention.memory import check_memory
from attnviz.domain import (
    DEFAULT_DISCARD_RATIO,
    DEFAULT_KEEP_RATIO,
    DEFAULT_MAX_PIXELS,
    DEFAULT_RESIDUAL,
    DiscardOrder,
    DrawStyle,
    FeaturesMaps,
    FigureImage,
    Fit,
    Fusion,
    HeadsMaps,
    ImageFile,
    LayersMaps,
    Maps,
    MatrixMaps,
    Part,
    PatchMaps,
    Positions,
    Precision,
    PreparedImage,
    QkvMaps,
    Query,
    RelevanceMaps,
    RelevanceMethod,
    RgbImage,
    RolloutMaps,
    RolloutOptions,
    ScoreMaps,
    sha256_of,
)
from attnviz.domain.kinds import (
    CommandRequest,
    FeaturesRequest,
    HeadsRequest,
    LayersRequest,
    MatrixRequest,
    PatchRequest,
    QkvRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.domain.requests import InputRequest, ModelRequest, SizeRequest
from attnviz.errors import ImageError
from attnviz.images import fit as fitting
from attnviz.images.read import read_image
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.stages.model import maps_of
from attnviz.stages.reference import read_second, refer_to
from attnviz.stages.single import SingleImage
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
    """A model by name, from a checkpoint, or both.

    Args:
        name: A name from ``attnviz models``, of a plain ViT in timm, or of a hub repository.
        checkpoint: A file, or a folder of transformers or timm.
        checkpoint_key: The network to take from a training checkpoint, as ``"student"``.
        random_weights: An untrained model, the same in every run.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``.
        precision: Of the matrix products: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        positions: How position embeddings are resized: ``"original"``, ``"hf"`` or ``"timm"``; by
            default as the source of the weights does it.
        **sizes: Sizes of the model, as ``--model-arg``: ``depth=6``, ``heads=3``, ...

    Returns:
        The model in evaluation mode; ``info`` has its facts, ``notes`` what to know about its
        weights.

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
    """An image from a file, or from an array (height, width, 3) uint8 in sRGB.

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
    """An image as the model sees it; the geometry that places maps on it travels with it.

    Raises:
        ImageError: It cannot be read.
        UsageError: A size that the model cannot take.
    """
    image = source if isinstance(source, RgbImage) else read(source)
    return fitting.prepare(image, model.info, size, Fit(fit))


def compute_maps(
    model: Backbone, images: Sequence[PreparedImage], command: CommandRequest
) -> list[Maps]:
    """What a command asks for, for images of one input size, in one pass.

    Args:
        model: A loaded model.
        images: Prepared images with inputs of one size.
        command: A request, as ``HeadsRequest(layer=5)``.

    Returns:
        One result an image, in their order, equal to that of the image alone.

    Raises:
        UsageError: Something in the request is out of range for this model.
        ImageError: A point to look from lies outside an image.
        MemoryNeededError: It does not fit into memory.
        AttentionError: The captured attention breaks an invariant.
    """
    check_request(model.info, command)
    check_memory(model.info, images[0].geometry.model_input, command, model.device)
    return maps_of(model, images, command, read_second(model, command, InputRequest(())))


def heads(
    model: Backbone,
    image: PreparedImage,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    distance: bool = True,
    query: Query | str = Query.CLS,
) -> HeadsMaps:
    """The CLS attention of every head of a layer.

    Args:
        model: A loaded model.
        image: A prepared image.
        layer: From 0; negative counts from the end.
        heads: Indices of heads, from 0; None means all.
        distance: Also what takes the whole matrix: attention distance, attention to CLS, entropies.
        query: Whose rows: ``"cls"``, or ``"mean"`` over all patches.

    Returns:
        attention (H, gh, gw), prefix (H, P), entropy (H,) in nats, distance (H,) in input pixels.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no CLS token, and the query is ``"cls"``.
        AttentionError: The captured attention breaks an invariant.
    """
    request = HeadsRequest(layer, _indices(heads), distance=distance, query=Query(query))
    return _one(model, image, request, HeadsMaps)


def layers(
    model: Backbone,
    image: PreparedImage,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    distance: bool = True,
    query: Query | str = Query.CLS,
) -> LayersMaps:
    """The CLS attention of every layer.

    Args:
        model: A loaded model.
        image: A prepared image.
        layers: Indices of layers, from 0; None means all.
        heads: Indices of heads, from 0; None means all.
        distance: Also the attention distance, which takes the whole matrices.
        query: Whose rows: ``"cls"``, or ``"mean"`` over all patches.

    Returns:
        attention (L, H, gh, gw), prefix (L, H, P), entropy (L, H) in nats, distance (L, H) in
        input pixels.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no CLS token, and the query is ``"cls"``.
        AttentionError: The captured attention breaks an invariant.
    """
    request = LayersRequest(
        _indices(layers), _indices(heads), distance=distance, query=Query(query)
    )
    return _one(model, image, request, LayersMaps)


def rollout(  # noqa: PLR0913 - the options of a rollout
    model: Backbone,
    image: PreparedImage,
    *,
    fusion: Fusion | str = Fusion.MEAN,
    residual: float = DEFAULT_RESIDUAL,
    discard_ratio: float = DEFAULT_DISCARD_RATIO,
    discard: DiscardOrder | str = DiscardOrder.AFTER,
    start_layer: int = 0,
    heads: Sequence[int] | None = None,
    depths: Sequence[int] = (),
    query: Query | str = Query.CLS,
) -> RolloutMaps:
    """Attention rollout through all layers (Abnar & Zuidema 2020; see docs/definitions.md).

    Args:
        model: A loaded model.
        image: A prepared image.
        fusion: How the heads of a layer are fused: ``"mean"``, ``"max"`` or ``"min"``.
        residual: Share of the identity mixed into each layer, in [0, 1).
        discard_ratio: Share of each layer's smallest values that become 0, in [0, 1); 0 is the
            paper's rollout.
        discard: ``"before"`` or ``"after"`` the identity is mixed in.
        start_layer: First layer of the product, from 0.
        heads: Indices of heads, from 0; None means all.
        depths: Also the rollout after these layers.
        query: Whose rows: ``"cls"``, or ``"mean"`` over all patches.

    Returns:
        rollout (gh, gw) and prefix (P,), which together sum to 1; at_depth (K, gh, gw).

    Raises:
        UsageError: A ratio, layer or head out of range.
        UnsupportedModelError: The model has no CLS token, and the query is ``"cls"``.
        AttentionError: The captured attention breaks an invariant.
    """
    options = RolloutOptions(
        Fusion(fusion), residual, discard_ratio, DiscardOrder(discard), start_layer
    )
    request = RolloutRequest(options, _indices(heads), tuple(depths), Query(query))
    return _one(model, image, request, RolloutMaps)


def patch(
    model: Backbone,
    image: PreparedImage,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    cells: Sequence[tuple[int, int]] = (),
    points: Sequence[tuple[float, float]] = (),
) -> PatchMaps:
    """The attention of chosen patches; without any, of the centre patch of each quadrant.

    Args:
        model: A loaded model.
        image: A prepared image.
        layer: From 0; negative counts from the end.
        heads: Indices of heads, from 0; None means all.
        cells: Patches as (row, column) in the grid, from 0.
        points: Patches as (x, y) in pixels of the original image.

    Returns:
        attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H) in nats, cells (Q, 2).

    Raises:
        UsageError: Layer or head out of range.
        ImageError: A cell or point lies outside the grid.
        AttentionError: The captured attention breaks an invariant.
    """
    request = PatchRequest(layer, _indices(heads), tuple(cells), tuple(points))
    return _one(model, image, request, PatchMaps)


def score(
    model: Backbone,
    image: PreparedImage,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    keep_ratio: float = DEFAULT_KEEP_RATIO,
) -> ScoreMaps:
    """The token score of VTC-LFC (Wang et al. 2022, equation 8 as its code computes it).

    Args:
        model: A loaded model.
        image: A prepared image.
        layer: From 0; negative counts from the end.
        heads: Indices of heads, from 0; None means all.
        keep_ratio: Share of the patches that are kept, highest first, in (0, 1].

    Returns:
        score (gh, gw), the sum of cls_term and patch_term (gh, gw), and kept (gh, gw) bool.

    Raises:
        UsageError: Layer, head or ratio out of range.
        UnsupportedModelError: The model has no CLS token.
        AttentionError: The captured attention breaks an invariant.
    """
    return _one(model, image, ScoreRequest(layer, _indices(heads), keep_ratio), ScoreMaps)


def relevance(
    model: Backbone,
    image: PreparedImage,
    *,
    like: str | Path | ByteArray | RgbImage | PreparedImage | None = None,
    class_index: int | None = None,
    method: RelevanceMethod | str = RelevanceMethod.CHEFER,
    heads: Sequence[int] | None = None,
) -> RelevanceMaps:
    """What counts for a class, or for the similarity to a second image; give one of the two.

    Args:
        model: A loaded model.
        image: A prepared image.
        like: The second image: a path, an array (height, width, 3) uint8, or one that is read or
            prepared already.
        class_index: A class of the classifier that came with the weights, from 0.
        method: ``"chefer"`` (Chefer et al. 2021), ``"gradient-rollout"`` or ``"contribution"``.
        heads: Indices of heads, from 0; None means all.

    Returns:
        relevance (gh, gw) and prefix (P,); value, the target: a logit or a cosine.

    Raises:
        UsageError: No target or two, a class or head out of range, or gradients in float16.
        ImageError: The second image cannot be read.
        AttentionError: The captured attention or a gradient breaks an invariant.
    """
    second = like
    if like is not None and not isinstance(like, PreparedImage):
        second = prepare(like, model)
    path = second.image.file.path if isinstance(second, PreparedImage) else None
    request = RelevanceRequest(RelevanceMethod(method), class_index, path, _indices(heads))
    check_request(model.info, request)
    reference = refer_to(model, second) if isinstance(second, PreparedImage) else None
    return cast("RelevanceMaps", SingleImage(model, image).maps(request, reference))


def features(
    model: Backbone,
    image: PreparedImage,
    *,
    layer: int | None = None,
    cells: Sequence[tuple[int, int]] = (),
    points: Sequence[tuple[float, float]] = (),
    foreground: bool = False,
    flip_foreground: bool = False,
    outlier_threshold: float | None = None,
) -> FeaturesMaps:
    """The output tokens: their principal components, norms, and similarity to chosen patches.

    Args:
        model: A loaded model.
        image: A prepared image.
        layer: The tokens as this layer gives them; None: the model's output, after its final norm.
        cells: Patches to compare with, as (row, column) in the grid, from 0.
        points: The same as (x, y) in pixels of the original image.
        foreground: Components of the foreground alone, which the first component sets apart.
        flip_foreground: Take the other side as the foreground.
        outlier_threshold: The norm above which a token counts as an outlier.

    Returns:
        tokens (N, D), norm (gh, gw), prefix_norm (P,), components (gh, gw, 3), similarity
        (Q, gh, gw) from -1 to 1.

    Raises:
        UsageError: Layer or threshold out of range.
        ImageError: A cell or point lies outside the grid.
        AttentionError: Tokens are not finite.
    """
    request = FeaturesRequest(
        layer, tuple(cells), tuple(points), foreground, flip_foreground, outlier_threshold
    )
    return _one(model, image, request, FeaturesMaps)


def matrix(
    model: Backbone,
    image: PreparedImage,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    whole: bool = False,
) -> MatrixMaps:
    """The attention matrices of a layer, before and after softmax.

    Args:
        model: A loaded model.
        image: A prepared image.
        layer: From 0; negative counts from the end.
        heads: Indices of heads, from 0; None means all.
        whole: Also every value, and not only the means over blocks of tokens that are drawn.

    Returns:
        mean_logits, mean_attention (n, n); token_entropy (H, N) in nats; logits, attention
        (H, N, N) if ``whole``.

    Raises:
        UsageError: Layer or head out of range.
        MemoryNeededError: The whole matrices are too large to hold.
        AttentionError: The captured attention breaks an invariant.
    """
    return _one(model, image, MatrixRequest(layer, _indices(heads), whole=whole), MatrixMaps)


def qkv(
    model: Backbone,
    image: PreparedImage,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    parts: Sequence[Part | str] = tuple(Part),
) -> QkvMaps:
    """Queries, keys and values of a layer, as the model hands them to attention.

    Args:
        model: A loaded model.
        image: A prepared image.
        layer: From 0; negative counts from the end.
        heads: Indices of heads, from 0; None means all.
        parts: Some of ``"q"``, ``"k"``, ``"v"``.

    Returns:
        vectors (S, H, N, d), norms (S, H, N), components (S, H, gh, gw, 3).

    Raises:
        UsageError: Layer or head out of range, or no part.
        AttentionError: The captured attention breaks an invariant.
    """
    request = QkvRequest(layer, _indices(heads), tuple(map(Part, parts)))
    return _one(model, image, request, QkvMaps)


def _indices(given: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if given is None else tuple(given)


def _one(
    model: Backbone, image: PreparedImage, request: CommandRequest, _maps: type[_Maps]
) -> _Maps:
    check_request(model.info, request)
    reference = read_second(model, request, InputRequest(()))
    return cast("_Maps", SingleImage(model, image).maps(request, reference))


def draw(
    maps: Maps,
    image: PreparedImage,
    model: Backbone,
    style: DrawStyle | None = None,
    **options: Any,
) -> tuple[Figure, ...]:
    """The figure of some maps. Nothing is shown or written.

    Args:
        maps: What ``heads`` or another function returned.
        image: The image that the maps are of.
        model: The model that they are from.
        style: Size, resolution, colours and scale; by default a page wide.
        **options: Of the kind of figure: ``threshold`` (heads), ``each_head`` (layers, patch),
            ``norm`` (matrix).

    Returns:
        Figures of matplotlib, one a page; usually one.

    Raises:
        TypeError: An option that this kind of figure does not have.
    """
    figure_image = FigureImage(image.image.pixels, image.geometry, image.image.file.path.name)
    return figures.draw(maps, figure_image, model.info, style or DrawStyle(), **options)
