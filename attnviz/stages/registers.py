"""Finding register neurons over any number of images, one image at a time.

Four passes of the model an image: norms, neurons, and both pictures of the comparison. Between
them only the norms of one layer's patches are kept, so images may be read anew for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention.choose import choose_layer
from attnviz.attention.memory import check_memory, memory_errors
from attnviz.attention.outliers import (
    OFF,
    NeuronScores,
    TokenNorms,
    outlier_threshold,
    token_norms,
)
from attnviz.domain import FigureImage, Query
from attnviz.domain.kinds import LayersRequest
from attnviz.domain.register_neurons import Neuron, RegisterNeurons
from attnviz.domain.registers import BeforeAfter, RegistersMaps, ShownImage
from attnviz.errors import AttentionError, AttnvizError, ImageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from attnviz.domain import BoolArray, FloatArray, PreparedImage
    from attnviz.domain.registers import RegisterSearch
    from attnviz.models.backbone import Backbone

SHOWN = 2
"""How many images the figure shows: the first that have outliers."""

_DINOV2_LARGE = "vit_large_patch14_dinov2"
"""timm's name of the model whose last layer lowers the norms of outliers again."""


@dataclass(eq=False)
class _Totals:
    """Sums over images of what is drawn over the layers, all (L,)."""

    images: int = 0
    sums: dict[str, FloatArray] = field(default_factory=dict)

    def add(self, name: str, values: FloatArray) -> None:
        before = self.sums.get(name)
        self.sums[name] = values.astype(np.float64) if before is None else before + values

    def mean(self, name: str) -> FloatArray:
        values: FloatArray = (self.sums[name] / self.images).astype(np.float32)
        return values


