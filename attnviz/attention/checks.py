"""What a model can do of what a request asks, told from what is known of it. No torch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attnviz.attention.choose import (
    choose_heads,
    choose_layer,
    choose_layers,
    choose_pool_heads,
    need_cls,
    need_query,
)
from attnviz.domain import Query, RelevanceMethod
from attnviz.domain.kinds import RelevanceRequest, kind_of
from attnviz.domain.kinds.faithful import head_of
from attnviz.domain.options import resolve
from attnviz.errors import UnsupportedModelError, UsageError

if TYPE_CHECKING:
    from attnviz.domain import ModelInfo, RolloutOptions
    from attnviz.domain.kinds import (
        CommandRequest,
        FaithfulRequest,
        FeaturesRequest,
        HeadsRequest,
        LayersRequest,
        MatchRequest,
        RolloutRequest,
        ScoreRequest,
    )


def check_request(info: ModelInfo, request: CommandRequest) -> None:
    """Raise for anything in a request that a model cannot do, before any image is read.

    Raises:
        UsageError: Layer, head, ratio, residual or class out of range.
        UnsupportedModelError: The model has no CLS token and the request needs one.
    """
    resolve(kind_of(request).check)(info, request)


def check_layer_and_heads(info: ModelInfo, request: Any) -> None:
    """Raise unless the model has the request's heads and layer, and a CLS token if it needs one.

    Raises:
        UsageError: Layer or head out of range.
        UnsupportedModelError: There is no CLS token.
    """
    choose_heads(info, request.heads)
    if request.needs_cls:
        need_cls(info)
    if hasattr(request, "query"):
        need_query(info, request.query)
    if hasattr(request, "layer"):
        choose_layer(info, request.layer)


def check_heads(info: ModelInfo, request: HeadsRequest) -> None:
    """As ``check_layer_and_heads``; of attention pooling, its own heads, and no layer.

    Raises:
        UsageError: A layer where the attention is that of the pooling, after all layers.
    """
    if request.query is not Query.POOL:
        check_layer_and_heads(info, request)
        return
    need_query(info, request.query)
    # Of a model that is not loaded yet it is known only that there may be such heads, not how many.
    if request.heads is not None:
        choose_pool_heads(info, request.heads)
    if request.layer != type(request).layer:
        raise UsageError(
            f"--layer {request.layer} with --query pool: the pooling reads the tokens after the "
            "last layer",
            "leave out --layer, or use `attnviz layers --query pool`",
        )


def check_layer(info: ModelInfo, request: Any) -> None:
    """Raise UsageError unless the model has the request's layer."""
    choose_layer(info, request.layer)


def check_layers(info: ModelInfo, request: LayersRequest) -> None:
    """As ``check_layer_and_heads``, for several layers."""
    check_layer_and_heads(info, request)
    choose_layers(info, request.layers)


def check_rollout(info: ModelInfo, request: RolloutRequest) -> None:
    """As ``check_layer_and_heads``; ratios in [0, 1), and no depth before the start layer."""
    check_layer_and_heads(info, request)
    check_rollout_options(request.options)
    start = choose_layer(info, request.options.start_layer)
    for depth in request.depths:
        if choose_layer(info, depth) < start:
            raise UsageError(
                f"the rollout cannot be shown after layer {depth}: it starts at layer {start}"
            )


def check_rollout_options(options: RolloutOptions) -> None:
    """Raise UsageError for a discard ratio or residual outside [0, 1)."""
    if not 0 <= options.discard_ratio < 1:
        raise UsageError(
            f"discard ratio {options.discard_ratio} is not in [0, 1)",
            "0.9 discards the smallest 90 % of each layer's values, 0 discards nothing",
        )
    if not 0 <= options.residual < 1:
        raise UsageError(
            f"residual {options.residual} is not in [0, 1)",
            "0.5 weighs the residual connection as much as attention; 1 would leave no attention",
        )


def check_score(info: ModelInfo, request: ScoreRequest) -> None:
    """As ``check_layer_and_heads``; keep ratios in (0, 1], and layers that go with them."""
    check_layer_and_heads(info, request)
    choose_pruning(info, request)


