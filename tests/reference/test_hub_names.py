"""Models by their names on the hub: from a cache without network, and by the hub's own client.

The repositories are small networks in the layouts that are published under such names; the client
talks to a server of this test.
"""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import timm
import torch
import transformers
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import load, save

import attnviz as package
from attnviz.domain.requests import ModelRequest
from attnviz.errors import CheckpointError, UnknownModelError, UsageError
from attnviz.models.digest import weights_digest
from tests.helpers.checkpoints import original, randomise, undrawn
from tests.helpers.command_line import arrays, attnviz, meta
from tests.helpers.hub import COMMIT, files_of, point_at, put_into_cache, serving
from tests.reference.unfused import peaked, unfused

transformers.utils.logging.disable_progress_bar()

TOLERANCE = 1e-5
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
SMALL = {"embed_dim": 96, "depth": 3, "num_heads": 3, "num_classes": 0, "img_size": 224}


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    """The files of a Dinov2 of transformers, with its preprocessor, and the model."""
    config = transformers.Dinov2Config(
        hidden_size=64, num_attention_heads=4, num_hidden_layers=3, image_size=112, patch_size=14,
        attn_implementation="eager",
    )  # fmt: skip
    model = randomise(undrawn(transformers.Dinov2Model, config))
    folder = tmp_path_factory.mktemp("dinov2")
    model.save_pretrained(folder)
    processor = {"image_mean": MEAN, "image_std": STD, "resample": 3, "rescale_factor": 1 / 255,
                 "do_center_crop": True, "crop_size": {"height": 112, "width": 112},
                 "size": {"shortest_edge": 128}}  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return files_of(folder), model


@pytest.fixture(scope="module")
def uni():
    """The files of a timm repository with a tag of its own, and timm's model."""
    module = peaked(timm.create_model("vit_large_patch16_224", init_values=1e-5, **SMALL))
    config = {
        "architecture": "vit_large_patch16_224",
        "model_args": SMALL | {"init_values": 1e-5, "dynamic_img_size": True},
        "pretrained_cfg": {"tag": "uni_mass100k", "input_size": [3, 224, 224], "mean": MEAN,
                           "std": STD, "interpolation": "bicubic"},
    }  # fmt: skip
    files = {"config.json": json.dumps(config).encode()}
    return files | {"model.safetensors": save(module.state_dict())}, module


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub; the folder."""
    folder = tmp_path / "hub-cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return folder


@pytest.fixture
def offline(cache, monkeypatch):
    """The same without network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return cache


@pytest.fixture
def hub(cache, monkeypatch):
    """Starts a server with some repositories; the paths that it was asked for."""
    stack = []

    def start(repositories, **more):
        server = serving(repositories, **more)
        port, asked = server.__enter__()
        stack.append(server)
        point_at(monkeypatch, port)
        return asked

    yield start
    for server in stack:
        server.__exit__(None, None, None)


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "noise.png"
    noise = np.random.default_rng(3).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path


def normalised(picture):
    values = (np.asarray(Image.open(picture)) / 255 - MEAN) / STD
    return torch.from_numpy(values.transpose(2, 0, 1).astype(np.float32).copy())[None]


def drawn(picture, *options):
    """What ``attnviz layers`` saves: rows (L, H, N) without prefix, and the record."""
    out = picture.parent / "out"
    code = attnviz("layers", picture, "--save-data", "--quiet", "--dpi", 40, "--no-distance",
                   "--size", "original", "--overwrite", "--out", out, *options)  # fmt: skip
    assert code == 0
    saved = arrays(out / "noise.layers.npz")["attention"]
    return saved.reshape(*saved.shape[:2], -1), meta(out / "noise.layers.npz")


@pytest.mark.parametrize("name", ["facebook/dinov2-base", "hf-hub:facebook/dinov2-base"])
def test_a_repository_of_transformers_from_the_cache(name, offline, dinov2, picture):
    files, _ = dinov2
    put_into_cache(offline, "facebook/dinov2-base", files)
    rows, record = drawn(picture, "--model", name)
    again = transformers.AutoModel.from_pretrained(
        "facebook/dinov2-base", cache_dir=offline, local_files_only=True,
        attn_implementation="eager",
    ).eval()  # fmt: skip
    with torch.inference_mode():
        attentions = again(normalised(picture), output_attentions=True).attentions
    expected = torch.stack([each[0, :, 0, 1:] for each in attentions]).numpy()
    assert np.abs(rows - expected).max() < TOLERANCE
    assert record["model"] == record["weights"] == "facebook/dinov2-base"
    assert record["architecture"]["positions"] == "hf"
    assert record["architecture"]["mean"] == MEAN
    assert record["architecture"]["statistics_assumed"] is False


