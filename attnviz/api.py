"""The Python interface: load a model, prepare images, get maps as arrays, draw a figure.

    import attnviz

    model = attnviz.load_model("dino_vits8")
    maps = attnviz.heads(model, "cat.jpg", layer=-1)
    maps.attention.shape                     # (H, gh, gw)
    maps                                     # shows the figure, as the last line of a cell
    maps.save("cat.heads.pdf")

The command line does its work through the same functions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from attnviz import figures
from attnviz.attention.checks import check_request
from attnviz.attention.choose import choose_layers
from attnviz.attention.memory import check_memory
from attnviz.domain import (
    DEFAULT_DISCARD_RATIO,
    DEFAULT_KEEP_RATIO,
    DEFAULT_MAX_PIXELS,
    DEFAULT_RESIDUAL,
    Baseline,
    Descriptor,
    Direction,
    DiscardOrder,
    DiscoverMaps,
    DiscoverMethod,
    DrawStyle,
    FaithfulMaps,
    FeaturesMaps,
    FigureImage,
    Fit,
    Fusion,
    HeadsMaps,
    ImageFile,
    LayersMaps,
    Maps,
    MatchMaps,
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
    Size,
)
from attnviz.domain.kinds import (
    CommandRequest,
    DiscoverRequest,
    FaithfulRequest,
    FeaturesRequest,
    HeadsRequest,
    LayersRequest,
    MatchRequest,
    MatrixRequest,
    PatchRequest,
    QkvRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
    request_of,
)
from attnviz.domain.registers import DEFAULT_TOP, RegisterSearch, RegistersMaps
from attnviz.domain.requests import InputRequest, ModelRequest, SizeRequest
from attnviz.errors import ImageError, UsageError
from attnviz.images import fit as fitting
from attnviz.images import memory
from attnviz.images.read import read_image
from attnviz.models import wrap as wrapping
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.stages.display import shown
from attnviz.stages.explorer_page import PAGE_HEIGHT, ExplorerPage, page_of
from attnviz.stages.model import maps_of
from attnviz.stages.reference import read_second, refer_to
from attnviz.stages.registers import RegisterFinder, find_registers
from attnviz.stages.single import SingleImage
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor, nn

    ImageSource = str | Path | Image | NDArray[Any] | Tensor
    """A path, a Pillow image, an array (h, w, 3) or a tensor (3, h, w): see ``read``."""

_Maps = TypeVar("_Maps", bound=Maps)


def load_model(  # noqa: PLR0913 - the options of a model
    name: str | None = None,
    *,
    checkpoint: str | Path | None = None,
    checkpoint_key: str | None = None,
    random_weights: bool = False,
    device: str = "auto",
    precision: Precision | str = Precision.FLOAT32,
    positions: Positions | str | None = None,
    stride: int | None = None,
    test_registers: str | Path | None = None,
    register_count: int | None = None,
    **sizes: int,
) -> Backbone:
    """A model by name, from a checkpoint, or both.

    Args:
        name: Of ``attnviz models``, a plain ViT of timm, or ORG/NAME of the hub.
        checkpoint: A file, or a Hugging Face folder.
        checkpoint_key: Which entry of a training checkpoint to take.
        random_weights: An untrained model.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``.
        precision: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        positions: Whose rule resizes positions; None: that of the model's own code.
        stride: Pixels from patch to patch, a divisor of the patch; None: the patch.
        test_registers: A list of neurons that ``attnviz registers`` wrote; one that is not in a
            file goes through ``model.with_test_registers``.
        register_count: How many test-time registers to add; None: one.
        **sizes: Of your own model.

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
            stride=stride,
            test_registers=None if test_registers is None else path_of(test_registers),
            register_count=register_count,
            args=sizes,
        )
    )


