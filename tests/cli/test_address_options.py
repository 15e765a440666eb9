"""Every option that names a file or folder takes an address, or refuses it in one line."""

from __future__ import annotations

import dataclasses
from io import BytesIO
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from attnviz.cli.app import command_with_options
from attnviz.cli.commands import COMMANDS as ALL
from attnviz.cli.commands.compare import ColumnOptions
from attnviz.domain.evolution import EvolutionRequest
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.kinds import KINDS, RelevanceRequest
from attnviz.domain.options import option_fields
from attnviz.domain.parse import local_path
from attnviz.domain.registers import RegistersRequest
from attnviz.domain.requests import ModelRequest, OutputRequest
from attnviz.errors import UsageError
from attnviz.output.read_record import read_record
from attnviz.storage import Address, local_copy, path_of, same_file
from tests.helpers import checkpoints
from tests.helpers.command_line import files_below
from tests.helpers.photos import save_scene

BESIDE = ("--workers", "0")


@pytest.fixture
def store():
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    yield memory
    memory.store.clear()


@pytest.fixture
def uploaded(store, tmp_path):
    """A picture, its mask, a second picture and two checkpoints, in the store and on the disk."""
    save_scene(tmp_path / "cat.png", 40, 40)
    save_scene(tmp_path / "dog.png", 48, 40)
    mask = np.zeros((40, 40), np.uint8)
    mask[5:25, 10:30] = 255
    (tmp_path / "masks").mkdir()
    Image.fromarray(mask).save(tmp_path / "masks" / "cat.png")
    for step in (50, 100):
        checkpoints.save(tmp_path / f"step{step}.pth", checkpoints.original(seed=step))
    for name in files_below(tmp_path):
        store.pipe_file(f"/all/{name}", (tmp_path / name).read_bytes())
    return store


REQUESTS = (
    ModelRequest, OutputRequest, ExploreRequest, EvolutionRequest, RelevanceRequest, ColumnOptions,
    RegistersRequest,
)  # fmt: skip


def test_no_option_of_a_request_makes_a_path_of_an_address_by_itself():
    read = {
        f"{request.__name__} {each.name}": each.option.form.read
        for request in REQUESTS
        for each in option_fields(request)
        if "Path" in str(request.__dataclass_fields__[each.field.name].type)
    }
    names = {"checkpoint", "out", "table", "mask", "like", "test-registers"}
    assert {name.split()[1] for name in read} == names
    for name, reader in read.items():
        assert isinstance(reader("--x", "s3://bucket/x.png"), Address), name
    for kind in KINDS.values():
        paths = {
            field.name for field in dataclasses.fields(kind.request) if "Path" in str(field.type)
        }
        assert paths <= {"like"}


def test_no_parameter_of_a_command_makes_a_path_of_an_address_by_itself():
    read = {
        f"{name} {parameter.name}": described.parameter_info.parser
        for name in ALL
        for parameter in command_with_options(name).params
        if (described := getattr(parameter, "type_descriptor", None)) is not None
        and described.annotation in (Path, list[Path])
    }
    assert {"heads config", "info figure", "render diff_out", "merge out"} <= read.keys()
    assert set(read.values()) == {path_of, local_path}


def test_a_path_that_has_to_be_here_refuses_an_address():
    assert local_path("file:///a/b.toml") == Path("/a/b.toml")
    with pytest.raises(UsageError, match=r"s3://b/set\.toml is an address") as caught:
        local_path("s3://b/set.toml")
    assert "copy it here" in caught.value.hint


def same_work(here, there) -> None:
    """Two figures that differ by paths in their records alone."""
    records = [read_record(path_of(path)) for path in (here, there)]
    for record in records:
        assert record is not None
        for key in ("image", "rows"):
            record.pop(key, None)
        for key in ("checkpoint", "like", "mask"):
            record["options"].pop(key, None)
        for checkpoint in record.get("checkpoints", ()):
            checkpoint.pop("path")
    assert records[0] == records[1]
    pixels = [np.asarray(Image.open(BytesIO(path_of(path).read_bytes()))) for path in (here, there)]
    np.testing.assert_array_equal(*pixels)


