"""A choice given as text is the same choice: members are compared by identity inside."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

import attnviz
from attnviz.domain import DrawStyle, Positions, Query, RolloutOptions
from attnviz.domain.kinds import HeadsRequest, LayersRequest, RolloutRequest
from attnviz.domain.requests import InputRequest
from tests.figures.rendering import texts_of

GIVEN = (
    (RolloutOptions, {"fusion": "max", "discard": "before"}),
    (DrawStyle, {"scale": "shared", "interpolation": "bilinear"}),
    (HeadsRequest, {"query": "mean"}),
    (LayersRequest, {"query": "mean"}),
    (RolloutRequest, {"query": "mean"}),
    (InputRequest, {"inputs": ("a.jpg",), "fit": "crop"}),
)


@pytest.mark.parametrize(("kind", "given"), GIVEN, ids=lambda value: getattr(value, "__name__", ""))
def test_texts_become_members(kind, given):
    made = kind(**given)
    for name in given.keys() - {"inputs"}:
        assert isinstance(getattr(made, name), StrEnum | Query)


def test_a_text_that_is_no_member_is_refused():
    with pytest.raises(ValueError, match="'sum' is not a valid Fusion"):
        RolloutOptions(fusion="sum")


def test_the_numbers_are_those_of_the_members():
    model = attnviz.load_model("dino_vits16", random_weights=True, positions="timm", depth=2)
    assert model.info.positions is Positions.TIMM
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    image = attnviz.prepare(pixels, model, size="original")
    given = attnviz.rollout(model, image, fusion="mean", query="cls", discard="after")
    plain = attnviz.rollout(model, image)
    np.testing.assert_array_equal(given.rollout, plain.rollout)


def test_the_caption_names_the_query_that_was_given_as_a_text():
    model = attnviz.load_model("dino_vits16", random_weights=True, depth=1)
    image = attnviz.prepare(Path("sample_images/cat.jpg"), model, size=64)
    for query, words in (
        ("cls", "attention of the CLS token"),
        ("mean", "mean attention of all patches"),
    ):
        maps = attnviz.heads(model, image, distance=False, query=query)
        (figure,) = attnviz.draw(maps, image, model)
        assert words in " ".join(text.get_text() for text in texts_of(figure))
