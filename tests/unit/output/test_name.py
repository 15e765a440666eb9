"""``--name`` with placeholders: what they become, and that names never meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.domain import ImageFile
from attnviz.domain.kinds import FeaturesRequest, HeadsRequest, RolloutRequest
from attnviz.domain.requests import ModelRequest, OutputRequest
from attnviz.errors import UsageError
from attnviz.output.name import filled, literal, name_values
from attnviz.output.plan import LONGEST_STEM, check_name, plan_outputs
from attnviz.stages.plan import layer_as_written

VALUES = {"command": "heads", "model": "demo", "layer": "-2"}


def images(*names: str) -> list[ImageFile]:
    return [ImageFile(Path("photos") / name, Path(name)) for name in names]


def stems(name: str, *files: str, values=VALUES) -> list[str]:
    plans = plan_outputs(images(*files), "heads", OutputRequest(Path("out"), name=name), values)
    return [plan.path("png").relative_to("out").as_posix() for plan in plans.values()]


def test_every_placeholder_is_filled_in() -> None:
    assert stems("{stem}-L{layer} of {model} ({command})", "cat.jpg") == [
        "cat-L-2 of demo (heads).heads.png"
    ]
    assert stems("fig1", "cat.jpg") == ["fig1.heads.png"]


def test_many_images_may_share_a_name_that_keeps_them_apart() -> None:
    assert stems("{stem}_{model}", "cat.jpg", "dog.jpg", "deep/cat.jpg") == [
        "cat_demo.heads.png", "dog_demo.heads.png", "deep/cat_demo.heads.png",
    ]  # fmt: skip
    # Stems that would meet take their suffix along, as they do without --name.
    assert stems("{stem}_{model}", "cat.jpg", "cat.png", "Cat.webp") == [
        "cat.jpg_demo.heads.png", "cat.png_demo.heads.png", "Cat.webp_demo.heads.png",
    ]  # fmt: skip
    assert stems("map", "a/cat.jpg", "b/cat.jpg") == ["a/map.heads.png", "b/map.heads.png"]


@pytest.mark.parametrize("name", ["fig1", "{model}", "{{stem}}"])
def test_many_images_under_one_name_are_refused(name) -> None:
    with pytest.raises(UsageError, match="can name the figure of one image, and there are 2") as e:
        stems(name, "cat.jpg", "dog.jpg")
    assert "{stem}" in e.value.hint


@pytest.mark.parametrize("name", ["{modle}", "{stem}-{}", "a{0}", "{ stem }"])
def test_an_unknown_placeholder_lists_those_that_there_are(name) -> None:
    for call in (lambda: check_name(name), lambda: stems(name, "cat.jpg")):
        with pytest.raises(UsageError, match="is not a placeholder") as caught:
            call()
        assert "there are {stem}, {layer}, {model}, {command}" in caught.value.hint


def test_a_placeholder_without_a_value_is_named() -> None:
    values = name_values("rollout", [ModelRequest()], layer_as_written(RolloutRequest()))
    assert values == {"command": "rollout", "model": "dino_vits8"}
    with pytest.raises(UsageError, match=r"\{layer\} has no value here"):
        stems("{stem}{layer}", "cat.jpg", values=values)


def test_layers_are_as_they_were_written() -> None:
    assert layer_as_written(HeadsRequest(layer=-1)) == -1
    assert layer_as_written(FeaturesRequest()) == "output"
    assert layer_as_written(FeaturesRequest(layer=3)) == 3


@pytest.mark.parametrize(
    ("models", "name"),
    [
        ([ModelRequest(name="facebook/dinov2-base")], "facebook-dinov2-base"),
        ([ModelRequest(checkpoint=Path("runs/best.pth"))], "best"),
        ([ModelRequest(name="vit", checkpoint=Path("runs/best.pth"))], "vit"),
        ([ModelRequest(name="a"), ModelRequest(name="b"), ModelRequest(name="a")], "a+b"),
    ],
)
def test_models_by_name_or_by_their_weights(models, name) -> None:
    assert name_values("heads", models)["model"] == name


def test_a_name_that_grows_too_long_is_cut_and_stays_distinct() -> None:
    files = [letter * 150 + ".png" for letter in "ab"]
    made = stems("{stem}-" + "x" * 100, *files)
    assert len(set(made)) == 2
    assert all(len(name.removesuffix(".heads.png")) == LONGEST_STEM for name in made)


@given(st.text(max_size=20))
def test_a_literal_name_comes_back_as_it_is(name) -> None:
    assert filled(literal(name), VALUES) == name


@given(
    st.lists(
        st.sampled_from(["cat.jpg", "cat.png", "Cat.jpg", "a/cat.jpg", "dog.gif"]), unique=True
    ),
    st.sampled_from(["{stem}", "{stem}{model}", "x{command}{stem}", "{model}.{stem}.{layer}"]),
)
def test_names_never_meet(files, name) -> None:
    made = stems(name, *files)
    assert len({each.casefold() for each in made}) == len(files)
