"""Messages when ranks wait forever: real mistakes on real ranks, each explained."""

from __future__ import annotations

import re
import textwrap
from base64 import b64decode

import pytest

import fourranks
from fourranks.diagnosis import hint
from fourranks.protocol.progress import Progress
from fourranks.scene import Scene
from fourranks.source import Source
from fourranks.trace import Call
from fourranks.views.deadlock import DeadlockFigure
from fourranks.watch import Deadlock, RankView

BEGIN = "x = torch.ones(2)\n"  # line 1 of each cell


@pytest.fixture(scope="module")
def group():
    with fourranks.start(4) as group:
        group.execute("kept = rank")
        yield group
        assert group.pull("kept") == [0, 1, 2, 3]  # all these mistakes have cost no variable


def explanation(group, cell, ranks=None):
    with pytest.raises(fourranks.DeadlockError) as caught:
        group.execute(BEGIN + cell, ranks)
    assert "All ranks are free again and keep their variables." in str(caught.value)
    group.execute("dist.all_reduce(torch.ones(1))")
    return " ".join(str(caught.value).split())


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        pytest.param(
            "for step in range(10 - (rank == 2)):\n    dist.all_reduce(x)",
            "Rank 2 left the loop `for step in range(10 - (rank == 2)):` (line 2) one iteration early, "
            "or skipped it: rank 0 is in its all_reduce number 10 there, rank 2 called 9.",
            id="a loop left early",
        ),
        pytest.param(
            "step = 0\nwhile step < 3 + (rank < 2):\n    step += 1\n    dist.barrier()\ndist.all_reduce(x)",
            "Ranks 2-3 left the loop `while step < 3 + (rank < 2):` (line 3) one iteration early",
            id="a loop left early, and another collective behind it",
        ),
        pytest.param(
            "local_rank = rank\nfor step in range(3 + (rank == 2)):\n    if local_rank != -1:\n"
            "        dist.all_reduce(x)\nif local_rank != -1:\n    dist.barrier()",
            "Ranks 0-1,3 left the loop `for step in range(3 + (rank == 2)):` (line 3) one iteration early",
            id="a loop left early, and a barrier wherever there are ranks",
        ),
        pytest.param(
            "def train(steps):\n    for _ in range(steps):\n        dist.all_reduce(x)\n"
            "for epoch in range(2):\n    train(5 + (rank == 2))\n    dist.all_reduce(x)",
            "Ranks 0-1,3 left the loop `for _ in range(steps):` (line 3) early, or skipped iterations: rank "
            "2 is in its all_reduce number 12 there, ranks 0-1,3 called 10.",
            id="a loop left early in each epoch",
        ),
        pytest.param(
            "def repeat(times):\n    if times == 0: return\n    dist.all_reduce(x)\n    repeat(times - 1)\n"
            "repeat(3 if rank else 4)",
            "Rank 0 is in its all_reduce number 4 on line 4, ranks 1-3 came there 3 times. All ranks need "
            "the same number: look at what repeats it, such as a loop, a recursion or a hook.",
            id="a recursion that is deeper on one rank",
        ),
        pytest.param(
            "def step():\n    dist.broadcast(x, 0)\n    dist.all_reduce(x)\n"
            "for _ in range(3 - (rank == 2)):\n    step()\ndist.barrier()",
            "Rank 2 left the loop `for _ in range(3 - (rank == 2)):` (line 5) early, or skipped iterations: "
            "rank 0 has made 5 calls there, rank 2 4.",
            id="a loop left early whose turns make several calls",
        ),
        pytest.param(
            "for step in range(3):\n    for _ in range(2):\n        dist.all_reduce(x)\n"
            "    if rank == 1 and step == 1:\n        continue\n    dist.broadcast(x, 0)",
            "called 4. Or rank 1 did not come to the broadcast of line 7: look at the continue in line 6.",
            id="a turn of a loop left between an inner loop and another collective",
        ),
        pytest.param(
            "for step in range(3):\n    dist.all_reduce(x)\n    if rank == 1 and step == 1:\n"
            "        continue\n    dist.broadcast(x, 0)",
            "Rank 1 at least once did not come to the broadcast on line 6: look at the continue in front "
            "of it (line 5).",
            id="a turn of a loop left between two collectives",
        ),
        pytest.param(
            "[*map(lambda _: dist.all_reduce(x), range(3 - (rank == 2)))]",
            "(Cell In[1], line 2: [*map(lambda _: dist.all_reduce(x), range(3 - (rank == 2)))]), for rank 2. "
            "Rank 2 finished the cell. Rank 0 is in its all_reduce number 3 on line 2, rank 2 came there 2",
            id="a lambda that is called in its own line",
        ),
        pytest.param(
            "def mean(value):\n    dist.all_reduce(value)\n    return value\n"
            "def log(values):\n    print({name: mean(value) for name, value in values.items()})\n"
            "for step in range(3):\n    log({'a': x, 'b': x} if rank else {'a': x})",
            "Rank 0 left the loop `print({name: mean(value) for name, value in values.items()})` (line 6) or "
            "`for step in range(3):` (line 7) early, or skipped iterations: rank 1 is in its all_reduce "
            "number 4 there, rank 0 called 3.",
            id="a comprehension among the arguments of another call",
        ),
        pytest.param(
            "def mean(value):\n    dist.all_reduce(value)\n    return value\n"
            "print(mean(x) if rank == 0 else x)\ndist.barrier()",
            "Ranks 1-3 skipped the all_reduce inside `print(mean(x) if rank == 0 else x)` (line 5).",
            id="a branch among the arguments of another call",
        ),
        pytest.param(
            "match rank:\n    case 0:\n        dist.broadcast(x, 0)\n    case _:\n        dist.barrier()",
            "Rank 0 and ranks 1-3 took different branches of `match rank:` (line 2), which make different "
            "calls: broadcast and barrier. A collective needs every rank of its group: move it out of",
            id="two cases of a match",
        ),
        pytest.param(
            "r = dist.get_rank()\nmaster = r == 0\nif master:\n    dist.barrier()",
            "Ranks 1-3 skipped the barrier inside `if master:` (line 4). A collective needs every rank of "
            "its group: move it out of the branch.",
            id="a branch by a variable that the rank alone decides",
        ),
        pytest.param(
            "def update(groups):\n    if groups:\n        dist.all_reduce(x)\n"
            "for step in range(4):\n    if [False, True][rank % 2]:\n        dist.broadcast(x, 0)\n"
            "    update(len(x))",
            "Ranks 0,2 skipped the broadcast inside `if [False, True][rank % 2]:` (line 6).",
            id="a branch in front of a function with a branch, in a loop",
        ),
        pytest.param(
            "for step in range(4):\n    if step % 2 == 0:\n        dist.broadcast(x, 0)\n"
            "    if rank == step == 1:\n        continue\n    dist.all_reduce(x)",
            "Ranks 0,2-3 skipped the broadcast inside `if step % 2 == 0:` (line 3) at least once. A "
            "collective needs every rank of its group: make the condition equal on all ranks (broadcast it, "
            "or draw it from the same seed), or move the call out of the branch. Or rank 1 did not come to "
            "the all_reduce of line 7: look at the continue in line 6.",
            id="a turn left between a branch and another collective",
        ),
        pytest.param(
            "def mean(ready):\n    if ready:\n        dist.all_reduce(x)\n"
            "def step(is_parallel, ready):\n    if is_parallel:\n        mean(ready)\n    dist.barrier()\n"
            "step(len(x) == 2, [True, False][rank // 3])",
            "Rank 3 did not take one of the branches to the all_reduce: `if ready:` (line 3) or "
            "`if is_parallel:` (line 6).",
            id="one of two branches, in functions of which one calls the other",
        ),
        pytest.param(
            "def mean(ready):\n    if ready:\n        dist.all_reduce(x)\n"
            "def is_over(step):\n    return rank == step == 1\n"
            "for step in range(4):\n    mean(len(x) == 2)\n    if is_over(step):\n        break",
            "Rank 1 left the loop `for step in range(4):` (line 7) early, skipped iterations or took "
            "`if ready:` (line 3) less often: rank 0 is in its all_reduce number 3 there, rank 1 called 2. "
            "Look at the break in line 10.",
            id="a loop left early that calls a function with a branch",
        ),
        pytest.param(
            "if rank != 0:\n    dist.all_reduce(x)",
            "Rank 0 skipped the all_reduce inside `if rank != 0:` (line 2).",
            id="a branch",
        ),
        pytest.param(
            "if rank != 0:\n    dist.all_reduce(x)\ndist.broadcast(x, 0)",
            "Rank 0 skipped the all_reduce inside `if rank != 0:` (line 2).",
            id="a branch, and another collective behind it",
        ),
        pytest.param(
            "if rank:\n    dist.all_gather_into_tensor(torch.empty(8), x)",
            "all_gather_into_tensor (Cell In[1], line 3: dist.all_gather_into_tensor(torch.empty(8), x)), "
            "for rank 0. Rank 0 finished the cell. "
            "Rank 0 skipped the all_gather_into_tensor inside `if rank:` (line 2).",
            id="a function that torch has deprecated",
        ),
        pytest.param(
            "if rank == 3:\n    pass\nelse:\n    dist.barrier()",
            "Rank 3 skipped the barrier inside `else of if rank == 3:` (line 2).",
            id="the other branch",
        ),
        pytest.param(
            "def step():\n    if rank == 3:\n        return\n    dist.all_reduce(x)\nstep()",
            "Rank 3 never came to line 5: look at the return in front of it (line 4).",
            id="an early return",
        ),
        pytest.param(
            "def check(step):\n    if rank != 0: return\n    dist.barrier()\n"
            "for step in range(4):\n    dist.all_reduce(x)\n    if step % 2 == 0: check(step)",
            "Ranks 1-3 never came to the barrier on line 4: look at the return in front of it (line 3).",
            id="a return by rank in a function that is called on another branch",
        ),
        pytest.param(
            "def check(step):\n    if rank != 0 and step > 1: return\n    dist.barrier()\n"
            "for step in range(4):\n    dist.all_reduce(x)\n    if step % 2 == 0: check(step)",
            "Ranks 1-3 at least once did not come to the barrier on line 4: look at the return in front",
            id="a return by rank, the second time",
        ),
        pytest.param(
            "def check(step):\n    if rank != 0: return\n    dist.barrier()\n"
            "for step in range(4):\n    dist.all_reduce(x)\n    if step == 3: check(step)",
            "Ranks 1-3 never came to the barrier on line 4: look at the return in front of it (line 3).",
            id="a return by rank, with nothing behind it",
        ),
        pytest.param(
            "def check(step):\n    if rank != 0: return\n    dist.barrier()\n"
            "for step in range(4):\n    dist.all_reduce(x)\n    if rank == 0: check(step)",
            "Ranks 1-3 skipped the barrier inside `if rank == 0: check(step)` (line 7).",
            id="a return by rank that no other rank comes to",
        ),
        pytest.param(
            "for step in range(4):\n    if step > 5: break\n    dist.all_reduce(x)\n"
            "    if rank == step == 1: break",
            "Look at the break in line 3 and the break in line 5.",
            id="a loop left early in one of two ways",
        ),
        pytest.param(
            "def on_rank_0(function):\n    return lambda: function() if rank == 0 else None\n"
            "@on_rank_0\ndef log():\n    dist.all_reduce(x)\nlog()",
            "Ranks 1-3 skipped the all_reduce inside `return lambda: function() if rank == 0 else None` "
            "(line 3).",
            id="a function that a decorator leaves out",
        ),
        pytest.param(
            "def log():\n    dist.all_reduce(x)\nlog = [print, log][rank == 0]\nlog()",
            "Ranks 1-3 never came to the all_reduce on line 3 of log by way of line 5.",
            id="another function of the same name",
        ),
        pytest.param(
            "to = (rank + 1) % 4; batch = dist.P2POp(dist.isend, x, to), dist.P2POp(dist.irecv, -x, to)\n"
            "for request in dist.batch_isend_irecv([*batch]): request.wait()",
            "rank 0 sends to rank 1, which receives from rank 2 (line 3). Check the argument src there.",
            id="a ring whose receives name the wrong neighbour",
        ),
        pytest.param(
            "dist.all_reduce(x) if rank else None\ntorch.ones(3)",
            "Rank 0 finished the cell.",
            id="no block to name",
        ),
        pytest.param(
            "dist.send(x, (rank + 1) % 4)\ndist.recv(x, (rank - 1) % 4)",
            "A send/send cycle (0 → 1 → 2 → 3 → 0): a blocking send waits until its receiver asks. Use isend",
            id="all send first",
        ),
        pytest.param(
            "dist.recv(x, (rank - 1) % 4)\ndist.send(x, (rank + 1) % 4)",
            "A recv/recv cycle (0 → 3 → 2 → 1 → 0): all receive first, so no rank sends. Use irecv",
            id="all receive first",
        ),
        pytest.param(
            "for step in range(6 - 2 * (rank == 2)):\n"
            "    ends = [dist.P2POp(dist.isend, x, (rank + 1) % 4),\n"
            "            dist.P2POp(dist.irecv, torch.ones(2), (rank - 1) % 4)]\n"
            "    for work in dist.batch_isend_irecv(ends): work.wait()\n"
            "dist.barrier()",
            "Rank 1 waits in its 5th send to rank 2, which has received only 4 messages, and itself waits in "
            "barrier (line 6).",
            id="a ring that one rank leaves early",
        ),
        pytest.param(
            "if rank == 0: dist.send(x, 1)\nif rank == 1: dist.recv(x, 0)\n"
            "dist.recv(x, (rank - 1) % 4)\ndist.send(x, (rank + 1) % 4)",
            "A recv/recv cycle (0 → 3 → 2 → 1 → 0): all receive first, so no rank sends. Use irecv",
            id="all receive first, and two have exchanged a message before",
        ),
        pytest.param(
            "dist.send(x, rank ^ 2)\ndist.recv(x, rank ^ 2)",  # pairs of two even or two odd ranks
            "order by rank: the lower rank of each pair sends first, the higher one receives first.",
            id="both of a pair send first",
        ),
        pytest.param(
            "if rank < 3:\n    dist.recv(x, (rank - 1) % 3)\n    dist.send(x, (rank + 1) % 3)",
            "let one rank break the cycle: rank 0 sends before it receives.",
            id="an odd ring in which all receive first",
        ),
        pytest.param(
            "dist.isend(x, (rank + 1) % 4).wait()\ndist.recv(x, (rank - 1) % 4)",
            "A send/send cycle (0 → 1 → 2 → 3 → 0): each of these ranks waits for an irecv that the next one "
            "has not issued. Issue as many irecvs as isends, and all before the first wait.",
            id="all wait for their isend",
        ),
        pytest.param(
            "if rank < 2:\n    works = [dist.isend(x, 1 - rank), dist.irecv(x, 1 - rank)]\n"
            "    works.append(dist.irecv(x, 1 - rank))\n    for work in works: work.wait()",
            "A recv/recv cycle (0 → 1 → 0): each of these ranks waits for an isend that the next one has not "
            "issued. Issue as many isends as irecvs, and all before the first wait.",
            id="all receive twice and send once",
        ),
        pytest.param(
            "def take(): dist.irecv(x, 1 - rank).wait()\n"
            "for step in range(3 * (rank < 2)):\n"
            "    dist.isend(x, 1 - rank).wait() if (step + rank) % 2 else take()\n"
            "if rank < 2: take()",
            "Rank 0 waits in its 3rd recv from rank 1, which has sent only 2 messages, and itself waits in",
            id="receives that were counted differently",
        ),
        pytest.param(
            "def swap(other):\n    works = [dist.isend(torch.ones(1 << 20), other)]\n"
            "    if rank == 0: works.append(dist.irecv(torch.ones(1 << 20), other))\n"
            "    for work in works: work.wait()\n"
            "for step in range(2 * (rank < 2)): swap(1 - rank)",
            "Rank 1 waits in its 2nd send to rank 0, which has received only one message, and itself waits",
            id="a pair of which one lacks its irecv",
        ),
        pytest.param(
            "if rank == 0: dist.send(x, 1, tag=7)\nif rank == 1: dist.recv(x, 0)",
            "Rank 1 expects a message with tag 0, but rank 0's send has tag 7: use the same tag",
            id="another tag",
        ),
        pytest.param(
            "if rank == 2: dist.send(x, 3, tag=2)\nif rank == 3: dist.recv(x, 2)\n"
            "for step in range(3):\n    dist.all_reduce(x)",
            "Rank 3 expects a message with tag 0, but rank 2's send has tag 2: use the same tag",
            id="another tag, while other ranks have come further",
        ),
        pytest.param(
            "if rank == 0: dist.send(x, 2)\nif rank == 1: dist.recv(x, 0)",
            "Rank 0 sends to rank 2 (line 2), which does not answer, while rank 1 waits for rank 0:",
            id="another receiver",
        ),
        pytest.param(
            "for step in range(2 - (rank == 3)):\n    if rank: dist.recv(x, rank - 1)\n"
            "    if rank < 3: dist.send(x, rank + 1); dist.recv(x, rank + 1)\n"
            "    if rank: dist.send(x, rank - 1)",
            "Rank 2 waits in its 2nd send to rank 3, which has received only one message, and finished",
            id="a step less on the last stage",
        ),
        pytest.param(
            "if rank == 0: dist.recv(x, 1)",
            "Every send needs a recv, and every recv a send",
            id="nobody sends",
        ),
        pytest.param(
            "dist.send(torch.ones(4), 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None",
            "16 bytes are sent, and there is room for 8.",
            id="too small a buffer",
        ),
        pytest.param(
            "dist.send(torch.ones(4), 1) if rank == 0 else dist.recv(x) if rank == 1 else None",
            "16 bytes are sent, and there is room for 8.",
            id="too small a buffer for any sender",
        ),
        pytest.param(
            "dist.broadcast(x, src=rank)",
            "Ranks 0-3 each name themselves: the src or dst of broadcast is one rank, and all ranks name the "
            "same.",
            id="src=rank",
        ),
        pytest.param(
            "dist.broadcast(x, src=rank // 3)",
            "rank 3 disagree on the src or dst: in one broadcast all ranks must give the same.",
            id="another root",
        ),
        pytest.param(
            "dist.all_reduce(torch.ones(2 + rank // 3))",
            "Rank 0 and rank 3 disagree on the shape: in one all_reduce all ranks must give the same.",
            id="another shape",
        ),
        pytest.param(
            "dist.all_reduce(x.double() if rank == 1 else x)",
            "Rank 0 and rank 1 disagree on the dtype: in one all_reduce all ranks must give the same.",
            id="another dtype",
        ),
        pytest.param(
            "dist.all_reduce(x, dist.ReduceOp.MAX if rank == 3 else dist.ReduceOp.SUM)",
            "Rank 0 and rank 3 disagree on the reduce op: in one all_reduce all ranks must give the same.",
            id="another reduce op",
        ),
        pytest.param(
            "chunks = [torch.ones(2, dtype=torch.int64 if rank == 1 else None) for _ in range(4)]\n"
            "dist.reduce_scatter(torch.ones(2, dtype=chunks[0].dtype), chunks)",
            "Rank 0 and rank 1 disagree on the dtype: in one reduce_scatter all ranks must give the same.",
            id="another dtype in a list",
        ),
        pytest.param(
            "given = torch.ones(4, dtype=torch.int64 if rank == 1 else None)\n"
            "dist.all_to_all_single(torch.empty_like(given), given)",
            "Rank 0 and rank 1 disagree on the dtype: in one all_to_all_single all ranks must give the same.",
            id="another dtype in an all-to-all",
        ),
        pytest.param(
            "sizes = [1 + (rank == 2 and other == 0) for other in range(4)]\n"
            "dist.all_to_all_single(torch.empty(4), torch.ones(sum(sizes)), [1] * 4, sizes)",
            "Rank 2 sends 8 bytes to rank 0 in all_to_all_single, and rank 0 expects 4 bytes from it.",
            id="a chunk that does not fit",
        ),
        pytest.param(
            "def save():\n    dist.barrier()\ndef train():\n    if rank == 0:\n        save()\n"
            "if __name__ == '__main__':\n    train()",
            "Ranks 1-3 skipped the barrier inside `if rank == 0:` (line 5).",
            id="a branch in a function that a line calls to which all ranks come",
        ),
        pytest.param(
            "def save(last):\n    if last:\n        dist.barrier()\nlast = rank > 2\nsave(last)",
            "Ranks 0-2 skipped the barrier inside `if last:` (line 3).",
            id="a branch that does not name the rank, in such a function",
        ),
        pytest.param(
            "def save():\n    if rank == 0:\n        dist.barrier()\nfor step in range(3):\n    save()",
            "Ranks 1-3 skipped the barrier inside `if rank == 0:` (line 3).",
            id="a branch that names the rank, in a function that a loop calls",
        ),
        pytest.param(
            "def log():\n    if rank: return\n    dist.reduce(x, 0)\n"
            "for step in range(2):\n    dist.all_reduce(x)\n    log()",
            "Ranks 1-3 never came to the reduce on line 4: look at the return in front of it (line 3).",
            id="a return in a function, and the same loop goes on",
        ),
        pytest.param(
            "def load(step):\n    if step in known: return\n    dist.all_reduce(x)\n"
            "known = [0] if rank == 3 else []\nfor step in range(2):\n    load(step)",
            "Rank 3 left the loop `for step in range(2):` (line 6) one iteration early, or skipped it: "
            "rank 0 is in its all_reduce number 2 there, rank 3 called 1. Look at the return in line 3.",
            id="a return in a function that a loop calls",
        ),
        pytest.param(
            "pair = dist.new_group([1, 3])\ndef sync():\n    if x.sum() == 2 * rank - 4: return\n"
            "    dist.all_reduce(x, group=pair)\nif rank in (1, 3): sync()\ndist.barrier()",
            "Rank 3 never came to the all_reduce on line 5: look at the return in front of it (line 4).",
            id="a return behind a branch that the rank does take",
        ),
        pytest.param(
            "dist.scatter(x.repeat(1 + (rank == 2)), [x] * 4 if rank == 0 else None)",
            "Rank 2 waits in scatter [src/dst 0, shape [4], float32] (Cell In[1], line 2: dist.scatter("
            "x.repeat(1 + (rank == 2)), [x] * 4 if rank == 0 else None)). "
            "Rank 0 and rank 2 disagree on the shape: in one scatter all ranks must give the same.",
            id="a scatter from which one rank takes more than it is given",
        ),
        pytest.param(
            "with dist.distributed_c10d._coalescing_manager():\n"
            "    for _ in range(3 - (rank == 0)): dist.all_reduce(x)",
            "Rank 0 and rank 1 disagree on the number of elements (4 and 6): in one all_reduce",
            id="one tensor fewer in a batch",
        ),
        pytest.param(
            "parts = [torch.ones(3 + part + (rank == 2 and part == 1)) for part in range(4)]\n"
            "dist.reduce_scatter(torch.ones(3 + rank), parts)",
            "Ranks 0-3 wait in reduce_scatter [SUM, shape [3], float32] (Cell In[1], line 3: "
            "dist.reduce_scatter(torch.ones(3 + rank), parts)). "
            "Rank 0 and rank 2 disagree on the number of elements (18 and 19)",
            id="a reduce-scatter of unequal parts, of which ranks have different ones",
        ),
        pytest.param(
            "shares = [1 + rank + other for other in range(4)]\nx = torch.ones(sum(shares))\n"
            "if rank < 3: dist.all_to_all_single(x, -x, shares, shares)",
            "Ranks 0-2 wait in all_to_all_single (Cell In[1], line 4: if rank < 3: dist.all_to_all_single("
            "x, -x, shares, shares)), for rank 3.",
            id="ranks whose calls differ in what is not shown",
        ),
        pytest.param(
            "if rank == 0: dist.scatter(x, [x] * 4)\nelif rank < 3: dist.scatter(x)",
            "Rank 3 skipped the scatter inside `if rank == 0:",
            id="a scatter that has ended on the other branch of some ranks",
        ),
        pytest.param(
            "def is_main(): return rank == 0\ndef save():\n    if is_main(): dist.barrier()\n"
            "for step in range(4):\n    dist.all_reduce(x)\n    if step % 2: save()",
            "Ranks 1-3 skipped the barrier inside `if is_main(): dist.barrier()` (line 4).",
            id="a branch that asks for the main process by a function",
        ),
        pytest.param(
            "from types import SimpleNamespace\ntrainer = SimpleNamespace(is_global_zero=rank == 0)\n"
            "if trainer.is_global_zero: dist.barrier()",
            "Ranks 1-3 skipped the barrier inside `if trainer.is_global_zero: dist.barrier()` (line 4). "
            "A collective needs every rank of its group: move it out of the branch.",
            id="a branch by the name that Lightning gives rank 0",
        ),
        pytest.param(
            "process_index = rank\nif process_index == 0: dist.barrier()",
            "A collective needs every rank of its group: move it out of the branch.",
            id="a branch by the name that Accelerate gives the rank",
        ),
        pytest.param(
            "def save():\n    if rank == 0:\n        dist.barrier()\n"
            "for step in range(4):\n    dist.all_reduce(x)\n    if step % 2: save()",
            "Ranks 1-3 skipped the barrier inside `if rank == 0:` (line 3).",
            id="a branch that names the rank, in a function that is called on a branch",
        ),
        pytest.param(
            "def both():\n    if rank < 2:\n        dist.all_reduce(x, group=pair)\n"
            "pair = dist.new_group([0, 1])\n"
            "if rank: both()",
            "Rank 0 skipped the all_reduce inside `if rank: both()` (line 6).",
            id="a branch on which the ranks of a group are alone",
        ),
        pytest.param(
            "def save():\n    dist.barrier()\nif x.sum() > 2 or rank:\n    for step in range(3):\n"
            "        save()",
            "Rank 0 skipped the barrier inside `if x.sum() > 2 or rank:` (line 4).",
            id="a branch around a loop that calls a function",
        ),
        pytest.param(
            "store = dist.distributed_c10d._get_default_store()\nif rank: store.queue_pop('batches')",
            "No rank is left that could fill the queue: look for the `queue_push` that belongs to it.",
            id="a queue that no rank fills",
        ),
        pytest.param(
            "dist.barrier() if rank == 1 else dist.all_reduce(x)",
            "All ranks of a group must call the same collectives in the same order.",
            id="another collective",
        ),
        pytest.param(
            "from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh\n"
            "mesh = init_device_mesh('cpu', (4,))\n"
            "distribute_tensor(torch.ones(4, 4), mesh, [Shard(0) if rank else Replicate()])",
            "These ranks are on the same line: one of them is a call behind, or what it works on there is "
            "not as on the others, such as the placements of a tensor",
            id="a library that is given something else on one rank",
        ),
        pytest.param(
            "if rank == 0:\n    dist.barrier()\n    dist.all_reduce(x)\n"
            "else:\n    dist.all_reduce(x)\n    dist.barrier()",
            "The same calls in a different order: rank 0 calls barrier (line 3) before all_reduce (line 4), "
            "ranks 1-3 call all_reduce (line 6) before barrier (line 7).",
            id="two collectives swapped",
        ),
        pytest.param(
            "if rank == 0: dist.barrier(); dist.all_reduce(x)\nelse: dist.all_reduce(x); dist.barrier()",
            "The same calls in a different order: rank 0 calls barrier (line 2) before all_reduce (line 2), "
            "ranks 1-3 call all_reduce (line 3) before barrier (line 3).",
            id="two collectives swapped, each pair on one line",
        ),
        pytest.param(
            "if rank == 0:\n    dist.barrier()\ndist.all_reduce(x)\nif rank != 0:\n    dist.barrier()",
            "rank 0 calls barrier (line 3) before all_reduce (line 4), "
            "ranks 1-3 call all_reduce (line 4) before barrier (line 6).",
            id="two collectives swapped, one of them in common",
        ),
        pytest.param(
            "if rank == 0:\n    dist.barrier()\ndist.all_reduce(x)\ndist.barrier()",
            "Ranks 1-3 skipped the barrier inside `if rank == 0:` (line 2).",
            id="a collective that one rank calls once more",
        ),
        pytest.param(
            "pair = dist.new_group([0, 1])\nif rank != 1:\n    dist.all_reduce(x)\n"
            "if rank < 2:\n    dist.all_reduce(x, group=pair)\ndist.all_reduce(x)",
            "Rank 1 skipped the all_reduce inside `if rank != 1:` (line 3).",
            id="a skipped collective in front of one in another group",
        ),
        pytest.param(
            "if rank == 0:\n    dist.barrier()\n    dist.send(x, 1)\nelif rank == 1:\n"
            "    dist.recv(x, 0)\n    dist.barrier()\nelse:\n    dist.barrier()",
            "rank 0 calls barrier (line 3) before send (line 4), rank 1 calls recv (line 6) before barrier",
            id="a barrier before a send, and behind its recv",
        ),
        pytest.param(
            "import random\nrandom.seed(rank + 3)\nfor step in range(10):\n    if random.random() < 0.5:\n"
            "        dist.all_reduce(x)\n    else:\n        dist.broadcast(x, 0)",
            "took different branches of `if random.random() < 0.5:` (line 5), which make different calls: "
            "all_reduce and broadcast. A collective needs every rank of its group: make",
            id="a random branch",
        ),
        pytest.param(
            "pair, flags = dist.new_group([0, 1]), [1, 0]\nif flags[rank % 2]:\n    dist.all_reduce(x)\n"
            "elif rank < 2:\n    dist.all_reduce(x, group=pair)",
            "took different branches of `if flags[rank % 2]:` (line 3)",
            id="a branch on which another group communicates",
        ),
        pytest.param(
            "if rank == 0:\n    dist.broadcast(x, 0)\nelse:\n    dist.broadcast(torch.ones(3), 0)",
            "Rank 0 and rank 1 disagree on the shape",
            id="another shape on another branch",
        ),
        pytest.param(
            "out = [None] * 4\nif rank == 0:\n    dist.all_gather_object(out, 1)\nelse:\n"
            "    dist.all_gather([torch.empty(2) for _ in range(4)], x)",
            "Rank 0 communicates objects, and other ranks tensors",
            id="objects here, tensors there",
        ),
        pytest.param(
            "for epoch in range(2):\n    dist.all_reduce(x)\n    if rank == 0:\n        dist.reduce(x, 0)",
            "Ranks 1-3 skipped the reduce inside `if rank == 0:` (line 4).",
            id="a call of rank 0 alone in a loop",
        ),
        pytest.param(
            "net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))\n"
            "model = torch.nn.parallel.DistributedDataParallel(net)\nfor epoch in range(2):\n"
            "    model(torch.ones(3, 2)).sum().backward()\n    if rank == 0:\n"
            "        with torch.no_grad(): model(torch.ones(3, 2))",
            "Ranks 1-3 skipped the broadcast inside `if rank == 0:` (line 6). DistributedDataParallel",
            id="validation on rank 0 through DDP",
        ),
        pytest.param(
            "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)\n"
            "    def forward(self, x, deep):\n        return self.b(self.a(x)) if deep else self.a(x)\n"
            "model = torch.nn.parallel.DistributedDataParallel(Net())\nmodel(x, rank != 2).sum().backward()",
            "Rank 2 did not come to this all_reduce of gradients",
            id="parameters of DDP that one rank does not use",
        ),
        pytest.param(
            "for step in range(3):\n    try:\n        if rank == 1 and step == 1: raise ValueError\n"
            "        dist.all_reduce(x)\n    except ValueError:\n        pass\ndist.barrier()",
            "Rank 1 made 2 calls on line 5, rank 0 3 calls: an exception may have been caught by the try",
            id="an exception that one rank catches",
        ),
        pytest.param(
            "def evaluate(batches):\n    for _ in range(batches):\n        dist.all_reduce(x)\n"
            "evaluate(3 + (rank == 0))\ndist.barrier()",
            "Ranks 1-3 left the loop `for _ in range(batches):` (line 3) one iteration early",
            id="a shorter loop in a function",
        ),
        pytest.param(
            "for epoch in range(3):\n    for batch in range(4):\n        dist.all_reduce(x)\n"
            "    if epoch == 1 and rank == 2:\n        break",
            "Rank 2 left the loop `for batch in range(4):` (line 3) or `for epoch in range(3):` (line 2) "
            "early, or skipped iterations: rank 0 is in its all_reduce number 9 there, rank 2 called 8. "
            "Look at the break in line 6.",
            id="an outer loop left early",
        ),
        pytest.param(
            "def train():\n    for batch in range(4):\n        dist.all_reduce(x)\ndef fit():\n"
            "    for epoch in range(3):\n        train()\n        if epoch == 1 and rank == 2:\n"
            "            return\nfit()",
            "`for batch in range(4):` (line 3) or `for epoch in range(3):` (line 6) early, or skipped "
            "iterations: rank 0 is in its all_reduce number 9 there, rank 2 called 8. Look at the "
            "return in line 9.",
            id="an outer loop left early, in another function",
        ),
        pytest.param(
            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
            "for epoch in range(3):\n    if epoch % 2 == 0 or rank != 1:\n"
            "        for batch in range(2): model(x).sum().backward()",
            "Rank 1 left the loop `for batch in range(2): model(x).sum().backward()` (line 5) or "
            "`for epoch in range(3):` (line 3) early, skipped iterations, took "
            "`if epoch % 2 == 0 or rank != 1:` (line 4) less often or made fewer calls in one",
            id="a branch around a loop, not taken once",
        ),
        pytest.param(
            "for step in range(4):\n    if rank == step == 2:\n        continue\n    dist.all_reduce(x)",
            "rank 0 is in its all_reduce number 4 there, rank 2 called 3. Look at the continue in line 4.",
            id="an iteration left out",
        ),
        pytest.param(
            "rank == 0 and dist.barrier()",
            "Ranks 1-3 skipped the barrier inside `rank == 0 and dist.barrier()` (line 2).",
            id="a branch in an expression",
        ),
        pytest.param(
            "for _ in range(4 + (rank > 1)):\n    if rank > 0: dist.recv(x, rank - 1)\n"
            "    if rank < 3: dist.send(x, rank + 1)",
            "Rank 2 waits in its 5th recv from rank 1, which has sent only 4 messages, and finished",
            id="unequal numbers of microbatches",
        ),
        pytest.param(
            "for _ in range(3 + (rank > 0)):\n    if rank > 0: dist.recv(x, rank - 1)\n"
            "    if rank < 3: dist.send(x, rank + 1)\n"
            "for _ in range(3):\n    if rank < 3: dist.recv(x, rank + 1)\n"
            "    if rank > 0: dist.send(x, rank - 1)",
            "Rank 1 waits in its 4th recv from rank 0, which has sent only 3 messages, and itself waits",
            id="unequal numbers of microbatches, forwards and backwards",
        ),
        pytest.param(
            "for step in range(2):\n    for _ in range(3 + step * (rank == 2)):\n"
            "        if rank > 0: dist.recv(x, rank - 1)\n        if rank < 3: dist.send(x, rank + 1)\n"
            "    for _ in range(3):\n        if rank == 0: dist.recv(x, 1)\n"
            "        elif rank < 3: dist.recv(x, rank + 1)\n"
            "        if rank > 0: dist.send(x, rank - 1)",
            "Rank 1 waits in its 4th recv from rank 2, which has sent only 3 messages, and itself waits",
            id="a rank that waits for two others, of which one has more microbatches",
        ),
        pytest.param(
            "for step in range(3):\n    request = dist.isend(x, (rank + 1) % 4)\n"
            "    if (rank, step) == (2, 1): break\n    dist.recv(x, (rank - 1) % 4)\n    request.wait()",
            "Rank 1 waits in its 2nd send to rank 2, which has received only one message, and finished",
            id="a ring that one rank leaves early",
        ),
        pytest.param(
            "dist.send(x, (rank + 2) % 4)\ndist.recv(x, (rank + 2) % 4)",
            "order by rank: the lower rank of each pair sends first",
            id="pairs of equal parity that all send first",
        ),
        pytest.param(
            "if rank > 0: dist.recv(x, rank - 1)\ndist.send(x, (rank + 1) % 4)",
            "Rank 0 finished the cell without a recv from rank 3.",
            id="a chain whose last rank sends, too",
        ),
        pytest.param(
            "mine = dist.new_group([0, 1]), dist.new_group([2, 3])\nother = dist.new_group([1, 3])\n"
            "dist.all_reduce(x, group=other if rank == 3 else mine[rank // 2])",
            "which is one of them, did so among ranks 0-1: both must use one group there.",
            id="another group on the same line",
        ),
        pytest.param(
            "mine = dist.new_group([0, 1]), dist.new_group([2, 3])\n"
            "dist.all_reduce(x, group=None if rank == 3 else mine[rank // 2])",
            "On line 3 rank 2 communicates among ranks 2-3, and rank 3, which is one of them, did so among",
            id="another group on the same line, where both wait",
        ),
        pytest.param(
            "one, two = dist.new_group(), dist.new_group()\ndist.all_reduce(x, group=one if rank else two)",
            "On line 3 rank 0 and rank 1 communicate in two groups of the same ranks: both must use one "
            "group there, and several groups in the same order.",
            id="another group of the same ranks on the same line",
        ),
        pytest.param(
            "one, two = dist.new_group([0, 1]), dist.new_group([0, 1])\n"
            "for group in ([one, two] if rank else [two, one]):\n"
            "    if rank < 2: dist.all_reduce(x, group=group)",
            "Ranks that share several groups must use them in the same order.",
            id="two groups in another order",
        ),
        pytest.param(
            "rows = dist.new_group([0, 1]), dist.new_group([2, 3])\n"
            "columns = dist.new_group([0, 2]), dist.new_group([1, 3])\n"
            "mine = [rows[rank // 2], columns[rank % 2]]\n"
            "for group in mine if rank in (0, 3) else reversed(mine):\n    dist.all_reduce(x, group=group)",
            "A cycle through several groups (0 → 1 → 3 → 2 → 0): each of these ranks waits for one that is "
            "in a call of another group. Use groups of different kinds, such as for tensor and data "
            "parallelism, in the same order on all ranks.",
            id="rows first on some ranks, columns first on others",
        ),
        pytest.param(
            "if rank != 1:\n    pair = dist.new_group([0, 1])\ndist.barrier()",
            "Every rank must call new_group, with the same members and in the same order, even the ranks",
            id="a rank that does not call new_group",
        ),
        pytest.param(
            "if rank == 0:\n    dist.barrier()\ndist.new_group()",
            "Ranks 1-3 skipped the barrier inside `if rank == 0:` (line 2).",
            id="a skipped barrier in front of a new_group",
        ),
        pytest.param(
            "pair = dist.new_group([0, 2 - rank % 2])",
            "Every rank must call new_group, with the same members and in the same order",
            id="groups with other members",
        ),
        pytest.param(
            "pair = dist.new_group([0, 1] if rank else [1, 0], sort_ranks=False)",
            "Every rank must call new_group, with the same members and in the same order",
            id="groups with their members in another order",
        ),
        pytest.param(
            "if rank != 1:\n    pair = dist.new_group(torch.tensor([0, 1]))\ndist.barrier()",
            "Every rank must call new_group, with the same members and in the same order, even the ranks",
            id="a rank that does not call new_group, to which others give a tensor",
        ),
        pytest.param(
            "if rank == 0: dist.send(x, 2)\nif rank == 3: dist.recv(x, 0)\npair = dist.new_group([1, 3])",
            "Rank 0 sends to rank 2 (line 2), which does not answer, while rank 3 waits for rank 0:",
            id="a rank that cannot come to new_group for a message to another rank",
        ),
        pytest.param(
            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
            "if rank != 3:\n    model(x).sum().backward()",
            "model(x).sum().backward(), through the backward pass), for rank 3.",
            id="a backward pass of DDP without one rank",
        ),
        pytest.param(
            "model = torch.nn.Linear(2, 2)\n"
            "if rank: model = torch.nn.parallel.DistributedDataParallel(model)",
            "DistributedDataParallel compares the ranks' models where it is made: make it on all ranks.",
            id="DDP made on some ranks",
        ),
        pytest.param(
            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
            "for step in range(3):\n    with model.no_sync() if rank == step == 1 else torch.enable_grad():\n"
            "        model(x).sum().backward()",
            "early, skipped iterations or made fewer calls in one, as with no_sync(): rank 0 has made",
            id="gradients that one rank keeps back",
        ),
        pytest.param(
            "def collect():\n    if rank == 0:\n        dist.gather_object(1, [None] * 4)\n"
            "collect(); dist.barrier()",
            "Ranks 1-3 skipped the gather_object inside `if rank == 0:` (line 3).",
            id="a branch of a function, and a collective behind it on the line that calls it",
        ),
        pytest.param(
            "for src in [0, 1, 2] if rank != 1 else [2, 0, 1]:\n    dist.broadcast(x, src)",
            "If these are right as they are, the ranks go through the loop `for src in [0, 1, 2] if rank",
            id="a loop in another order",
        ),
        pytest.param(
            "import sys\nif rank == 2: sys.exit()\ndist.all_reduce(x)",
            "Rank 2 never came to line 4: look at the exit in front of it (line 3).",
            id="a script that one rank leaves",
        ),
        pytest.param(
            "dist.new_group([0, 1, 2] if rank < 3 else [0, 1, 2, 3])",
            "Every rank must call new_group, with the same members and in the same order",
            id="a group with all ranks here, with some there",
        ),
        pytest.param(
            "if rank:\n    dist.send(x, 0)\nelse:\n    for _ in range(4): dist.recv(x)",
            "Rank 0 waits in its 4th recv on line 5, but no message for it is left.",
            id="one receive from any source too many",
        ),
        pytest.param(
            "from concurrent.futures import ThreadPoolExecutor\ng = dist.new_group()\n"
            "with ThreadPoolExecutor(1) as pool:\n"
            "    for _ in range(3 - (rank == 3)): pool.submit(dist.all_reduce, x, group=g).result()",
            "(line 5) early, skipped iterations or made fewer calls in one, on another branch: rank 0 has "
            "made 3 calls there, rank 3 2. All ranks need the same number.",
            id="a pool that one rank gives fewer calls",
        ),
        pytest.param(
            "import threading\ndef log():\n    if rank == 2: raise ValueError\n"
            "    dist.all_reduce(x, group=g)\n"
            "g = dist.new_group()\nthread = threading.Thread(target=log); thread.start(); thread.join()\n"
            "dist.barrier()",
            "A thread of rank 2 ended with ValueError (its traceback is above). If that thread was to make "
            "the all_reduce that ranks 0-1,3 wait for, fix the exception first.",
            id="a thread that raised",
        ),
        pytest.param(
            "import threading\ndef log():\n    if rank == 0: raise ValueError\n    dist.barrier()\n"
            "thread = threading.Thread(target=log); thread.start(); thread.join()\ndist.all_reduce(x)",
            "A thread of rank 0 ended with ValueError (its traceback is above). If that thread was to make "
            "the barrier that ranks 1-3 wait for, fix the exception first.",
            id="a thread that raised, and another collective behind it",
        ),
        pytest.param(
            "rows = torch.ones(4 + 4 * (rank == 2))\ntry: dist.all_to_all_single(torch.empty(4), rows)\n"
            "except RuntimeError: dist.all_reduce(x)",
            "On rank 2 the all_to_all_single was refused (Cell In[1], line 3: try: "
            "dist.all_to_all_single(torch.empty(4), rows)): in->size == out->size. On rank 2 torch "
            "refused this all_to_all_single for its arguments, and the others wait in it",
            id="an all-to-all that was refused on one rank",
        ),
        pytest.param(
            "parts = [torch.empty(2)] * 3 if rank == 0 else None\ntry: dist.gather(x, parts)\n"
            "except RuntimeError: pass\ndist.all_reduce(x)",
            "On rank 0 torch refused this gather for its arguments, and the others wait in it: correct the "
            "arguments there. An exception that one rank catches is unknown to the other ranks. The error on "
            "rank 0 (line 3) was: ProcessGroupGloo::gather: Incorrect output list size 3.",
            id="a gather that was refused on its root",
        ),
        pytest.param(
            "try:\n    if rank == 1: raise ValueError('bad batch')\n    dist.all_reduce(x)\n"
            "finally:\n    dist.barrier()",
            "Rank 1 raised ValueError (line 3), and came to the barrier by handling it: in an `except`, in a "
            "`finally` or at the end of a `with`. Correct the exception first.",
            id="a finally that one rank comes to by an exception",
        ),
        pytest.param(
            "try:\n    {0: 1, 2: 1, 3: 1}[rank]\nexcept KeyError:\n    dist.all_reduce(x)",
            "Rank 1 raised KeyError (line 3), and came to the all_reduce by handling it",
            id="a handler that only one rank comes to",
        ),
        pytest.param(
            "for step in range(2 + rank): dist.all_reduce(x)\n"
            "for step in range(4 - rank): dist.all_reduce(x)\n"  # as a Join of torch answers the others
            "for step in range(3 - (rank == 2)): dist.all_reduce(x)",
            "Rank 2 left the loop `for step in range(3 - (rank == 2)): dist.all_reduce(x)` (line 4) one",
            id="a loop behind calls that met from different places",
        ),
        pytest.param(
            "if rank:\n    dist.monitored_barrier()",
            "Rank 0 skipped the monitored_barrier inside `if rank:`",
            id="a monitored barrier",
        ),
        pytest.param(
            "import time\nif rank == 0: dist.recv(x, 1)\nif rank == 1: dist.send(x, 2)\n"
            "if rank == 2: time.sleep(0.5)\ndist.barrier()",
            "Rank 1's send waits for a recv on rank 2, but that one is stuck in barrier (line 6).",
            id="a message behind which another rank waits for one",
        ),
        pytest.param(
            "from torch.distributed.algorithms.join import Join\n"
            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
            "with Join([model]):\n    for step in range(2 + rank):\n        model(x).sum().backward()\n"
            "    if rank == 1:\n        dist.barrier()",
            "Rank 0 skipped the barrier inside `if rank == 1:` (line 7).",
            id="a collective behind the loop of a Join, which ranks may leave early",
        ),
        pytest.param(
            "import time\ngroup = dist.new_group([0, 1, 2, 3])\n"
            "for step in range(2):\n    dist.all_reduce(x)\n    if step == 0:\n"
            "        if rank == 1: time.sleep(3)\n"
            "        if rank != 3: dist.broadcast(x, 0, group=group)",
            "Rank 3 skipped the broadcast inside `if rank != 3: dist.broadcast(x, 0, group=group)` (line 8).",
            id="a call to which a third rank may still come",
        ),
        pytest.param(
            "y = torch.ones(1)\nif rank == 1:\n    dist.all_reduce(y)\n    dist.all_reduce(x)\n"
            "else:\n    dist.all_reduce(x)\n    dist.all_reduce(y)",
            "Rank 0 and rank 1 disagree on the shape: in one all_reduce all ranks must give the same. They "
            "call it from different places: if these are right as they are, one of the ranks has skipped",
            id="an all-reduce that meets another one, of another shape",
        ),
    ],
)
def test_the_likely_mistake_is_named(group, cell, told):
    shown = explanation(group, cell)
    assert told in shown, shown


