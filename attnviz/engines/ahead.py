"""An iterator that runs ahead in a thread of its own, by a bounded number of items."""

from __future__ import annotations

import threading
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

Item = TypeVar("Item")
_POLL_SECONDS = 0.1


class _End:
    """What the thread puts last: the error that ended it, or None."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterable[Item], most: int) -> Generator[Item, None, None]:
    """The items, of which up to ``most`` wait; errors arrive in their place.

    When the generator is closed, the thread ends after the item that it is at.
    """
    queue: Queue[Item | _End] = Queue(most)
    stopped = threading.Event()

    def put(item: Item | _End) -> bool:
        while not stopped.is_set():
            try:
                queue.put(item, timeout=_POLL_SECONDS)
            except Full:
                continue
            return True
        return False

    def fill() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                if not put(item):
                    return
        except BaseException as caught:  # noqa: BLE001 - raised again where the items are taken
            error = caught
        put(_End(error))

    thread = threading.Thread(target=fill, name="ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = queue.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                return
    finally:
        stopped.set()