def wrap(
    module: nn.Module,
    *,
    name: str | None = None,
    processor: Any = None,
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
    verify: bool = True,
) -> Backbone:
    """A model from a module in memory: a ViT of timm, of transformers, or of the code of DINO.

    Also one that is being trained: compiled, in DistributedDataParallel, or with adapters of peft,
    which are merged. It is shown in evaluation mode and float32, with a copy of its weights as they
    are now. The module itself is not run and stays the same to the bit: weights, mode, hooks,
    gradients. ``notes`` of the model say what was merged, compared and assumed.

    Args:
        module: The module, or one that holds it; of teacher and student, the teacher is taken.
        name: What figures call it; by default the name of its class.
        processor: The image processor of transformers that prepares its images.
        mean: Mean of the pixel normalisation, for pixels from 0 to 1; by default as timm's module
            says, else that of ImageNet, and then figures say that it is assumed.
        std: Standard deviation of the pixel normalisation.
        verify: Run a copy of the module once, and refuse it unless the output of its last layer is
            that of the model that is shown. Modules of timm are shown by their own code.

    Raises:
        UsageError: The module holds no Vision Transformer, or several; mean without std.
        UnsupportedModelError: Its attention cannot be shown exactly.
        CheckpointError: Its tensors are not those of a known layout.
    """
    return wrapping.wrap(module, name=name, processor=processor, mean=mean, std=std, verify=verify)


def read(
    source: ImageSource, *, normalised: bool | None = None, name: str | None = None
) -> RgbImage:
    """An image of 8 bits a channel in sRGB.

    Args:
        source: A path; a Pillow image; an array (h, w, 3) of uint8, or of floats from 0 to 1; a
            tensor (3, h, w) of uint8, or of floats from 0 to 1 with ``normalised=False``.
        normalised: Must be False for a float tensor: its values do not say it.
        name: What figures call the image; by default the name of its file.

    Raises:
        ImageError: The file cannot be read, or the array is of another kind.
        UsageError: A float tensor, and ``normalised`` is not False.
    """
    if not isinstance(source, str | Path):
        return memory.image_of(source, normalised=normalised, name=name)
    path = path_of(source)
    return read_image(ImageFile(path, Path(path.name)), max_pixels=DEFAULT_MAX_PIXELS)


def prepare(
    source: ImageSource | RgbImage,
    model: Backbone,
    *,
    size: SizeRequest = None,
    fit: Fit | str = Fit.ASPECT,
    normalised: bool | None = None,
    name: str | None = None,
) -> PreparedImage:
    """An image as the model sees it; the geometry that places maps on it travels with it.

    Args:
        source: An image as for ``read``, or what that returned.
        model: A loaded model.
        size: Shorter side in pixels, (height, width), ``"original"``, or None: the native size.
        fit: ``"aspect"``, ``"squash"``, ``"crop"`` or ``"pad"``.
        normalised: True: ``source`` is a tensor (3, h, w) that was resized and normalised with the
            model's mean and standard deviation already, and is the model's input to the bit.
        name: What figures call an image in memory.

    Raises:
        ImageError: It cannot be read, or is another kind of array.
        UsageError: A size that the model cannot take, or a float tensor without ``normalised``.
    """
    _check_model(model)
    if isinstance(source, RgbImage):
        return fitting.prepare(source, model.info, size, Fit(fit))
    if not normalised:
        image = read(source, normalised=normalised, name=name)
        return fitting.prepare(image, model.info, size, Fit(fit))
    if size is not None or Fit(fit) is not Fit.ASPECT:
        raise UsageError(
            "a normalised tensor is the model's input as it is, and is not resized",
            "leave size and fit out",
        )
    return memory.prepared_of(source, model.info, name=name)


def prepare_batch(
    sources: Iterable[ImageSource | RgbImage],
    model: Backbone,
    *,
    size: SizeRequest = None,
    fit: Fit | str = Fit.ASPECT,
    normalised: bool | None = None,
) -> list[PreparedImage]:
    """Several images as ``prepare`` takes them, or one array or tensor with a first axis more.

    Images in memory without a name of their own are called ``image 0``, ``image 1`` and so on.

    Raises:
        ImageError: As ``prepare``; the message begins with the number of the image.
        UsageError: As ``prepare``.
    """
    return [
        _numbered(index, source, model, size=size, fit=fit, normalised=normalised)
        for index, source in enumerate(sources)
    ]


def _numbered(
    index: int, source: ImageSource | RgbImage, model: Backbone, **options: Any
) -> PreparedImage:
    """An image of a batch: with its number for a name, and in errors."""
    named = isinstance(source, str | Path | RgbImage) or getattr(source, "filename", None)
    try:
        return prepare(source, model, name=None if named else f"image {index}", **options)
    except ImageError as error:
        raise ImageError(f"image {index}: {error.message}", error.hint) from error