def choose_pruning(info: ModelInfo, request: ScoreRequest) -> dict[int, float]:
    """The keep ratio of each scored layer, layers ascending.

    Several ratios are for equal runs of the layers: of 12 layers and 3 ratios, the first is that of
    the first four.

    Raises:
        UsageError: A layer or ratio out of range, both --layer and --layers, more ratios than
            layers, or patches that would have to come back.
    """
    ratios = request.keep_ratios
    for ratio in ratios:
        check_keep_ratio(ratio)
    if request.layers is None:
        if len(ratios) > 1:
            raise UsageError(
                f"--keep-ratio: {len(ratios)} ratios, but only one layer",
                "add --layers all, or the layers to prune in, e.g. --layers 3,6,9",
            )
        return {choose_layer(info, request.layer): ratios[0]}
    if request.layer != type(request).layer:
        raise UsageError("--layer and --layers exclude each other", "leave out one of them")
    layers = choose_layers(info, None if request.layers == "all" else request.layers)
    if len(ratios) > len(layers):
        raise UsageError(
            f"--keep-ratio: {len(ratios)} ratios for {len(layers)} layers",
            "give one ratio, or at most one a layer",
        )
    if any(before < after for before, after in pairwise(ratios)):
        raise UsageError(
            "--keep-ratio: a ratio is higher than the one before it",
            "ratios are shares of all patches, and patches that are dropped do not come back",
        )
    return {layer: ratios[index * len(ratios) // len(layers)] for index, layer in enumerate(layers)}


def check_keep_ratio(keep_ratio: float) -> None:
    """Raise UsageError unless the ratio is in (0, 1]."""
    if not 0 < keep_ratio <= 1:
        raise UsageError(f"keep ratio {keep_ratio} is not in (0, 1]", "0.7 keeps 70 % of tokens")


def check_features(info: ModelInfo, request: FeaturesRequest) -> None:
    """Raise UsageError for a layer out of range, or a threshold that is not above 0."""
    if request.layer is not None:
        choose_layer(info, request.layer)
    threshold = request.outlier_threshold
    if threshold is not None and not threshold > 0:
        raise UsageError(f"outlier threshold {threshold:g} is not above 0")


def default_match_layer(info: ModelInfo) -> int:
    """The layer at three quarters of the depth (Amir et al. 2021: 9 of 12)."""
    return info.depth * 3 // 4


def match_layer(info: ModelInfo, request: MatchRequest) -> int:
    """The layer of a request, from 0.

    Raises:
        UsageError: Out of range.
    """
    if request.layer is None:
        return default_match_layer(info)
    return choose_layer(info, request.layer)


def check_match(info: ModelInfo, request: MatchRequest) -> None:
    """Raise UsageError unless the model has the request's layer."""
    match_layer(info, request)


def check_relevance(info: ModelInfo, request: RelevanceRequest) -> None:
    """As ``check_layer_and_heads``; the model has the class that is the target.

    Raises:
        UsageError: A model without classifier, a class out of range, a target that CLS alone does
            not give.
    """
    check_layer_and_heads(info, request)
    class_index = request.class_index
    if class_index is None:
        if request.method is RelevanceMethod.CONTRIBUTION and not info.has_cls:
            raise not_of_cls(info)
        return
    if not info.classes and info.random_weights:
        raise UsageError(
            "--class: random weights come without a classifier",
            "give trained weights: --checkpoint FILE, or a model's name",
        )
    if not info.classes:
        raise UsageError(
            f"--class: {info.name} has no classifier",
            "self-supervised models have no classes: use --like SECOND.jpg",
        )
    if not 0 <= class_index < info.classes:
        raise UsageError(
            f"--class {class_index} does not exist: {info.name} has classes 0 to {info.classes - 1}"
        )


def check_faithful(info: ModelInfo, request: FaithfulRequest) -> None:
    """Raise for a map that the model does not have, or a class that has no probability.

    Raises:
        UsageError: Layer, head or class out of range, or one logit alone.
        UnsupportedModelError: A map is of the CLS token, and there is none.
    """
    choose_layer(info, request.layer)
    heads = [head for head in map(head_of, request.show) if head is not None]
    if heads:
        choose_heads(info, heads)
    if request.needs_cls and not info.has_cls:
        named = "score" if "score" in request.show else "contribution"
        raise UnsupportedModelError(
            f"--show {named}: {info.name} has no CLS token", "leave it out, or show rollout"
        )
    if request.class_index is None:
        return
    check_relevance(info, RelevanceRequest(class_index=request.class_index))
    if info.classes == 1:
        raise UsageError(
            f"--class 0: {info.name} has one logit, and so no probability of a class",
            "omit --class to measure the similarity of outputs",
        )


def not_of_cls(info: ModelInfo) -> UsageError:
    """For contributions to a target that is not read from CLS alone."""
    return UsageError(
        f"--method contribution: the target of {info.name} is not read from CLS alone",
        "use --method chefer",
    )
