from __future__ import annotations

from pathlib import Path

import pytest

from attnviz.domain import (
    DiscardOrder,
    DrawStyle,
    Fit,
    Fusion,
    ImageFormat,
    Interpolation,
    Norm,
    Part,
    Positions,
    Precision,
    Query,
    RolloutOptions,
    Scale,
    Size,
)
from attnviz.domain.kinds import (
    KINDS,
    HeadsRequest,
    LayersRequest,
    MatrixRequest,
    PatchRequest,
    QkvRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest, RunRequest
from tests.helpers import kinds

DEFAULTS = {name: KINDS[name].request() for name in kinds.BY_DEFAULT}


@pytest.mark.parametrize("name", DEFAULTS)
def test_without_options_every_request_is_the_default_one(name: str, request_of) -> None:
    assert request_of(name, "cat.jpg") == RunRequest(
        command=DEFAULTS[name],
        model=ModelRequest(),
        inputs=InputRequest(("cat.jpg",)),
        output=OutputRequest(Path("attnviz-out")),
    )


def test_every_shared_option_arrives(request_of, tmp_path: Path) -> None:
    checkpoint = tmp_path / "weights.pth"
    checkpoint.touch()
    made = request_of(
        "heads", "a.jpg", "photos", "-", "--model", "dinov2_vits14",
        "--checkpoint", str(checkpoint),
        "--checkpoint-key", "student", "--model-arg", "depth=6", "--model-arg", "heads=3",
        "--device", "cuda:1", "--precision", "bfloat16", "--positions", "timm", "--verify",
        "--size", "480x640", "--fit", "pad", "--mean", "0.5", "--std", "0.2,0.3,0.4",
        "--max-pixels", "1000", "--batch-size", "4", "--workers", "0", "--fail-fast", "-o", "here",
        "-f", "pdf", "--format", "png", "--format", "pdf", "--save-data", "--skip-existing",
        "--width", "column", "--dpi", "300", "--cmap", "hot", "--scale", "fixed",
        "--limits", "0,0.1", "--interpolation", "bilinear", "--alpha", "0.5",
    )  # fmt: skip
    assert made == RunRequest(
        command=HeadsRequest(),
        model=ModelRequest(
            name="dinov2_vits14",
            checkpoint=checkpoint,
            checkpoint_key="student",
            device="cuda:1",
            precision=Precision.BFLOAT16,
            positions=Positions.TIMM,
            args={"depth": 6, "heads": 3},
            verify=True,
        ),
        inputs=InputRequest(
            inputs=("a.jpg", "photos", "-"),
            size=Size(480, 640),
            fit=Fit.PAD,
            max_pixels=1000,
            mean=(0.5, 0.5, 0.5),
            std=(0.2, 0.3, 0.4),
        ),
        output=OutputRequest(
            folder=Path("here"),
            formats=(ImageFormat.PDF, ImageFormat.PNG),
            save_data=True,
            skip_existing=True,
        ),
        style=DrawStyle(
            width=3.35,
            dpi=300,
            cmap="hot",
            scale=Scale.FIXED,
            fixed_limits=(0.0, 0.1),
            interpolation=Interpolation.BILINEAR,
            alpha=0.5,
        ),
        batch_size=4,
        workers=0,
        fail_fast=True,
    )


def test_options_of_heads(request_of) -> None:
    made = request_of(
        "heads", "a.jpg", "--layer", "3", "--heads", "0,2", "--threshold", "0.6", "--overlay",
        "--no-distance", "--query", "mean",
    ).command  # fmt: skip
    assert made == HeadsRequest(3, (0, 2), 0.6, overlay=True, distance=False, query=Query.MEAN)


def test_options_of_layers(request_of) -> None:
    made = request_of("layers", "a.jpg", "--layers", "0-2", "--each-head", "--heads", "-1").command
    assert made == LayersRequest((0, 1, 2), (-1,), each_head=True)


def test_options_of_rollout(request_of) -> None:
    made = request_of(
        "rollout", "a.jpg", "--fusion", "max", "--residual", "0.3", "--discard-ratio", "0",
        "--discard", "before", "--start-layer", "-2", "--layers-shown", "2,5",
    ).command  # fmt: skip
    options = RolloutOptions(Fusion.MAX, 0.3, 0.0, DiscardOrder.BEFORE, -2)
    assert made == RolloutRequest(options, depths=(2, 5))


def test_options_of_patch(request_of) -> None:
    made = request_of("patch", "a.jpg", "--at", "3,7", "--at", "0,0", "--xy", "9,8.5").command
    assert made == PatchRequest(cells=((3, 7), (0, 0)), points=((9.0, 8.5),))


def test_options_of_score(request_of) -> None:
    made = request_of("score", "a.jpg", "--keep-ratio", "1", "--csv", "--layer=-2").command
    assert made == ScoreRequest(layer=-2, keep_ratio=1.0, csv=True)


def test_options_of_matrix(request_of) -> None:
    made = request_of("matrix", "a.jpg", "--norm", "linear", "--layer", "3", "--heads", "0-2")
    assert made.command == MatrixRequest(layer=3, heads=(0, 1, 2), norm=Norm.LINEAR)


def test_options_of_qkv(request_of) -> None:
    made = request_of("qkv", "a.jpg", "--part", "v", "--part", "q", "--part", "v").command
    assert request_of("qkv", "a.jpg", "--part", "v, q", "--part=v").command == made
    for written in (("-f", "png,pdf"), ("-fpng,pdf",), ("--format=png,pdf",), ("-fpng", "-fpdf")):
        formats = request_of("qkv", "a.jpg", *written).output.formats
        assert [str(each) for each in formats] == ["png", "pdf"], written
    assert made == QkvRequest(parts=(Part.VALUE, Part.QUERY))


@pytest.mark.parametrize("written", [("--layer", "-1"), ("--layer=-1",), ("--layer", " -1 ")])
def test_negative_layers_in_every_spelling(written: tuple[str, ...], request_of) -> None:
    assert request_of("heads", *written, "a.jpg").command.layer == -1
    assert request_of("heads", "a.jpg", *written).command.layer == -1


@pytest.mark.parametrize(
    ("written", "layers"),
    [
        (("--layers", "-1,-2"), (-1, -2)),
        (("--layers=-1,-2",), (-1, -2)),
        (("--layers", "-1", "-2"), (-1, -2)),
        (("--layers", "0", "11"), (0, 11)),
        (("--layers", "0", "3-5"), (0, 3, 4, 5)),
        (("--layers", "all"), None),
    ],
)
def test_several_layers_in_every_spelling(
    written: tuple[str, ...], layers: tuple[int, ...] | None, request_of
) -> None:
    for arguments in ((*written, "a.jpg"), ("a.jpg", *written)):
        made = request_of("layers", *arguments)
        assert made.command.layers == layers
        assert made.inputs.inputs == ("a.jpg",)


def test_a_picture_called_like_a_number_stays_a_picture(
    request_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("11").touch()
    made = request_of("layers", "--layers", "0", "11")
    assert (made.command.layers, made.inputs.inputs) == ((0,), ("11",))


def test_names_with_a_leading_dash_stand_behind_two_dashes(request_of) -> None:
    made = request_of("layers", "--layers", "0", "--", "-dash.png", "--heads", "1", "2")
    assert made.inputs.inputs == ("-dash.png", "--heads", "1", "2")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("heads", "a.jpg", "--layer", "a"), "--layer: 'a' is not a layer number"),
        (("heads", "a.jpg", "--layer", ""), "--layer: '' is not a layer number"),
        (("heads", "a.jpg", "--heads", "x"), "--heads: 'x'"),
        (("heads", "a.jpg", "--threshold", "0"), "--threshold: 0 is out of range"),
        (("heads", "a.jpg", "--threshold", "1.01"), "--threshold: 1.01 is out of range"),
        (("rollout", "a.jpg", "--discard-ratio", "1"), "--discard-ratio: 1 is out of range"),
        (("rollout", "a.jpg", "--discard-ratio", "-0.1"), "--discard-ratio: -0.1 is out of"),
        (("rollout", "a.jpg", "--fusion", "sum"), "'mean', 'max', 'min'"),
        (("rollout", "a.jpg", "--residual", "1"), "--residual: 1 is out of range"),
        (("score", "a.jpg", "--keep-ratio", "0"), "--keep-ratio: 0 is out of range"),
        (("patch", "a.jpg", "--at", "3"), "--at: '3' is not a patch"),
        (("heads", "a.jpg", "--size", "big"), "--size: 'big' is not a size"),
        (("heads", "a.jpg", "--device", "gpu"), "--device: 'gpu' is not a device"),
        (("heads", "a.jpg", "--scale", "fixed"), "--scale fixed needs --limits"),
        (("heads", "a.jpg", "--limits", "0,1"), "--limits needs --scale fixed"),
        (("heads", "a.jpg", "--cmap", "infernal"), "no colour map is called 'infernal'"),
        (("heads", "a.jpg", "--format", "gif"), "'png', 'pdf', 'svg'"),
        (("heads", "a.jpg", "--dpi", "0"), "--dpi"),
        (("heads", "a.jpg", "--alpha", "2"), "--alpha: 2 is out of range"),
        (("heads", "a.jpg", "--batch-size", "0"), "--batch-size: '0'"),
        (("heads", "a.jpg", "--checkpoint", "gone.pth"), "gone.pth does not exist"),
        (("heads", "a.jpg", "--checkpoint-key", "x"), "--checkpoint-key needs --checkpoint"),
        (("heads", "a.jpg", "--random-weights", "--checkpoint", "."), "exclude each other"),
        (("heads", "a.jpg", "--sise", "3"), "No such option: --sise"),
        (("heads",), "Missing argument"),
        (("haeds", "a.jpg"), "Did you mean 'heads'"),
    ],
)
def test_wrong_use_is_one_clear_line_and_nothing_runs(
    arguments: tuple[str, ...], reason: str, attnviz_command, pipeline
) -> None:
    outcome = attnviz_command(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    first, *hints = outcome.err.splitlines()
    assert first.startswith("error: ")
    assert reason in first
    assert len(hints) <= 1
    assert not pipeline.requests


def test_a_configuration_file_gives_values_and_the_command_line_wins(
    request_of, tmp_path: Path
) -> None:
    file = tmp_path / "figure.toml"
    file.write_text(
        'model = "dinov2_vits14"\nheads = [0, 2]\nformat = ["png", "pdf"]\nsave-data = true\n'
        "skip_existing = true\nthreshold = 0.6\ndpi = 300\nlayer = -2\nsize = 480\n"
        'scale = "fixed"\n'
        "limits = [0, 0.5]\nmean = 0.5\n"
    )
    made = request_of("heads", "--config", str(file), "a.jpg", "--layer", "3", "--overwrite")
    assert made.command == HeadsRequest(3, (0, 2), 0.6)
    assert made.model.name == "dinov2_vits14"
    assert made.output.formats == (ImageFormat.PNG, ImageFormat.PDF)
    assert (made.output.save_data, made.output.skip_existing) == (True, False)
    assert (made.style.dpi, made.style.scale) == (300, Scale.FIXED)
    assert made.style.fixed_limits == (0.0, 0.5)
    assert (made.inputs.size, made.inputs.mean) == (480, (0.5, 0.5, 0.5))


def test_repeatable_pairs_in_a_configuration_file(request_of, tmp_path: Path) -> None:
    file = tmp_path / "figure.toml"
    file.write_text("at = [[3, 7], [0, 0]]\nxy = ['9,8']\n")
    made = request_of("patch", "a.jpg", "--config", str(file)).command
    assert made == PatchRequest(cells=((3, 7), (0, 0)), points=((9.0, 8.0),))


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("modle = 'x'", "unknown option 'modle' of heads", "did you mean model?"),
        ("fusion = 'max'", "unknown option 'fusion' of heads", ""),
        ("config = 'x'", "unknown option 'config' of heads", ""),
        ("save-data = 'yes'", "save-data is a switch", ""),
        ("model = true", "model is a bool", ""),
        ("model = {a = 1}", "model is a dict", ""),
        ("model = ", "is not a TOML file", ""),
        ("dpi = 'x'", "--dpi", ""),
        ("scale = 'foo'", "--scale", ""),
    ],
)
def test_a_wrong_configuration_file_is_told(
    text: str, reason: str, hint: str, attnviz_command, pipeline, tmp_path: Path
) -> None:
    file = tmp_path / "figure.toml"
    file.write_text(text)
    outcome = attnviz_command("heads", "a.jpg", "--config", str(file))
    assert outcome.code == 2
    assert reason in outcome.err.splitlines()[0]
    assert hint in outcome.err
    assert not pipeline.requests


def test_a_configuration_file_that_is_not_there_is_told(attnviz_command) -> None:
    outcome = attnviz_command("heads", "a.jpg", "--config", "gone.toml")
    assert (outcome.code, "gone.toml: cannot be read" in outcome.err) == (2, True)