@pytest.mark.parametrize(
    "cell",
    [
        # pairs of two even or two odd ranks, then three ranks in a ring, each put right as the text says
        "if rank < 2: dist.send(x, rank + 2); dist.recv(x, rank + 2)\n"
        "else: dist.recv(x, rank - 2); dist.send(x, rank - 2)",
        "if rank == 0: dist.send(x, 1); dist.recv(x, 2)\n"
        "elif rank < 3: dist.recv(x, rank - 1); dist.send(x, (rank + 1) % 3)",
    ],
)
def test_the_order_that_is_advised_ends_the_deadlock(group, cell):
    group.execute(BEGIN + cell)


@pytest.mark.parametrize(
    "cell",
    [
        "if rank == 0: dist.send(x, 1)\nif rank == 1: dist.recv(x); dist.recv(x, 0)",
        "if rank == 0: dist.send(x, 1)\nif rank == 1: dist.recv(x, 0); dist.recv(x)",
    ],
)
def test_a_message_that_was_received_is_not_expected_again(group, cell):
    assert "Rank 1 waits in recv from" in explanation(group, cell)


def test_an_exception_is_the_likely_mistake_where_the_others_wait_for_its_rank(group):
    with pytest.raises(fourranks.RankError) as caught:
        group.execute(
            "for step in range(3):\n    if rank == step == 1: raise ValueError('bad')\n    dist.barrier()"
        )
    told = " ".join(str(caught.value).split())
    assert "Rank 1 raised an exception (its traceback is above), so never came to the barrier" in told
    assert "left the loop" not in told


