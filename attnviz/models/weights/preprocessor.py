"""preprocessor_config.json of a Hugging Face folder: how images are prepared for its model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.domain import Size
from attnviz.errors import CheckpointError
from attnviz.models.weights.inferred import Preprocessing
from attnviz.models.weights.locate import PREPROCESSORS
from attnviz.models.weights.text import read_json

_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""Pillow's numbers, as they are stored in ``resample``."""

_RESCALE = 1 / 255


def preprocessing_of(folder: Path) -> Preprocessing | None:
    """What preprocessor_config.json of the folder says; None without one.

    Raises:
        CheckpointError: It asks for another range than 0..1 before normalising.
    """
    path = next((folder / name for name in PREPROCESSORS if (folder / name).is_file()), None)
    if path is None:
        return None
    config: Any = read_json(path)
    if path.name == PREPROCESSORS[1]:
        config = config.get("image_processor")
    return preprocessing_from(config, str(path)) if isinstance(config, dict) else None


def preprocessing_from(config: Mapping[str, Any], source: str) -> Preprocessing:
    """What the settings of an image processor say. source: where they are from, for errors.

    Raises:
        CheckpointError: As ``preprocessing_of``.
    """
    factor = config.get("rescale_factor", _RESCALE)
    known = isinstance(factor, int | float) and abs(factor / _RESCALE - 1) <= 1e-3
    if config.get("do_rescale") is False or not known:
        raise CheckpointError(f"{source}: only pixels divided by 255 can be prepared")
    if config.get("do_normalize") is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    else:
        try:
            mean, std = three(config["image_mean"]), three(config["image_std"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"{source} has no image_mean and image_std of 3 numbers"
            ) from error
    size = config.get("crop_size") if config.get("do_center_crop") else None
    resample = config.get("resample", 2)
    return Preprocessing(
        mean,
        std,
        _FILTERS.get(resample if isinstance(resample, int) else 2, "bilinear"),
        pixels(size or config.get("size")),
    )


def three(values: Any) -> tuple[float, float, float]:
    """Three numbers, one a channel; a single one stands for all. ValueError for another count."""
    numbers = [float(value) for value in values] if isinstance(values, list | tuple) else None
    if numbers is None:
        numbers = [float(values)]
    if len(numbers) == 1:
        numbers *= 3
    red, green, blue = numbers
    return red, green, blue


def pixels(value: Any) -> Size | None:
    """A size in pixels: one side, [height, width], or a dict of them; None for anything else."""
    if isinstance(value, dict):
        if "shortest_edge" in value:
            value = value["shortest_edge"]
        else:
            value = [value.get("height"), value.get("width")]
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) == 2 and all(isinstance(side, int) and 0 < side < 1 << 16 for side in sides):
        return Size(sides[0], sides[1])
    return None
