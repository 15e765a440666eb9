"""Weights of named models in the local cache, and downloads that end in an error."""

from __future__ import annotations

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from attnviz.errors import CheckpointError
from attnviz.models.weights import hub

REPOSITORY = "timm/vit_small_patch8_224.dino"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache; returns a function that puts a file of the repository into it."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    def put(filename):
        folder = tmp_path / "models--timm--vit_small_patch8_224.dino"
        snapshot = folder / "snapshots" / "abc"
        snapshot.mkdir(parents=True, exist_ok=True)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text("abc")
        path = snapshot / filename
        path.write_bytes(b"x")
        return path

    return put


@pytest.fixture
def reachable(monkeypatch):
    monkeypatch.setattr(hub, "_unreachable", lambda *_: "")


def failing(monkeypatch, *errors):
    """The hub answers each download with the next of these; a path is a success."""
    answers = list(errors)

    def download(repository, filename, *, revision):
        assert revision is None
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)


def fetch():
    return hub.fetch_weights("dino_vits8", REPOSITORY)


def test_a_cached_file_is_taken_without_asking_anyone(cache, monkeypatch):
    monkeypatch.setattr(hub, "_unreachable", lambda *_: pytest.fail("the network was asked"))
    second = cache("pytorch_model.bin")
    assert hub.cached_weights(REPOSITORY) == second
    first = cache("model.safetensors")
    assert fetch() == first
    assert hub.cached_weights("timm/another") is None


def test_a_file_of_another_name_is_looked_for_by_that_name(cache):
    cache("model.safetensors")
    assert hub.cached_weights(REPOSITORY, ("other.bin",)) is None
    other = cache("other.bin")
    assert hub.fetch_weights("dino_vits8", REPOSITORY, "other.bin") == other


def test_offline_with_an_empty_cache_says_how_to_go_on(cache, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="weights of dino_vits8: HF_HUB_OFFLINE") as caught:
        fetch()
    assert "--checkpoint FILE" in caught.value.hint
    assert REPOSITORY in caught.value.hint


def test_the_other_file_is_tried_before_giving_up(cache, reachable, monkeypatch, tmp_path):
    failing(monkeypatch, EntryNotFoundError("404"), tmp_path / "pytorch_model.bin")
    assert fetch() == tmp_path / "pytorch_model.bin"
    failing(monkeypatch, EntryNotFoundError("404"), EntryNotFoundError("404"))
    with pytest.raises(CheckpointError, match=r"has no pytorch_model\.bin"):
        fetch()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LocalEntryNotFoundError("no"), "the hub did not answer"),
        (OSError("disk is full\nand more"), "disk is full"),
    ],
)
def test_what_the_hub_says_becomes_one_line(cache, reachable, monkeypatch, error, message):
    failing(monkeypatch, error)
    with pytest.raises(CheckpointError, match=message) as caught:
        fetch()
    assert "\n" not in caught.value.message
    assert "--random-weights" in caught.value.hint