def compute_maps(
    model: Backbone,
    images: Iterable[PreparedImage | RgbImage | ImageSource],
    command: CommandRequest | str,
) -> list[Maps]:
    """What a command asks for, one result an image; images of one input size share a pass.

    Args:
        model: A loaded model.
        images: Prepared images, or others as ``prepare_batch`` takes them.
        command: A request, or the name of a kind of figure (``"heads"``) with its defaults.

    Raises:
        UsageError: Something in the request is out of range for this model.
        ImageError: An image cannot be read, or a point to look from lies outside of it.
        MemoryNeededError: It does not fit into memory.
        AttentionError: The captured attention breaks an invariant.
    """
    _check_model(model)
    request = request_of(command)
    check_request(model.info, request)
    prepared = [
        one if isinstance(one, PreparedImage) else _numbered(index, one, model)
        for index, one in enumerate(images)
    ]
    reference = read_second(model, request, InputRequest(()))
    by_size: dict[Size, list[int]] = {}
    for index, one in enumerate(prepared):
        by_size.setdefault(one.geometry.model_input, []).append(index)
    found: dict[int, Maps] = {}
    for size, indices in by_size.items():
        check_memory(model.info, size, request, model.device)
        batch = [prepared[index] for index in indices]
        found |= zip(indices, maps_of(model, batch, request, reference), strict=True)
    return [
        shown(SingleImage(model, one), request, found[index]) for index, one in enumerate(prepared)
    ]


def heads(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    distance: bool = True,
    query: Query | str = Query.CLS,
) -> HeadsMaps:
    """The CLS attention of every head of a layer.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        layer: From 0; negative counts from the end.
        heads: Indices of heads, from 0; None means all.
        distance: Also what takes the whole matrix: attention distance, attention to CLS, entropies.
        query: Whose rows: ``"cls"``, ``"mean"`` over all patches, ``"pool"`` (the latent query of
            attention pooling), or a register: ``"r1"``, ``"r2"``, ... .

    Returns:
        attention (H, gh, gw), prefix (H, P), entropy (H,) in nats, distance (H,) in input pixels.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no CLS token, or no attention pooling, that the query
            stands for.
        AttentionError: The captured attention breaks an invariant.
    """
    request = HeadsRequest(layer, _indices(heads), distance=distance, query=Query(query))
    return _one(model, image, request, HeadsMaps)


def layers(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    distance: bool = True,
    query: Query | str = Query.CLS,
    sinks: bool = False,
) -> LayersMaps:
    """The CLS attention of every layer.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        layers: Indices of layers, from 0; None means all.
        heads: Indices of heads, from 0; None means all.
        distance: Also the attention distance, which takes the whole matrices.
        query: Whose rows: ``"cls"``, ``"mean"`` over all patches, ``"pool"`` (the latent query of
            attention pooling), or a register: ``"r1"``, ``"r2"``, ... .
        sinks: Also the attention that every token receives, and the norm of its value.

    Returns:
        attention (L, H, gh, gw), prefix (L, H, P), entropy (L, H) in nats, distance (L, H) in
        input pixels. With ``sinks`` received and value_norms (L, H, N).

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: The model has no CLS token, or no attention pooling, that the query
            stands for.
        AttentionError: The captured attention breaks an invariant.
    """
    request = LayersRequest(
        _indices(layers), _indices(heads), distance=distance, query=Query(query), sinks=sinks
    )
    return _one(model, image, request, LayersMaps)


