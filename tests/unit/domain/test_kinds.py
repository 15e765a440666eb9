"""The table of kinds: every reference leads to something that can be called as it is."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import attnviz
from attnviz.cli.panels import figure_panels
from attnviz.domain.drawing import DrawStyle
from attnviz.domain.kinds import KINDS, kind_of
from attnviz.domain.options import option_fields, request_options, resolve
from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest, RunRequest

EACH = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def names_of(reference: str) -> list[str]:
    return [name.lstrip("_") for name in inspect.signature(resolve(reference)).parameters]


@EACH
def test_what_computes_takes_a_model_a_batch_and_the_request(kind):
    names = names_of(kind.compute)
    assert names[:3] == ["model", "batch", "request"]
    assert tuple(names[3:]) == kind.computed_with


@EACH
def test_what_draws_takes_maps_an_image_and_fields_of_the_request(kind):
    names = names_of(kind.draw)
    assert names[:4] == ["maps", "image", "model", "style"]
    assert set(names[4:]) == set(kind.drawn_with)
    fields = {field.name for field in dataclasses.fields(kind.request)}
    assert {*kind.drawn_with, *kind.sidecars} <= fields


@EACH
def test_what_checks_and_estimates_takes_facts_and_the_request(kind):
    assert names_of(kind.check) == ["info", "request"]
    if kind.extra_bytes is not None:
        assert names_of(kind.extra_bytes) == ["info", "tokens", "request"]
    has_overlays = any(each.field.name == "overlay_only" for each in option_fields(kind.request))
    assert has_overlays == (kind.overlays is not None)
    if kind.overlays is not None:
        assert names_of(kind.overlays) == ["maps", "image", "style", "request"]
    if kind.cost is not None:
        assert names_of(kind.cost) == ["info", "request"]
    if kind.summarised is not None:
        assert names_of(kind.summarised) == ["model"]
    for sidecar in kind.sidecars.values():
        assert len(names_of(sidecar.write)) == 6


@EACH
def test_the_python_function_has_the_options_that_the_numbers_depend_on(kind):
    function = getattr(attnviz, kind.name)
    model, image, *keywords = inspect.signature(function).parameters.values()
    assert [model.name, image.name] == ["model", "image"]
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in keywords)
    fields = {each.field.name for each in option_fields(kind.request)}
    fields |= {"whole"} & {field.name for field in dataclasses.fields(kind.request)}
    only_drawing = {*kind.drawn_with, *kind.sidecars, "overlay_only"}
    assert {each.name for each in keywords} == fields - only_drawing
    assert "Raises:" in inspect.getdoc(function)


@EACH
def test_the_python_functions_defaults_are_those_of_the_options(kind):
    defaults = {each.field.name: each.default for each in option_fields(kind.request)}
    for name, keyword in inspect.signature(getattr(attnviz, kind.name)).parameters.items():
        if name in defaults:
            assert keyword.default == defaults[name], name


@EACH
def test_a_kind_is_found_by_its_request_and_its_maps(kind):
    more = {"relevance": {"class_index": 0}, "match": {"like": "second.png"}}
    assert kind_of(kind.request(**more.get(kind.name, {}))) is kind
    assert kind_of(kind.maps.__new__(kind.maps)) is kind


@EACH
def test_no_two_options_of_a_command_share_a_name(kind):
    names = [each.name for panel in figure_panels(kind) for each in panel.options()]
    assert len(names) == len(set(names))
    assert set(kind.unused) <= {each.name for each in option_fields(DrawStyle)}


@pytest.mark.parametrize(
    "request_", [kind.request for kind in KINDS.values()] + [ModelRequest, InputRequest,
    OutputRequest, RunRequest, DrawStyle],
)  # fmt: skip
def test_a_default_is_read_from_what_is_written_of_it(request_):
    for each in option_fields(request_):
        written = each.write(each.default)
        if written is not None and not each.option.form.repeated and not each.option.form.unset:
            given = str(written) if each.option.form.type is str else each.default
            assert each.read(given) == each.default, each.name


def test_options_by_hand():
    heads = KINDS["heads"].request(layer=0, heads=(0, 2), distance=False, threshold=0.5)
    assert request_options(heads) == {
        "layer": 0, "heads": "0,2", "no-distance": True, "threshold": 0.5, "query": "cls",
    }  # fmt: skip
    patch = KINDS["patch"].request(cells=((3, 7),), points=((1.0, 2.5),))
    assert request_options(patch) == {
        "layer": -1, "at": ["3,7"], "xy": ["1.0,2.5"], "direction": "from",
    }  # fmt: skip
