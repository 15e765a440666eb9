from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from attnviz.domain import ImageFormat, Provenance, WrittenFile, sha256_of
from attnviz.domain.requests import OutputRequest
from attnviz.output.current import (
    identity,
    is_up_to_date,
    outputs_up_to_date,
)
from attnviz.output.plan import OutputPlan
from attnviz.output.read_record import read_record
from attnviz.output.record import record_of, to_dict, to_json
from attnviz.output.write import write_array_png, write_csv, write_figures, write_npz
from tests.helpers.provenance import provenance

FORMATS = tuple(ImageFormat)


def write_all(folder: Path, made: Provenance) -> OutputPlan:
    plan = OutputPlan(folder, "cat", "heads")
    write_figures([Figure(figsize=(1, 1))], plan, FORMATS, 30, made)
    write_npz(plan.path("npz"), {"layer": np.array(1)}, made)
    return plan


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    plan = write_all(tmp_path_factory.mktemp("whole"), provenance())
    return {kind: plan.path(kind).read_bytes() for kind in ("png", "pdf", "svg", "npz")}


def test_the_record_says_what_the_data_files_promise() -> None:
    record = to_dict(provenance())
    assert record["model"] == "tiny"
    assert record["weights"] == provenance().model.weights
    assert record["image_sha256"] == "ab" * 32
    assert (record["size"], record["grid"], record["prefix"]) == ([32, 40], [4, 5], 1)
    assert record["options"] == provenance().options
    assert record["versions"] == {"torch": "2.6"}


def test_the_text_is_one_line_of_ascii_with_sorted_keys() -> None:
    text = to_json(provenance())
    assert text.isascii()
    assert text.isprintable()
    assert list(json.loads(text)) == sorted(json.loads(text))
    backwards = dict(reversed(list(provenance().options.items())))
    assert to_json(provenance(options=backwards)) == text


def test_values_that_json_has_no_word_for_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json(provenance(options={"limits": float("nan")}))


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg", "npz"])
def test_every_kind_of_file_gives_back_what_was_put_in(tmp_path: Path, suffix: str) -> None:
    plan = write_all(tmp_path, provenance())
    assert read_record(plan.path(suffix)) == json.loads(to_json(provenance()))


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg", "npz"])
@given(place=st.integers(0, 10**9), bits=st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_a_file_with_a_damaged_byte_never_raises(
    whole_files: dict[str, bytes], suffix: str, place: int, bits: int
) -> None:
    content = bytearray(whole_files[suffix])
    content[place % len(content)] ^= bits
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"cat.{suffix}"
        path.write_bytes(content)
        read_record(path)


@given(st.text(max_size=30))
@settings(max_examples=15, deadline=None)
def test_any_text_survives_a_pdf_and_an_svg(text: str) -> None:
    made = provenance(image=text)
    with tempfile.TemporaryDirectory() as folder:
        plan = OutputPlan(Path(folder), "cat", "heads")
        formats = (ImageFormat.PDF, ImageFormat.SVG)
        for file in write_figures([Figure(figsize=(1, 1))], plan, formats, 30, made):
            record = read_record(file.path)
            assert record is not None
            assert record["image"] == text


def test_a_record_of_many_options_is_read_whole(tmp_path: Path) -> None:
    made = provenance(options={"at": [f"({n},\\{n})" for n in range(5000)]})
    plan = write_all(tmp_path, made)
    for suffix in ("png", "pdf", "svg", "npz"):
        record = read_record(plan.path(suffix))
        assert record is not None
        assert record["options"] == made.options


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg", "npz", "jpg"])
def test_files_of_others_and_broken_files_have_none(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cat.{suffix}"
    assert read_record(path) is None
    path.write_bytes(b"")
    assert read_record(path) is None
    path.write_bytes(os.urandom(500))
    assert read_record(path) is None


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg", "npz"])
def test_a_file_cut_anywhere_never_raises(tmp_path: Path, suffix: str) -> None:
    path = write_all(tmp_path, provenance()).path(suffix)
    content = path.read_bytes()
    for length in range(0, len(content), max(1, len(content) // 40)):
        path.write_bytes(content[:length])
        read_record(path)


def test_a_record_is_found_without_reading_the_pixels(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    pixels = np.random.default_rng(0).integers(0, 256, (50, 50, 3), np.uint8)
    write_array_png(pixels, path, provenance())
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"IDAT") + 8])
    assert read_record(path) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"command": "layers"},
        {"image_sha256": "cd" * 32},
        {"options": {"layer": -2}},
        {"model": dataclasses.replace(provenance().model, weights_sha256="ef" * 32)},
        {"model": dataclasses.replace(provenance().model, name="other")},
    ],
)
def test_other_work_is_told_apart(change: dict[str, Any]) -> None:
    record = json.loads(to_json(provenance()))
    assert is_up_to_date(record, provenance())
    assert not is_up_to_date(record, provenance(**change))


def test_the_same_picture_under_another_name_or_version_is_the_same_work() -> None:
    record = json.loads(to_json(provenance()))
    assert is_up_to_date(record, provenance(image="moved.png", versions={"torch": "3.0"}))
    assert not is_up_to_date(None, provenance())