def test_the_call_that_an_exception_left_out_is_named_for_those_ranks_alone_that_wait_for_it(group):
    cell = """
        if rank == 1: raise ValueError("bad")
        if rank == 0: dist.send(torch.ones(2), 1)
        if rank == 2: dist.recv(torch.ones(2), 1)
    """
    with pytest.raises(fourranks.RankError) as caught:
        group.execute(textwrap.dedent(cell))
    told = " ".join(str(caught.value).split())
    assert "Rank 0 waits in send to rank 1" in told and "Rank 2 waits in recv from rank 1" in told
    assert "so never came to the recv that rank 0 waits for." in told


def test_the_error_of_a_call_is_waited_for_while_its_rank_still_writes_the_traceback(group):
    cell = """
        import time
        class SlowToTell(RuntimeError):
            def _render_traceback_(self):
                time.sleep(2)
                return ["slow to tell"]
        rows = torch.ones(4 + 4 * (rank == 2))
        try:
            dist.all_to_all_single(torch.empty(4), rows)
        except RuntimeError as error:
            raise SlowToTell from error
    """
    with pytest.raises(fourranks.RankError, match="slow to tell") as caught:
        group.execute(textwrap.dedent(cell))
    assert "On rank 2 torch refused this all_to_all_single" in str(caught.value)