@pytest.mark.parametrize(
    "name", ["MahmoodLab/UNI", "hf-hub:MahmoodLab/UNI", "hf_hub:MahmoodLab/UNI"]
)
def test_a_repository_of_timm_from_the_cache(name, offline, uni, picture):
    files, module = uni
    put_into_cache(offline, "MahmoodLab/UNI", files)
    rows, record = drawn(picture, "--model", name)
    batch = normalised(picture)
    fresh = timm.create_model(
        "vit_large_patch16_224", init_values=1e-5, dynamic_img_size=True, **SMALL
    )
    fresh.load_state_dict(module.state_dict())
    expected = unfused(fresh.eval(), lambda: fresh.forward_features(batch))[:, :, 0, 1:]
    assert np.abs(rows - expected).max() < TOLERANCE
    assert record["model"] == record["weights"] == "MahmoodLab/UNI"
    assert record["architecture"]["positions"] == "timm"


def test_the_folder_of_the_cache_is_called_by_its_repository(offline, dinov2):
    snapshot = put_into_cache(offline, "facebook/dinov2-base", dinov2[0])
    model = package.load_model(checkpoint=snapshot, device="cpu")
    named = package.load_model("facebook/dinov2-base", device="cpu")
    assert model.info.name == named.info.name == "facebook/dinov2-base"
    assert model.info.weights_sha256 == named.info.weights_sha256


def test_a_repository_of_the_catalogue_is_its_model(offline):
    for name in ("timm/vit_small_patch14_dinov2.lvd142m", "hf-hub:timm/vit_small_patch8_224.dino"):
        with pytest.raises(CheckpointError, match=r"weights of (dinov2_vits14|dino_vits8)"):
            package.load_model(name, device="cpu")


def test_other_weights_for_the_model_of_a_repository(offline, dinov2, tmp_path):
    """config.json comes from the hub, tensors from the file."""
    files, model = dinov2
    config = {name: content for name, content in files.items() if name.endswith(".json")}
    put_into_cache(offline, "facebook/dinov2-base", config)
    state = {name: 0.9 * tensor for name, tensor in model.state_dict().items()}
    torch.save(state, tmp_path / "tuned.pth")
    loaded = package.load_model(
        "facebook/dinov2-base", checkpoint=tmp_path / "tuned.pth", device="cpu"
    )
    assert loaded.info.heads == 4
    assert loaded.info.weights == "tuned.pth"
    live = next(t for n, t in state.items() if n.endswith("1.mlp.fc1.weight"))
    assert torch.equal(loaded.module.blocks[1].mlp.fc1.weight, live)


def test_the_hash_of_a_repository_is_known_without_a_model(offline, dinov2):
    put_into_cache(offline, "facebook/dinov2-base", dinov2[0])
    request = ModelRequest(name="facebook/dinov2-base", device="cpu")
    model = package.load_model("facebook/dinov2-base", device="cpu")
    assert weights_digest(request) == model.info.weights_sha256
    assert weights_digest(ModelRequest(name="facebook/other")) is None


def test_the_hubs_own_client_downloads_what_is_needed_once(hub, cache, dinov2, uni, monkeypatch):
    asked = hub({"facebook/dinov2-base": dinov2[0], "MahmoodLab/UNI": uni[0]})
    first = package.load_model("facebook/dinov2-base", device="cpu")
    assert (cache / "models--facebook--dinov2-base" / "snapshots" / COMMIT).is_dir()
    assert any(line.startswith("GET") and "model.safetensors" in line for line in asked)
    assert first.info.mean == tuple(MEAN), "the preprocessor is downloaded too"
    package.load_model("MahmoodLab/UNI", device="cpu")
    asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    second = package.load_model("facebook/dinov2-base", device="cpu")
    assert asked == []
    assert second.info.weights_sha256 == first.info.weights_sha256


