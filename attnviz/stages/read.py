"""The first stage: a file is read, fitted, and held against what stands already. No torch."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from attnviz._version import __version__
from attnviz.domain import Provenance
from attnviz.domain.events import UP_TO_DATE, Failed, Skipped
from attnviz.domain.options import command_name, written_options
from attnviz.errors import AttnvizError
from attnviz.images.fit import prepare
from attnviz.images.read import read_input
from attnviz.output.current import identity, outputs_up_to_date
from attnviz.stages.plan import like_digest

if TYPE_CHECKING:
    from attnviz.domain import ImageFile, Maps, ModelInfo, PreparedImage
    from attnviz.domain.requests import RunRequest
    from attnviz.output.plan import OutputPlan


def versions() -> dict[str, str]:
    """The versions of what makes the numbers and the drawing."""
    return {
        "attnviz": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "timm", "numpy", "matplotlib", "pillow")},
    }


@dataclass(frozen=True, eq=False)
class Ready:
    """A picture ready for the model, and how its figure will have been made.

    ``current``: its figures stand already, and only its numbers are wanted.
    """

    file: ImageFile
    prepared: PreparedImage
    provenance: Provenance
    current: bool = False


@dataclass(frozen=True, eq=False)
class Seen:
    """A picture that went through the model, what came out, and what was found on the way."""

    ready: Ready
    maps: Maps
    notes: tuple[str, ...] = ()


class ReadStage:
    """Reads pictures of one run; safe in threads. ``device``: where the model runs, as cuda."""

    def __init__(self, request: RunRequest, info: ModelInfo, device: str) -> None:
        self.request = request
        self.info = info
        self.device = device
        self.options = written_options(request)
        self.like_sha256 = like_digest(request.command)
        self.versions = versions()

    def read(self, file: ImageFile, plan: OutputPlan) -> Ready | Skipped | Failed:
        """One picture, ready for the model unless there is nothing to do, or no way to do it."""
        try:
            return self._read(file, plan)
        except AttnvizError as error:
            return Failed(str(file.path), error)

    def _read(self, file: ImageFile, plan: OutputPlan) -> Ready | Skipped:
        inputs = self.request.inputs
        image = read_input(file, inputs)
        prepared = prepare(image, self.info, inputs.size, inputs.fit, inputs.mean, inputs.std)
        provenance = Provenance(
            command=command_name(self.request.command),
            model=self.info,
            image=str(file.path),
            image_sha256=image.sha256,
            geometry=prepared.geometry,
            options=self.options,
            versions=self.versions,
            device=self.device,
            like_sha256=self.like_sha256,
        )
        output = self.request.output
        current = output.skip_existing and outputs_up_to_date(plan, output, identity(provenance))
        if current and not output.every_number:
            return Skipped(file, UP_TO_DATE)
        return Ready(file, prepared, provenance, current)
