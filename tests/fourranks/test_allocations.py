"""The curve of a rank's memory: taken and given back, and when."""

import pytest

import fourranks

MEBIBYTE = 2**20

PROGRAM = """
from fourranks.rank.allocations import Allocations

def made(mebibytes):
    return torch.ones(mebibytes * 2**18, device=device)

def seen(memory):
    return memory.seconds, memory.nbytes, memory.marks

with Allocations() as memory:
    kept = made(3)
    memory.mark("first")
    made(8).add_(1)
    memory.mark("second")
    made(2).add_(1)
    memory.mark("nothing")
"""


def assert_as_it_was(group):
    for seconds, nbytes, marks in group.pull("seen(memory)"):
        assert seconds == sorted(seconds) and len(seconds) == len(nbytes)
        assert 0 < marks["first"] < marks["second"] < seconds[-1]
        assert max(nbytes) == 11 * MEBIBYTE
        assert nbytes[-1] == 3 * MEBIBYTE
    peaks = [[size * MEBIBYTE for size in (11, 5, 3)]] * group.world_size
    assert group.pull("[memory.peak(name) for name in ('first', 'second', 'nothing')]") == peaks


def test_a_peak_belongs_to_the_step_in_which_it_was_and_what_is_kept_stays_in_the_curve(shared_group):
    shared_group.execute(PROGRAM)
    assert_as_it_was(shared_group)


@pytest.mark.gpu
def test_on_a_gpu_its_allocator_is_asked():
    with fourranks.start(1, "gloo", device="cuda") as group:
        group.execute(PROGRAM)
        assert_as_it_was(group)


@pytest.mark.gpu
def test_on_a_gpu_the_room_of_the_library_for_products_of_matrices_does_not_count():
    with fourranks.start(1, "gloo", device="cuda") as group:
        group.execute("""
from fourranks.rank.allocations import Allocations
torch.cuda.synchronize()
weight = torch.ones(4, 4, device=device, requires_grad=True)
with Allocations() as memory:
    (weight @ weight).sum().backward()
""")
        assert group.pull("max(memory.nbytes)")[0] < MEBIBYTE


def test_what_backward_and_collectives_hold_is_seen_and_views_count_once(shared_group):
    shared_group.execute("""
from fourranks.rank.allocations import Allocations
weight = torch.ones(2**18, requires_grad=True)
with Allocations() as memory:
    memory.mark("forward")
    loss = (weight * torch.full((2**18,), 2.0)).view(2, -1).square().sum()  # the product and its factor stay
    memory.mark("backward")
    loss.backward()
    del loss
    memory.mark("gather")
    whole = torch.empty(4 * 2**18)
    work = dist.all_gather_single(whole, weight.detach(), async_op=True)
    del whole
    work.wait()
    del work
    memory.mark("nothing")
""")
    for forward, backward, gather in shared_group.pull(
        "[memory.peak(name) / 2**20 for name in ('forward', 'backward', 'gather')]"
    ):
        assert 2 <= forward < 4 <= backward
        assert gather == pytest.approx(5, abs=0.01)  # the gradient and what is gathered


def test_parts_of_a_dtensor_count_and_not_the_whole_that_they_are_of(shared_group):
    shared_group.execute("""
from fourranks.rank.allocations import Allocations
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, zeros
mesh = init_device_mesh("cpu", (4,))
with torch.device("meta"):
    shape = torch.empty(2**20)  # takes no memory
with Allocations() as memory:
    memory.mark("sharded")
    sharded = zeros(4 * 2**18, device_mesh=mesh, placements=[Shard(0)]) + 1
""")
    for peak in shared_group.pull("memory.peak('sharded') / 2**20"):
        assert peak == pytest.approx(2, abs=0.01)


def test_a_storage_that_is_emptied_in_place_takes_nothing_any_more(shared_group):
    """So does torch's `fully_shard` free a weight that it has gathered."""
    shared_group.execute("""
from fourranks.rank.allocations import Allocations
with Allocations() as memory:
    whole = torch.ones(2**18)
    whole.untyped_storage().resize_(0)
""")
    for nbytes in shared_group.pull("memory.nbytes"):
        assert max(nbytes) == MEBIBYTE and nbytes[-1] == 0