class RegisterFinder:
    """The search, step by step, with the images in the same order each time.

    ``measure`` every image, ``settle``, ``score`` every image, ``choose``, ``compare`` every image,
    ``result``.

    Raises:
        UsageError: A layer that the model does not have, or weights without a hash.
    """

    def __init__(self, model: Backbone, search: RegisterSearch) -> None:
        info = model.info
        if info.weights_sha256 is None:
            raise UsageError(
                f"{info.name} has no weights of a file, which a list of neurons belongs to",
                "untrained models have no register neurons",
            )
        if info.test_registers is not None:
            raise UsageError("the model has test-time registers already", "search without them")
        self._model, self._search = model, search
        self._layer = choose_layer(
            info, _outlier_layer(model) if search.layer is None else search.layer
        )
        self._max_layer = None if search.max_layer is None else choose_layer(info, search.max_layer)
        self._scores: NeuronScores | None = None
        self._norms: list[FloatArray] = []
        self._largest = np.zeros(info.depth)
        self._threshold = 0.0
        self._with: Backbone | None = None
        self._neurons: RegisterNeurons | None = None
        self._totals = _Totals()
        self._after: list[FloatArray] = []
        self._shown: list[ShownImage] = []
        model.output_projections  # noqa: B018 - raises for blocks without neurons

    def measure(self, image: PreparedImage) -> None:
        """The norms of one image's patches.

        Raises:
            MemoryNeededError: It does not fit into memory.
            AttentionError: Tokens that are not finite.
        """
        info, size = self._model.info, image.geometry.model_input
        query = Query.CLS if info.has_cls else Query.MEAN
        command = LayersRequest(distance=False, query=query)
        check_memory(info, size, command, self._model.device)
        patches = self._pass(self._model, image).norms[:, info.prefix :]  # L, n
        self._norms.append(patches[self._layer])
        self._largest = np.maximum(self._largest, patches.max(axis=1))

    def settle(self) -> None:
        """Choose the threshold and the highest layer, from the norms of all images.

        Raises:
            AttentionError: No patch is an outlier.
            ImageError: There are no images.
        """
        if not self._norms:
            raise ImageError("there is no image to find register neurons in")
        patches = np.concatenate(self._norms)
        wanted = self._search.threshold
        self._threshold = outlier_threshold(patches) if wanted is None else wanted
        highest = float(patches.max())
        if not highest > self._threshold:
            images = "1 image" if len(self._norms) == 1 else f"{len(self._norms)} images"
            raise AttentionError(
                f"no patch of {images} is an outlier: the largest norm in layer "
                f"{self._layer} is {highest:.4g}, the threshold {self._threshold:.4g}",
                "nothing is written; --threshold and --layer set what counts as an outlier",
            )
        if self._max_layer is None:
            self._max_layer = int(np.argmax(self._largest > self._threshold))
        self._scores = NeuronScores(self._max_layer)

    def outliers(self, index: int) -> BoolArray:
        """Which patches (n,) of an image, by its place in the order, are outliers."""
        above: BoolArray = self._norms[index] > self._threshold
        return above

    def score(self, index: int, image: PreparedImage) -> None:
        """The neurons of one image.

        Raises:
            AttentionError: Neurons that are not finite.
        """
        assert self._scores is not None
        with memory_errors(image.geometry.model_input):
            self._scores.add(self._model, self._batch(self._model, image), self.outliers(index))

    def choose(self) -> RegisterNeurons:
        """The strongest neurons.

        Raises:
            AttentionError: None is off on half of the tokens, where that was asked for.
        """
        assert self._scores is not None
        assert self._max_layer is not None
        info, search = self._model.info, self._search
        strongest = self._scores.strongest(search.top, sparse=search.sparse)
        if not strongest:
            raise AttentionError(
                f"no neuron up to layer {self._max_layer} is below {OFF} on half of the tokens",
                "nothing is written; omit --sparse, or give a higher --max-layer",
            )
        self._neurons = RegisterNeurons(
            model=info.title,
            weights_sha256=info.weights_sha256,
            checkpoint_key=info.checkpoint_key,
            layer=self._layer,
            threshold=self._threshold,
            max_layer=self._max_layer,
            images=self._scores.images,
            outliers=sum(int(self.outliers(index).sum()) for index in range(len(self._norms))),
            neurons=tuple(Neuron(*each) for each in strongest),
        )
        self._with = self._model.with_test_registers(self._neurons, search.register_count)
        return self._neurons

    def compare(self, index: int, image: PreparedImage) -> None:
        """One image without and with the registers."""
        assert self._with is not None
        before, after = self._pass(self._model, image), self._pass(self._with, image)
        start, count = self._model.info.prefix, self._search.register_count
        end = start + count
        outliers = self.outliers(index)
        totals = self._totals
        totals.images += 1
        for name, found, first in (("before", before, start), ("after", after, end)):
            patches = found.norms[:, first:]  # L, n
            totals.add(f"median {name}", np.median(patches, axis=1))
            totals.add(f"largest {name}", patches.max(axis=1))
            totals.add(f"mass {name}", found.attention[:, first:][:, outliers].sum(axis=1))
            totals.add(f"cls {name}", found.norms[:, 0])
        totals.add("register", after.norms[:, start:end].mean(axis=1))
        totals.add("register mass", after.attention[:, start:end].sum(axis=1))
        self._after.append(after.norms[self._layer, end:])
        if len(self._shown) < SHOWN and outliers.any():
            self._shown.append(self._show(image, before, after, outliers))

    def _show(
        self, image: PreparedImage, before: TokenNorms, after: TokenNorms, outliers: BoolArray
    ) -> ShownImage:
        grid = image.geometry.grid
        start = self._model.info.prefix
        places = ((before, start), (after, start + self._search.register_count))
        attention = [found.attention[-1, first:].reshape(grid) for found, first in places]
        norm = [found.norms[self._layer, first:].reshape(grid) for found, first in places]
        name = image.image.file.path.name
        return ShownImage(
            FigureImage(image.image.pixels, image.geometry, name),
            BeforeAfter(*attention),
            BeforeAfter(*norm),
            outliers.reshape(grid),
        )

    def result(self) -> RegistersMaps:
        """What was found, and what the registers change."""
        assert self._neurons is not None
        mean, has_cls = self._totals.mean, self._model.info.has_cls
        pairs = {
            name: BeforeAfter(mean(f"{name} before"), mean(f"{name} after"))
            for name in ("median", "largest", "mass", "cls")
        }
        return RegistersMaps(
            neurons=self._neurons,
            count=self._search.register_count,
            images=self._totals.images,
            median_norm=pairs["median"],
            largest_norm=pairs["largest"],
            cls_norm=pairs["cls"] if has_cls else None,
            register_norm=mean("register"),
            patch_norm=BeforeAfter(np.concatenate(self._norms), np.concatenate(self._after)),
            outlier_mass=pairs["mass"],
            register_mass=mean("register mass"),
            shown=tuple(self._shown),
        )

    @property
    def with_registers(self) -> Backbone:
        """The model with the registers, once the neurons are chosen."""
        assert self._with is not None
        return self._with

    def _pass(self, model: Backbone, image: PreparedImage) -> TokenNorms:
        with memory_errors(image.geometry.model_input), model.exact_arithmetic():
            return token_norms(model, self._batch(model, image))

    @staticmethod
    def _batch(model: Backbone, image: PreparedImage) -> Tensor:
        return model.batch([image])


def _outlier_layer(model: Backbone) -> int:
    """The last layer, but the last but one of DINOv2-L, as in the paper."""
    large = model.info.timm_name.startswith(_DINOV2_LARGE)
    return -2 if large and not model.info.registers else -1


STEPS = ("norms of the tokens", "neurons", "registers")
"""What ``find_registers`` does with every image, one after the other."""


def find_registers(
    finder: RegisterFinder,
    images: Iterable[PreparedImage],
    leave_out: Callable[[PreparedImage, AttnvizError], None] | None = None,
) -> Iterator[tuple[str, int]]:
    """Every step of a search: its name and the image's index.

    images: prepared, or something that prepares them anew each time that it is iterated; those
    that ``leave_out`` was called with, since they cannot be measured, are not among them then.

    Raises:
        AttnvizError: As the steps.
    """
    for index, image in enumerate(images):
        yield STEPS[0], index
        try:
            finder.measure(image)
        except AttnvizError as error:
            if leave_out is None:
                raise
            leave_out(image, error)
    finder.settle()
    for index, image in enumerate(images):
        yield STEPS[1], index
        finder.score(index, image)
    finder.choose()
    for index, image in enumerate(images):
        yield STEPS[2], index
        finder.compare(index, image)
