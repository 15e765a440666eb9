"""The kinds of figures of attention: a function each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attnviz.api.inputs import check_model, numbered_image
from attnviz.api.single_image import as_indices, maps_of_one
from attnviz.attention.checks import check_request
from attnviz.attention.memory import check_memory
from attnviz.domain import (
    DEFAULT_DISCARD_RATIO,
    DEFAULT_KEEP_RATIO,
    DEFAULT_RESIDUAL,
    Direction,
    DiscardOrder,
    Fusion,
    HeadsMaps,
    LayersMaps,
    Maps,
    MatrixMaps,
    PatchMaps,
    PreparedImage,
    Query,
    RgbImage,
    RolloutMaps,
    RolloutOptions,
    ScoreMaps,
    Size,
)
from attnviz.domain.kinds import (
    CommandRequest,
    HeadsRequest,
    LayersRequest,
    MatrixRequest,
    PatchRequest,
    RolloutRequest,
    ScoreRequest,
    request_of,
)
from attnviz.domain.requests import InputRequest
from attnviz.models.backbone import Backbone
from attnviz.stages.display import shown
from attnviz.stages.model import maps_of
from attnviz.stages.reference import read_second
from attnviz.stages.single import SingleImage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnviz.api.inputs import ImageSource


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
    check_model(model)
    request = request_of(command)
    check_request(model.info, request)
    prepared = [
        one if isinstance(one, PreparedImage) else numbered_image(index, one, model)
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
    request = HeadsRequest(layer, as_indices(heads), distance=distance, query=Query(query))
    return maps_of_one(model, image, request, HeadsMaps)


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
        as_indices(layers), as_indices(heads), distance=distance, query=Query(query), sinks=sinks
    )
    return maps_of_one(model, image, request, LayersMaps)


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
    request = RolloutRequest(options, as_indices(heads), tuple(depths), Query(query))
    return maps_of_one(model, image, request, RolloutMaps)


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
        layer, as_indices(heads), tuple(cells), tuple(points), direction=Direction(direction)
    )
    return maps_of_one(model, image, request, PatchMaps)


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
    request = ScoreRequest(layer, as_indices(heads), keep_ratio, lfe, chosen)
    return maps_of_one(model, image, request, ScoreMaps)


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
    return maps_of_one(
        model, image, MatrixRequest(layer, as_indices(heads), whole=whole), MatrixMaps
    )
