"""Tests that hold with newer versions of a library than the lowest that pyproject.toml allows."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from packaging.version import Version


def older_than(package: str, least: str) -> bool:
    """Whether the installed version of a package is below another."""
    return Version(version(package)) < Version(least)


def needs(package: str, least: str, why: str) -> pytest.MarkDecorator:
    """Skip a test below a version of a package."""
    return pytest.mark.skipif(older_than(package, least), reason=f"{package} {least}: {why}")


OLD_TRANSFORMERS = older_than("transformers", "5")
NEW_TRANSFORMERS = needs("transformers", "5", "how it gives hidden states and attentions")
"""In transformers 4 some models norm the last hidden state, or keep no attentions of a part."""
WITHOUT_SYMPY = needs("torch", "2.14", "older ones import sympy themselves")