COMMANDS = {
    "heads": "heads {0}/cat.png --checkpoint {0}/step50.pth {1} --out {2}",
    "relevance": "relevance {0}/cat.png --like {0}/dog.png --checkpoint {0}/step50.pth {1} "
    "--out {2}",
    "match": "match {0}/cat.png {0}/dog.png --checkpoint {0}/step50.pth {1} --out {2}",
    "compare": "compare {0}/cat.png --checkpoint {0}/step50.pth --checkpoint {0}/step100.pth {1} "
    "--out {2}",
    "evolve": "evolve {0}/step50.pth {0}/step100.pth --image {0}/cat.png --mask {0}/masks/cat.png "
    "{1} --out {2}",
}


@pytest.mark.parametrize("command", list(COMMANDS))
def test_commands_take_everything_from_a_store(real, tiny, uploaded, tmp_path, command):
    options = " ".join((*tiny[2:], *(BESIDE if command in ("heads", "relevance") else ())))
    here = real(*COMMANDS[command].format(".", options, "out").split())
    there = real(*COMMANDS[command].format("memory://all", options, "memory://out").split())
    assert (here.code, there.code) == (0, 0), there.err
    assert there.out == here.out.replace("out/", "memory://out/")
    (figure,) = here.out.split()
    same_work(tmp_path / figure, there.out.strip())
    assert not (tmp_path / "memory:").exists()


def test_lists_of_neurons_lie_in_a_store_too(real, tiny, uploaded, tmp_path):
    find = (
        "registers {0}/cat.png --checkpoint {0}/step50.pth --threshold 1 --top 3 --out {1}/n.json"
    )
    draw = (
        "heads {0}/cat.png --checkpoint {0}/step50.pth --test-registers {1}/n.json --out {1} "
        "--workers 0"
    )
    for command in (find, draw):
        here = real(*command.format(".", "out").split(), *tiny[2:])
        there = real(*command.format("memory://all", "memory://out").split(), *tiny[2:])
        assert (here.code, there.code) == (0, 0), there.err
        assert there.out == here.out.replace("out/", "memory://out/")
    texts = [
        path_of(folder + "/n.json").read_text() for folder in (f"{tmp_path}/out", "memory://out")
    ]
    assert texts[0] == texts[1]
    records = [read_record(path_of(f"{folder}/cat.heads.png"))
               for folder in (f"{tmp_path}/out", "memory://out")]  # fmt: skip
    assert records[0]["neurons_sha256"] == records[1]["neurons_sha256"]


def test_eval_takes_pictures_masks_and_weights_from_a_store(real, tiny, uploaded):
    command = "eval {0}/cat.png {0}/masks --checkpoint {0}/step50.pth --format csv"
    here = real(*command.format(".").split(), *tiny[2:4])
    there = real(*command.format("memory://all").split(), *tiny[2:4])
    assert (here.code, there.code) == (0, 0), there.err
    assert here.out == there.out


def test_explore_writes_its_page_to_a_store(real, tiny, uploaded, tmp_path):
    before = files_below(tmp_path)
    run = real("explore", "memory://all/cat.png", *tiny[:4], "-o", "memory://pages/cat.html")
    assert run.code == 0, run.err
    assert run.out == "memory://pages/cat.html\n"
    assert uploaded.cat_file("/pages/cat.html").startswith(b"<!doctype html>")
    assert files_below(tmp_path) == before
    uploaded.pipe_file("/all/cat.html", uploaded.cat_file("/all/cat.png"))
    run = real("explore", "memory://all/cat.html", *tiny[:4], "-o", "memory://all/cat.html")
    assert run.code == 2
    assert "would overwrite the image" in run.err


