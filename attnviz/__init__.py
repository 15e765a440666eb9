"""Exact attention figures of self-supervised Vision Transformers."""

from attnviz._version import __version__

__all__ = ["__version__"]
