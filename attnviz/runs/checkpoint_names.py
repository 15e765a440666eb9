"""Names and order of checkpoints: by the numbers in their names, whatever order they come in."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from attnviz.models.weights.progress import training_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

_NUMBER = re.compile(r"(\d+)")
_SEPARATORS = "-_. ="
_LAST = re.compile(r"(?:^|[-_. /])(?:last|latest|final|current)(?:$|[-_. /])", re.IGNORECASE)


class CheckpointSeries(NamedTuple):
    """Checkpoints in the order of the figure.

    steps: their numbers, None for one that has none; or None where no order follows from numbers.
    """

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    steps: tuple[int | None, ...] | None


def name_checkpoints(
    paths: Sequence[Path],
    progress: Callable[[Path], Mapping[str, int]] = training_progress,
) -> CheckpointSeries:
    """What checkpoints are called, and their order.

    ``step00500.pth`` and ``step01000.pth`` are step 500 and step 1000, in this order however they
    were given. One without a number beside them, such as the ``checkpoint.pth`` of DINO, takes the
    place of the epoch (or step) that it holds, and else, if it is called like the others or last,
    latest, final or current, comes last. Any other names stay as they are, in the order given;
    files of the same name are told apart by their folders.

    progress: the training counters in a checkpoint, by name.
    """
    names = _stems(paths)
    numbers, titles = _numbered(names)
    others = [i for i in range(len(names)) if i not in numbers]
    held = _held_numbers(paths, numbers, others, progress) if numbers else {}
    known = numbers | held
    last = [i for i in others if i not in held]
    if not numbers or len(last) > 1 or not all(_is_last(names[i], titles) for i in last):
        return CheckpointSeries(tuple(paths), tuple(names), None)
    titles |= {i: f"{names[i]} ({number})" for i, number in held.items()}
    titles |= {i: names[i] for i in last}
    # The state that training went on from comes after a copy of it that is kept.
    order = sorted(known, key=lambda i: (known[i], i in held)) + last
    return CheckpointSeries(
        tuple(paths[i] for i in order),
        tuple(titles[i] for i in order),
        tuple(known.get(i) for i in order),
    )


def _stems(paths: Sequence[Path]) -> list[str]:
    stems = [path.name if path.is_dir() else path.stem for path in paths]
    count = Counter(stems)
    return [
        f"{path.absolute().parent.name}/{stem}" if count[stem] > 1 else stem
        for path, stem in zip(paths, stems, strict=True)
    ]


def _numbered(names: Sequence[str]) -> tuple[dict[int, int], dict[int, str]]:
    """The numbers and titles of the names that differ only in a number, by index.

    Nothing where two kinds of such names are equally many, or where no number tells them apart.
    """
    parts = {i: _NUMBER.split(name) for i, name in enumerate(names)}
    # Text at even positions, digits at odd ones.
    kinds = Counter(tuple(each[::2]) for each in parts.values() if len(each) > 1)
    (kind, count), *rest = [*kinds.most_common(2), ((), 0)]
    if not count or rest[0][1] == count:
        return {}, {}
    members = [i for i, each in parts.items() if tuple(each[::2]) == kind]
    if count == 1 and kind[-1]:
        return {}, {}  # nothing says that a number inside a single name counts anything
    digits = {i: [int(number) for number in parts[i][1::2]] for i in members}
    positions = range(len(kind) - 1) if count > 1 else [len(kind) - 2]
    distinct = [k for k in positions if len({digits[i][k] for i in members}) == count]
    if not distinct:
        return {}, {}
    at = distinct[0]
    varying = sum(len({digits[i][k] for i in members}) > 1 for k in positions)
    titles = {
        # With several numbers that differ, the name itself says what each of them is.
        i: names[i] if varying > 1 else _title(parts[i], at, digits[i][at])
        for i in members
    }
    return {i: digits[i][at] for i in members}, titles


def _title(parts: Sequence[str], at: int, number: int) -> str:
    """``step 500`` for ``step00500``; a name that begins with its number stays as it is."""
    word = "".join(parts[: 2 * at + 1]).rstrip(_SEPARATORS)
    if not word:
        return str(number) if len(parts) == 3 and not parts[2] else "".join(parts)
    return f"{word} {number}"


def _held_numbers(
    paths: Sequence[Path],
    numbers: Mapping[int, int],
    others: Iterable[int],
    progress: Callable[[Path], Mapping[str, int]],
) -> dict[int, int]:
    """The numbers that checkpoints without one in their names hold, counted as the names count."""
    counters = {i: counter for i in others if (counter := progress(paths[i]))}
    if not counters:
        return {}
    newest = max(numbers, key=numbers.__getitem__)
    reference = progress(paths[newest])
    held: dict[int, int] = {}
    for i, counter in counters.items():
        for key, value in counter.items():
            if key in reference:
                # Names may count from 0 what the file counts from 1.
                ahead = reference[key] - numbers[newest]
                fits = abs(ahead) <= 1
            else:
                ahead, fits = 0, not reference and value >= numbers[newest]
            if fits:
                held[i] = value - ahead
                break
    return held


def _is_last(name: str, titles: Mapping[int, str]) -> bool:
    """Whether a name without a number says that it is the last state of the others' training."""
    return bool(_LAST.search(name)) or all(title.startswith(name) for title in titles.values())
