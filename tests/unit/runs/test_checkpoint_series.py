"""Names and order of checkpoints, and the numbers of their evolution, worked by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from attnviz.domain import Box, FitGeometry, HeadsMaps, LayersMaps, Rows, Size
from attnviz.runs.checkpoint_names import name_checkpoints
from attnviz.runs.checkpoint_series import join, table


def named(*names, **progress):
    """The series; ``progress``: what the file of each stem says of its training."""
    held = {name: {"epoch": value} if isinstance(value, int) else value
            for name, value in progress.items()}  # fmt: skip
    return name_checkpoints([Path(name) for name in names], lambda path: held.get(path.stem, {}))


def test_numbered_files_are_steps_in_rising_order():
    found = named("run/step01000.pth", "run/step00050.pth", "run/step00500.pth")
    assert found.names == ("step 50", "step 500", "step 1000")
    assert found.steps == (50, 500, 1000)
    assert [path.name for path in found.paths] == [
        "step00050.pth", "step00500.pth", "step01000.pth"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("checkpoint-500", "checkpoint-1000"), ("checkpoint 500", "checkpoint 1000")),
        (("0100.pth", "0200.pth"), ("100", "200")),
        (("epoch_0.pt", "epoch_9.pt"), ("epoch 0", "epoch 9")),
        (("vit8_epoch2.pt", "vit8_epoch10.pt"), ("vit8_epoch 2", "vit8_epoch 10")),
        # Lightning's; the word before each number says what it is.
        (
            ("epoch=2-step=300.ckpt", "epoch=10-step=1100.ckpt"),
            ("epoch=2-step=300", "epoch=10-step=1100"),
        ),
        (("model_900.rank_0.pth", "model_1000.rank_0.pth"), ("model 900", "model 1000")),
        # DINOv2's: eval/training_N/teacher_checkpoint.pth.
        (
            ("training_900/teacher.pth", "training_1000/teacher.pth"),
            ("training 900", "training 1000"),
        ),
    ],
)
def test_ways_of_numbering(names, expected):
    assert named(*names).names == expected
    assert named(*reversed(names)).names == expected
    assert named(*names).steps == tuple(sorted(named(*names).steps))


def test_of_several_numbers_the_first_that_tells_all_apart_counts():
    found = named("epoch=0-step=300.ckpt", "epoch=1-step=500.ckpt", "epoch=0-step=200.ckpt")
    assert found.steps == (200, 300, 500)


@pytest.mark.parametrize("last", ["checkpoint", "last", "model_final", "checkpoint-latest"])
def test_the_one_without_a_number_comes_last_wherever_it_was_given(last):
    for names in itertools.permutations([f"{last}.pth", "checkpoint0020.pth", "checkpoint0.pth"]):
        found = named(*names)
        assert found.names == ("checkpoint 0", "checkpoint 20", last)
        assert found.steps == (0, 20, None)
        assert found.paths[2] == Path(f"{last}.pth")


def test_what_a_checkpoint_holds_gives_it_its_place():
    names = ("checkpoint.pth", "best.pth", "checkpoint0000.pth", "checkpoint0040.pth")
    # DINO numbers from 0 and writes the epochs that are done: what holds 60 would be number 59.
    found = named(*names, checkpoint0000=1, checkpoint0040=41, checkpoint=60, best=31)
    assert found.names == ("checkpoint 0", "best (30)", "checkpoint 40", "checkpoint (59)")
    assert found.steps == (0, 30, 40, 59)
    # The same where names count as files do, and where only the last holds a number.
    found = named(*names[:1], *names[2:], checkpoint0000=0, checkpoint0040=40, checkpoint=60)
    assert found.steps == (0, 40, 60)
    assert named("checkpoint.pth", "checkpoint40.pth", checkpoint=60).steps == (40, 60)


def test_an_equal_number_goes_to_the_copy_that_is_kept_first():
    found = named("checkpoint.pth", "checkpoint40.pth", checkpoint=40, checkpoint40=40)
    assert found.names == ("checkpoint 40", "checkpoint (40)")


def test_names_that_count_steps_are_not_ordered_by_epochs():
    counters = {"step50000": {"epoch": 10, "global_step": 50000}, "last": {"epoch": 12}}
    found = named("last.pth", "step50000.pth", **counters)
    assert (found.names, found.steps) == (("step 50000", "last"), (50000, None))
    counters["last"]["global_step"] = 60000
    assert named("last.pth", "step50000.pth", **counters).steps == (50000, 60000)
    # Twelve of what, nobody says: surely not of steps.
    assert named("last.pth", "step50000.pth", last=12).steps == (50000, None)


@pytest.mark.parametrize(
    "names", [("b.pth", "a.pth"), ("step2.pth", "epoch1.pth"), ("random.pth", "step5.pth"),
              ("step5.pth", "step05.pth")]
)  # fmt: skip
def test_other_names_stay_in_the_order_given(names):
    found = named(*names)
    assert found.names == tuple(Path(name).stem for name in names)
    assert found.steps is None
    assert found.paths == tuple(map(Path, names))


def test_two_without_a_number_leave_the_order_as_given():
    names = ("last.pth", "step5.pth", "final.pth")
    assert named(*names).paths == tuple(map(Path, names))


def test_files_of_one_name_take_their_folders(tmp_path):
    found = named("run-b/last.pth", "run-a/last.pth")
    assert (found.names, found.steps) == (("run-b/last", "run-a/last"), None)
    folders = [tmp_path / "7" / "best", tmp_path / "8" / "best"]
    for folder in folders:
        folder.mkdir(parents=True)
    assert name_checkpoints(folders).names == ("7/best", "8/best")


GEOMETRY = FitGeometry(Size(4, 4), Size(2, 2), 1, Box(0, 0, 4, 4))
MASK = np.array([[1, 1, 0, 0]] * 2 + [[0] * 4] * 2, bool)  # the first of four cells


def heads_maps(*maps):
    """Heads of 2 x 2 cells with a tenth of the weight on CLS."""
    attention = np.array(maps, np.float32).reshape(-1, 2, 2) * np.float32(0.9)
    prefix = np.full((len(attention), 1), 0.1, np.float32)
    entropy = np.arange(len(attention), dtype=np.float32)
    return HeadsMaps(attention, prefix, entropy, None, 5, tuple(range(len(attention))))


def test_heads_are_stacked_and_judged_like_eval():
    first = heads_maps([0.25] * 4, [0.7, 0.1, 0.1, 0.1])
    second = heads_maps([0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4])
    maps = join([first, second], named("step1.pth", "step2.pth"), GEOMETRY, MASK, 0.6)
    assert maps.attention.shape == (2, 2, 2, 2)
    np.testing.assert_array_equal(maps.attention[1], second.attention)
    # Of even weights three cells hold .6; of .7 one; of .4 : .3 two; the last keeps cells 3 and 2.
    np.testing.assert_allclose(maps.jaccard, [[1 / 3, 1], [1 / 2, 0]])
    assert (maps.rows, maps.indices, maps.layer) == (Rows.HEADS, (0, 1), 5)
    assert maps.tokens == 5
    rows = table(maps)
    assert [row["checkpoint"] for row in rows] == ["step 1", "step 1", "step 2", "step 2"]
    assert rows[1] == {
        "checkpoint": "step 1", "head": 1, "max": pytest.approx(0.63), "max_row": 0,
        "max_column": 0, "mean": pytest.approx(0.225),
        "entropy": 1.0, "prefix_mass": pytest.approx(0.1), "jaccard": 1.0,
    }  # fmt: skip


def test_layers_are_means_over_heads():
    attention = np.zeros((3, 2, 2, 2), np.float32)  # L, H, gh, gw
    attention[:, 0, 0, 0] = attention[:, 1, 1, 1] = [0.2, 0.4, 0.8]
    entropy = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    prefix = np.zeros((3, 2, 1), np.float32)
    maps = LayersMaps(attention, prefix, entropy, None, (0, 1, 2), (0, 1))
    joined = join([maps], named("a.pth"), GEOMETRY, None, 0.6)
    assert (joined.rows, joined.indices, joined.layer) == (Rows.LAYERS, (0, 1, 2), None)
    np.testing.assert_allclose(joined.attention[0, :, 0, 0], [0.1, 0.2, 0.4])
    np.testing.assert_allclose(joined.entropy, [[1.5, 3.5, 5.5]])
    assert joined.jaccard is None
    assert [row["layer"] for row in table(joined)] == [0, 1, 2]
    assert "jaccard" not in table(joined)[0]
