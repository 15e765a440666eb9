"""One command over many images. Prints nothing; yields events.

``attnviz.engines.local`` connects the stages on one machine, ``attnviz.engines.ray`` on many. Both
need torch, which takes seconds to import: that happens once the inputs are known to be valid and a
cluster has begun to start.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.domain import ImageFile
from attnviz.domain.events import Event, Failed, Started
from attnviz.domain.kinds import kind_of
from attnviz.domain.options import resolve
from attnviz.domain.process import available_cores
from attnviz.domain.requests import RunRequest
from attnviz.figures.names import missing_glyphs
from attnviz.images.find import FoundImages
from attnviz.images.frames import is_video
from attnviz.output.plan import OutputPlan, check_folder
from attnviz.stages.plan import check_before_loading, plan_request

if TYPE_CHECKING:
    from attnviz.engines.local import LocalRun
    from attnviz.engines.ray.connect import Starting
    from attnviz.engines.ray.engine import ClusterRun
    from attnviz.models.backbone import Backbone


def run(
    request: RunRequest, model: Backbone | None = None, into: Path | None = None
) -> Iterator[Event]:
    """Draw the figures of one command for all images.

    ``model``: the one that the request names, if it is loaded already. ``into``: write below this
    folder instead of the request's, under the same names.

    Yields one ``Started``, then ``Done``, ``Skipped`` or ``Failed`` for each image. If there are no
    images, only the ``Failed`` of the inputs are yielded and no model is loaded. With
    ``fail_fast`` the first ``Failed`` is the last event.

    Raises:
        AttnvizError: Nothing can be done at all: the options, the model or the output folder.
    """
    with closing(_events(request, model, into)) as events:
        for event in events:
            yield event
            if request.fail_fast and isinstance(event, Failed):
                return


def _events(
    request: RunRequest, model: Backbone | None, into: Path | None
) -> Generator[Event, None, None]:
    check_before_loading(request.command, request.model, request.inputs)
    found, plans = plan_request(request, into)
    check_folder(into or request.output.folder, plans.values())
    with _cluster(request, found) as starting:
        if found.files:
            draws = request.command.draws_figure
            alone = request.cluster is None and request.workers is None
            if draws and alone and model is None:
                _prepare_drawing()
            model = _checked(request, model)
            films = [file for file in plans if is_video(file, request.video)]
            film_plans = {file: plans[file] for file in films}
            plans = {file: plan for file, plan in plans.items() if file not in film_plans}
            work = _joined(starting, request, model, plans)
            total = len(found.files) + len(found.missing)
            info = model.info.with_statistics(request.inputs.mean, request.inputs.std)
            names = [file.path.name for file in found.files] if draws else []
            notes = (*model.notes, *cost_notes(request, model), *missing_glyphs(names))
            yield Started(total, info, notes, found.skipped)
        for name, error in found.missing:
            yield Failed(name, error)
        if plans:
            with closing(work.events()) as events:
                yield from events
        if found.files and model is not None:
            for file, plan in film_plans.items():
                from attnviz.runs.video import draw_video

                with closing(draw_video(request, model, file, plan)) as drawn:
                    yield from drawn


def cost_notes(request: RunRequest, model: Backbone) -> tuple[str, ...]:
    """What is said of a run's time before it starts, where it is not about that of plain passes."""
    cost = kind_of(request.command).cost
    return () if cost is None else (resolve(cost)(model.info, request.command),)


def _prepare_drawing() -> None:
    """Have a second core load what drawing needs, while this one imports and loads the model."""
    if available_cores() > 1:
        from attnviz.engines import draw_pool

        draw_pool.make_ready()


def _checked(request: RunRequest, model: Backbone | None) -> Backbone:
    """The model of a request, loaded if necessary, and able to do what is asked."""
    from attnviz.attention.checks import check_request
    from attnviz.images.sizes import check_size
    from attnviz.models.load import load_backbone

    if model is None:
        named = request.model
        # The machine that starts a run on a cluster may not have the device of its models.
        model = load_backbone(replace(named, device="cpu") if request.cluster else named)
    check_request(model.info, request.command)
    check_size(model.info.patch, request.inputs.size, request.inputs.fit)
    return model


def _cluster(request: RunRequest, found: FoundImages) -> AbstractContextManager[Starting | None]:
    """The cluster that a request asks for, which starts while the model loads; or None."""
    if request.cluster is None or not found.files:
        return nullcontext()
    # Ray is an optional dependency, and slow to import.
    from attnviz.engines.ray.connect import cluster

    return cluster(request.cluster)


def _joined(
    starting: Starting | None,
    request: RunRequest,
    model: Backbone,
    plans: Mapping[ImageFile, OutputPlan],
) -> LocalRun | ClusterRun:
    """The engine that runs the stages."""
    if starting is None:
        from attnviz.engines.local import LocalRun

        return LocalRun(request, model, plans)
    from attnviz.engines.ray.engine import ClusterRun
    from attnviz.stages.model import ModelStage

    # Raises for a second image that cannot be read, before anything runs.
    ModelStage(request, model)
    return ClusterRun(starting.ray(), request, model, plans)
