"""Sides of calls find each other as in Gloo, and one whose end is unsure is never waited for at once."""

import pytest

from autograder.inside.pairing import Collectives, Pairing, Way

WAY = Way("default", 0, 1, 0)


class Posts:
    """The message to each side that was posted."""

    def __init__(self):
        self.pairing, self.told = Pairing(), []

    def post(self, name, way=WAY):
        self.pairing.post(way, name.startswith("send"), lambda soon: self.told.append((name, soon)))


@pytest.fixture
def posts():
    return Posts()


@pytest.mark.parametrize("names", [("send", "recv"), ("recv", "send")])
def test_a_message_ends_soon_when_both_sides_are_posted(posts, names):
    posts.post(names[0])
    assert posts.told == []
    posts.post(names[1])
    assert posts.told == [(names[0], True), (names[1], True)]


def test_messages_on_one_way_keep_their_order(posts):
    for name in ("send 0", "send 1", "recv 0"):
        posts.post(name)
    assert posts.told == [("send 0", True), ("recv 0", True)]
    posts.post("recv 1")
    posts.post("recv 2")
    assert posts.told[2:] == [("send 1", True), ("recv 1", True)]


@pytest.mark.parametrize(
    "other", [WAY._replace(group="another"), WAY._replace(tag=1), Way("default", 1, 0, 0)]
)
def test_sides_of_different_ways_do_not_meet(posts, other):
    posts.post("send")
    posts.post("recv", other)
    assert posts.told == []


def test_what_is_given_up_is_told_so_once(posts):
    posts.post("send")
    posts.pairing.give_up()
    assert posts.told == [("send", False)]
    posts.post("recv")
    assert posts.told == [("send", False)]


def test_beside_a_receive_from_any_source_nothing_in_its_group_is_sure(posts):
    posts.post("send")
    posts.post("send elsewhere", WAY._replace(group="another"))
    posts.pairing.give_up_for_good("default")
    posts.post("recv")
    assert posts.told == [("send", False), ("recv", False)]
    posts.post("recv elsewhere", WAY._replace(group="another"))
    assert posts.told[2:] == [("send elsewhere", True), ("recv elsewhere", True)]


class Posted:
    """The message to each rank that has posted a collective."""

    def __init__(self):
        self.collectives, self.told = Collectives(), []

    def post(self, rank, what="all_reduce", group="default", size=3):
        self.collectives.post(group, rank, size, what, lambda soon: self.told.append((what, rank, soon)))


@pytest.fixture
def posted():
    return Posted()


def test_a_collective_ends_soon_when_all_ranks_have_posted_it(posted):
    posted.post(2)
    posted.post(0)
    assert posted.told == []
    posted.post(1)
    assert posted.told == [("all_reduce", rank, True) for rank in (2, 0, 1)]


def test_collectives_are_matched_by_their_place_in_their_group(posted):
    for what in ("first", "second"):
        posted.post(0, what)
    posted.post(1, "first")
    posted.post(0, "elsewhere", group="another", size=2)
    posted.post(2, "first")
    assert posted.told == [("first", rank, True) for rank in (0, 1, 2)]
    posted.post(1, "elsewhere", group="another", size=2)
    assert posted.told[3:] == [("elsewhere", rank, True) for rank in (0, 1)]


def test_where_ranks_mean_different_collectives_no_end_in_their_group_is_sure(posted):
    posted.post(0)
    posted.post(1, "broadcast")
    assert posted.told == [("all_reduce", 0, False), ("broadcast", 1, False)]
    for rank in range(3):
        posted.post(rank, "barrier")
    assert posted.told[2:] == [("barrier", rank, False) for rank in range(3)]


def test_what_follows_a_collective_that_may_never_end_is_not_sure(posted):
    posted.collectives.give_up("default")
    for rank in range(3):
        posted.post(rank)
        posted.post(rank, group="another")
    told = {(rank, soon) for _, rank, soon in posted.told}
    assert told == {(rank, soon) for rank in range(3) for soon in (True, False)}


def test_collectives_that_are_given_up_are_told_so_once(posted):
    posted.post(0)
    posted.collectives.give_up()
    posted.post(1)
    assert posted.told == [("all_reduce", 0, False), ("all_reduce", 1, False)]
