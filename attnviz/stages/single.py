"""One image at a time through a loaded model: for commands of a few images, and for Python.

Runs over many images go through ``attnviz.stages.model``, which makes batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from attnviz.attention.memory import check_memory
from attnviz.domain.kinds import HeadsRequest, LayersRequest, RolloutRequest
from attnviz.stages.model import maps_of, verified
from attnviz.stages.read import prepare_image, provenance_of

if TYPE_CHECKING:
    from attnviz.domain import (
        HeadsMaps,
        LayersMaps,
        Maps,
        ModelInfo,
        PreparedImage,
        Provenance,
        RgbImage,
        RolloutMaps,
    )
    from attnviz.domain.kinds import CommandRequest
    from attnviz.domain.requests import InputRequest
    from attnviz.models.backbone import Backbone


@dataclass(eq=False)
class SingleImage:
    """One prepared image under one model, for any number of commands.

    ``verify``: check the attention of every layer before the first maps. ``info``: the model as it
    is for images that were prepared like this one; None: as it is. ``notes``: what the check says,
    once it is made.
    """

    model: Backbone
    prepared: PreparedImage
    verify: bool = False
    info: ModelInfo | None = None
    notes: tuple[str, ...] = field(default=(), init=False)

    @classmethod
    def of(
        cls, model: Backbone, image: RgbImage, inputs: InputRequest, *, verify: bool = False
    ) -> SingleImage:
        """An image resized and normalised for the model as the inputs are.

        Raises:
            UsageError: A size that the model cannot take.
        """
        info = model.info.with_statistics(inputs.mean, inputs.std)
        return cls(model, prepare_image(image, model.info, inputs), verify, info)

    def check(self, command: CommandRequest) -> None:
        """Raise unless the command fits into memory; with ``verify``, also check attention once.

        Raises:
            MemoryNeededError: It does not fit; the message gives the largest size that does.
            AttentionError: Attention times V is not the model's own output.
        """
        size = self.prepared.geometry.model_input
        check_memory(self.model.info, size, command, self.model.device)
        if self.verify and not self.notes:
            self.notes = (verified(self.model, [self.prepared]),)

    @overload
    def maps(self, command: HeadsRequest) -> HeadsMaps: ...
    @overload
    def maps(self, command: LayersRequest) -> LayersMaps: ...
    @overload
    def maps(self, command: HeadsRequest | LayersRequest) -> HeadsMaps | LayersMaps: ...
    @overload
    def maps(self, command: RolloutRequest) -> RolloutMaps: ...
    @overload
    def maps(self, command: CommandRequest, reference: Any = None) -> Maps: ...

    def maps(self, command: CommandRequest, reference: Any = None) -> Any:
        """What a command asks for, after ``check``.

        reference: the result of ``read_second`` or ``refer_to`` for a command with a second image.

        Raises:
            AttnvizError: As ``check`` and ``attnviz.attention.compute.compute``.
        """
        self.check(command)
        return maps_of(self.model, [self.prepared], command, reference)[0]

    def provenance(
        self, command: str, options: dict[str, Any], like_sha256: str | None = None
    ) -> Provenance:
        """How a figure of this image is made; parameters as of ``provenance_of``."""
        info, device = self.info or self.model.info, self.model.device.type
        return provenance_of(command, self.prepared, info, device, options, like_sha256)
