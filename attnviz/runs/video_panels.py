"""Which maps ``--panel`` draws over a video, and which commands compute them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attnviz.domain import MapKind
from attnviz.domain.kinds import HeadsRequest, RelevanceRequest
from attnviz.errors import UsageError
from attnviz.runs.compare_maps import command_of, compared

if TYPE_CHECKING:
    from attnviz.domain import ComparedMap, Maps, ModelInfo
    from attnviz.domain.comparison import MapSpec
    from attnviz.domain.kinds import CommandRequest
    from attnviz.domain.requests import RunRequest


@dataclass(frozen=True)
class _Asked:
    layer: int | None
    relevance: RelevanceRequest | None


class VideoPanels:
    """The panels of a run. ``others``: the commands that have to be computed besides its own.

    Raises:
        UsageError: A map that the model does not have, or that is not one map.
    """

    def __init__(self, request: RunRequest, info: ModelInfo) -> None:
        command = request.command
        self._asked = _Asked(
            getattr(command, "layer", None),
            command if isinstance(command, RelevanceRequest) else None,
        )
        self._specs: list[tuple[str, MapSpec, int | None]] = []
        self.others: tuple[CommandRequest, ...] = ()
        for spec in request.video.panel or ():
            self._take(spec, command, info)

    def _take(self, spec: MapSpec, command: CommandRequest, info: ModelInfo) -> None:
        name = str(spec)
        if spec.kind is MapKind.HEADS:
            raise UsageError("--panel: 'heads' is many maps", "name one: head:3, mean or max")
        if spec.kind is MapKind.RELEVANCE and self._asked.relevance is None:
            raise UsageError("--panel relevance has no target here", "use attnviz relevance")
        if spec.head is not None:
            spec = replace(spec, head=_entry(spec.head, command, info, name))
        wanted = command_of(spec, self._asked)
        placed = spec.cell is not None or spec.point is not None
        if type(wanted) is type(command) and not placed:
            self._specs.append((name, spec, None))
            return
        if wanted not in self.others:
            self.others += (wanted,)
        self._specs.append((name, spec, self.others.index(wanted)))

    def of(self, maps: Maps, others: tuple[Maps, ...]) -> dict[str, ComparedMap]:
        """The panels of one frame, by name."""
        return {
            name: compared(spec, maps if index is None else others[index])
            for name, spec, index in self._specs
        }


def _entry(head: int, command: CommandRequest, info: ModelInfo, name: str) -> int:
    """Where a head stands among those that are computed."""
    if not -info.heads <= head < info.heads:
        raise UsageError(
            f"--panel {name}: {info.name} has heads 0 to {info.heads - 1}", "name one of them"
        )
    head %= info.heads
    heads = getattr(command, "heads", None) if isinstance(command, HeadsRequest) else None
    if heads is None:
        return head
    chosen = [each % info.heads for each in heads]
    if head not in chosen:
        raise UsageError(
            f"--panel {name}: --heads leaves head {head} out", "add it, or drop --heads"
        )
    return chosen.index(head)
