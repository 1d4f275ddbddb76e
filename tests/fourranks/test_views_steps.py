"""An algorithm drawn step by step shows the messages that the ranks sent and the values that they held."""

import json
import re
from base64 import b64decode
from io import BytesIO

import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import fourranks
from fourranks.protocol.looks import Look
from fourranks.views.drawable_trace import DrawableTrace
from fourranks.views.rounds import rounds
from fourranks.views.style import RANK_COLOURS

from .traces import call, trace

WORLD = 4
RING = """
right, left = (rank + 1) % world_size, (rank - 1) % world_size

def step(give, take):
    both = [dist.P2POp(dist.isend, give, right), dist.P2POp(dist.irecv, take, left)]
    for work in dist.batch_isend_irecv(both):
        work.wait()

def ring_all_reduce(x):
    chunks, inbox = x.chunk(world_size), torch.empty(1)
    for turn in range(world_size - 1):
        step(chunks[(rank - turn) % world_size], inbox)
        chunks[(rank - turn - 1) % world_size].add_(inbox)
    for turn in range(world_size - 1):
        step(chunks[(rank + 1 - turn) % world_size], chunks[(rank - turn) % world_size])
"""
TREE = """
def tree_reduce(x):
    other = torch.zeros_like(x)
    for distance in (1, 2):
        if rank % (2 * distance) == distance:
            dist.send(x, dst=rank - distance)
        elif rank % (2 * distance) == 0:
            dist.recv(other, src=rank + distance)
            x += other
"""


def message(calls, src, dst, start, end, seq=0, recv_start=None):
    recv_start = start if recv_start is None else recv_start
    ranks = tuple(range(len(calls)))
    calls[src].append(call("send", start, end, ranks=ranks, peer=dst, seq=seq, nbytes=16))
    calls[dst].append(call("recv", recv_start, end, ranks=ranks, peer=src, seq=seq, nbytes=16))


def arrows(*calls_by_rank):
    """Each message as (round, src, dst)."""
    return [
        (one.number, message.src, message.dst)
        for one in rounds(trace(*calls_by_rank))
        for message in sorted(one.messages)
    ]


def traced(group, setup, source, name="x") -> DrawableTrace:
    group.execute(setup)
    with group.trace(values=name) as trace:
        group.execute(source)
    return trace


@pytest.fixture(scope="module")
def ring(shared_group):
    """A ring all-reduce of [1, 2, 3, 4] * 10**rank."""
    return traced(shared_group, RING + "x = torch.arange(1.0, 5.0) * 10**rank", "ring_all_reduce(x)")


def test_the_senders_of_a_tree_double_in_each_round():
    calls = [[] for _ in range(4)]
    message(calls, 0, 2, start=0, end=1)
    message(calls, 0, 1, start=2, end=3)
    message(calls, 2, 3, start=2, end=3)
    assert arrows(*calls) == [(1, 0, 2), (2, 0, 1), (2, 2, 3)]


def test_a_receive_that_was_asked_for_early_does_not_make_its_message_early():
    calls = [[], [], []]
    message(calls, 0, 2, start=0, end=1)
    message(calls, 0, 1, start=1, end=2, recv_start=-1)
    assert arrows(*calls) == [(1, 0, 2), (2, 0, 1)]


def test_messages_of_one_sender_that_overlap_share_a_round():
    calls = [[], [], []]
    message(calls, 0, 1, start=0.0, end=1.0)
    message(calls, 0, 2, start=0.1, end=1.0)
    assert arrows(*calls) == [(1, 0, 1), (1, 0, 2)]


def test_messages_that_follow_each_other_have_rounds_of_their_own():
    calls = [[], []]
    for seq in range(3):
        message(calls, 0, 1, start=seq, end=seq + 0.5, seq=seq)
    assert arrows(*calls) == [(1, 0, 1), (2, 0, 1), (3, 0, 1)]


def test_a_receive_without_its_send_draws_no_arrow():
    calls = [[], []]
    message(calls, 0, 1, start=0, end=1)
    assert arrows([], calls[1]) == []


def test_a_ring_is_seen_with_what_every_rank_held_after_every_round(ring):
    found = rounds(ring)
    assert len(found) == 2 * (WORLD - 1)
    for turn, one in enumerate(found):
        assert {(message.src, message.dst) for message in one.messages} == {
            (rank, (rank + 1) % WORLD) for rank in range(WORLD)
        }
        for rank in range(WORLD):
            assert one.after[rank].values == held_in_a_ring(rank, turn + 1)


def held_in_a_ring(rank, turns):
    """A rank's holdings after so many steps of a ring all-reduce, by definition."""
    held = [10**rank * (place + 1) for place in range(WORLD)]
    for turn in range(min(turns, WORLD - 1)):
        place = (rank - turn - 1) % WORLD
        ranks = [(rank - hop) % WORLD for hop in range(turn + 2)]
        held[place] = sum(10**other * (place + 1) for other in ranks)
    for turn in range(turns - WORLD + 1):
        held[(rank - turn) % WORLD] = 1111 * ((rank - turn) % WORLD + 1)
    return held


def test_the_colours_of_a_value_are_the_ranks_whose_digits_are_in_it(ring):
    for one in rounds(ring):
        for held in one.after:
            for value, origins in zip(held.values, held.origins, strict=True):
                digits = str(int(value))[::-1]
                assert origins == {rank for rank, digit in enumerate(digits) if digit != "0"}


