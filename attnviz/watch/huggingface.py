"""``Watch`` as a callback of transformers: ``Trainer(callbacks=[WatchCallback(watch)])``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.watch.callback import Watch


def _callback_class() -> Any:
    try:
        return import_module("transformers").TrainerCallback
    except ImportError as error:
        raise UsageError("transformers is not installed", "pip install transformers") from error


class WatchCallback(_callback_class()):  # type: ignore[misc]  # known only at import
    """Draws before the first step and after every step that is a multiple of ``watch.every``."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """The model before its first step."""
        self.on_step_end(args, state, control, model)

    def on_step_end(
        self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any
    ) -> None:
        """Called once per optimizer step, however many batches were accumulated."""
        if state.is_world_process_zero:
            self.watch(model, state.global_step)
