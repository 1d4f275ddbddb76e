"""Each broken job shows its symptom on real ranks, and the evidence that its explanation names is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import fourranks
from fourranks import DeadlockError, RankError, RankGroup, incidents
from fourranks.incidents import INCIDENTS, AnswerError
from fourranks.incidents.incident import RANKS, SPEED, Cause, Incident
from fourranks.incidents.job import OnCall

BY_NAME = {incident.name: incident for incident in INCIDENTS}
ONE_BY_ONE = pytest.mark.parametrize("incident", INCIDENTS, ids=[each.name for each in INCIDENTS])


@pytest.fixture(scope="module")
def group():
    with fourranks.start(4, "gloo", timeout=60) as group:
        yield group


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(group: RankGroup) -> Callable[[str], str]:
    """Hands out an incident's program and runs it; returns what it printed."""

    def run(name: str) -> str:
        return str(group.execute(f"%run {incidents.start(name).path}"))

    return run


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def on_call(incident: Incident, after: float = 0.0) -> OnCall:
    clock = Clock()
    job = OnCall(incident, clock)
    clock.now += after
    return job


def test_rank_2_leaves_the_loop_after_37_steps(run, group):
    with pytest.raises(DeadlockError, match="Rank 2 waits in barrier") as caught:
        run("Hang at step 37")
    assert "[0] step 36" in str(caught.value.transcript)
    steps = group.pull("num_steps")
    assert steps[2] == 37 and all(steps[rank] > 37 for rank in (0, 1, 3))


def test_rank_1_has_the_books_and_comes_last_to_most_steps(group):
    path = incidents.start("Slow steps").path
    with group.trace() as trace:
        group.execute(f"%run {path}")
    weights = [operation for operation in trace.operations if operation.calls[0].nbytes == 512 * 32 * 4]
    firsts = weights[::2]  # the embedding, then the head
    last = Counter(max(range(4), key=lambda rank: first.calls[rank].start) for first in firsts)
    assert len(firsts) == 12 and last.most_common(1)[0][0] == 1
    words = group.pull("sum(len(document.split()) for document in own)")
    assert words[1] > 10 * max(words[0], words[2], words[3])


def test_rank_0_has_another_order_and_samples_stay_unseen(run, group):
    assert "of 4096 samples were seen, some of them twice" in run("Unseen samples")
    orders = [order.tolist() for order in group.pull("order")]
    assert orders[0] != orders[1] == orders[2] == orders[3]


def test_replicated_weights_drift_although_the_loss_falls(run, group):
    said = run("Copies that drift")
    assert float(said.rpartition("by up to ")[2]) > 0.01
    gradients = group.pull("block.norm.weight.grad")
    assert not any(gradients[0].allclose(other, rtol=0.01) for other in gradients[1:])
    losses = [float(line.rpartition(" ")[2]) for line in said.splitlines() if "loss" in line]
    assert losses[-1] < 0.1 * losses[0]


def test_all_ranks_but_the_one_that_logs_keep_handles(run, group):
    assert float(run("Memory that climbs").rpartition("up to ")[2].split()[0]) > 10
    assert group.pull("len(histograms)") == [0, 80, 80, 80]
    assert group.pull("float(more[0] < more[1:].min())") == [1.0] * 4


def test_rank_0_runs_out_of_its_budget_in_another_line_and_the_limit_is_lifted(run, group):
    with pytest.raises(RankError, match="Rank 0 raised RuntimeError") as caught:
        run("Out of memory")
    assert "allocate memory" in str(caught.value)
    assert group.pull("len(curve) and curve[0].grad_fn is not None") == [True, 0, 0, 0]
    group.execute("curve.clear()\nimport resource")
    assert group.pull("resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY") == [True] * 4


def test_half_of_the_tokens_meet_another_expert(run, group):
    assert int(run("Worse on four ranks").rpartition(": ")[2].rstrip("%\n")) > 50
    assert group.pull("own_expert") == [0, 2, 1, 3]
    assert group.pull("dist.get_process_group_ranks(expert_group)") == [[0, 1, 2, 3]] * 4


def test_the_time_that_is_measured_is_not_that_of_the_all_reduce(run, group):
    rows = [line.split() for line in run("Too good to be true").splitlines() if line.split()[1].isdigit()]
    measured = float(rows[-1][2]) / 1e6
    group.execute("import time\nfinish(repeat(torch.ones(1 << 20), 2))\nbegan = time.perf_counter()")
    group.execute("finish(repeat(torch.ones(1 << 20), 8))\nreally = (time.perf_counter() - began) / 8")
    assert measured < 0.5 * max(group.pull("really"))


@ONE_BY_ONE
def test_the_right_answer_in_time_gets_all_points_and_later_all_but_those_for_speed(incident):
    for after, points in ((60 * incident.minutes, 12), (60 * incident.minutes + 1, 10)):
        for line in incident.lines:
            answer = on_call(incident, after).answer(list(incident.ranks), line, incident.cause.name)
            assert answer.points.total == points


@ONE_BY_ONE
def test_each_part_of_an_answer_is_worth_its_own_points(incident):
    ranks, line, cause = list(incident.ranks), incident.lines[0], incident.cause.name
    other = next(each.name for each in Cause if each is not incident.cause)
    elsewhere = 1  # the docstring
    wrong_ranks = [0, 1] if incident.ranks != {0, 1} else [2]
    given = [
        ((ranks, line, other), 6),
        ((ranks, elsewhere, cause), 7),
        ((ranks, elsewhere, other), 3),
        ((wrong_ranks, line, cause), 7 + SPEED),
        ((wrong_ranks, line, other), 3),
        ((wrong_ranks, elsewhere, cause), 4),
        ((wrong_ranks, elsewhere, other), 0),
    ]
    for answer, points in given:
        assert on_call(incident).answer(*answer).points.total == points


