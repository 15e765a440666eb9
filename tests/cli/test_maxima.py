"""Tables of maps, worked by hand: where the maximum of each is."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from attnviz.domain.row_statistics import highest, map_rows
from tests.figures import samples
from tests.helpers.command_line import arrays

KINDS = {
    "heads": lambda saved, row: saved["attention"][int(row["head"])],
    "layers": lambda saved, row: saved["attention"][int(row["layer"]), int(row["head"])],
    "patch": lambda saved, row: saved["attention"][_query(saved, row), int(row["head"])],
    "rollout": lambda saved, row: saved["rollout"],
    "score": lambda saved, row: saved["score"],
    "relevance": lambda saved, row: saved["relevance"],
}


def _query(saved, row):
    return saved["cells"].tolist().index([int(row["row"]), int(row["column"])])


def test_the_maximum_and_its_row_and_column():
    values = np.array([[0.1, 0.2, 0.1], [0.0, 0.1, 0.2]], np.float32)
    assert highest(values) == {"max": pytest.approx(0.2), "max_row": 0, "max_column": 1}
    assert highest(np.stack([values, 2 * values[:, ::-1]]))["max_column"] == 1
    values[1, 0] = 0.3
    (row,) = map_rows(values[None], np.zeros((1, 1), np.float32), np.ones(1, np.float32), None)
    assert list(row)[:4] == ["max", "max_row", "max_column", "mean"]
    assert (row["max_row"], row["max_column"]) == (1, 0)


def test_a_map_that_is_not_there_has_no_place():
    from attnviz.runs.compare_rows import _NOWHERE

    assert list(highest(samples.score_maps((2, 3)).score)) == list(_NOWHERE)


@pytest.mark.parametrize("command", KINDS)
def test_the_table_has_the_place_of_every_maximum(real, tiny, tmp_path, command):
    from tests.helpers.photos import save_scene

    save_scene(tmp_path / "a.png", 40, 56)
    more = ("--like", tmp_path / "a.png", "--method", "contribution")
    run = real(
        command, tmp_path / "a.png", *tiny, *(more if command == "relevance" else ()),
        "--save-data", "--table", tmp_path / "t.csv", "--workers", 0, "--out", tmp_path,
    )  # fmt: skip
    assert run.code == 0, run.err
    saved = arrays(tmp_path / f"a.{command}.npz")
    with (tmp_path / "t.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows
    for row in rows:
        values = KINDS[command](saved, row)
        place = (int(row["max_row"]), int(row["max_column"]))
        assert place == np.unravel_index(values.argmax(), values.shape)
        assert float(row["max"]) == pytest.approx(float(values[place]), rel=1e-6)