def rollout(  # noqa: PLR0913 - the options of a rollout
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
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
        image: A prepared image, or one as ``prepare`` takes it.
        fusion: How the heads of a layer are fused: ``"mean"``, ``"max"`` or ``"min"``.
        residual: Share of the identity mixed into each layer, in [0, 1).
        discard_ratio: Share of each layer's smallest values that become 0, in [0, 1); 0 is the
            paper's rollout.
        discard: ``"before"`` or ``"after"`` the identity is mixed in.
        start_layer: First layer of the product, from 0.
        heads: Indices of heads, from 0; None means all.
        depths: Also the rollout after these layers.
        query: Whose rows: ``"cls"``, ``"mean"`` over all patches, ``"pool"`` (the latent query of
            attention pooling), or a register: ``"r1"``, ``"r2"``, ... .

    Returns:
        rollout (gh, gw) and prefix (P,), which together sum to 1; at_depth (K, gh, gw).

    Raises:
        UsageError: A ratio, layer or head out of range.
        UnsupportedModelError: The model has no CLS token, or no attention pooling, that the query
            stands for.
        AttentionError: The captured attention breaks an invariant.
    """
    options = RolloutOptions(
        Fusion(fusion), residual, discard_ratio, DiscardOrder(discard), start_layer
    )
    request = RolloutRequest(options, _indices(heads), tuple(depths), Query(query))
    return _one(model, image, request, RolloutMaps)


def patch(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    cells: Sequence[tuple[int, int]] = (),
    points: Sequence[tuple[float, float]] = (),
    direction: Direction | str = Direction.FROM,
) -> PatchMaps:
    """The attention of chosen patches; without any, of the centre patch of each quadrant.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        layer: From 0; negative counts from the end.
        heads: Indices of heads, from 0; None means all.
        cells: Patches as (row, column) in the grid, from 0.
        points: Patches as (x, y) in pixels of the original image.
        direction: ``"from"``: what the patches look at; ``"to"``: what looks at them.

    Returns:
        attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H) in nats, cells (Q, 2). To the
        patches: received (Q, H), the sum over all tokens, in place of entropy.

    Raises:
        UsageError: Layer or head out of range.
        ImageError: A cell or point lies outside the grid.
        AttentionError: The captured attention breaks an invariant.
    """
    request = PatchRequest(
        layer, _indices(heads), tuple(cells), tuple(points), direction=Direction(direction)
    )
    return _one(model, image, request, PatchMaps)


def score(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    keep_ratio: float | tuple[float, ...] = DEFAULT_KEEP_RATIO,
    lfe: bool = False,
    layers: Sequence[int] | Literal["all"] | None = None,
) -> ScoreMaps:
    """The token score of VTC-LFC (Wang et al. 2022, equation 8 as its code computes it).

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        layer: From 0; negative counts from the end.
        heads: Indices of heads, from 0; None means all.
        keep_ratio: Share of the patches that are kept, highest first, in (0, 1]. With ``layers``
            also several, for equal runs of these layers, none higher than the one before it.
        lfe: Multiply the score by the low-frequency energy of the patches.
        layers: Prune in these layers, or in ``"all"``, each on the patches that are left; None:
            only score ``layer``.

    Returns:
        score (gh, gw), the sum of cls_term and patch_term (gh, gw), and kept (gh, gw) bool; lfe
        (gh, gw). With ``layers`` those of the last layer, and in ``steps`` those of each.

    Raises:
        UsageError: Layer, head or ratio out of range.
        UnsupportedModelError: The model has no CLS token, or it does not allow ``lfe`` or
            ``layers``.
        AttentionError: The captured attention breaks an invariant.
    """
    chosen = layers if layers is None or layers == "all" else tuple(layers)
    request = ScoreRequest(layer, _indices(heads), keep_ratio, lfe, chosen)
    return _one(model, image, request, ScoreMaps)


def relevance(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    like: PreparedImage | RgbImage | ImageSource | None = None,
    class_index: int | None = None,
    method: RelevanceMethod | str = RelevanceMethod.CHEFER,
    heads: Sequence[int] | None = None,
) -> RelevanceMaps:
    """What counts for a class, or for the similarity to a second image; give one of the two.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        like: The second image, prepared or as ``prepare`` takes it.
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
    _check_model(model)
    second = like
    if like is not None and not isinstance(like, PreparedImage):
        second = prepare(like, model)
    path = second.image.file.path if isinstance(second, PreparedImage) else None
    request = RelevanceRequest(RelevanceMethod(method), class_index, path, _indices(heads))
    check_request(model.info, request)
    reference = refer_to(model, second, request) if isinstance(second, PreparedImage) else None
    digest = second.image.sha256 if isinstance(second, PreparedImage) else None
    single = SingleImage(model, _prepared(model, image))
    maps = single.maps(request, reference)
    return cast("RelevanceMaps", shown(single, request, maps, digest))


def features(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
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
        image: A prepared image, or one as ``prepare`` takes it.
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
    image: PreparedImage | RgbImage | ImageSource,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    whole: bool = False,
) -> MatrixMaps:
    """The attention matrices of a layer, before and after softmax.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
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
    image: PreparedImage | RgbImage | ImageSource,
    *,
    layer: int = -1,
    heads: Sequence[int] | None = None,
    parts: Sequence[Part | str] = tuple(Part),
) -> QkvMaps:
    """Queries, keys and values of a layer, as the model hands them to attention.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
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