def test_a_call_that_all_ranks_were_refused_before_is_not_named(group):
    refused = "dist.all_gather_single(torch.empty(3), torch.ones(1))"
    group.execute(f"try: {refused}\nexcept (RuntimeError, ValueError): pass")
    cell = "dist.all_gather_single(torch.empty(4), torch.ones(1)) if rank else dist.all_reduce(torch.ones(1))"
    with pytest.raises(fourranks.DeadlockError) as error:
        group.execute(cell)
    assert "must call the same collectives" in str(error.value) and "refused" not in str(error.value)


def test_what_threads_and_torch_complain_of_because_ranks_are_freed_is_not_shown(group):
    cell = """
        import threading
        thread = threading.Thread(target=dist.barrier)
        thread.start()
        if rank: dist.new_group([0, rank])
    """
    with pytest.raises(fourranks.DeadlockError) as caught:
        group.execute(textwrap.dedent(cell))
    assert str(caught.value.transcript) == ""


def test_two_threads_that_share_a_group_are_named():
    main, log = (Call("all_reduce", "0", (0, 1), line=line, asynchronous=False) for line in (5, 3))
    views = {rank: RankView(Progress([main, log])) for rank in (0, 1)}
    scene = Scene(Deadlock({0: main}, {0: ()}, views, {1: log}), {}, Source({}))
    assert "Two threads of rank 1 use the same group (line 5 and line 3), so their calls may run" in hint(
        scene
    )


