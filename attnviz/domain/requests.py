"""What a run is asked to do: plain values that the command line, configs and Python users share.

A request holds what the user wrote; nothing in it has been looked up or read. Its fields spell
their own options (``attnviz.domain.options``). The requests of single kinds of figures are in
``attnviz.domain.kinds``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnviz.domain.choices import (
    DEFAULT_MAX_PIXELS,
    DEFAULT_MODEL,
    DEFAULT_OUT,
    Engine,
    Fit,
    ImageFormat,
    Positions,
    Precision,
    take_choices,
)
from attnviz.domain.drawing import DrawStyle
from attnviz.domain.forms import (
    BANDS,
    BATCH_SIZE,
    CHANNELS,
    DEVICE,
    MODEL_ARGS,
    OPTIONAL_COUNT,
    PATH,
    POSITIVE_CHANNELS,
    RANGE,
    SHARD,
    SIZE,
    TEXT,
    WORKERS,
    choice,
    choices,
    number,
)
from attnviz.domain.geometry import Size, as_size
from attnviz.domain.options import option, request_options, switch
from attnviz.domain.video import VideoRequest
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain.kinds import CommandRequest
    from attnviz.domain.shard import Shard

SizeRequest = int | Size | Literal["original"] | None
"""Shorter side in pixels, exact height and width, the image's own size, or the model's native."""

BandChoice = tuple[int, int, int]
"""Which bands of an image file, from 1, are red, green and blue."""

ValueRange = tuple[float, float] | Literal["auto"]
"""The values of an image file that become 0 and 255, or those of its 1st and 99th percentile."""

OUTPUT_PANEL, RUN_PANEL = "Output", "Run"


@dataclass(frozen=True)
class ModelRequest:
    """Which model to load, from where, onto what.

    ``name`` None: whatever the checkpoint says it is, or the default model without one.
    ``positions`` None: the rule of the code that the weights come with.
    ``stride``: in pixels; None is the patch, so that patches do not overlap.
    ``test_registers``: a file of register neurons; ``register_count`` None: one register.
    ``args``: sizes of one's own (width, depth, heads, patch, ...) for a checkpoint.

    Raises:
        UsageError: Options that exclude each other.
    """

    name: str | None = option(
        None,
        TEXT,
        "A name from 'attnviz models', any plain ViT of timm, or ORG/NAME of the hub.",
        name="model",
        metavar="NAME",
        show=f"{DEFAULT_MODEL}, or what the checkpoint is",
    )
    checkpoint: Path | None = option(
        None,
        PATH,
        "Weights of your own: a .pth or .safetensors file, or a Hugging Face folder.",
        check="attnviz.domain.parse:check_checkpoint",
    )
    checkpoint_key: str | None = option(
        None,
        TEXT,
        "Which entry of a training checkpoint to take.",
        metavar="KEY",
        show="teacher, where there is one",
    )
    args: dict[str, int] = option(
        {},
        MODEL_ARGS,
        "Sizes of your own model (depth, width, heads, patch, registers, img-height, img-width): "
        "depth=6,heads=3.",
        name="model-arg",
    )
    random_weights: bool = switch("Draw an untrained model; its figures say so.")
    device: str = option("auto", DEVICE, "Where the model runs.", recorded=False)
    precision: Precision = option(
        Precision.FLOAT32,
        choice(Precision),
        "Number type of the model; softmax and sums are float32 in any case.",
    )
    positions: Positions | None = option(
        None,
        choice(Positions),
        "Whose rule resizes the position embedding to another grid.",
        show="the rule of the model's own code",
    )
    stride: int | None = option(
        None,
        number("S", least=1, type=int),
        "Distance between patches in pixels, a divisor of the patch: finer maps of patches that "
        "overlap, for (patch / S)^4 times the work of attention.",
        show="the patch",
    )
    test_registers: Path | None = option(
        None,
        PATH,
        "Add test-time registers: a list of neurons that 'attnviz registers' wrote.",
        metavar="FILE",
        check="attnviz.domain.register_neurons:check_neurons",
    )
    register_count: int | None = option(
        None,
        number("N", least=1, type=int),
        "How many test-time registers to add.",
        show="1",
    )
    verify: bool = switch(
        "Also check, for every image, that attention times V is the model's own output.",
        recorded=False,
    )

    def __post_init__(self) -> None:
        if self.random_weights and self.checkpoint is not None:
            raise UsageError("--random-weights and --checkpoint exclude each other")
        if self.register_count is not None and self.test_registers is None:
            raise UsageError("--register-count needs --test-registers")


@dataclass(frozen=True)
class InputRequest:
    """Which images, and how they become model inputs.

    ``inputs``: files, folders, globs, or "-" for a list on standard input. ``size``: also any pair
    of whole numbers, height and width. ``shard``: only the images that belong to it.

    Raises:
        UsageError: Not a size.
    """

    inputs: tuple[str, ...]
    size: SizeRequest = option(
        None,
        SIZE,
        "Size of the model input: shorter side, height x width, or the image's own.",
        show="the model's native size",
    )
    fit: Fit = option(
        Fit.ASPECT,
        choice(Fit),
        "How an image gets that size: aspect kept, squashed, cropped or padded.",
    )
    mean: tuple[float, float, float] | None = option(
        None,
        CHANNELS,
        "Mean of the pixel normalisation, for pixels from 0 to 1.",
        show="the model's own",
    )
    std: tuple[float, float, float] | None = option(
        None,
        POSITIVE_CHANNELS,
        "Standard deviation of the pixel normalisation.",
        show="the model's own",
    )
    bands: BandChoice | None = option(
        None,
        BANDS,
        "Bands of the file that are red, green and blue, from 1, e.g. 3,2,1; or one, for grey.",
        show="what the file says",
    )
    value_range: ValueRange | None = option(
        None,
        RANGE,
        "Values of the file that become black and white; auto: its 1st and 99th percentile.",
        name="range",
        show="the range of the file's number type",
    )
    max_pixels: int = option(
        DEFAULT_MAX_PIXELS,
        number("N", least=1, type=int),
        "Images of more pixels are refused.",
        recorded=False,
    )
    shard: Shard | None = option(
        None,
        SHARD,
        "Only part I of N of the images, from 0: the same part on every machine.",
        recorded=False,
        panel=RUN_PANEL,
    )

    def __post_init__(self) -> None:
        take_choices(self)
        object.__setattr__(self, "size", as_size(self.size))


@dataclass(frozen=True)
class OutputRequest:
    """Where results go and in which forms.

    ``name``: the stem of files, with placeholders, instead of the image's own. ``table``: a file
    for the numbers of all images. ``summary``: also one figure about all images.
    """

    folder: Path = option(
        Path(DEFAULT_OUT),
        PATH,
        "Where results go, also an address (s3://...); sub-folders of an input folder are kept.",
        name="out",
        flags=("--out", "-o"),
        metavar="FOLDER",
        recorded=False,
    )
    formats: tuple[ImageFormat, ...] = option(
        (ImageFormat.PNG,),
        choices(ImageFormat),
        "File format of the figures; repeatable.",
        name="format",
        flags=("--format", "-f"),
        recorded=False,
    )
    save_data: bool = switch("Also write the raw arrays (.npz).", recorded=False)
    skip_existing: bool = switch(
        "Leave figures alone that were made from the same image, weights and options.",
        flags=("--skip-existing/--overwrite",),
        recorded=False,
    )
    name: str | None = option(
        None,
        TEXT,
        "Name the figures STEM.COMMAND.FORMAT; {stem} (the image's name), {layer}, {model} and "
        "{command} are filled in.",
        metavar="STEM",
        show="the image's name",
        recorded=False,
        check="attnviz.output.plan:check_name",
    )
    table: Path | None = option(
        None,
        PATH,
        "Also the numbers of all images in one file, .csv or .parquet.",
        metavar="FILE",
        recorded=False,
        check="attnviz.output.table:check_table",
    )
    summary: bool = switch(
        "Also one figure of all images: how entropy and distance of each head are distributed; of "
        "faithful, means and standard errors.",
        recorded=False,
    )

    @property
    def every_number(self) -> bool:
        """Whether the numbers of images count whose figures are up to date."""
        return self.table is not None or self.summary


@dataclass(frozen=True)
class ClusterRequest:
    """A run on a Ray cluster instead of in this process.

    ``address`` None: a cluster of this machine, for this run. ``cpus_per_model``: CPU cores that
    one model computes with where there are no GPUs; 0 means automatic.
    """

    address: str | None = None
    cpus_per_model: int = 0


@dataclass(frozen=True)
class EngineRequest:
    """What joins the stages of a run.

    Raises:
        UsageError: An option of Ray for a run on this machine.
    """

    engine: Engine = option(
        Engine.LOCAL,
        choice(Engine),
        "What joins the stages: this machine, or a Ray cluster (the extra ray).",
        recorded=False,
    )
    ray_address: str | None = option(
        None,
        TEXT,
        "The Ray cluster to use.",
        metavar="HOST:PORT",
        show="one of this machine, for this run",
        recorded=False,
    )
    cpus_per_model: int | None = option(
        None,
        OPTIONAL_COUNT,
        "CPU cores of each model on a Ray cluster without GPUs.",
        recorded=False,
    )

    def __post_init__(self) -> None:
        take_choices(self)
        if self.engine is Engine.RAY:
            return
        for name, value in (
            ("ray-address", self.ray_address),
            ("cpus-per-model", self.cpus_per_model),
        ):
            if value is not None:
                raise UsageError(f"--{name} needs --engine ray")

    @property
    def cluster(self) -> ClusterRequest | None:
        """The cluster; None for a run on this machine."""
        if self.engine is Engine.LOCAL:
            return None
        return ClusterRequest(self.ray_address, self.cpus_per_model or 0)


@dataclass(frozen=True)
class RunRequest:
    """One run of one command over any number of images.

    ``batch_size`` 0 means automatic. ``workers`` None means automatic, 0 draws in this process.
    ``cluster`` None: everything runs on this machine, in this process and the ones that draw.

    Raises:
        UsageError: Options that exclude each other.
    """

    command: CommandRequest
    model: ModelRequest
    inputs: InputRequest
    output: OutputRequest
    style: DrawStyle = field(default_factory=DrawStyle)
    batch_size: int = option(
        0,
        BATCH_SIZE,
        "Images of one size that go through the model together.",
        recorded=False,
    )
    workers: int | None = option(
        None, WORKERS, "Processes that draw; 0 draws in this one.", recorded=False
    )
    fail_fast: bool = switch("Stop at the first image that fails.", recorded=False)
    cluster: ClusterRequest | None = None
    video: VideoRequest = field(default_factory=VideoRequest)

    def __post_init__(self) -> None:
        if self.output.summary and self.inputs.shard is not None:
            raise UsageError(
                "--summary is of all images, and --shard takes a part of them",
                "give each shard a --table, and join those with attnviz merge",
            )
        if not self.command.draws_figure and self.output.formats != (ImageFormat.PNG,):
            raise UsageError("--overlay-only writes PNG files", "leave --format out")
        if self.cluster is None:
            return
        if self.workers is not None:
            raise UsageError(
                "--workers counts the processes of this machine, and --engine ray has its own",
                "leave it out; see --cpus-per-model",
            )
        if self.model.device not in ("auto", "cpu", "cuda"):
            raise UsageError(
                f"--device {self.model.device}: Ray gives every model a device of its own",
                "use --device auto, cpu or cuda",
            )


def run_options(request: RunRequest) -> dict[str, Any]:
    """Every option of a run that shapes the numbers or the drawing, by its name, for JSON."""
    return request_options(
        request.command, request.model, request.inputs, request.style, request.video
    )
