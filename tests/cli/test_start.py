"""What a process of the command line does not load."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from attnviz.cli.commands import COMMANDS

COMPILER = ("sympy", "torch._dynamo", "torch._inductor", "triton")

PROGRAM = """
import json, sys
from attnviz.domain.process import claim_process
claim_process()
from attnviz.cli.app import main

loaded = {}
for line in json.loads(sys.argv[1]):
    code = main(line)
    loaded[line[0]] = [code, *sorted({compiler} & set(sys.modules))]
print(json.dumps([loaded, "timm" in sys.modules, "torchvision" in sys.modules]), file=sys.stderr)
"""


@pytest.fixture
def command_lines(tiny, photos, tmp_path):
    """Every command once, on a small image."""
    image, table = str(photos / "1.png"), str(tmp_path / "t.csv")
    (tmp_path / "masks").mkdir()
    Image.fromarray(np.eye(40, dtype=np.uint8)).save(tmp_path / "masks" / "1.png")
    (tmp_path / "set.toml").write_text(
        f"""
        [defaults]
        checkpoint = "{tiny[1]}"
        model-arg = ["heads=2"]
        dpi = 30
        workers = 0
        [[figure]]
        command = "heads"
        images = ["{image}"]
        out = "rendered"
        """
    )
    model, out = tiny[:4], ["--out", "out"]
    figure = [image, *tiny, *out, "--workers", "0"]
    lines = {
        "heads": [*figure, "--table", table],
        "relevance": [*figure, "--like", str(photos / "2.jpg")],
        "match": [*figure, "--like", str(photos / "2.jpg")],
        "compare": [image, *tiny, *out],
        "eval": [image, "masks", *model],
        "evolve": [tiny[1], tiny[1], "--image", image, *tiny[2:], *out],
        "explore": [image, *model, "--out", "page.html"],
        "registers": [image, *model, "--threshold", "1", "--out", "neurons.json"],
        "render": ["set.toml"],
        "info": ["out/1.heads.png"],
        "merge": ["merged.csv", table],
        "models": [],
    }
    return [[name, *lines.get(name, figure)] for name in COMMANDS]


def test_no_command_loads_the_compiler(command_lines, tmp_path):
    """In a process of its own: in this one somebody else imported timm."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{compiler}", repr(set(COMPILER))),
         json.dumps(command_lines)],
        capture_output=True, text=True, cwd=tmp_path, timeout=250, check=False,
    )  # fmt: skip
    loaded, *packages = json.loads(run.stderr.splitlines()[-1])
    assert loaded == {name: [0] for name in COMMANDS}, run.stderr
    assert packages == [True, True]
