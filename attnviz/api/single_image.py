"""One image through a model, as a value that shows itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from attnviz.api.inputs import check_model, prepare
from attnviz.attention.checks import check_request
from attnviz.domain import (
    Maps,
    PreparedImage,
    RgbImage,
)
from attnviz.domain.kinds import (
    CommandRequest,
)
from attnviz.domain.requests import InputRequest
from attnviz.models.backbone import Backbone
from attnviz.stages.display import shown
from attnviz.stages.reference import read_second
from attnviz.stages.single import SingleImage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.api.inputs import ImageSource

_Maps = TypeVar("_Maps", bound=Maps)


def as_indices(given: Sequence[int] | None) -> tuple[int, ...] | None:
    """Layers or heads as requests hold them."""
    return None if given is None else tuple(given)


def prepared(model: Backbone, image: PreparedImage | RgbImage | ImageSource) -> PreparedImage:
    """The image as the model takes it."""
    return image if isinstance(image, PreparedImage) else prepare(image, model)


def maps_of_one(
    model: Backbone,
    image: PreparedImage | RgbImage | ImageSource,
    request: CommandRequest,
    _maps: type[_Maps],
) -> _Maps:
    """The maps of one image, which show themselves."""
    check_model(model)
    check_request(model.info, request)
    single = SingleImage(model, prepared(model, image))
    reference = read_second(model, request, InputRequest(()))
    return cast("_Maps", shown(single, request, single.maps(request, reference)))