def test_split_weights_and_older_ones_are_downloaded(hub, cache, dinov2, uni):
    files, _ = dinov2
    state = load(files["model.safetensors"])
    names = sorted(state)
    parts = {"model-1.safetensors": names[:20], "model-2.safetensors": names[20:]}
    index = {"weight_map": {name: part for part, own in parts.items() for name in own}}
    split = {k: v for k, v in files.items() if k != "model.safetensors"}
    split["model.safetensors.index.json"] = json.dumps(index).encode()
    split |= {part: save({n: state[n] for n in own}) for part, own in parts.items()}
    older = {"config.json": uni[0]["config.json"]}
    buffer = io.BytesIO()
    torch.save(load(uni[0]["model.safetensors"]), buffer)
    older["pytorch_model.bin"] = buffer.getvalue()
    hub({"org/split": split, "org/older": older})
    model = package.load_model("org/split", device="cpu")
    assert model.info.depth == 3
    assert package.load_model("org/older", device="cpu").info.name == "org/older"


def test_a_revision_is_asked_for(hub, dinov2):
    asked = hub({"facebook/dinov2-base": dinov2[0]})
    model = package.load_model(f"facebook/dinov2-base@{COMMIT}", device="cpu")
    assert model.info.name == f"facebook/dinov2-base@{COMMIT}"
    assert all(f"/resolve/{COMMIT}/" in line for line in asked)
    with pytest.raises(CheckpointError, match="there is no facebook/dinov2-base@nope"):
        package.load_model("facebook/dinov2-base@nope", device="cpu")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("org/unknown", "the hub has no org/unknown, or it is private", "--model demo"),
        ("org/gated", "org/gated is only for users who accepted its terms", "hf auth login"),
        ("org/empty", "org/empty has no config.json", "--model demo"),
        ("org/bare", "org/bare has no pytorch_model.bin", "--model demo"),
    ],
)
def test_a_repository_that_is_not_to_be_had_says_why(name, message, hint, hub, dinov2):
    bare = {"config.json": dinov2[0]["config.json"]}
    hub({"org/empty": {}, "org/bare": bare}, gated=("org/gated",))
    with pytest.raises(CheckpointError) as caught:
        package.load_model(name, device="cpu")
    assert caught.value.message.startswith(f"cannot download {name}: ")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_offline_without_a_cache_names_the_demo(offline, picture, capsys):
    assert attnviz("heads", picture, "--model", "facebook/dinov2-base") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "cannot download facebook/dinov2-base: HF_HUB_OFFLINE is set" in said
    assert "--model demo draws at once" in said
    assert attnviz("heads", picture, "--model", "dino_vits8") == 1
    assert "--model demo draws at once" in " ".join(capsys.readouterr().err.split())


def test_a_repository_of_another_kind_of_model_is_refused_by_its_kind(offline, dinov2):
    config = json.loads(dinov2[0]["config.json"]) | {"model_type": "swin"}
    files = dinov2[0] | {"config.json": json.dumps(config).encode()}
    put_into_cache(offline, "org/swin", files)
    with pytest.raises(CheckpointError, match="of a 'swin' model, which is not supported"):
        package.load_model("org/swin", device="cpu")


def test_a_config_that_names_neither_library_leaves_it_to_the_tensors(offline):
    put_into_cache(
        offline, "org/dino", {"config.json": b"{}", "model.safetensors": save(original())}
    )
    model = package.load_model("org/dino", heads=2, device="cpu")
    assert (model.info.name, model.info.positions) == ("org/dino", "original")
    assert model.info.title == "org/dino"
    assert model.info.statistics_assumed, "nothing says them"


def test_names_that_are_paths_or_no_names_at_all(offline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    with pytest.raises(UsageError, match="is a path here as well as a name of the hub") as caught:
        package.load_model("org/name", device="cpu")
    assert "--checkpoint org/name" in caught.value.hint
    for name in ("a/b/c", "/etc/passwd", "org/", "hf-hub:", "org/na me"):
        with pytest.raises(UnknownModelError):
            package.load_model(name, device="cpu")
    with pytest.raises(UsageError, match="stands for weights of the hub"):
        package.load_model("facebook/dinov2-base", random_weights=True, device="cpu")
