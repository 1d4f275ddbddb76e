"""Conditions of branches, evaluated for one rank of four."""

from __future__ import annotations

import ast

import pytest

from fourranks.conditions import holds, names_for_the_rank


@pytest.mark.parametrize(
    ("condition", "ranks"),
    [
        ("rank == 0", {0}),
        ("rank", {1, 2, 3}),
        ("not rank", {0}),
        ("dist.get_rank() != 0", {1, 2, 3}),
        ("torch.distributed.get_rank() in (1, 3)", {1, 3}),
        ("rank not in [1, 3]", {0, 2}),
        ("rank % 2 == 0", {0, 2}),
        ("rank < world_size - 1", {0, 1, 2}),
        ("rank // 2 == 1 and rank + 1 < dist.get_world_size()", {2}),
        ("rank == 0 or rank == 3", {0, 3}),
        ("rank != -1", {0, 1, 2, 3}),
        ("local_rank != -1", {0, 1, 2, 3}),
        ("not args.local_rank == -1", {0, 1, 2, 3}),
        ("local_rank > -1 and rank < 2", {0, 1}),
        ("True", {0, 1, 2, 3}),
    ],
)
def test_a_condition_on_the_rank_alone_is_evaluated(condition, ranks):
    node = ast.parse(condition, mode="eval").body
    assert {rank for rank in range(4) if holds(node, rank, 4)} == ranks
    assert None not in [holds(node, rank, 4) for rank in range(4)]


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        ("rank == 0 and step % 2", {1: False, 2: False, 3: False}),
        ("rank or last", {1: True, 2: True, 3: True}),
    ],
)
def test_what_decides_alone_is_enough(condition, known):
    node = ast.parse(condition, mode="eval").body
    assert [holds(node, rank, 4) for rank in range(4)] == [known.get(rank) for rank in range(4)]


@pytest.mark.parametrize(
    "condition",
    [
        "step == 0",
        "dist.get_rank(group) == 0",
        "group_rank != -1",  # a rank that is no member has this number
        "local_rank == 0",
        "local_rank in (-1, 0)",
        "is_main()",
        "0 < rank < 3",
        "rank / 0",
        "rank % 0 == 1",
        "rank in 3",
        "rank + (1, 2)",
        "rank ** rank ** rank",
        "x.rank == 0",
        "rank == '0'",
    ],
)
def test_anything_else_is_unknown(condition):
    assert [holds(ast.parse(condition, mode="eval").body, rank, 4) for rank in range(1, 4)] == [None] * 3


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("r = dist.get_rank()\nme: int = r", "r me"),
        ("r, w = dist.get_rank(), dist.get_world_size()\nlast = r == w - 1", "r w last"),
        ("self.me = int(os.environ['RANK'])\nself.leads = not self.me", "self.me self.leads"),
        ("leads = ddp_rank == 0\nfirst = self.dp_rank in (0,)\nlast = ddp_rank == n", "leads"),
        ("if ddp:\n    master = int(os.getenv('RANK')) == 0\nelse:\n    master = True", "master"),
        ("if ddp:\n    master = int(os.getenv('RANK')) == 0\nelse:\n    master = asked()", ""),
        ("r = dist.get_rank()\nfor r in range(3): pass", ""),
        ("r = dist.get_rank()\nr += 1", ""),
        ("r = dist.get_rank()\ndef f(r): pass", ""),
        ("r = dist.get_rank(group)\nx = data[rank]\ns = step == 0\nn = 3", ""),
    ],
)
def test_names_for_the_rank_are_those_that_it_alone_decides(code, names):
    assert [*names_for_the_rank(ast.parse(code))] == names.split()


def test_names_for_the_rank_are_evaluated_for_each_rank():
    names = names_for_the_rank(
        ast.parse("r = int(os.environ.get('RANK', 0)); last = r == w - 1; root = r == 0")
    )
    assert {rank for rank in range(4) if holds(names["root"], rank, 4)} == {0}
    assert "last" not in names