def test_a_thread_that_shares_a_group_is_named_before_another_thread_of_its_rank_comes_to_its_call():
    main = Call("all_reduce", "0", (0, 1), line=5)
    log = Call(
        "barrier", "0", (0, 1), line=3, through="a thread that it started, torch.distributed.checkpoint"
    )
    views = {rank: RankView(Progress([call])) for rank, call in enumerate([main, log])}
    scene = Scene(Deadlock({0: main}, {0: ()}, views, {1: log}), {}, Source({}))
    assert "Two threads of a rank use the same group (line 5 and line 3), so their calls may run" in hint(
        scene
    )


def test_only_the_ranks_that_wait_are_said_to_name_themselves():
    first, other = (Call("scatter", "0", (0, 1, 2, 3), root=rank, line=3) for rank in (0, 1))
    views = {rank: RankView(Progress([call])) for rank, call in enumerate([first, other])}
    scene = Scene(Deadlock({0: first}, {0: ()}, views, {1: other}), {}, Source({}))
    assert "Ranks 0-1 each name themselves: the src or dst of scatter is one rank" in hint(scene)


@pytest.mark.parametrize("behind", [[], ["recv"]], ids=["connecting", "launched"])
def test_messages_that_take_turns_on_nccl_are_given_to_a_batch(behind):
    first, *_ = calls = [
        [Call(op, "0", (0, 1), peer=1 - rank) for rank in (0, 1)] for op in ("send", *behind)
    ]
    views = {
        rank: RankView(Progress([first[rank]], recent=[call[rank] for call in calls], launches=True))
        for rank in (0, 1)
    }
    scene = Scene(Deadlock(dict(enumerate(first)), {0: (1,), 1: (0,)}, views), {}, Source({}))
    assert "A cycle (0 → 1 → 0): on NCCL the messages of a rank take turns" in hint(scene)