def test_a_picture_is_current_when_every_asked_file_stands(tmp_path: Path) -> None:
    plan = write_all(tmp_path, provenance())
    everything = OutputRequest(tmp_path, FORMATS, save_data=True)
    assert outputs_up_to_date(plan, everything, identity(provenance()))
    assert not outputs_up_to_date(plan, everything, identity(provenance(options={"layer": 3})))
    plan.path("npz").unlink()
    assert not outputs_up_to_date(plan, everything, identity(provenance()))
    assert outputs_up_to_date(plan, OutputRequest(tmp_path, FORMATS), identity(provenance()))
    plan.path("svg").write_bytes(b"<svg/>")
    assert not outputs_up_to_date(plan, OutputRequest(tmp_path, FORMATS), identity(provenance()))
    assert outputs_up_to_date(
        plan, OutputRequest(tmp_path, (ImageFormat.PDF,)), identity(provenance())
    )


def test_a_missing_table_makes_the_picture_stale(tmp_path: Path) -> None:
    made = provenance(options={"csv": True})
    plan = write_all(tmp_path, made)
    assert not outputs_up_to_date(plan, OutputRequest(tmp_path), identity(made))
    write_csv(plan.path("csv"), [{"score": 0.5}])
    assert outputs_up_to_date(plan, OutputRequest(tmp_path), identity(made))


@pytest.mark.parametrize("image_format", [ImageFormat.PNG, ImageFormat.SVG])
def test_every_page_and_file_beside_a_figure_must_be_of_the_same_work(
    tmp_path: Path, image_format: ImageFormat
) -> None:
    plan, made, other = OutputPlan(tmp_path, "cat", "score"), provenance(), provenance(command="x")
    suffix = image_format.value
    pages = [Figure(figsize=(1, 1)) for _ in range(3)]

    def write() -> None:
        write_array_png(np.zeros((2, 2, 3), np.uint8), plan.path("head0.png"), made)
        csv = write_csv(plan.path("csv"), [{"score": 0.5}]).path
        beside = {"head0.png": None, "csv": sha256_of(csv.read_bytes())}
        write_figures(pages, plan, [image_format], 30, made, beside)

    def current() -> bool:
        return outputs_up_to_date(plan, OutputRequest(tmp_path, (image_format,)), identity(made))

    write()
    assert current()
    for part in (f"2.{suffix}", f"3.{suffix}", "head0.png", "csv"):
        plan.path(part).unlink()
        assert not current(), part
        write()
    # A run with other options that was killed leaves its last page and its table behind.
    write_figures(pages[:1], OutputPlan(tmp_path, "cat", "score.3"), [image_format], 30, other)
    assert not current()
    write()
    write_csv(plan.path("csv"), [{"score": 0.25}])
    assert not current()


def test_the_record_of_a_finished_picture_lists_its_files_and_numbers() -> None:
    written = [WrittenFile(Path("out/cat.heads.png"), "figure")]
    record = record_of(provenance(), written, [{"head": 0, "entropy": 5.9}])
    assert record["files"] == [{"path": "out/cat.heads.png", "kind": "figure"}]
    assert record["table"] == [{"head": 0, "entropy": 5.9}]
    assert record["image"] == provenance().image


def test_arrays_have_the_names_and_shapes_that_are_documented() -> None:
    from attnviz.domain import HeadsMaps, PatchMaps, RolloutMaps, RolloutOptions, ScoreMaps

    grid, heads = np.zeros((4, 5), np.float32), (0, 2)
    rows = np.zeros((2, 4, 5), np.float32)
    prefix, entropy = np.zeros((2, 1), np.float32), np.zeros(2, np.float32)
    saved = {
        "heads": HeadsMaps(rows, prefix, entropy, entropy, 11, heads).arrays(),
        "without distance": HeadsMaps(rows, prefix, entropy, None, 11, heads).arrays(),
        "patch": PatchMaps(
            rows[None], prefix[None], entropy[None], np.array([[3, 4]]), 11, heads
        ).arrays(),
        "rollout": RolloutMaps(
            grid, prefix[0], grid, RolloutOptions(), 11, (5,), grid[None], prefix[:1], heads
        ).arrays(),
        "score": ScoreMaps(grid, grid, grid, grid > 0, 0.5, 11, heads).arrays(),
    }
    shapes = {
        kind: {name: array.shape for name, array in arrays.items()}
        for kind, arrays in saved.items()
    }
    common = {"layer": (), "heads": (2,)}
    row_shapes = {"attention": (2, 4, 5), "prefix": (2, 1), "entropy": (2,), **common}
    assert shapes["heads"] == {**row_shapes, "distance": (2,)}
    assert shapes["without distance"] == row_shapes
    assert shapes["patch"] == {
        "attention": (1, 2, 4, 5), "prefix": (1, 2, 1), "entropy": (1, 2), "cells": (1, 2),
        **common,
    }  # fmt: skip
    assert shapes["rollout"] == {
        "rollout": (4, 5), "prefix": (1,), "last": (4, 5), "depths": (1,), "at_depth": (1, 4, 5),
        "at_depth_prefix": (1, 1), "heads": (2,),
    }  # fmt: skip
    maps = dict.fromkeys(("score", "cls_term", "patch_term", "kept"), (4, 5))
    assert shapes["score"] == {**maps, **common}
    assert saved["score"]["kept"].dtype == np.bool_
