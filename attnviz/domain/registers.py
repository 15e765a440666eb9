"""Finding the register neurons of a model, and what test-time registers change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import DEFAULT_OUT, ImageFormat, take_choices
from attnviz.domain.drawing import DrawStyle
from attnviz.domain.forms import INDEX, PATH, choices, number
from attnviz.domain.options import option, switch

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.arrays import BoolArray, FloatArray
    from attnviz.domain.image import FigureImage
    from attnviz.domain.kinds.kind import Arrays, Row
    from attnviz.domain.register_neurons import RegisterNeurons
    from attnviz.domain.requests import InputRequest, ModelRequest

DEFAULT_TOP = 50
"""How many neurons are listed: what the paper takes for DINOv2-L."""


@dataclass(frozen=True)
class RegisterSearch:
    """How register neurons are chosen; None takes what ``docs/definitions.md`` states."""

    layer: int | None = option(
        None,
        INDEX,
        "Layer whose tokens' norms make a patch an outlier, from 0.",
        show="the last; the last but one for DINOv2-L",
    )
    threshold: float | None = option(
        None,
        number("NORM", above=0),
        "Norm above which a patch is an outlier, e.g. 150 for DINOv2-L, 30 for CLIP ViT-B/16.",
        show="median + 4 * 1.4826 * MAD of all patches",
    )
    max_layer: int | None = option(
        None,
        INDEX,
        "Highest layer that neurons are taken from, from 0, e.g. 17 for DINOv2-L, 5 for CLIP "
        "ViT-B/16.",
        show="where norms first exceed the threshold",
    )
    top: int = option(DEFAULT_TOP, number("K", least=1, type=int), "How many neurons are listed.")
    sparse: bool = switch(
        "Only neurons whose activation is below 0.5 on at least half of the tokens."
    )
    register_count: int = option(
        1, number("N", least=1, type=int), "How many registers the figure shows the effect of."
    )


@dataclass(frozen=True)
class RegistersRequest:
    """One search over images: the list of neurons, and the figure beside it.

    ``file`` None: ``registers.json`` in the default folder. The figure has the same name and ends
    in ``.registers.FORMAT``.
    """

    model: ModelRequest
    inputs: InputRequest
    search: RegisterSearch
    style: DrawStyle = field(default_factory=DrawStyle)
    file: Path | None = option(
        None,
        PATH,
        "The list of neurons to write; the figure stands beside it.",
        name="out",
        flags=("--out", "-o"),
        metavar="FILE",
        show=f"{DEFAULT_OUT}/registers.json",
        recorded=False,
    )
    formats: tuple[ImageFormat, ...] = option(
        (ImageFormat.PNG,),
        choices(ImageFormat),
        "File format of the figure; repeatable.",
        name="format",
        flags=("--format", "-f"),
        recorded=False,
    )
    save_data: bool = switch("Also write the raw arrays (.npz).", recorded=False)

    def __post_init__(self) -> None:
        take_choices(self)


class BeforeAfter(NamedTuple):
    """The same array without and with the test-time registers."""

    before: FloatArray
    after: FloatArray


@dataclass(frozen=True, eq=False)
class ShownImage:
    """One of the images that the figure shows.

    attention: the mean head's attention of CLS (of all patches without one) in the last layer, each
    (gh, gw). norm: of the tokens of layer d, each (gh, gw). outliers (gh, gw).
    """

    image: FigureImage
    attention: BeforeAfter
    norm: BeforeAfter
    outliers: BoolArray


@dataclass(frozen=True, eq=False)
class RegistersMaps:
    """The register neurons of a model, and what registers made from them change, over M images.

    Norms are lengths of the tokens that each layer gives. median_norm, largest_norm (L,) each: of
    the patches, means over the images; cls_norm (L,) each, None without CLS; register_norm (L,):
    the mean register's. patch_norm: of layer d, of all patches of all images, joined. outlier_mass
    (L,) each: attention of CLS (of the mean patch without one), mean over heads and images, on the
    patches that are outliers before; register_mass (L,): on the registers. In [0, 1].

    neurons: strongest first. shown: some of the images. images: M; with_outliers: how many of them
    have any.
    """

    neurons: RegisterNeurons
    count: int
    images: int
    median_norm: BeforeAfter
    largest_norm: BeforeAfter
    cls_norm: BeforeAfter | None
    register_norm: FloatArray
    patch_norm: BeforeAfter
    outlier_mass: BeforeAfter
    register_mass: FloatArray
    shown: tuple[ShownImage, ...]

    def __post_init__(self) -> None:
        depth = (int(self.register_norm.shape[0]),)
        pairs = {
            "median_norm": self.median_norm,
            "largest_norm": self.largest_norm,
            "cls_norm": self.cls_norm,
            "outlier_mass": self.outlier_mass,
        }
        for name, pair in pairs.items():
            for values in pair or ():
                check_shape("RegistersMaps", name, values, depth)
        check_shape("RegistersMaps", "register_mass", self.register_mass, depth)
        check_shape("RegistersMaps", "patch_norm", self.patch_norm.before, (None,))
        check_shape(
            "RegistersMaps", "patch_norm", self.patch_norm.after, self.patch_norm.before.shape
        )

    def arrays(self) -> Arrays:
        """Before and after as the first axis: median_norm, largest_norm, outlier_mass (2, L).

        Also cls_norm (2, L) of models with CLS, register_norm, register_mass (L,), patch_norm
        (2, n of all images), neurons (K, 2) as (layer, index), scores (K,), threshold ().
        """
        import numpy as np

        from attnviz.domain.kinds.common import given_arrays

        pairs = {
            "median_norm": self.median_norm,
            "largest_norm": self.largest_norm,
            "patch_norm": self.patch_norm,
            "outlier_mass": self.outlier_mass,
        }
        if self.cls_norm is not None:
            pairs["cls_norm"] = self.cls_norm
        found = self.neurons.neurons
        return given_arrays(
            **{name: np.stack(pair) for name, pair in pairs.items()},
            register_norm=self.register_norm,
            register_mass=self.register_mass,
            neurons=np.array([each[:2] for each in found], np.int64).reshape(-1, 2),
            scores=np.array([each.score for each in found], np.float32),
            threshold=np.array(self.neurons.threshold, np.float32),
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a neuron, strongest first."""
        rows: list[dict[str, Any]] = [
            {"layer": layer, "neuron": index, "score": score}
            for layer, index, score in self.neurons.neurons
        ]
        return tuple(rows)
