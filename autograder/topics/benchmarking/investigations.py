"""Checks of exercise 03 in which somebody else's numbers, or machine, are to be looked into."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from autograder.inside.drivers import benchmarking as drivers
from autograder.inside.drivers.simulated_cluster import SimulatedCluster
from autograder.kit.case import Trial, again, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import MODIFIED, WRONG_TYPE, Mistake
from autograder.kit.problem import Problem
from autograder.kit.student import Outcome
from autograder.kit.values import is_number, kind_of, same
from autograder.topics.benchmarking import mistakes
from autograder.topics.benchmarking.bandwidths import COLLECTIVES
from autograder.topics.benchmarking.banned import BANNED
from fourranks.naming import counted
from fourranks.trace import bandwidth

# --- a log

_DIGITS = 3  # of what a log reports
_LINK = 450e9  # of the machine that the logs are of
_UNLIKE = 0.016  # by how much figures of two verdicts differ at least, relative: 1 %, and what rounding hides
_OTHER_UNIT = 1e9 / 2**30
_OF_ONE_RANKS_PART = ("reduce_scatter", "all_gather", "all_to_all")


class _LogLine(NamedTuple):
    """A line of a log, and what is to be said of it."""

    line: Mapping[str, Any]
    verdict: str


@check(banned=BANNED)
def audit(function: Code, world_sizes: Sequence[int] = (2, 4, 8, 16), seed: int = 0) -> Cases:
    """Check `audit`: each kind of line by itself, then logs of many lines."""
    generator = random.Random(seed)
    kinds = list(mistakes.OF_VERDICTS)
    for verdict in kinds:
        yield _log(f"lines that are {verdict}", _drawn(generator, [verdict] * 6, world_sizes))
    logs = []
    for _ in range(3):
        mixed = generator.choices(kinds, k=40)
        logs.append(_log(f"{len(mixed)} lines of all kinds", _drawn(generator, mixed, world_sizes)))
    yield from logs
    yield again(*logs[:2])
    yield _log("an empty log", [])


def _drawn(generator: random.Random, verdicts: Sequence[str], world_sizes: Sequence[int]) -> list[_LogLine]:
    return [_line(generator, verdict, world_sizes) for verdict in verdicts]


def _line(generator: random.Random, verdict: str, world_sizes: Sequence[int]) -> _LogLine:
    """Draw a line to which this verdict applies, and no other."""
    while True:
        collective, n = generator.choice(COLLECTIVES), generator.choice(world_sizes)
        size, speed = 4 * generator.randrange(1 << 18, 1 << 30), generator.uniform(0.3, 0.95) * _LINK
        if verdict == "not finished":
            speed = _LINK * generator.uniform(3, 3000)
        seconds = bandwidth.busbw(collective, size, 1.0, n) / speed
        reported = _reported(collective, size, seconds, n)
        if verdict == "unexplained":
            reported[verdict] = speed * generator.choice((0.37, 0.983, 1.017, 1.27, 1 / n))
        elif verdict == "not finished":
            reported[verdict] = speed
        if verdict in reported and _is_told_apart(reported, verdict):
            told = float(f"{reported[verdict]:.{_DIGITS - 1}e}")
            numbers = {"num_bytes": size, "seconds": seconds, "world_size": n, "reported": told}
            return _LogLine({"collective": collective, **numbers}, verdict)


def _reported(collective: str, size: int, seconds: float, n: int) -> dict[str, float]:
    """Return what each way of counting reports; a way that is no other than one before it is left out."""
    right = bandwidth.busbw(collective, size, seconds, n)
    ways = {"right": right, "algbw": bandwidth.algbw(size, seconds), "GiB": right * _OTHER_UNIT}
    if collective in _OF_ONE_RANKS_PART:
        ways["part"] = right / n
    return ways | {"both directions": 2 * right, "all ranks": n * right}


def _is_told_apart(reported: Mapping[str, float], verdict: str) -> bool:
    """Tell whether no other way of counting comes near, but for one behind it that comes to the same."""
    if verdict == "not finished":  # of a time that is too short all are wrong
        return True
    order = list(reported)
    return all(
        abs(value / reported[verdict] - 1) > _UNLIKE
        or (order.index(name) > order.index(verdict) and math.isclose(value, reported[verdict]))
        for name, value in reported.items()
        if name != verdict
    )


def _log(title: str, lines: Sequence[_LogLine]) -> Trial:
    def verify(outcome: Outcome) -> Problem | None:
        got, wanted = outcome.value, [line.verdict for line in lines]
        if not isinstance(got, (list, tuple)) or not all(isinstance(each, str) for each in got):
            return Problem(WRONG_TYPE, "a list of strings", kind_of(got))
        if len(got) != len(wanted):
            return Problem(
                mistakes.ANOTHER_NUMBER_OF_VERDICTS, counted(len(wanted), "verdict"), str(len(got))
            )
        wrong = [(line, own) for line, own in zip(lines, got, strict=True) if own != line.verdict]
        left = outcome.arguments[:1]  # of two calls there is none
        if not wrong and left and not same(left[0], arguments[0]):
            return Problem(MODIFIED, "`log` as it was", "another one")
        if not wrong:
            return None
        # A mistake that affects figures of all kinds is named by a line that is right.
        line, own = next((each for each in wrong if each[0].verdict == "right"), wrong[0])
        expected = f"{line.verdict!r} for {_described(line.line)}"
        mistake = (
            mistakes.LONG_ENOUGH_ACCUSED if own == "not finished" else mistakes.OF_VERDICTS[line.verdict]
        )
        return Problem(mistake, expected, repr(own))

    arguments = ([dict(line.line) for line in lines], _LINK)
    return on_one_rank(title, arguments, verify, drivers.audit_log, size=len(lines))


def _described(line: Mapping[str, Any]) -> str:
    return (
        f"{line['collective']} of {line['num_bytes']:,} bytes on {line['world_size']} ranks in "
        f"{1e3 * line['seconds']:.4g} ms, reported {line['reported'] / 1e9:.4g} GB/s"
    )


# --- a cluster

_CLOSE = 0.1  # relative, of alpha and beta
_NODES = ((4, 4), (2, 3, 3), (2, 2), (4, 4, 4, 4))  # ranks of each node
_LINKS = {  # alpha and beta inside nodes, and across
    "NVLink and InfiniBand": ((3e-6, 1 / 400e9), (12e-6, 1 / 45e9)),
    "PCIe and Ethernet": ((8e-6, 1 / 25e9), (60e-6, 1 / 2.4e9)),
}


@check(banned=BANNED)
def measure_cluster(function: Code, nodes: Sequence[Sequence[int]] = _NODES, seed: int = 0) -> Cases:
    """Check `measure_cluster` on simulated clusters whose ranks are spread over the nodes in any order.

    Args:
        nodes: of each cluster the numbers of ranks on its nodes.
    """
    generator = random.Random(seed)
    for ranks_of_nodes in nodes:
        for name, links in _LINKS.items():
            yield _cluster(generator, ranks_of_nodes, name, links)


def _cluster(
    generator: random.Random,
    ranks_of_nodes: Sequence[int],
    name: str,
    links: tuple[tuple[float, float], tuple[float, float]],
) -> Trial:
    node_of_rank = [node for node, ranks in enumerate(ranks_of_nodes) for _ in range(ranks)]
    generator.shuffle(node_of_rank)
    factor = generator.uniform(0.7, 1.4)
    inside, across = ((factor * alpha, factor * beta) for alpha, beta in links)
    cluster = SimulatedCluster.of_nodes(node_of_rank, inside, across, generator.getrandbits(30))
    budget = 40 * len(node_of_rank) + 200  # messages, as the exercise says

    def verify(outcome: Outcome) -> Problem | None:
        found: drivers.Surveyed = outcome.value
        return (
            _other_form(found.answer)
            or _over_budget(found.sent, budget)
            or _not_measured(found.sent, len(node_of_rank))
            or _other_nodes(found.answer, node_of_rank)
            or _other_link(found.answer, {"inside": inside, "across": across})
        )

    title = f"{len(node_of_rank)} ranks on nodes of {', '.join(map(str, ranks_of_nodes))}, {name}"
    arguments = (cluster.alphas, cluster.betas, cluster.seed)
    return on_one_rank(title, arguments, verify, drivers.survey, size=len(node_of_rank))


def _other_form(answer: Any) -> Problem | None:
    """Find an answer that is not made of nodes and two links."""
    expected = "(nodes, inside, across): lists of ranks, and twice (alpha, beta)"
    if not isinstance(answer, (list, tuple)) or len(answer) != 3:
        return Problem(WRONG_TYPE, expected, kind_of(answer))
    nodes, *links = answer
    lists = isinstance(nodes, (list, tuple)) and all(_is_list_of(node, int) for node in nodes)
    pairs = all(isinstance(link, (list, tuple)) and len(link) == 2 for link in links)
    if lists and pairs and all(map(is_number, (*links[0], *links[1]))):
        return None
    return Problem(WRONG_TYPE, expected, ", ".join(map(kind_of, answer)))


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, (list, tuple)) and all(type(each) is kind for each in value)


def _over_budget(sent: int, budget: int) -> Problem | None:
    if sent <= budget:
        return None
    return Problem(mistakes.TOO_MANY_MESSAGES, f"at most {counted(budget, 'message')}", f"{sent:,}")


def _not_measured(sent: int, num_ranks: int) -> Problem | None:
    """Find an answer that fewer messages came before than it takes.

    All ranks but two are compared with another one, and a link of each kind is measured at two sizes; one
    message of each link is also a comparison.
    """
    if sent >= num_ranks:
        return None
    return Problem(mistakes.NOT_MEASURED, f"at least {counted(num_ranks, 'message')}", f"{sent:,}")


def _other_nodes(answer: Any, node_of_rank: Sequence[int]) -> Problem | None:
    wanted = sorted(_members(node_of_rank))
    got = sorted(sorted(node) for node in answer[0])
    if got == wanted:
        return None
    return Problem(mistakes.OTHER_NODES, str(wanted), str(got))


def _members(node_of_rank: Sequence[int]) -> Iterator[list[int]]:
    for node in set(node_of_rank):
        yield [rank for rank, own in enumerate(node_of_rank) if own == node]


def _other_link(answer: Any, wanted: Mapping[str, tuple[float, ...]]) -> Problem | None:
    got = dict(zip(wanted, answer[1:], strict=True))
    swapped = _near(got["inside"], wanted["across"]) and _near(got["across"], wanted["inside"])
    for name, link in wanted.items():
        if not _near(got[name], link):
            mistake = mistakes.LINKS_SWAPPED if swapped else _link_mistake(got[name], link)
            expected = "{}: alpha = {:.3g} s, beta = {:.3g} s/byte".format(name, *link)
            return Problem(mistake, expected, "{:.3g} and {:.3g}".format(*got[name]))
    return None


def _link_mistake(got: Sequence[float], want: Sequence[float]) -> Mistake:
    alpha, beta = want
    if _near(got, (beta, alpha)):
        return mistakes.SWAPPED
    if _near(got, (alpha, 1 / beta)):
        return mistakes.A_RATE
    too_slow = got[0] > 2 * want[0] or all(own > (1 + _CLOSE) * w for own, w in zip(got, want, strict=True))
    return mistakes.LINK_TOO_SLOW if too_slow else mistakes.OTHER_LINK


def _near(got: Sequence[float], want: Sequence[float]) -> bool:
    return all(math.isclose(*pair, rel_tol=_CLOSE) for pair in zip(got, want, strict=True))
