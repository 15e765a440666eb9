"""What every drawing process needs, imported once by the server that they are forked from."""

from __future__ import annotations

import gc

# Modules live as long as the process: looking for garbage among them is wasted, and would write
# to the memory that the processes share.
_was_enabled = gc.isenabled()
gc.disable()

import attnviz.figures.parts.page  # noqa: E402
import attnviz.stages.draw  # noqa: E402, F401

gc.freeze()
if _was_enabled:
    gc.enable()
