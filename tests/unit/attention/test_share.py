"""Work shared among threads: all of it, its errors, and torch's own setting afterwards."""

from __future__ import annotations

import threading

import pytest
import torch

from attnviz.attention.share import OrderedSum, share


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 57])
def test_every_piece_is_done_once(two_threads, count):
    done = []
    share(done.append, count)
    assert sorted(done) == list(range(count))
    assert torch.get_num_threads() == 2


def test_each_thread_runs_torch_alone_and_as_the_caller_does(two_threads):
    seen = []
    with torch.inference_mode():
        share(lambda _: seen.append((torch.get_num_threads(), torch.ones(1).is_inference())), 4)
    assert seen == [(1, True)] * 4


def test_two_pieces_run_at_the_same_time(two_threads):
    both = threading.Barrier(2, timeout=30)
    share(lambda _: both.wait(), 2)


def test_an_error_ends_the_work_and_is_raised(two_threads):
    done = []

    def work(place):
        if place == 1:
            raise ValueError("piece 1")
        done.append(place)

    with pytest.raises(ValueError, match="piece 1"):
        share(work, 100_000)
    assert len(done) < 99_999
    assert torch.get_num_threads() == 2


def test_a_sum_has_the_same_bits_in_every_order():
    generator = torch.Generator().manual_seed(0)
    parts = list(torch.randn(40, 7, generator=generator) * 1e4)
    sums = []
    for order in (range(40), range(39, -1, -1), torch.randperm(40, generator=generator).tolist()):
        total = OrderedSum(torch.zeros(7))
        for place in order:
            total.add(place, parts[place])
        sums.append(total.total)
    assert torch.equal(sums[0], sums[1])
    assert torch.equal(sums[0], sums[2])
