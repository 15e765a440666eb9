"""The first stage: a file is read, prepared, and compared with existing files. No torch."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from attnviz._version import __version__
from attnviz.domain import Provenance
from attnviz.domain.events import UP_TO_DATE, Failed, Skipped
from attnviz.domain.kinds import kind_of
from attnviz.domain.requests import run_options
from attnviz.errors import AttnvizError
from attnviz.images.fit import prepare
from attnviz.images.read import read_input
from attnviz.output.current import identity, outputs_up_to_date
from attnviz.stages.plan import second_digest

if TYPE_CHECKING:
    from attnviz.domain import ImageFile, Maps, ModelInfo, PreparedImage, RgbImage
    from attnviz.domain.requests import InputRequest, RunRequest
    from attnviz.output.plan import OutputPlan


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    packages = ("torch", "timm", "numpy", "matplotlib", "pillow")
    return (
        ("attnviz", __version__),
        ("python", platform.python_version()),
        *((name, version(name)) for name in packages),
    )


def prepare_image(image: RgbImage, info: ModelInfo, inputs: InputRequest) -> PreparedImage:
    """An image resized and normalised for a model as the inputs are.

    Raises:
        UsageError: A size that the model cannot take.
    """
    return prepare(image, info, inputs.size, inputs.fit, inputs.mean, inputs.std)


def provenance_of(
    command: str,
    prepared: PreparedImage,
    info: ModelInfo,
    device: str,
    options: dict[str, Any],
    like_sha256: str | None = None,
) -> Provenance:
    """How a figure of one image is made, with the versions of what makes it.

    command: its name. device: where the model runs, as cuda. like_sha256: of the second image of
    ``relevance``.
    """
    return Provenance(
        command=command,
        model=info,
        image=str(prepared.image.file.path),
        image_sha256=prepared.image.sha256,
        geometry=prepared.geometry,
        options=options,
        versions=dict(_versions()),
        device=device,
        like_sha256=like_sha256,
    )


@dataclass(frozen=True, eq=False)
class PreparedJob:
    """An image ready for the model, and how its figure will have been made.

    ``current``: its figures are up to date, and only its numbers are wanted.
    """

    file: ImageFile
    prepared: PreparedImage
    provenance: Provenance
    current: bool = False


@dataclass(frozen=True, eq=False)
class ComputedImage:
    """An image that went through the model: its maps, and notes for the user."""

    job: PreparedJob
    maps: Maps
    notes: tuple[str, ...] = ()


class ReadStage:
    """Reads the images of one run; thread-safe. ``device``: where the model runs, as cuda."""

    def __init__(self, request: RunRequest, info: ModelInfo, device: str) -> None:
        self.request = request
        self.info = info
        self.device = device
        self.options = run_options(request)
        self.like_sha256 = second_digest(request.command)

    def read(self, file: ImageFile, plan: OutputPlan) -> PreparedJob | Skipped | Failed:
        """One image, ready for the model unless it is up to date or cannot be read."""
        try:
            return self._read(file, plan)
        except AttnvizError as error:
            return Failed(str(file.path), error)

    def _read(self, file: ImageFile, plan: OutputPlan) -> PreparedJob | Skipped:
        inputs = self.request.inputs
        image = read_input(file, inputs)
        prepared = prepare_image(image, self.info, inputs)
        provenance = provenance_of(
            kind_of(self.request.command).name,
            prepared,
            self.info.with_statistics(inputs.mean, inputs.std),
            self.device,
            self.options,
            self.like_sha256,
        )
        output = self.request.output
        current = output.skip_existing and outputs_up_to_date(plan, output, identity(provenance))
        if current and not output.every_number:
            return Skipped(file, UP_TO_DATE)
        return PreparedJob(file, prepared, provenance, current)