def explore(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    layers: Sequence[int] | None = None,
    rollout: bool = True,
    height: int = PAGE_HEIGHT,
) -> ExplorerPage:
    """The explorer page of an image: attention from any token, layer and head, in a cell.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        layers: Indices of layers to keep in the page, from 0; None means all.
        rollout: Also the rollout up to each of these layers.
        height: Of the page in a notebook cell, in pixels.

    Returns:
        The page, which shows itself in a frame at the end of a cell, also in a saved notebook and
        without a network; ``save("page.html")`` writes it.

    Raises:
        UsageError: A layer out of range.
        ImageError: The image cannot be read.
        MemoryNeededError: It does not fit into memory.
    """
    _check_model(model)
    chosen = choose_layers(model.info, _indices(layers))
    single = SingleImage(model, _prepared(model, image))
    return page_of(single, chosen, rollout=rollout, height=height)


def discover(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    method: DiscoverMethod | str = DiscoverMethod.TOKENCUT,
    layer: int = -1,
    part: Part | str = Part.KEY,
) -> DiscoverMaps:
    """The object of an image, found without labels (see docs/definitions.md).

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        method: ``"lost"`` (Simeoni et al. 2021), ``"tokencut"`` (Wang et al. 2022) or
            ``"spectral"`` (Melas-Kyriazi et al. 2022).
        layer: From 0; negative counts from the end.
        part: ``"q"``, ``"k"`` or ``"v"``, of all heads joined.

    Returns:
        mask (gh, gw) bool; seed, its (row, column); box, in pixel edges of the original image;
        degree and similarity (gh, gw), or eigenvectors (K, gh, gw) and eigenvalues (K,).

    Raises:
        UsageError: Layer out of range.
        ImageError: A single patch.
        AttentionError: A vector is not finite.
    """
    request = DiscoverRequest(DiscoverMethod(method), layer, Part(part))
    return _one(model, image, request, DiscoverMaps)


def match(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    like: PreparedImage | RgbImage | ImageSource | None = None,
    layer: int | None = None,
    part: Descriptor | str = Descriptor.KEY,
    pairs: int | Literal["all"] = 10,
    threshold: float | None = None,
    cells: Sequence[tuple[int, int]] = (),
    points: Sequence[tuple[float, float]] = (),
) -> MatchMaps:
    """Which patches of two images correspond, by mutual nearest neighbours.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        like: The second image, prepared or as ``prepare`` takes it.
        layer: From 0; negative counts from the end; None: at three quarters of the depth.
        part: ``"q"``, ``"k"`` or ``"v"`` of all heads joined, or ``"tokens"``.
        pairs: How many, spread over what they show; ``"all"`` for every mutual pair.
        threshold: Only patches inside the mass mask of each image at this share.
        cells: Instead, what is nearest to these patches, as (row, column) in the grid, from 0.
        points: The same as (x, y) in pixels of the original image.

    Returns:
        cells, like_cells (M, 2); xy, like_xy (M, 2) in pixels of the two originals; cosine,
        mutual, attention (M,); best (gh, gw), like_best (gh', gw').

    Raises:
        UsageError: No second image, layer out of range, or no pairs asked for.
        ImageError: The second image cannot be read, or a cell or point lies outside the grid.
        AttentionError: A vector is not finite, or the attention breaks an invariant.
    """
    second = like if like is None or isinstance(like, PreparedImage) else prepare(like, model)
    request = MatchRequest(
        None if second is None else second.image.file.path,
        layer,
        Descriptor(part),
        pairs,
        threshold,
        tuple(cells),
        tuple(points),
    )
    check_request(model.info, request)
    assert second is not None
    single = SingleImage(model, _prepared(model, image))
    maps = single.maps(request, refer_to(model, second, request))
    return cast("MatchMaps", shown(single, request, maps, second.image.sha256))


