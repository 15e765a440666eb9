"""Models and images: loaded, wrapped, read and prepared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.domain import (
    DEFAULT_MAX_PIXELS,
    Fit,
    ImageFile,
    Positions,
    Precision,
    PreparedImage,
    RgbImage,
)
from attnviz.domain.requests import ModelRequest, SizeRequest
from attnviz.errors import ImageError, UsageError
from attnviz.images import fit as fitting
from attnviz.images import memory
from attnviz.images.read import read_image
from attnviz.models import wrap as wrapping
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor, nn

    ImageSource = str | Path | Image | NDArray[Any] | Tensor
    """A path, a Pillow image, an array (h, w, 3) or a tensor (3, h, w): see ``read``."""


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
    check_model(model)
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
        numbered_image(index, source, model, size=size, fit=fit, normalised=normalised)
        for index, source in enumerate(sources)
    ]


def numbered_image(
    index: int, source: ImageSource | RgbImage, model: Backbone, **options: Any
) -> PreparedImage:
    """An image of a batch: with its number for a name, and in errors."""
    named = isinstance(source, str | Path | RgbImage) or getattr(source, "filename", None)
    try:
        return prepare(source, model, name=None if named else f"image {index}", **options)
    except ImageError as error:
        raise ImageError(f"image {index}: {error.message}", error.hint) from error


def check_model(model: Any) -> None:
    """Raise UsageError for anything but a loaded model."""
    if not isinstance(model, Backbone):
        raise UsageError(
            f"an object of type {type(model).__name__} is not a loaded model",
            "attnviz.load_model(name) or attnviz.wrap(module) gives one",
        )
