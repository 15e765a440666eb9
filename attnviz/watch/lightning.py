"""``Watch`` as a callback of Lightning: ``Trainer(callbacks=[WatchCallback(watch)])``."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.watch.callback import Watch

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The two names of one project; a trainer takes callbacks of its own package only."""


def _callback_class() -> Any:
    for name in sorted(_PACKAGES, key=lambda name: name not in sys.modules):
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    raise UsageError("Lightning is not installed", "pip install lightning")


class WatchCallback(_callback_class()):  # type: ignore[misc]  # known only at import
    """Draws before the first step and after every step that is a multiple of ``watch.every``."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch
        self._last: int | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The model before its first step."""
        self._show(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_batch: Any) -> None:
        """Several accumulated batches make one step, which is drawn once."""
        self._show(trainer, pl_module)

    def _show(self, trainer: Any, model: Any) -> None:
        step = int(trainer.global_step)
        if trainer.is_global_zero and step != self._last:
            self._last = step
            self.watch(model, step)