def test_info_reads_a_figure_and_its_picture_from_a_store(real, tiny, uploaded):
    assert real("heads", "memory://all/cat.png", *tiny, *BESIDE, "-o", "memory://out").code == 0
    run = real("info", "memory://out/cat.heads.png")
    assert run.code == 0, run.err
    assert run.err == ""
    assert "--out memory://out memory://all/cat.png" in run.out
    uploaded.rm_file("/all/cat.png")
    assert "memory://all/cat.png does not exist" in real("info", "memory://out/cat.heads.png").err


def test_a_configuration_may_lie_in_a_store_and_a_set_may_not(real, tiny, uploaded):
    uploaded.pipe_file("/all/run.toml", b"dpi = 31\nout = 'memory://out'\n")
    run = real("heads", "cat.png", *tiny[:4], *BESIDE, "--config", "memory://all/run.toml")
    assert run.out == "memory://out/cat.heads.png\n", run.err
    assert read_record(path_of("memory://out/cat.heads.png"))["options"]["dpi"] == 31
    uploaded.pipe_file("/all/bad.toml", b"dpi = 5\n")
    run = real("heads", "cat.png", *tiny[:4], "--config", "memory://all/bad.toml")
    assert run.code == 2
    assert "memory://all/bad.toml:1: " in run.err
    run = real("render", "memory://all/run.toml")
    assert run.code == 2
    assert "memory://all/run.toml is an address" in run.err


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (
            ("heads", "cat.png", "--checkpoint", "memory://gone.pth"),
            2,
            "memory://gone.pth does not",
        ),
        (("evolve", "memory://gone.pth", "--image", "cat.png"), 2, "memory://gone.pth does"),
        (("relevance", "cat.png", "--like", "memory://gone.png"), 2, "--like: memory://gone.png"),
        (("info", "memory://gone.png"), 2, "memory://gone.png is"),
        (("heads", "cat.png", "--config", "memory://gone.toml"), 2, "memory://gone.toml: cannot"),
    ],
)
def test_an_address_where_nothing_is_costs_one_line(real, uploaded, arguments, code, reason):
    run = real(*arguments)
    assert (run.code, run.out) == (code, "")
    assert reason in run.err
    assert "Traceback" not in run.err


def test_a_copy_keeps_its_name_and_is_made_again_only_when_the_file_changed(
    uploaded, tmp_path, monkeypatch
):
    downloads = []
    download = Address.download
    monkeypatch.setattr(
        Address, "download", lambda self, to: (downloads.append(self), download(self, to))
    )
    address = path_of("memory://all/step50.pth")
    copy = local_copy(address)
    assert (copy.name, copy.parent.name) == ("step50.pth", "all")
    assert copy.read_bytes() == (tmp_path / "step50.pth").read_bytes()
    assert local_copy(address) == copy
    assert len(downloads) == 1
    uploaded.pipe_file("/all/step50.pth", b"other")
    assert local_copy(address).read_bytes() == b"other"
    assert local_copy(tmp_path / "step50.pth") == tmp_path / "step50.pth"
    with pytest.raises(OSError, match="gone"):
        local_copy(path_of("memory://all/gone.pth"))


def test_a_folder_of_weights_is_copied_with_what_is_read_of_it(uploaded):
    from attnviz.models.weights.locate import locate

    names = ("config.json", "model.safetensors", "preprocessor_config.json", "optimizer.pt")
    for name in names:
        uploaded.pipe_file(f"/hub/vit/{name}", name.encode())
    (weights,), config = locate(path_of("memory://hub/vit"))
    assert weights.read_bytes() == b"model.safetensors"
    assert config.read_bytes() == b"config.json"
    assert files_below(config.parent) == list(names[:3])


def test_one_file_is_known_under_its_address(uploaded, tmp_path):
    address = path_of("memory://all/cat.png")
    assert same_file(address, path_of("memory://all/cat.png"))
    assert not same_file(address, path_of("memory://all/dog.png"))
    assert not same_file(address, tmp_path / "cat.png")
    assert not same_file(path_of("memory://gone"), path_of("memory://gone"))
    assert same_file(tmp_path / "cat.png", tmp_path / "masks" / ".." / "cat.png")
    assert not same_file(tmp_path / "gone", tmp_path / "gone")
