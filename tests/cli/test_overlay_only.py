"""``--overlay-only``: clean overlays alone, and nothing of matplotlib for them."""

from __future__ import annotations

import os

import numpy as np
import pytest
from PIL import Image

from attnviz.domain.kinds import KINDS
from attnviz.output.read_record import read_record
from tests.helpers.command_line import files_below

WITH_OVERLAYS = [name for name, kind in KINDS.items() if kind.overlays is not None]
TARGET = {"relevance": ("--like", "{folder}/1.png")}
FORBIDDEN = "raise ImportError('matplotlib was imported')\n"
RUN = """
import sys
sys.path.insert(0, {stub!r})
from attnviz.__main__ import main
sys.exit(main())
"""


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB"))


@pytest.mark.parametrize("workers", [0, 2])
def test_matplotlib_is_not_imported(torch_server, tiny, photos, tmp_path, workers):
    """By no process of the run: the one that draws here, and those that it starts."""
    stub = tmp_path / "stub"
    (stub / "matplotlib").mkdir(parents=True)
    (stub / "matplotlib" / "__init__.py").write_text(FORBIDDEN)
    path = os.pathsep.join([str(stub), os.environ.get("PYTHONPATH", "")])

    def run(*options):
        return torch_server.run(
            "heads", photos / "1.png", photos / "10.png", *tiny, "--workers", workers,
            "--cmap", "magma", "--out", tmp_path / "o", *options,
            source=RUN.format(stub=str(stub)), environment={"PYTHONPATH": path},
        )  # fmt: skip

    made = run("--overlay-only")
    assert made.returncode == 0, made.stderr
    names = [f"{stem}.heads.head{head}.png" for stem in ("1", "10") for head in (0, 1)]
    assert files_below(tmp_path / "o") == sorted(names)
    if workers == 0:  # and the test would see it
        assert "matplotlib was imported" in run().stderr


def test_they_are_those_beside_the_figure_at_the_image_s_size(real, tiny, photos, tmp_path):
    for folder, option in (("beside", "--overlay"), ("alone", "--overlay-only")):
        made = real(
            "heads", photos / "1.png", *tiny, option, "--scale", "shared", "--workers", 0,
            "--out", tmp_path / folder,
        )  # fmt: skip
        assert made.code == 0
    alone = files_below(tmp_path / "alone")
    assert alone == ["1.heads.head0.png", "1.heads.head1.png"]
    for name in alone:
        found = pixels(tmp_path / "alone" / name)
        assert found.shape == pixels(photos / "1.png").shape
        np.testing.assert_array_equal(found, pixels(tmp_path / "beside" / name))


@pytest.mark.parametrize("command", WITH_OVERLAYS)
def test_the_first_stands_for_all_of_them(real, tiny, photos, tmp_path, command):
    target = [text.format(folder=photos) for text in TARGET.get(command, ())]
    arguments = (
        command, photos / "10.png", *tiny, *target, "--overlay-only", "--workers", 0,
        "--skip-existing", "--out", tmp_path / "o",
    )  # fmt: skip
    made = real(*arguments)
    assert made.code == 0, made.err
    request = KINDS[command].request(**({"class_index": 0} if target else {}))
    lead = tmp_path / "o" / f"10.{command}.{request.first_overlay}.png"
    assert made.out.splitlines()[0] == str(lead)
    record = read_record(lead)
    assert record["options"]["overlay-only"] is True
    others = [f"10.{command}.{tail}" for tail in record.get("beside", ())]
    assert files_below(tmp_path / "o") == sorted([lead.name, *others])
    assert "1 skipped" in real(*arguments).err
    (tmp_path / "o" / (others or [lead.name])[-1]).unlink()
    assert "1 of 1 done" in real(*arguments).err


def test_every_head_of_every_patch(real, tiny, photos, tmp_path):
    made = real(
        "patch", photos / "1.png", *tiny, "--at", "0,1", "--at", "2,2", "--each-head",
        "--heads", "1,0", "--overlay-only", "--workers", 0, "--out", tmp_path / "o",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert [line.rsplit("/", 1)[-1] for line in made.out.splitlines()] == [
        f"1.patch.query{query}-head{head}.png" for query in (1, 2) for head in (1, 0)
    ]


def test_contributions_keep_their_own_colours(real, tiny, photos, tmp_path):
    """Clear at 0, and red and blue for what counts for and against the target."""
    made = real(
        "relevance", photos / "10.png", *tiny, "--like", photos / "1.png", "--method",
        "contribution", "--overlay-only", "--save-data", "--alpha", 1, "--workers", 0,
        "--out", tmp_path / "o",
    )  # fmt: skip
    assert made.code == 0, made.err
    values = np.load(tmp_path / "o" / "10.relevance.npz")["relevance"]
    found = pixels(tmp_path / "o" / "10.relevance.overlay.png").astype(int)
    height, width = found.shape[0] // values.shape[0], found.shape[1] // values.shape[1]
    row, column = np.unravel_index(np.abs(values).argmax(), values.shape)
    cell = found[row * height + height // 2, column * width + width // 2]
    # RdBu_r at its ends: (103, 0, 31) above 0, (5, 48, 97) below.
    assert cell.tolist() == ([103, 0, 31] if values[row, column] > 0 else [5, 48, 97])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--format", "pdf"), "--overlay-only writes PNG files"),
        (("--threshold", "0.5"), "--threshold draws in the figure"),
        (("--overlay",), "--overlay and --overlay-only exclude each other"),
    ],
)
def test_what_needs_a_figure_is_refused(real, tiny, photos, tmp_path, options, reason):
    made = real(
        "heads", photos / "1.png", *tiny, "--overlay-only", *options, "--out", tmp_path / "o"
    )
    assert (made.code, made.out) == (2, "")
    assert reason in made.err
    assert not (tmp_path / "o").exists()
