"""The kinds of figures about the model's output: a function each."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from attnviz.api.inputs import check_model, prepare
from attnviz.api.single_image import as_indices, maps_of_one, prepared
from attnviz.attention.checks import check_request
from attnviz.domain import (
    Baseline,
    FaithfulMaps,
    PreparedImage,
    RelevanceMaps,
    RelevanceMethod,
    RgbImage,
)
from attnviz.domain.kinds import (
    FaithfulRequest,
    RelevanceRequest,
)
from attnviz.models.backbone import Backbone
from attnviz.stages.display import shown
from attnviz.stages.reference import refer_to
from attnviz.stages.single import SingleImage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.api.inputs import ImageSource


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
    check_model(model)
    second = like
    if like is not None and not isinstance(like, PreparedImage):
        second = prepare(like, model)
    path = second.image.file.path if isinstance(second, PreparedImage) else None
    request = RelevanceRequest(RelevanceMethod(method), class_index, path, as_indices(heads))
    check_request(model.info, request)
    reference = refer_to(model, second, request) if isinstance(second, PreparedImage) else None
    digest = second.image.sha256 if isinstance(second, PreparedImage) else None
    single = SingleImage(model, prepared(model, image))
    maps = single.maps(request, reference)
    return cast("RelevanceMaps", shown(single, request, maps, digest))


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
    return maps_of_one(model, image, request, FaithfulMaps)
