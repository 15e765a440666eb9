"""Everything that attnviz raises on purpose.

    AttnvizError                message and hint; the command line prints both and nothing else
    ├── UsageError              an option or argument that cannot be honoured          (exit code 2)
    │   ├── UnknownModelError   no such model name; the message carries near matches
    │   └── UnsupportedModelError   a model whose attention this tool cannot show
    ├── ImageError              one image cannot be read or prepared                 (exit code 1)
    ├── CheckpointError         weights that cannot be read, or do not fit the model   (exit code 1)
    ├── AttentionError          the model did not yield what its definition promises   (exit code 1)
    ├── MemoryNeededError       the work does not fit into memory                      (exit code 1)
    └── OutputError             a file cannot be written                               (exit code 1)

A message is one line that names the file or option and the reason; the hint says what to do.
"""

from __future__ import annotations


class AttnvizError(Exception):
    """Base of the tree. ``str(error)`` is the message; ``error.hint`` may be empty."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(hint)  # what Python prints below the message of an uncaught error

    def __reduce__(self) -> tuple[type[AttnvizError], tuple[str, str]]:
        # Errors travel from worker processes; the default would drop the hint.
        return type(self), (self.message, self.hint)


class UsageError(AttnvizError):
    """An option or argument that cannot be honoured: wrong value, missing path, contradiction."""

    exit_code = 2


class UnknownModelError(UsageError):
    """A model name that neither the catalogue nor timm knows."""


class UnsupportedModelError(UsageError):
    """A known model whose attention cannot be shown: no plain ViT, or no CLS token."""


class ImageError(AttnvizError):
    """One image that is missing, unreadable, too large or of an unsupported kind."""


class CheckpointError(AttnvizError):
    """Weights that are unreachable, unreadable, unsafe, or do not fit the model."""


class AttentionError(AttnvizError):
    """The captured attention breaks an invariant: rows, token count, or attention times V."""


class MemoryNeededError(AttnvizError):
    """The work needs more memory than there is; the message gives the largest size that fits."""


class OutputError(AttnvizError):
    """A destination that cannot be written."""


def no_gradients_in_float16() -> UsageError:
    """For relevance by gradients in float16, whose range they leave."""
    return UsageError(
        "relevance needs gradients, which vanish in float16",
        "use --precision float32 or bfloat16",
    )
