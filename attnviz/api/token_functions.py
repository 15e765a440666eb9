"""The kinds of figures of queries, keys, values and tokens: a function each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from attnviz.api.inputs import prepare
from attnviz.api.single_image import as_indices, maps_of_one, prepared
from attnviz.attention.checks import check_request
from attnviz.domain import (
    Descriptor,
    DiscoverMaps,
    DiscoverMethod,
    FeaturesMaps,
    MatchMaps,
    Part,
    PreparedImage,
    QkvMaps,
    RgbImage,
)
from attnviz.domain.kinds import (
    DiscoverRequest,
    FeaturesRequest,
    MatchRequest,
    QkvRequest,
)
from attnviz.models.backbone import Backbone
from attnviz.stages.display import shown
from attnviz.stages.reference import refer_to
from attnviz.stages.single import SingleImage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.api.inputs import ImageSource


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
    return maps_of_one(model, image, request, FeaturesMaps)


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
    request = QkvRequest(layer, as_indices(heads), tuple(map(Part, parts)))
    return maps_of_one(model, image, request, QkvMaps)


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
    return maps_of_one(model, image, request, DiscoverMaps)


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
    single = SingleImage(model, prepared(model, image))
    maps = single.maps(request, refer_to(model, second, request))
    return cast("MatchMaps", shown(single, request, maps, second.image.sha256))