def test_a_message_points_at_the_elements_that_it_takes_along(ring):
    first, *_, last = rounds(ring)
    assert {message.src: message.places(message.src) for message in first.messages} == {
        rank: range(rank, rank + 1) for rank in range(WORLD)
    }
    assert all(message.places(message.dst) == range(0) for message in first.messages)  # into an inbox
    assert all(len(message.places(message.dst)) == 1 for message in last.messages)  # into the tensor itself


def test_sums_that_could_be_anybodys_have_the_colours_of_those_that_were_added(shared_group):
    setup = TREE + "x = torch.tensor([0.1, -0.2, -0.1, 0.2])[rank]"  # 0.1 - 0.2 is rank 2's own value
    found = rounds(traced(shared_group, setup, "tree_reduce(x)"))
    assert [one.after[0].origins for one in found] == [[{0, 1}], [{0, 1, 2, 3}]]
    assert found[0].after[2].origins == [{2, 3}]
    assert found[-1].after[3].origins == [{3}]


def test_a_value_that_an_equal_one_has_replaced_is_the_senders(shared_group):
    source = "if rank == 0:\n    dist.send(x, 1)\nif rank == 1:\n    dist.recv(x, 0)"
    (one,) = rounds(traced(shared_group, "x = torch.tensor([3.0])", source))
    assert [held.origins for held in one.after] == [[{0}], [{0}], [{2}], [{3}]]


def test_what_a_rank_computed_from_elsewhere_has_no_colour(shared_group):
    source = "if rank == 0:\n    dist.send(x, 1)\nif rank == 1:\n    dist.recv(x, 0)\n    x *= 5"
    (one,) = rounds(traced(shared_group, "x = torch.tensor([3.0 + rank])", source))
    assert (one.after[1].values, one.after[1].origins) == ([15.0], [set()])


def test_a_variable_that_is_made_in_the_cell_holds_nothing_before(shared_group):
    source = "dist.barrier()\ny = torch.tensor([rank])\n"
    source += "dist.send(y, rank + 2) if rank < 2 else dist.recv(y, rank - 2)"
    (one,) = rounds(traced(shared_group, "", source, name="y"))
    assert [held.values for held in one.before] == [[], [], [], []]
    assert [held.values for held in one.after] == [[0], [1], [0], [1]]


@pytest.mark.parametrize(
    "name, reason", [("x", "x has more than 64 values a rank"), ("missing", "missing holds no numbers")]
)
def test_where_values_cannot_be_drawn_the_messages_are_and_the_title_says_why(shared_group, name, reason):
    source = "if rank == 0:\n    dist.send(x, 1)\nif rank == 1:\n    dist.recv(x, 0)"
    player = traced(shared_group, "x = torch.ones(100)", source, name).steps("a long message")
    title, *texts = (text.get_text() for text in player.overview.axes[0].texts)
    assert title.startswith("a long message") and reason in title
    assert "1 × 400 B" in texts


def test_a_trace_without_messages_says_that_there_are_none(shared_group):
    player = traced(shared_group, "x = torch.ones(2)", "dist.all_reduce(x)").steps()
    assert "sent no messages" in player.overview.axes[0].texts[1].get_text()
    assert "<script>" not in player._repr_mimebundle_()[0]["text/html"]


def test_the_arrows_keep_their_senders_colours_in_the_file():
    calls = [[] for _ in range(8)]
    for src in range(7):
        message(calls, src, src + 1, start=src, end=src + 1)
        calls[src][-1].look = Look([1.0] * 5, range(src, src + 1))
    drawn = Image.open(BytesIO(trace(*calls).steps("chain").overview.png(pixels_per_dot=1))).convert("RGB")
    colours = [colour for _, colour in drawn.getcolors()]
    for sender in RANK_COLOURS[:7]:
        wanted = [255 * channel for channel in to_rgb(sender)]
        assert any(colour == pytest.approx(wanted, abs=8) for colour in colours), sender


def test_a_player_shows_all_rounds_at_once_where_no_script_runs(ring):
    data, metadata = ring.steps("ring")._repr_mimebundle_()
    drawn = Image.open(BytesIO(b64decode(data["image/png"])))
    assert drawn.width >= metadata["image/png"]["width"]
    before_scripts = data["text/html"].partition("<script>")[0]
    assert re.findall('src="data:image/png;base64,([^"]*)"', before_scripts) == [data["image/png"]]


def test_the_slider_of_a_player_has_one_picture_a_round(ring):
    html = ring.steps("ring")._repr_mimebundle_()[0]["text/html"]
    frames = json.loads(re.search("const frames = (.*);", html)[1])
    assert [frame["title"] for frame in frames] == [f"round {number} of 6" for number in range(1, 7)]
    assert frames[0]["alt"].startswith("round 1: 4 × 4 B, rank 0 to 1, rank 1 to 2, rank 2 to 3, rank 3 to 0")
    assert len({frame["src"] for frame in frames}) == 6


def test_a_title_cannot_become_markup(ring):
    assert "<b>" not in ring.steps("<b>ring</b>")._repr_mimebundle_()[0]["text/html"]


def test_a_ring_of_32_ranks_fits_on_two_pages():
    with fourranks.start(32, "gloo") as group:
        found = traced(group, RING + "x = torch.ones(32) * rank", "ring_all_reduce(x)")
    assert len(rounds(found)) == 62
    width, height = found.steps("ring").overview.get_size_inches()
    assert width < 9.5 and height < 12