@pytest.mark.parametrize(
    ("outer", "told"),
    [
        (
            "if world_size > 1",
            "Rank 2 left the loop `for batch in range(4 - (rank == 2)):` (line 6) one iteration early, or "
            "skipped it: rank 0 is in its all_reduce number 4 there, rank 2 called 3.",
        ),
        (
            "for epoch in range(2)",
            "Ranks 0-1,3 skipped the barrier inside `if ready(): dist.barrier()` (line {line}), or rank 2 "
            "left the loop `for batch in range(4 - (rank == 2)):` (line 6) early.",
        ),
    ],
    ids=["once", "in each turn of a loop"],
)
@pytest.mark.parametrize(
    ("line", "behind"), [(4, "barrier()"), (8, "if ready(): dist.barrier()")], ids=["in a function", "there"]
)
def test_a_branch_behind_a_loop_in_which_a_rank_still_is_may_be_ahead_of_it(group, outer, told, line, behind):
    cell = f"""\
        ready = lambda: len(x) == 2
        def barrier():
            if ready(): dist.barrier()
        {outer}:
            for batch in range(4 - (rank == 2)):
                dist.all_reduce(x)
            {behind}
    """
    assert told.format(line=line) in explanation(group, textwrap.dedent(cell))


def test_two_branches_that_make_the_two_sides_of_a_call_are_no_mistake(group):
    cell = "for root in range(3):\n    if rank == root:\n        dist.broadcast(x, root)\n    else:\n"
    told = explanation(group, cell + "        dist.broadcast(x, root)\nif rank == 2:\n    dist.barrier()")
    assert "Ranks 0-1,3 skipped the barrier inside `if rank == 2:` (line 7)." in told


