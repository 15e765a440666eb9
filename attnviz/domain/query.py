"""Whose attention a figure of the whole image shows."""

from __future__ import annotations

import re
from typing import ClassVar, Self

_REGISTER = re.compile(r"r([1-9]\d{0,2})", re.ASCII)


class Query(str):
    """``cls``, ``mean`` (of all patches), ``pool`` (attention pooling), or ``r1``, ``r2``, ... .

    rK is the K-th register. There is one object a text, so that queries may be compared by
    identity, as members of an enumeration.

    Raises:
        ValueError: Another text.
    """

    __slots__ = ()
    _known: ClassVar[dict[str, Query]] = {}

    CLS: ClassVar[Query]
    MEAN: ClassVar[Query]
    POOL: ClassVar[Query]

    def __new__(cls, text: str) -> Self:
        """The query of this text."""
        if text not in ("cls", "mean", "pool") and not _REGISTER.fullmatch(text):
            raise ValueError(
                f"{text!r} is not a query: cls, mean, pool, or a register (r1, r2, ...)"
            )
        return cls._known.setdefault(str(text), super().__new__(cls, text))  # type: ignore[return-value]

    @property
    def register(self) -> int | None:
        """The number of the register, from 1; None for other queries."""
        return int(self[1:]) if self.startswith("r") else None


Query.CLS, Query.MEAN, Query.POOL = map(Query, ("cls", "mean", "pool"))
