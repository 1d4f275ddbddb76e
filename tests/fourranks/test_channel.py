"""The channel between the notebook and a rank."""

from __future__ import annotations

import socket
import threading

import pytest

from fourranks.protocol.channel import Channel
from fourranks.protocol.messages import Done, Push, Run, Stream
from fourranks.protocol.parcel import SMALL, pack
from fourranks.protocol.places import NotebookCell


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours, blocking=False), Channel(theirs, blocking=True)


def receive(channel):
    while not (messages := channel.receive_available()):
        pass
    return messages


def test_messages_arrive_in_order_and_whole(ends):
    notebook, rank = ends
    for number in range(100):
        rank.send(Stream("stdout", str(number)))
    texts = []
    while len(texts) < 100:
        texts += [message.text for message in notebook.receive_available()]
    assert texts == [str(number) for number in range(100)]


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def test_a_message_that_cannot_be_read_keeps_no_later_one_from_arriving(ends):
    notebook, rank = ends
    rank.send(Unreadable())
    rank.send(Stream("stdout", "later"))
    with pytest.raises(ValueError, match="no number"):
        receive(notebook)
    assert [message.text for message in receive(notebook)] == ["later"]


def test_a_message_larger_than_the_socket_never_blocks_the_notebook(ends):
    notebook, rank = ends
    notebook.send(b"x" * 5_000_000)
    assert notebook.wants_to_send
    received = []
    reader = threading.Thread(target=lambda: received.append(rank.receive()))
    reader.start()
    while notebook.wants_to_send:
        notebook.flush()
    reader.join()
    assert len(received[0]) == 5_000_000


def test_each_message_keeps_its_own_file_also_when_many_arrive_at_once(ends):
    notebook, rank = ends
    values = [bytes([number]) * (SMALL + number) for number in range(20)]
    for value in values:
        rank.send(Stream("stdout", "in between"))
        rank.send(Done(parcel=pack(value)))
    arrived = []
    while len(arrived) < 2 * len(values):
        arrived += notebook.receive_available()
    assert [message.parcel.unpack() for message in arrived if isinstance(message, Done)] == values
    notebook.send(Push(pack(values), {}))
    assert rank.receive().parcel.unpack() == values


def test_a_file_goes_along_once_however_many_pieces_its_message_is_sent_in(ends):
    notebook, rank = ends
    values = [bytes([number]) * (SMALL + number) for number in range(2)]
    for value in values:
        notebook.send(
            Run(pack(value), cells={"file": NotebookCell("Cell In[1]", "x" * 5_000_000)}, trace=None)
        )
    received = []
    reader = threading.Thread(target=lambda: received.extend(rank.receive() for _ in values))
    reader.start()
    while notebook.wants_to_send:
        notebook.flush()
    reader.join()
    assert [message.parcel.unpack() for message in received] == values


def test_messages_from_several_threads_do_not_mix(ends):
    notebook, rank = ends
    threads = [
        threading.Thread(target=rank.send, args=(Stream("stdout", f"{n}" * 20_000),)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    texts = []
    while len(texts) < 8:
        texts += [message.text for message in receive(notebook)]
    for thread in threads:
        thread.join()
    assert sorted(texts) == [f"{n}" * 20_000 for n in range(8)]


def test_the_end_of_the_other_side_is_noticed_on_both_ends(ends):
    notebook, rank = ends
    rank.close()
    notebook.receive_available()
    assert notebook.at_end

    ours, theirs = socket.socketpair()
    ours.close()
    with pytest.raises(EOFError):
        Channel(theirs, blocking=True).receive()
    theirs.close()
