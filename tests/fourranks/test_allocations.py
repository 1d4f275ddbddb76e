"""The curve of a rank's memory: what was given out and taken back, and when."""

import pytest

MEBIBYTE = 2**20


def watched():
    """On a rank: 3 MiB are made and kept, then 8 more come and go in one step, and 2 in the next."""
    import torch

    from fourranks.rank.allocations import Allocations

    with Allocations() as memory:
        kept = torch.ones(3 * 2**18, device=device)  # noqa: F821
        memory.mark("first")
        torch.ones(8 * 2**18, device=device).add_(kept[0])  # noqa: F821
        memory.mark("second")
        torch.ones(2 * 2**18, device=device).add_(kept[0])  # noqa: F821
    return memory.seconds, memory.nbytes, memory.marks, memory.peak("first"), memory.peak("second")


def assert_as_it_was(seconds, nbytes, marks, first, second):
    assert max(nbytes) == pytest.approx(11 * MEBIBYTE, rel=0.001)
    assert first == max(nbytes)
    assert second == pytest.approx(5 * MEBIBYTE, rel=0.001)
    assert nbytes[-1] == pytest.approx(3 * MEBIBYTE, rel=0.001)
    assert seconds == sorted(seconds) and len(seconds) == len(nbytes)
    assert 0 < marks["first"] < marks["second"] < seconds[-1]


def test_a_peak_belongs_to_the_step_in_which_it_was_and_what_is_kept_stays_in_the_curve(shared_group):
    for found in shared_group.run(watched):
        assert_as_it_was(*found)


def test_a_second_look_begins_at_nothing_again(shared_group):
    shared_group.run(watched)
    for found in shared_group.run(watched):
        assert_as_it_was(*found)


def test_it_prints_nothing(shared_group, capfd):
    shared_group.run(watched)
    assert capfd.readouterr() == ("", "")


@pytest.mark.gpu(2)
def test_on_a_gpu_its_memory_is_watched_and_not_the_cpu_s():
    import fourranks

    with fourranks.start(2, "nccl") as group:
        for found in group.run(watched):
            assert_as_it_was(*found)
