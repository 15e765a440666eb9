"""The model stage of a video: the command's maps, those of other commands, patches that move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention.compute import query_cells
from attnviz.attention.query_keys import query_keys
from attnviz.domain.kinds import PatchRequest
from attnviz.domain.video import FrameTime
from attnviz.stages.model import ModelStage, maps_of
from attnviz.stages.read import ComputedImage, PreparedJob

if TYPE_CHECKING:
    from attnviz.domain import FloatArray, Maps, PreparedImage
    from attnviz.domain.kinds import CommandRequest
    from attnviz.domain.requests import RunRequest
    from attnviz.models.backbone import Backbone


@dataclass(frozen=True, eq=False)
class PreparedFrame(PreparedJob):
    """A frame of a video, ready for the model."""

    time: FrameTime = FrameTime(0, 0.0)


@dataclass(frozen=True, eq=False)
class ComputedFrame(ComputedImage):
    """A frame that went through the model; ``others``: the maps of further commands, in order."""

    others: tuple[Maps, ...] = ()


class FrameStage(ModelStage):
    """The model of one video. others: commands that are computed of every frame besides.

    Raises:
        AttnvizError: As ``ModelStage``.
    """

    def __init__(
        self, request: RunRequest, model: Backbone, others: tuple[CommandRequest, ...]
    ) -> None:
        super().__init__(request, model)
        self.others = others

    def _compute(self, batch: list[PreparedJob]) -> list[ComputedImage]:
        computed = super()._compute(batch)
        images = [job.prepared for job in batch]
        others = [maps_of(self.model, images, each, self.reference) for each in self.others]
        return [
            ComputedFrame(one.job, one.maps, one.notes, tuple(each[n] for each in others))
            for n, one in enumerate(computed)
        ]


class FollowingStage(FrameStage):
    """The same for patches that move: one frame after the other, since each needs the last.

    A patch moves to the patch of the next frame whose key, all heads of the layer together, has the
    smallest Euclidean distance to its own.
    """

    cells: tuple[tuple[int, int], ...] | None = None
    keys: FloatArray | None = None

    def _compute(self, batch: list[PreparedJob]) -> list[ComputedImage]:
        return [each for job in batch for each in self._follow(job)]

    def _follow(self, job: PreparedJob) -> list[ComputedImage]:
        command = self.request.command
        assert isinstance(command, PatchRequest)
        keys = self._keys(job.prepared, command.layer)
        width = job.prepared.geometry.grid.width
        if self.cells is None or self.keys is None:
            self.cells = tuple(query_cells(command, job.prepared.geometry))
        else:
            self.cells = tuple(
                divmod(nearest(self.keys[row * width + column], keys), width)
                for row, column in self.cells
            )
        self.keys = keys
        moved = replace(command, cells=self.cells, points=())
        maps = maps_of(self.model, [job.prepared], moved, self.reference)[0]
        others = [
            maps_of(self.model, [job.prepared], each, self.reference)[0] for each in self.others
        ]
        return [ComputedFrame(job, maps, (), tuple(others))]

    def _keys(self, image: PreparedImage, layer: int) -> FloatArray:
        """The keys (n, H * d) of the patches."""
        with self.model.exact_arithmetic():
            found = query_keys(self.model, self.model.batch([image]), [layer])
        heads, tokens, size = found.keys[0].shape
        keys = found.keys[0].transpose(1, 0, 2).reshape(tokens, heads * size)
        return np.ascontiguousarray(keys[self.model.info.prefix :])


def nearest(key: FloatArray, keys: FloatArray) -> int:
    """The index of the key in (n, D) with the smallest distance to one (D,); the first of equal."""
    return int(((keys.astype(np.float64) - key) ** 2).sum(axis=1).argmin())
