"""A provenance whose texts hold everything that a file format has to escape."""

from __future__ import annotations

import dataclasses
from typing import Any

from attnviz.domain import Box, FitGeometry, Provenance, Size
from tests.helpers.pictures import model_info

AWKWARD = 'a/$cost (1) \\ 50%_<&>" \u732b\n.png'


def provenance(**changes: Any) -> Provenance:
    made = Provenance(
        command="heads",
        model=model_info(),
        image=AWKWARD,
        image_sha256="ab" * 32,
        geometry=FitGeometry(Size(100, 120), Size(32, 40), 8, Box(0, 0, 100, 120)),
        options={"layer": -1, "size": "32x40", "threshold": 0.1},
        versions={"torch": "2.6"},
    )
    return dataclasses.replace(made, **changes)
