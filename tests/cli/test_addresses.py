"""Inputs and outputs in a store, through fsspec: the store of this process's memory."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

from attnviz.output.read_record import read_record
from attnviz.storage import ATOMIC, Address, is_address, path_of
from tests.helpers.command_line import files_below


@pytest.fixture
def store():
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    yield memory
    memory.store.clear()


@pytest.fixture
def uploaded(store, photos):
    """The pictures in the store, under /photos, and a file that is none."""
    for path in photos.rglob("*"):
        if path.is_file():
            store.pipe_file(f"/photos/{path.relative_to(photos)}", path.read_bytes())
    store.pipe_file("/photos/notes.txt", b"text")
    store.pipe_file("/photos/.hidden.png", b"text")
    return store


def in_store(store, folder):
    names = (Path(name) for name in store.find(folder))
    return {str(name.relative_to(folder)): store.cat_file(str(name)) for name in names}


def test_a_folder_in_a_store_is_drawn_as_one_on_a_disk(real, tiny, uploaded, tmp_path):
    options = (*tiny, "--workers", "0", "--save-data")
    here = real("heads", "photos", *options, "--out", "here")
    there = real("heads", "memory://photos", *options, "--out", "memory://out/run")
    assert (here.code, there.code) == (0, 0), there.err
    lines = [line.replace("here/", "memory://out/run/") for line in here.out.splitlines()]
    assert there.out.splitlines() == lines
    written = in_store(uploaded, "/out/run")
    assert sorted(written) == files_below(tmp_path / "here")
    assert "notes.txt (no image suffix)" in there.err
    # Only the picture's name in the record differs.
    for line in there.out.splitlines():
        record = read_record(path_of(line))
        assert record["image"].startswith("memory://photos/")
        local = read_record(tmp_path / "here" / line.removeprefix("memory://out/run/"))
        assert local["image"].startswith("photos/")
        assert record | {"image": ""} == local | {"image": ""}


def test_what_stands_in_a_store_is_skipped(real, tiny, uploaded):
    command = ("layers", "memory://photos", *tiny, "--workers", "0", "--out", "memory://out")
    assert real(*command).code == 0
    before = in_store(uploaded, "/out")
    uploaded.rm_file("/out/1.layers.png")
    outcome = real(*command, "--skip-existing")
    assert outcome.out == "memory://out/1.layers.png\n"
    assert outcome.err.splitlines()[-1] == "1 of 4 done, 3 skipped"
    assert in_store(uploaded, "/out") == before


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        (("memory://photos/1.png",), ["1"]),
        (("memory://photos/*.png",), ["1", "10"]),
        (("memory://photos/**/*.png",), ["1", "10", "deep/er/3"]),
        (("memory://photos/deep",), ["er/3"]),
        (("memory://photos/1.png", "memory://photos"), ["1", "10", "2", "deep/er/3"]),
        (("memory://photos/1.png", "photos/2.jpg"), ["1", "2"]),
    ],
)
def test_files_folders_and_globs_of_a_store(real, tiny, uploaded, inputs, names):
    outcome = real("heads", *inputs, *tiny, "--workers", "0", "--out", "memory://o")
    assert outcome.code == 0, outcome.err
    assert sorted(in_store(uploaded, "/o")) == [f"{name}.heads.png" for name in names]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("memory://photos/gone.png",), 1, "memory://photos/gone.png does not exist"),
        (("memory://gone",), 1, "memory://gone does not exist"),
        (("memory://photos/*.gif",), 1, "memory://photos/*.gif matches no images"),
        (("nosuch://photos/1.png",), 1, "nosuch://photos/1.png cannot be opened: protocol not kn"),
        (("memory://photos/notes.txt",), 1, "notes.txt is text, not an image"),
        (("photos/1.png", "--out", "nosuch://o"), 2, "--out: nosuch://o cannot be written (Proto"),
    ],
)
def test_an_address_that_gives_nothing_is_told(real, tiny, uploaded, arguments, code, reason):
    outcome = real("heads", *arguments, *tiny, "--workers", "0")
    assert outcome.code == code
    assert reason in outcome.err
    assert "Traceback" not in outcome.err


def test_a_file_address_is_a_path(real, tiny, photos, tmp_path):
    outcome = real("heads", f"file://{photos}/*.png", *tiny, "--out", f"file://{tmp_path}/o")
    assert outcome.code == 0, outcome.err
    assert files_below(tmp_path / "o") == ["1.heads.png", "10.heads.png"]
    assert real("heads", f"file://{photos}/1.png", *tiny, "--out", "p").code == 0
    assert files_below(tmp_path / "p") == ["1.heads.png"]


def test_addresses_are_paths_that_keep_their_slashes():
    place = path_of("s3://bucket/photos/cat.jpg")
    assert isinstance(place, Address)
    assert str(place) == "s3://bucket/photos/cat.jpg"
    assert (place.name, place.stem, place.suffix) == ("cat.jpg", "cat", ".jpg")
    assert str(place.parent / "dog.png") == "s3://bucket/photos/dog.png"
    assert str(place.parent.parent.parent) == "s3://"
    assert str(place.with_suffix(".png")) == "s3://bucket/photos/cat.png"
    assert pickle.loads(pickle.dumps(place)) == place
    assert {place: 1}[path_of("s3://bucket/photos/cat.jpg")] == 1
    assert place.absolute() is place
    for written in ("photos/cat.jpg", "C://cat.jpg", "file:///cat.jpg", "-", "a:b"):
        assert not is_address(written)
        assert not isinstance(path_of(written), Address)


@pytest.mark.parametrize("atomic", [True, False])
def test_a_file_appears_complete_or_not_at_all(store, monkeypatch, atomic):
    if atomic:
        monkeypatch.setattr("attnviz.storage.ATOMIC", ATOMIC | {"memory"})
    place = path_of("memory://folder/file.bin")
    seen = []
    put = type(store).pipe_file

    def watched(self, path, value, *rest, **more):
        seen.append(path)
        return put(self, path, value, *rest, **more)

    monkeypatch.setattr(type(store), "pipe_file", watched)
    with place.complete() as stream:
        stream.write(b"half")
        assert not place.is_file()
        stream.write(b" and half")
    assert place.read_bytes() == b"half and half"
    assert (seen == ["/folder/file.bin"]) is atomic
    with pytest.raises(ZeroDivisionError), place.complete() as stream:
        stream.write(bytes(1 // (len(seen) - len(seen))))
    assert place.read_bytes() == b"half and half"
    monkeypatch.setattr(type(store), "mv", lambda *_a, **_k: (_ for _ in ()).throw(OSError("gone")))
    if not atomic:
        with pytest.raises(OSError, match="gone"), place.complete() as stream:
            stream.write(b"other")
    assert store.find("/folder") == ["/folder/file.bin"]


def test_plain_paths_import_no_fsspec(light_server):
    """torch would bring it along: asked where files are found, read and written."""
    code = """
import sys
import attnviz.images.find, attnviz.images.read, attnviz.output.write, attnviz.cli.app
from pathlib import Path
from attnviz.images.find import find_images
find_images(["."]), attnviz.output.atomic.probe(Path("."))
print("fsspec" in sys.modules)
"""
    run = light_server.run(source=code)
    assert run.stdout == "False\n"