def test_the_line_of_the_reader_stands_before_that_of_a_library(group, tmp_path):
    library = tmp_path / "site-packages" / "metrics"
    library.mkdir(parents=True)
    library.joinpath("__init__.py").write_text(
        "import contextlib\nimport torch.distributed as dist\n\n@contextlib.contextmanager\n"
        "def synced():\n    dist.barrier()\n    yield\n"
    )
    cell = f"import sys; sys.path.insert(0, {str(library.parent)!r})\nfrom metrics import synced\n"
    told = explanation(group, cell + "if rank:\n    with synced(): pass")
    assert "line 5: with synced(): pass, through metrics/__init__.py, line 6 (synced)), for rank 0." in told
    assert "Rank 0 skipped the barrier inside `if rank:` (line 4)." in told


@pytest.mark.parametrize(
    "way",
    [
        "ThreadPoolExecutor(1).submit(dist.barrier).result()",
        "(t := Thread(target=dist.barrier)).start(); t.join()",
    ],
)
def test_a_call_of_a_thread_without_the_readers_code_is_named_by_the_line_that_started_it(group, way):
    cell = f"""
        from concurrent.futures import ThreadPoolExecutor
        from threading import Thread
        dist.barrier()
        if rank:
            {way}
    """
    with pytest.raises(fourranks.DeadlockError) as caught:
        group.execute(textwrap.dedent(cell))
    told = str(caught.value)
    assert f"Cell In[1], line 5: {way}, through a thread that it started" in told
    assert ".py" not in told


def test_a_call_in_a_thread_is_said_to_come_from_where_the_thread_was_started(group):
    cell = "def work():\n    dist.all_reduce(x)\nfrom threading import Thread\n"
    told = explanation(group, cell + "if rank < 3:\n    t = Thread(target=work); t.start(); t.join()")
    assert "Ranks 0-2 wait in all_reduce (Cell In[1], line 3: dist.all_reduce(x), called from line 6)" in told
    assert "Rank 3 skipped the all_reduce inside `if rank < 3:` (line 5)." in told


def test_a_call_in_a_thread_of_a_pool_is_not_said_to_come_from_the_line_that_started_the_thread(group):
    cell = (
        "def work(ranks):\n    if rank in ranks: dist.all_reduce(x)\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(1) as pool:\n    pool.submit(work, []).result()\n    pool.submit(work, [0])"
    )
    told = explanation(group, cell)
    assert "Rank 0 waits in all_reduce (Cell In[1], line 3: if rank in ranks: dist.all_reduce(x))," in told
    assert "Ranks 1-3 skipped the all_reduce inside `if rank in ranks: dist.all_reduce(x)` (line 3)." in told


def test_a_line_of_the_readers_own_module_says_which_line_of_the_cell_called_it(group, tmp_path):
    tmp_path.joinpath("own_module.py").write_text("def meet(dist):\n    dist.barrier()\n")
    cell = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport own_module\n"
    told = explanation(group, cell + "if rank:\n    own_module.meet(dist)")
    assert "(own_module.py, line 2: dist.barrier(), called from Cell In[1], line 5), for rank 0." in told
    assert "Rank 0 skipped the barrier inside `if rank:` (Cell In[1], line 4)." in told


def test_the_figure_names_the_cell_that_the_ranks_were_last_together_in(group):
    group.execute("pass\npass\ndist.barrier()", execution_count=2)
    with pytest.raises(fourranks.DeadlockError) as caught:
        group.execute("if rank: dist.all_reduce(torch.ones(1))", execution_count=3)
    image = DeadlockFigure(caught.value.scene)._repr_html_()
    drawing = b64decode(image.partition("base64,")[2].partition('"')[0]).decode()
    caption = "last together: barrier, Cell In[2], line 3"
    assert caption in drawing
    assert int(drawing.partition('width="')[2].partition('"')[0]) > 122 + 7.2 * len(caption), "it is cut off"
    assert "all_reduce, line 1" in drawing
    group.execute("pass", execution_count=1)


def test_ranks_that_were_not_asked_to_run_the_cell_are_named(group):
    told = explanation(group, "dist.all_reduce(x)", ranks=[0, 1])
    assert "Ranks 2-3 took no part in this cell." in told
    assert "The cell ran without ranks 2-3. Run it on all ranks" in told


def test_a_call_among_some_ranks_says_so(group):
    told = explanation(group, "pair = dist.new_group([1, 2])\nif rank == 1: dist.all_reduce(x, group=pair)")
    assert "Rank 1 waits in all_reduce among ranks 1-2 (" in told and "), for rank 2." in told


def test_a_line_of_a_function_from_an_earlier_cell_is_shown(group):
    group.execute("def meet():\n    dist.barrier()")
    assert "line 2: dist.barrier()" in explanation(group, "if rank: meet()")


def test_a_new_group_that_a_rank_left_out_is_found_in_the_one_that_it_harms_cells_later(group):
    group.execute("if rank != 2: pair = dist.new_group([0, 1])\nfor _ in range(300): dist.barrier()")
    told = explanation(group, "pair = dist.new_group([0, 2])")
    assert "Ranks 0-1,3 called new_group [ranks 0, 1] (Cell In[1], line 1: if rank != 2" in told
    assert "Rank 2 waits in new_group [ranks 0, 2]" in told


