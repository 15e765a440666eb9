"""Damaged copies of files, as disks, networks and other programs produce them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


def damage(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """One damaged copy: cut, bits flipped, bytes replaced, doubled or lost, or another header."""
    body = bytearray(data)
    start = chance.randrange(len(body))
    # Headers are where a byte matters most.
    early = chance.randrange(min(len(body), 64))
    kind = chance.randrange(8)
    if kind == 0:
        return bytes(body[:start])
    if kind == 1:
        for _ in range(chance.randint(1, 8)):
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    elif kind == 2:
        body[early] = chance.randrange(256)
    elif kind == 3:
        body[early : early + 4] = chance.choice(
            [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"]
        )
    elif kind == 4:
        body[start : start + chance.randint(1, 40)] = chance.randbytes(chance.randint(0, 40))
    elif kind == 5:
        body[start:start] = body[:start]
    elif kind == 6:
        head = chance.choice(others)
        body[:early] = head[:early]
    else:
        del body[start : start + chance.randint(1, 20)]
    return bytes(body)
