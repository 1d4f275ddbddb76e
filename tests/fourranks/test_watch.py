"""`watch` proves deadlocks from reports alone: each test is a table of what ranks reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fourranks.given_up import calls_given_up
from fourranks.protocol.progress import Progress
from fourranks.trace import Call
from fourranks.watch import (
    QUEUE_ROUNDS,
    STANDSTILL_ROUNDS,
    End,
    Ended,
    RankView,
    Watch,
    in_step,
)

FOUR = (0, 1, 2, 3)


def call(op, seq=0, ranks=FOUR, **fields):
    """A call as a rank reports it."""
    values = {
        "group": "0",
        "index": seq,
        "shape": (2,),
        "dtype": "float32",
        "nbytes": 8,
        "part": (2, "float32"),
    }
    return Call(op=op, ranks=ranks, seq=seq, **(values | fields))


def waiting(the_call):
    """A rank that stands still in this call."""
    progress = Progress(waits=[the_call], recent=[the_call])
    if the_call.op == "send":
        progress.sends[the_call.group, the_call.peer, the_call.tag] = the_call.seq + 1
    elif the_call.op == "recv":
        progress.recvs[the_call.group, the_call.peer, the_call.tag] = the_call.seq + 1
    else:
        progress.collectives[the_call.group, the_call.ranks] = the_call.seq + 1
    return RankView(progress)


def running():
    return RankView(Progress())


def finished(**counts):
    return RankView(Progress(**counts), Ended(End.FINISHED))


def observe(*views, rounds=2):
    """The proof after a number of equal reports."""
    watch = Watch()
    proof = None
    for _ in range(rounds):
        proof = proof or watch.observe(dict(enumerate(views)))
    return proof


def test_one_report_is_no_proof_because_reports_are_taken_at_different_times():
    views = [waiting(call("all_reduce"))] * 3 + [finished()]
    assert observe(*views, rounds=1) is None


def test_a_rank_that_finished_while_others_wait_for_it_is_a_deadlock():
    proof = observe(*[waiting(call("all_reduce"))] * 3, finished())
    assert set(proof.blocked) == {0, 1, 2}
    assert proof.missing[0] == (3,)
    assert proof.ended == {3: Ended(End.FINISHED)}


def test_a_message_with_the_number_of_a_contradicted_collective_is_no_part_of_the_contradiction():
    gather, recv = call("gather", root=2), call("recv", peer=2)
    proof = observe(waiting(gather), waiting(replace(gather, part=(3, "float32"))), running(), waiting(recv))
    assert set(proof.conflicts) | set(proof.blocked) == {0, 1}


def test_a_rank_that_still_computes_is_never_called_a_deadlock():
    views = [waiting(call("all_reduce"))] * 3 + [running()]
    assert observe(*views, rounds=10 * STANDSTILL_ROUNDS) is None


def with_another_thread(view, *calls, at_work=False):
    """The same rank with a thread besides its main one that waits in these calls, or goes on."""
    progress = replace(view.progress, waits=[*view.progress.waits, *calls], at_work=at_work)
    return replace(view, progress=progress)


def test_a_rank_of_which_another_thread_goes_on_is_never_called_a_deadlock():
    views = [waiting(call("all_reduce"))] * 3
    working = with_another_thread(waiting(call("barrier", ranks=(3, 0), group="1")), at_work=True)
    assert observe(*views, working, rounds=10 * STANDSTILL_ROUNDS) is None


def test_a_rank_is_stuck_only_when_all_calls_of_its_threads_are_hopeless():
    complete = call("broadcast", ranks=(2, 3), group="1", root=3)
    theirs = {("0", FOUR): 1, ("1", (2, 3)): 1}
    views = [waiting(call("all_reduce"))] * 2
    hopeful = with_another_thread(waiting(call("all_reduce")), complete)
    ended = finished(collectives={("1", (2, 3)): 1})
    assert set(observe(*views, hopeful, ended).blocked) == {0, 1}
    hopeless = with_another_thread(waiting(call("all_reduce")), replace(complete, root=2))
    proof = observe(*views, hopeless, finished(collectives={}))
    assert set(proof.blocked) == {0, 1, 2} and proof.blocked[2].op == "all_reduce"
    assert observe(*views, waiting(call("all_reduce")), finished(collectives=theirs)) is None


def test_a_rank_that_ended_may_have_left_a_thread_that_still_comes():
    views = [waiting(call("all_reduce"))] * 3
    assert observe(*views, with_another_thread(finished(), at_work=True), rounds=20) is None
    proof = observe(*views, with_another_thread(finished(), call("barrier", ranks=(3, 0), group="1")))
    assert set(proof.blocked) == {0, 1, 2, 3}


def test_threads_left_waiting_by_ranks_that_ended_are_no_deadlock_of_the_running_cell():
    left = with_another_thread(finished(), call("barrier", ranks=(0, 1), group="1"))
    assert observe(left, finished(), running(), running(), rounds=20) is None


def test_a_slow_transfer_that_all_ranks_have_joined_is_no_deadlock():
    views = [waiting(call("all_reduce"))] * 4
    assert observe(*views, rounds=10 * STANDSTILL_ROUNDS) is None


def test_a_rank_that_finished_after_issuing_its_part_is_no_deadlock():
    done = finished(collectives={("0", FOUR): 1})
    assert observe(*[waiting(call("all_reduce"))] * 3, done, rounds=100) is None


@pytest.mark.parametrize(
    "other",
    [
        call("barrier"),
        call("all_reduce", reduce_op="MAX"),
        call("all_reduce", dtype="float64", part=(2, "float64")),
        call("all_reduce", shape=(3,), part=(3, "float32")),
    ],
    ids=["other operation", "other reduce op", "other dtype", "other size"],
)
def test_different_calls_at_the_same_place_of_a_group_are_a_disagreement(other):
    proof = observe(*[waiting(call("all_reduce", reduce_op="SUM"))] * 3, waiting(other))
    assert proof.conflicts


def test_different_roots_of_one_broadcast_are_a_disagreement():
    proof = observe(*[waiting(call("broadcast", root=0))] * 3, waiting(call("broadcast", root=1)))
    assert proof.conflicts


def test_ranks_that_disagree_are_found_although_one_of_them_went_on():
    gone_on = RankView(Progress(recent=[call("broadcast", root=0)], collectives={("0", FOUR): 1}))
    proof = observe(*[waiting(call("all_reduce"))] * 3, gone_on)
    assert proof.conflicts[3].op == "broadcast"


def test_all_to_all_may_send_different_amounts():
    views = [waiting(call("all_to_all", part=None, shape=(n,))) for n in range(1, 5)]
    assert observe(*views, rounds=100) is None


def test_a_ring_of_blocking_sends_is_a_deadlock():
    proof = observe(*[waiting(call("send", peer=(rank + 1) % 4)) for rank in FOUR])
    assert set(proof.blocked) == set(FOUR)
    assert proof.missing[3] == (0,)


def test_a_ring_of_sends_in_which_one_rank_receives_first_will_resolve():
    sends = [waiting(call("send", peer=(rank + 1) % 4)) for rank in FOUR]
    sends[3] = waiting(call("recv", peer=2))
    assert observe(*sends, rounds=100) is None


def test_a_receive_from_a_rank_that_has_finished_without_sending_is_a_deadlock():
    proof = observe(waiting(call("recv", peer=1)), finished(), finished(), finished())
    assert proof.missing == {0: (1,)}


def test_a_receive_whose_message_is_on_its_way_is_no_deadlock():
    sender = finished(sends={("0", 0, 0): 1})
    assert observe(waiting(call("recv", peer=1)), sender, finished(), finished(), rounds=100) is None


def test_a_receive_that_is_too_small_for_its_message_is_a_misfit():
    sender = waiting(call("send", peer=1, nbytes=16, shape=(4,)))
    proof = observe(sender, waiting(call("recv", peer=0)), finished(), finished())
    assert set(proof.conflicts) | set(proof.blocked) == {0, 1}


def test_a_message_too_large_for_one_of_several_receives_from_any_source_may_be_for_another():
    small, large = call("recv", peer=None), call("recv", peer=None, nbytes=16)
    sender = waiting(call("send", peer=1, nbytes=16))
    for recent, fits in (([small, large], True), ([small], False)):
        receiver = RankView(Progress(waits=[small], recent=recent, recvs={("0", None, 0): len(recent)}))
        proof = observe(sender, receiver, running(), running())
        assert (proof is None) == fits


def test_a_receive_may_be_larger_than_its_message():
    sender = finished(sends={("0", 1, 0): 1}, recent=[call("send", peer=1, nbytes=4)])
    assert observe(sender, waiting(call("recv", peer=0)), finished(), finished(), rounds=100) is None


def test_a_message_with_another_tag_does_not_count():
    sender = finished(sends={("0", 0, 7): 1})
    assert observe(waiting(call("recv", peer=1)), sender, finished(), finished()) is not None


def test_a_receive_from_any_source_waits_as_long_as_one_rank_may_still_send():
    receiver = waiting(call("recv", peer=None))
    assert observe(receiver, finished(), finished(), running(), rounds=100) is None
    assert observe(receiver, finished(), finished(), finished()) is not None


def test_subgroups_are_told_apart():
    left, right = call("all_reduce", ranks=(0, 1), group="1"), call("barrier", ranks=(2, 3), group="2")
    views = [waiting(left), waiting(left), waiting(right), waiting(right)]
    assert observe(*views, rounds=100) is None
    proof = observe(waiting(left), finished(), waiting(right), waiting(right))
    assert set(proof.blocked) == {0}


def test_ranks_that_wait_for_each_other_in_two_groups_are_a_deadlock():
    first, second = call("barrier", ranks=(0, 1), group="1"), call("barrier", ranks=(0, 1), group="2")
    proof = observe(waiting(first), waiting(second), finished(), finished())
    assert set(proof.blocked) == {0, 1}


def test_a_rank_that_waits_for_a_dead_one_is_a_deadlock():
    dead = RankView(Progress(), Ended(End.DIED))
    assert observe(*[waiting(call("barrier"))] * 3, dead).ended == {3: Ended(End.DIED)}


def test_a_leaf_of_a_broadcast_tree_that_skipped_it_is_found_after_a_standstill():
    done = finished(collectives={("0", FOUR): 1})
    views = [done, waiting(call("broadcast", root=0)), finished(), finished()]
    assert observe(*views, rounds=3) is None
    assert observe(*views, rounds=STANDSTILL_ROUNDS + 2) is not None


def test_sizes_of_an_all_to_all_are_compared_pair_by_pair():
    fits = [call("all_to_all_single", ranks=(0, 1), exchange=((8, 4), (8, 12))), ((12, 8), (4, 8))]
    assert (
        observe(waiting(fits[0]), waiting(call("all_to_all_single", ranks=(0, 1), exchange=fits[1]))) is None
    )
    misfit = call("all_to_all_single", ranks=(0, 1), exchange=((12, 8), (8, 8)))
    assert observe(waiting(fits[0]), waiting(misfit)).conflicts == {1: misfit}


def launched(the_call):
    """A rank that goes on, or is at the end of its cell, before a call that NCCL launched is complete."""
    return RankView(
        Progress(launched=the_call, recent=[the_call], collectives={("0", FOUR): the_call.seq + 1})
    )


def test_a_launched_call_whose_rank_has_finished_without_it_is_a_deadlock():
    proof = observe(launched(call("all_reduce")), finished(), running(), running())
    assert proof.missing == {0: (1, 2, 3)} and proof.ended == {1: Ended(End.FINISHED)}


def test_a_launched_call_that_other_ranks_may_still_join_is_no_deadlock():
    views = [launched(call("all_reduce", seq=1)), launched(call("all_reduce", seq=0)), running(), running()]
    assert observe(*views, rounds=100) is None


def message(op, peer, index, **fields):
    return call(op, peer=peer, index=index, ranks=(0, 1), part=None, **fields)


def queue(*calls, first=None, reached=True, at_end=True):
    """A rank that has launched these messages; NCCL runs them one after the other and is in the `first`."""
    first = first or calls[0]
    waits = [first] if at_end else []
    progress = Progress(waits, launched=first, reached=reached, launches=True, recent=list(calls))
    for each in [member for launched in calls for member in (*launched.batch, launched)]:
        counts = progress.sends if each.op == "send" else progress.recvs
        counts[each.group, each.peer, each.tag] = each.seq + 1
    return RankView(progress)


@pytest.mark.parametrize("at_end", [True, False], ids=["at the end of the cell", "in the middle"])
@pytest.mark.parametrize("ops", [("send", "recv"), ("recv", "send")])
def test_messages_that_stand_behind_each_other_are_a_deadlock_when_nothing_moves_any_more(ops, at_end):
    views = [queue(*(message(op, 1 - rank, n) for n, op in enumerate(ops)), at_end=at_end) for rank in (0, 1)]
    assert observe(*views, rounds=QUEUE_ROUNDS) is None
    proof = observe(*views, rounds=QUEUE_ROUNDS + 1)
    assert proof.missing == {0: (1,), 1: (0,)}
    assert [call.op for call in proof.blocked.values()] == [ops[0]] * 2


def test_a_message_that_stands_behind_another_says_nothing_of_what_a_second_thread_waits_for():
    views = [queue(message("send", 1 - rank, 0), message("recv", 1 - rank, 1)) for rank in (0, 1)]
    for view in views:  # an all-reduce that both have issued, so that it is on its way
        view.progress.waits.append(call("all_reduce", group="1", ranks=(0, 1)))
        view.progress.collectives["1", (0, 1)] = 1
    assert observe(*views, rounds=100) is None


def test_messages_behind_each_other_that_the_gpu_has_not_come_to_are_no_deadlock():
    views = [queue(message("send", 1 - r, 0), message("recv", 1 - r, 1), reached=False) for r in (0, 1)]
    assert observe(*views, rounds=100) is None


def test_a_message_behind_one_that_is_on_its_way_is_no_deadlock():
    first, then = message("send", 1, 0), message("recv", 1, 1)
    assert (
        observe(queue(first, then), queue(message("recv", 0, 0), message("send", 0, 1)), rounds=100) is None
    )


def batch(rank):
    send = message("send", 1 - rank, 0)
    return send, message("recv", 1 - rank, 1, batch=(send,))


def test_messages_of_one_batch_do_not_stand_behind_each_other():
    views = [queue(*batch(rank), first=batch(rank)[-1]) for rank in (0, 1)]
    assert observe(*views, rounds=100) is None


@pytest.mark.parametrize("other, waits_in", [("send", "send"), ("recv", "recv")])
def test_a_batch_waits_for_each_of_its_messages(other, waits_in):
    answered = Progress()
    (answered.sends if other == "send" else answered.recvs)["0", 0, 0] = 1
    views = [queue(*batch(0), first=batch(0)[-1]), RankView(answered, Ended(End.FINISHED))]
    proof = observe(*views)
    assert proof.missing == {0: (1,)} and proof.blocked[0].op == waits_in


def connecting(*calls):
    """A rank that NCCL keeps, while it connects what this batch needs, from launching it."""
    view = queue(*calls, first=calls[-1])
    view.progress.launched = None
    return view


def test_a_message_to_a_batch_that_cannot_be_launched_without_another_one_waits_forever():
    views = [connecting(*batch(0)), queue(message("send", 0, 0))]
    assert observe(*views, rounds=QUEUE_ROUNDS) is None
    proof = observe(*views, rounds=QUEUE_ROUNDS + 1)
    assert proof.missing == {0: (1,), 1: (0,)}
    assert [call.op for call in proof.blocked.values()] == ["send", "send"]


def test_batches_that_take_long_to_connect_are_no_deadlock():
    assert observe(*[connecting(*batch(rank)) for rank in (0, 1)], rounds=100) is None


def test_a_proof_tells_whether_ranks_are_still_on_their_way():
    stuck = [waiting(call("barrier")), waiting(call("barrier")), finished()]
    assert observe(*stuck, finished()).settled
    assert not observe(*stuck, running()).settled


def test_ranks_are_in_step_when_all_issued_the_same_collectives_and_every_message_was_received():
    both = {("0", (0, 1)): 3}
    sent, received = Progress(collectives=both), Progress(collectives=both)
    sent.sends["0", 1, 0] = received.recvs["0", 0, 0] = 2
    assert in_step({0: sent, 1: received})
    received.recvs["0", 0, 0] = 1
    assert not in_step({0: sent, 1: received})


def test_ranks_are_out_of_step_when_one_issued_fewer_collectives():
    assert not in_step(
        {0: Progress(collectives={("0", (0, 1)): 3}), 1: Progress(collectives={("0", (0, 1)): 2})}
    )


def test_a_subgroup_does_not_put_the_other_ranks_out_of_step():
    assert in_step(
        {
            0: Progress(collectives={("1", (0, 1)): 1}),
            1: Progress(collectives={("1", (0, 1)): 1}),
            2: Progress(),
        }
    )


def failed_in(the_call, at_work=False):
    """A rank on which this call has ended with an error."""
    progress = Progress(failed=[the_call], collectives={("0", FOUR): the_call.seq + 1}, at_work=at_work)
    return RankView(progress)


def test_a_call_that_has_failed_on_a_rank_is_hopeless_on_the_others_once_nothing_comes_any_more():
    views = [failed_in(call("all_reduce"), at_work=True)] + [waiting(call("all_reduce"))] * 3
    assert observe(*views, rounds=STANDSTILL_ROUNDS) is None
    proof = observe(*views, rounds=STANDSTILL_ROUNDS + 2)
    assert set(proof.blocked) == {1, 2, 3} and proof.missing[1] == (0,)
    assert proof.failed[0].op == "all_reduce"


def test_a_rank_that_failed_in_a_call_is_needed_only_where_the_call_needs_it():
    views = [waiting(call("broadcast", root=1)), failed_in(call("broadcast", root=1)), running(), running()]
    assert observe(*views, rounds=20) is not None
    views = [waiting(call("broadcast", root=2)), failed_in(call("broadcast", root=2)), running(), running()]
    assert observe(*views, rounds=20) is None


def test_a_message_whose_other_side_has_failed_does_not_come():
    sent = call("send", peer=0)
    receiver, sender = (
        waiting(call("recv", peer=1)),
        RankView(Progress(failed=[sent], sends={("0", 0, 0): 1})),
    )
    assert observe(receiver, sender, running(), running(), rounds=20).failed == {1: sent}
    sent.tag = 5
    assert observe(receiver, sender, running(), running(), rounds=20) is None


def test_a_monitored_barrier_ends_with_its_first_rank_whoever_else_is_missing():
    barrier = call("monitored_barrier")
    first_has_a_limit = RankView(replace(waiting(barrier).progress, at_work=True))
    assert observe(first_has_a_limit, finished(), waiting(barrier), waiting(barrier), rounds=20) is None


def test_a_key_of_a_store_may_come_from_any_rank_and_needs_time_to_arrive():
    key = RankView(Progress(waits=[call("store.get", group="store")]))
    assert observe(key, running(), finished(), finished(), rounds=20) is None
    assert observe(key, finished(), finished(), finished(), rounds=STANDSTILL_ROUNDS) is None
    assert set(observe(key, key, finished(), finished(), rounds=STANDSTILL_ROUNDS + 2).blocked) == {0, 1}


def new_group(*members):
    return call("new_group", group="0 new_group", members=members, part=(len(members), str(members)))


def test_a_rank_that_is_in_no_new_group_contradicts_none_of_the_others():
    def gone_on(*members):
        return RankView(Progress(recent=[new_group(*members)], collectives={("0 new_group", FOUR): 1}))

    bystander = gone_on(1)
    assert observe(bystander, running(), waiting(new_group(2, 3)), running()) is None
    for members in ((0,), (0, 1)):  # these take the name that ranks 2 and 3 want to meet under
        assert observe(gone_on(*members), running(), waiting(new_group(2, 3)), running()).conflicts
    assert observe(bystander, running(), waiting(new_group(0, 2)), running()).conflicts


def gave_up(the_call):
    """A rank that has raised the error of this call, made in line 1 of the cell."""
    counts = {(the_call.group, the_call.ranks): the_call.seq + 1}
    progress = Progress(recent=[the_call], failed=[the_call], collectives=counts, passes={("cell", 1): 1})
    return RankView(progress, Ended(End.RAISED, "RuntimeError"))


def ended_at_its_timeout(**fields):
    values = {"file": "cell", "line": 1, "is_limited": True, "error": "Timed out waiting 3000ms"}
    return call("all_reduce", **values | fields)


def test_ranks_gave_a_call_up_that_one_rank_has_left_out():
    given_up = calls_given_up(dict(enumerate([gave_up(ended_at_its_timeout())] * 3 + [finished()])))
    assert [*given_up.failed] == [*given_up.blocked] == [0, 1, 2]
    assert given_up.missing == dict.fromkeys(range(3), (3,))
    assert calls_given_up(dict(enumerate([gave_up(ended_at_its_timeout())] * 4))) is None


def test_a_rank_that_waits_elsewhere_meanwhile_is_named_with_its_call():
    barrier = call("barrier", group="1")
    views = dict(enumerate([gave_up(ended_at_its_timeout()), *[finished()] * 2, waiting(barrier)]))
    given_up = calls_given_up(views)
    assert given_up.blocked[3] is barrier
    assert given_up.missing == {0: (1, 2, 3), 3: (0, 1, 2)}


def test_a_call_that_has_timed_out_comes_before_those_whose_connections_it_has_closed():
    closed = ended_at_its_timeout(error="Connection closed by peer", broke_group=True)
    views = dict(enumerate([gave_up(closed), gave_up(ended_at_its_timeout()), gave_up(closed), finished()]))
    assert [*calls_given_up(views).failed] == [1]
    assert [*calls_given_up({**views, 1: finished()}).failed] == [0, 2]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(RankView(Progress(), Ended(End.RAISED, "ValueError")), id="another error"),
        pytest.param(RankView(Progress(), Ended(End.DIED)), id="a death"),
    ],
)
def test_what_kept_a_rank_from_a_call_is_told_by_itself(other):
    assert calls_given_up(dict(enumerate([gave_up(ended_at_its_timeout())] * 3 + [other]))) is None


def test_an_error_behind_a_call_of_an_earlier_cell_is_not_that_of_the_call():
    earlier = gave_up(ended_at_its_timeout())
    earlier.progress.passes.clear()
    assert calls_given_up(dict(enumerate([earlier] * 3 + [finished()]))) is None