def test_new_group_keeps_no_order_with_collectives(group):
    cell = """
    if rank == 0:
        work, pair = dist.all_reduce(x, async_op=True), dist.new_group([0, 1])
    else:
        pair, work = dist.new_group([0, 1]), dist.all_reduce(x, async_op=True)
    work.wait()
    """
    group.execute(BEGIN + textwrap.dedent(cell))


def test_a_timeout_shows_what_ranks_had_raised_by_then(group):
    cell = "import time\nif rank == 2: raise ValueError('bad batch')\ntime.sleep(99)"
    with pytest.raises(
        fourranks.CellTimeout, match="(?s)Ranks 0-1,3: Cell.*Rank 2 raised ValueError.*bad batch"
    ):
        group.execute(cell, timeout=1)


def test_a_wait_with_a_limit_is_left_to_its_limit(group):
    cell = "from datetime import timedelta\nwork = dist.irecv(x, 1 - rank)\nwork.wait(timedelta(seconds=1))"
    with pytest.raises(fourranks.RankError, match="RuntimeError"):
        group.execute(BEGIN + cell, ranks=[0, 1])
    group.execute("dist.barrier()")


@pytest.mark.parametrize("late", [0, 1])
def test_a_monitored_barrier_with_a_limit_ends_by_itself_where_another_rank_calls_something_else(group, late):
    with pytest.raises(fourranks.FourRanksError) as caught:
        group.execute(
            f"import datetime, time\ntime.sleep({late} * (rank == 1))\n"
            "limit = datetime.timedelta(seconds=2)\nif rank == 1: dist.barrier()\n"
            "try: dist.monitored_barrier(timeout=limit)\nexcept RuntimeError: print('caught')"
        )
    assert "caught" in str(caught.value.transcript)  # on one rank at least, whose end then proves the rest
    group.execute("dist.all_reduce(torch.ones(1))")


def test_a_call_that_failed_because_another_rank_made_another_one_is_told(group):
    with pytest.raises(fourranks.RankError) as caught:
        group.execute(
            BEGIN + "import datetime\npair = dist.new_group([0, 1])\n"  # of more, some fail later than others
            "if rank == 1: dist.all_reduce(x, group=pair)\n"
            "if rank == 0: dist.monitored_barrier(pair, datetime.timedelta(seconds=0.5))"
        )
    told = "In place of the monitored_barrier that failed on rank 0, rank 1 made another call, all_reduce."
    assert told in str(caught.value)
    group.execute("dist.all_reduce(torch.ones(1))")


def test_a_call_that_ended_at_the_timeout_of_its_group_is_explained_by_the_rank_that_skipped_it(group):
    cell = (
        "import datetime\nlimited = dist.new_group(timeout=datetime.timedelta(seconds=3))\n"
        "if rank != 1:\n    dist.all_reduce(torch.ones(1), group=limited)\ndist.barrier()"
    )
    with pytest.raises(fourranks.RankError, match="Timed out") as caught:
        group.execute(cell)
    shown = " ".join(str(caught.value).split())
    assert re.search(r"On ranks? [\d,-]+ the all_reduce \(line 4\) ended at its timeout: ", shown)
    assert "rank 1 had not called it. Rank 1 skipped the all_reduce inside `if rank != 1:` (line 3)." in shown


def test_a_call_that_ended_at_its_timeout_is_explained_too_where_no_rank_waits_any_more(group):
    cell = (
        "import datetime\nlimited = dist.new_group(timeout=datetime.timedelta(seconds=3))\n"
        "for step in range(4):\n    if rank == 2 and step == 2: break\n"
        "    dist.all_reduce(torch.ones(1), group=limited)"
    )
    with pytest.raises(fourranks.RankError, match="Timed out") as caught:
        group.execute(cell)
    shown = " ".join(str(caught.value).split())
    assert "Meanwhile: Rank 2 finished the cell. On rank" in shown
    assert "the all_reduce (line 5) ended at its timeout: rank 2 had not called it. Rank 2 left" in shown
    assert "Look at the break in line 4." in shown


def test_a_monitored_barrier_with_a_limit_names_the_rank_itself_and_counts_for_all(group):
    cell = "from datetime import timedelta\nlimit = timedelta(seconds=0.5)\n"
    with pytest.raises(fourranks.RankError, match="Rank 1 failed to pass monitoredBarrier"):
        group.execute(cell + "if rank != 1: dist.monitored_barrier(timeout=limit)")
    group.execute(cell + "dist.monitored_barrier(timeout=10 * limit)\ndist.all_reduce(torch.ones(1))")


def test_torchs_own_error_names_a_group_from_before_a_deadlock_as_one(group):
    group.execute("stale = dist.new_group()")
    explanation(group, "if rank: dist.barrier()")
    named = "Process group <ProcessGroup from before the default group was formed again> is not initialized"
    with pytest.raises(fourranks.RankError, match=named):
        group.execute("dist.all_reduce(torch.ones(1), group=stale)")


def test_a_handle_that_nobody_waits_for_is_told(group):
    late = "import time\nif rank == 3: time.sleep(0.3)\n"
    shown = str(group.execute(BEGIN + late + "dist.all_reduce(x, async_op=True)\ndist.barrier()"))
    told = r"\[0-[23]\] all_reduce \(Cell In\[1\], line 4: dist.all_reduce"
    assert re.search(told, shown)


@pytest.mark.parametrize(
    "cell",
    [
        "work = dist.all_reduce(x, async_op=True)\nwork.wait()",
        "dist.all_reduce(x, async_op=True).wait()",
        "for work in [dist.isend(x, (rank + 1) % 4), dist.irecv(x, (rank - 1) % 4)]: work.wait()",
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\nmodel(x).sum().backward()",
    ],
)
def test_no_warning_is_given_where_the_code_waits(group, cell):
    assert "not waited for" not in str(group.execute(BEGIN + cell))


@pytest.mark.parametrize(
    ("given", "taken", "is_told"),
    [
        ("float32", "int32", True),
        ("int64", "float64", True),
        ("float32", "float64", True),  # into a larger tensor
        ("float32", "float32", False),
        ("float32", "uint8", False),  # bytes, as for a protocol of one's own
        ("complex64", "float32", False),  # the same numbers, seen another way
    ],
)
def test_a_message_that_is_received_as_another_dtype_is_told(group, given, taken, is_told):
    cell = f"if rank == 0: dist.send(torch.ones(2, dtype=torch.{given}), 1)\n"
    cell += f"if rank == 1: dist.recv(torch.ones(8, dtype=torch.{taken}), 0)"
    shown = " ".join(str(group.execute(BEGIN + cell)).split())
    assert ("a message is copied byte for byte and no number is converted" in shown) == is_told
    if is_told:
        assert given in shown and taken in shown and ("line 2" in shown or "line 3" in shown)


def test_who_sends_to_a_receive_from_any_source_that_fails_does_not_wait_forever(group):
    cell = "dist.send(torch.ones(0), 1) if rank == 0 else dist.recv(torch.ones(0)) if rank == 1 else None"
    with pytest.raises(fourranks.RankError, match="(?s)Rank 1 raised.*Rank 0 waits in send to rank 1"):
        group.execute(cell)  # Gloo refuses to receive no element from any source


def test_a_receive_that_gloo_refuses_can_be_caught_and_made_again(group):
    cell = """
    import time
    if rank == 0: dist.send(torch.ones(2), 1)
    if rank == 1:
        try:
            dist.recv(torch.ones(0))  # no element, from any source
        except RuntimeError:
            time.sleep(2)
        dist.recv(received := torch.zeros(2))
        print(received)
    """
    assert str(group.execute(textwrap.dedent(cell), timeout=20)) == "[1] tensor([1., 1.])"


def test_receives_from_any_source_take_messages_of_any_size_that_fits(group):
    cell = """
    import time
    if rank == 1:
        small, large = torch.zeros(1), torch.zeros(9)
        dist.recv(small)  # from rank 0
        dist.recv(large, 2), dist.recv(large)  # both from rank 2
        dist.barrier()
        dist.recv(small)  # from rank 0
    elif rank == 2:
        time.sleep(0.2)
        first = dist.isend(torch.ones(9), 1)
        dist.send(torch.ones(9), 1), first.wait()
        dist.barrier()
    else:
        if rank == 0: dist.send(torch.ones(1), 1)
        dist.barrier()
        if rank == 0: dist.send(torch.ones(1), 1)
    """
    for _ in range(3):
        group.execute(textwrap.dedent(cell))
