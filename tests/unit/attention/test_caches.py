"""The caches that a system reports, and what follows for the blocks of a matrix."""

from __future__ import annotations

import pytest
import torch

from attnviz.attention import blocks, caches
from attnviz.attention.blocks import max_rows
from attnviz.attention.caches import Caches, cpu_caches

CPU = torch.device("cpu")
MB = 1 << 20


def write_cache(folder, index, level, kind, size):
    entry = folder / f"index{index}"
    entry.mkdir()
    for name, text in (("level", level), ("type", kind), ("size", size)):
        (entry / name).write_text(f"{text}\n")


@pytest.fixture
def reported(tmp_path, monkeypatch):
    """An empty folder in the place of the system's, and no word from the C library."""
    monkeypatch.setattr(caches, "SYSFS", tmp_path)
    monkeypatch.setattr(caches, "_from_sysconf", lambda _name: 0)
    cpu_caches.cache_clear()
    yield tmp_path
    cpu_caches.cache_clear()


def test_sizes_are_read_by_level(reported):
    write_cache(reported, 0, 1, "Data", "48K")
    write_cache(reported, 1, 1, "Instruction", "32K")
    write_cache(reported, 2, 2, "Unified", "1280K")
    write_cache(reported, 3, 3, "Unified", "48M")
    assert cpu_caches() == Caches(1280 << 10, 48 * MB)
    assert str(cpu_caches()) == "L2 1.25 MB, L3 48 MB"


def test_a_machine_that_reports_nothing(reported):
    assert cpu_caches() == Caches(0, 0)
    assert str(cpu_caches()) == "caches unknown"


def test_broken_entries_are_ignored(reported):
    write_cache(reported, 0, 2, "Unified", "unknown")
    write_cache(reported, 1, "three", "Unified", "8M")
    (reported / "index2").mkdir()
    assert cpu_caches() == Caches(0, 0)


def test_the_c_library_is_asked_where_sysfs_is_silent(reported, monkeypatch):
    sizes = {"SC_LEVEL2_CACHE_SIZE": 2 * MB, "SC_LEVEL3_CACHE_SIZE": 0}
    monkeypatch.setattr(caches, "_from_sysconf", sizes.__getitem__)
    assert cpu_caches() == Caches(2 * MB, 0)
    assert cpu_caches().last == 2 * MB


def test_a_name_that_the_c_library_does_not_know_is_zero():
    assert caches._from_sysconf("SC_NO_SUCH_CACHE") == 0


@pytest.mark.parametrize(
    ("cache", "heads", "tokens", "rows"),
    [
        (48 * MB, 6, 785, 160),  # 12 MB would hold 668
        (32 * MB, 6, 3601, 97),  # 8 MB
        (16 * MB, 6, 3601, 48),
        (16 * MB, 12, 3601, 32),  # 4 MB hold 24: fewer than 32 are slow in any cache
        (48 * MB, 6, 16385, 32),
        (0, 6, 3601, 48),  # as with 16 MB
        (48 * MB, 2, 16, 16),
    ],
)
def test_blocks_fit_into_a_part_of_the_last_cache(cache, heads, tokens, rows, monkeypatch):
    monkeypatch.setattr(blocks, "cpu_caches", lambda: Caches(MB, cache) if cache else Caches(0, 0))
    assert max_rows(heads, tokens, CPU) == rows


def test_other_devices_have_large_blocks():
    assert max_rows(6, 3601, torch.device("cuda")) == 2**26 // (6 * 3601)