@ONE_BY_ONE
def test_each_faulty_line_occurs_once_in_its_program(incident):
    rows = [row.strip() for row in incident.source.splitlines()]
    assert [rows.count(text) for text in incident.faulty] == [1] * len(incident.faulty)


@ONE_BY_ONE
def test_a_program_does_not_give_its_answer_away(incident):
    told = incident.source.lower()
    words = (
        "bug",
        "fault",
        "wrong",
        "missing",
        "forgot",
        "leak",
        "straggler",
        "todo",
        "fixme",
        "incident room",
    )
    assert [word for word in words if word in told] == []
    assert incident.cause.value not in told


def test_there_are_eight_incidents_and_each_has_another_cause():
    assert len(INCIDENTS) == 8 == len({incident.cause for incident in INCIDENTS})


def test_the_program_is_handed_out_afresh_into_the_notebooks_folder(tmp_path):
    path = incidents.start("slow steps").path
    assert path == tmp_path / "incidents" / "slow_steps.py"
    path.write_text("changed")
    assert incidents.start("Slow steps").path.read_text() == BY_NAME["Slow steps"].source


def test_where_the_folder_cannot_be_written_the_program_lies_elsewhere(tmp_path):
    (tmp_path / "incidents").write_text("a file in its place")
    path = incidents.start("Slow steps").path
    assert not path.is_relative_to(tmp_path) and path.read_text() == BY_NAME["Slow steps"].source
    path.unlink()
    path.parent.rmdir()


def test_the_alarm_says_what_to_run_and_how_to_answer(tmp_path):
    shown = incidents.start("Hang at step 37")._repr_mimebundle_()
    path = Path("incidents") / "hang_at_step_37.py"
    assert f"%run {path}" in shown["text/plain"] and f"%run {path}" in shown["text/html"]
    assert all(cause.value in shown["text/plain"] for cause in Cause)
    assert BY_NAME["Hang at step 37"].seen not in str(shown)


def test_the_debriefing_explains_and_its_line_to_share_does_not():
    incident = BY_NAME["Hang at step 37"]
    told = on_call(incident, 125).answer(2, 1, "c")
    shown = told._repr_mimebundle_()
    for text in ("✓ Ranks", "✕ Place: the right answer is line", "✓ Cause", incident.prevented, "after 2:05"):
        assert text in shown["text/plain"]
    assert told.share == "Four Ranks incidents · Hang at step 37 · 7/12 in 2:05 🟩⬛🟩⬛"


@pytest.mark.parametrize(
    "rank", [np.int64(2), np.array([2]), torch.tensor(2), (2, 2), range(2, 3), {2: "two"}]
)
def test_a_number_of_any_library_is_a_number(rank):
    incident = BY_NAME["Hang at step 37"]
    told = on_call(incident).answer(rank, np.int32(1), "c")
    assert told.points == on_call(incident).answer(2, 1, "C").points


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"rank": 4}, "rank=4 is no answer. Give a rank from 0 to 3"),
        ({"rank": -1}, "rank=-1 is no answer"),
        ({"rank": "two"}, "rank='two' is no answer"),
        ({"rank": []}, r"rank=\[\] is no answer"),
        ({"rank": [0, 7]}, r"rank=\[0, 7\] is no answer"),
        ({"rank": [[0]]}, r"rank=\[\[0\]\] is no answer"),
        ({"rank": True}, "rank=True is no answer"),
        ({"rank": None}, "rank=None is no answer"),
        ({"rank": 2.0}, "rank=2.0 is no answer"),
        ({"rank": np.array([0, 9])}, "is no answer"),
        ({"line": True}, "line=True is no line"),
        ({"line": 0}, "line=0 is no line of hang_at_step_37.py, which has lines 1 to"),
        ({"line": 10_000}, "line=10000 is no line"),
        ({"line": "12"}, "line='12' is no line"),
        ({"cause": "Z"}, "cause='Z' is no cause. Give a letter from A to P"),
        ({"cause": ""}, "cause='' is no cause"),
        ({"cause": 3}, "cause=3 is no cause"),
    ],
)
def test_an_answer_that_cannot_be_read_is_refused_and_costs_nothing(answer, said):
    job = on_call(BY_NAME["Hang at step 37"])
    with pytest.raises(AnswerError, match=said):
        job.answer(**({"rank": 2, "line": 1, "cause": "C"} | answer))
    assert job.answer("all", 1, "C").points.total == 4


def test_a_second_answer_is_refused_as_the_first_was_explained():
    job = on_call(BY_NAME["Slow steps"])
    job.answer(0, 1, "A")
    with pytest.raises(
        AnswerError, match=r'You have answered already. incidents.start\("Slow steps"\) starts'
    ):
        job.answer(1, BY_NAME["Slow steps"].lines[0], "L")


@pytest.mark.parametrize("name", ["hang", "", None, 5])
def test_a_name_of_no_incident_lists_the_incidents(name):
    with pytest.raises(AnswerError, match=r"There is no incident .* There are: Hang at step 37, Slow steps"):
        incidents.start(name)


def test_all_ranks_may_be_written_as_all():
    incident = BY_NAME["Too good to be true"]
    assert incident.ranks == RANKS
    assert on_call(incident).answer("all", incident.lines[0], "N").points.ranks == 3