def faithful(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    *,
    show: Sequence[str] = ("mean", "rollout", "relevance"),
    layer: int = -1,
    class_index: int | None = None,
    baseline: Baseline | str | None = None,
    chefer: bool = False,
    seed: int = 0,
) -> FaithfulMaps:
    """How the output changes when cells are deleted or inserted in the order of each map.

    It takes hundreds of plain passes; see docs/definitions.md for the measures and their sources.

    Args:
        model: A loaded model.
        image: A prepared image, or one as ``prepare`` takes it.
        show: Maps to measure: ``"mean"``, ``"max"``, ``"head:3"``, ``"rollout"``,
            ``"relevance"``, ``"score"``, ``"contribution"``, ``"random"``.
        layer: Of mean, max, heads and score, from 0; negative counts from the end.
        class_index: Measure the probability of this class, from 0; None: the cosine similarity to
            the output for the whole image.
        baseline: What hides cells: ``"mean"``, ``"blur"`` or ``"black"``; None: the mean colour
            for deletion, the blurred image for insertion.
        chefer: The protocol of Chefer et al. 2021.
        seed: Of the random orders.

    Returns:
        deletion and insertion, with the curves (M, S) of M maps; saco (M,) from -1 to 1; maps
        (M, gh, gw). ``rows()`` has the areas under the curves.

    Raises:
        UsageError: No such map, layer, head or class; contradicting options.
        UnsupportedModelError: A map is not defined for this model.
        AttentionError: The captured attention, a gradient or an output is not as it must be.
    """
    chosen = None if baseline is None else Baseline(baseline)
    request = FaithfulRequest(tuple(show), layer, class_index, chosen, chefer, seed)
    return _one(model, image, request, FaithfulMaps)


def _indices(given: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if given is None else tuple(given)


def _check_model(model: Any) -> None:
    if not isinstance(model, Backbone):
        raise UsageError(
            f"an object of type {type(model).__name__} is not a loaded model",
            "attnviz.load_model(name) or attnviz.wrap(module) gives one",
        )


def _prepared(model: Backbone, image: PreparedImage | RgbImage | ImageSource) -> PreparedImage:
    return image if isinstance(image, PreparedImage) else prepare(image, model)


def _one(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    request: CommandRequest,
    _maps: type[_Maps],
) -> _Maps:
    _check_model(model)
    check_request(model.info, request)
    single = SingleImage(model, _prepared(model, image))
    reference = read_second(model, request, InputRequest(()))
    return cast("_Maps", shown(single, request, single.maps(request, reference)))


def registers(
    model: Backbone,
    images: Sequence[PreparedImage],
    *,
    layer: int | None = None,
    threshold: float | None = None,
    max_layer: int | None = None,
    top: int = DEFAULT_TOP,
    sparse: bool = False,
    register_count: int = 1,
) -> RegistersMaps:
    """The register neurons of a model, and what test-time registers change (Jiang et al. 2025).

    ``maps.neurons`` is the list; ``model.with_test_registers(maps.neurons)`` is the model with a
    register that takes over their activation, and ``maps.neurons.to_json()`` what a file of
    ``--test-registers`` holds.

    Args:
        model: A loaded model.
        images: Prepared images; their sizes may differ.
        layer: Whose tokens' norms make a patch an outlier, from 0; negative counts from the end.
            None: the last, of DINOv2-L the last but one.
        threshold: The norm above which a patch is an outlier; None: median + 4 * 1.4826 * MAD of
            all patches of all images.
        max_layer: The highest layer that neurons are taken from; None: where norms first exceed
            the threshold.
        top: How many neurons are listed.
        sparse: Only neurons whose activation is below 0.5 on at least half of the tokens.
        register_count: How many registers the maps show the effect of.

    Returns:
        neurons, strongest first; norms and shares of attention of every layer (L,) without and
        with the registers; maps of the first images that have outliers.

    Raises:
        UsageError: A layer out of range, or weights without a file.
        AttentionError: No patch is an outlier, or tokens are not finite.
        UnsupportedModelError: The model's neurons or tokens do not allow it.
    """
    search = RegisterSearch(layer, threshold, max_layer, top, sparse, register_count)
    finder = RegisterFinder(model, search)
    for _ in find_registers(finder, images):
        pass  # only its steps are told
    return finder.result()


def draw_registers(
    maps: RegistersMaps, model: Backbone, style: DrawStyle | None = None
) -> tuple[Figure, ...]:
    """The figure of a search for register neurons, one a page. Nothing is shown or written."""
    from attnviz.figures.registers import draw_registers as drawing

    return drawing(maps, model.info, style or DrawStyle())


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
