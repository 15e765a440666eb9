"""Figures, explorer pages, and the search for register neurons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz import figures
from attnviz.api.inputs import check_model
from attnviz.api.single_image import as_indices, prepared
from attnviz.attention.choose import choose_layers
from attnviz.domain import (
    DrawStyle,
    FigureImage,
    Maps,
    PreparedImage,
    RgbImage,
)
from attnviz.domain.registers import DEFAULT_TOP, RegisterSearch, RegistersMaps
from attnviz.models.backbone import Backbone
from attnviz.stages.explorer_page import PAGE_HEIGHT, ExplorerPage, page_of
from attnviz.stages.registers import RegisterFinder, find_registers
from attnviz.stages.single import SingleImage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnviz.api.inputs import ImageSource


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
    check_model(model)
    chosen = choose_layers(model.info, as_indices(layers))
    single = SingleImage(model, prepared(model, image))
    return page_of(single, chosen, rollout=rollout, height=height)


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
