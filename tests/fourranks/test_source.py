"""The code around a line: loops and branches, ways out, and what is called behind it."""

from __future__ import annotations

import pytest

from fourranks.source import LONGEST, Source

CELL = """\
for step in range(3):
    if rank == 0:
        one()
    elif rank == 1:
        two()
    else:
        three()

def function():
    while True:
        try:
            if done: return
            four()
        except ValueError:
            five()

if rank: six()
[seven() for _ in range(rank)]
match rank:
    case 0:
        eight()
rank == 0 and nine()
if ten(rank):
    pass
eleven([x for x in y], a if b else c)
"""
SOURCE = Source({"cell": CELL})


@pytest.mark.parametrize(
    ("line", "blocks"),
    [
        (3, ["if rank == 0:", "for step in range(3):"]),
        (5, ["elif rank == 1:", "else of if rank == 0:", "for step in range(3):"]),
        (7, ["else of elif rank == 1:", "else of if rank == 0:", "for step in range(3):"]),
        (13, ["try:", "while True:"]),
        (15, ["except ValueError:", "while True:"]),
        (17, ["if rank: six()"]),
        (18, ["[seven() for _ in range(rank)]"]),
        (21, ["case 0:"]),
        (22, ["rank == 0 and nine()"]),
        (23, []),
        (25, []),
    ],
)
def test_a_line_knows_the_loops_and_branches_of_its_function(line, blocks):
    assert [block.text for block in SOURCE.blocks("cell", line)] == blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("print([made(x) for x in y])", 1),
        ("print([x for x in made(y)])", 0),
        ("print([x for x in y if made(x)])", 1),
        ("print(made(x) if a else b)", 1),
        ("print(a if made(x) else b)", 0),
        ("print(a and made(x))", 1),
        ("print(made(x) and a)", 0),
        ("if made(x): a()", 0),
        ("if a: print(made(x))", 1),
        ("for x in made(y): a(x)", 0),
        ("while made(x): a()", 1),
        ("made([x for x in y], a if b else c)", 0),
    ],
)
def test_the_name_of_what_a_line_calls_tells_what_is_around_the_call(text, blocks):
    found = Source({"cell": text}).blocks("cell", 1, {"made", "another"})
    assert [block.text for block in found] == [text] * blocks


@pytest.mark.parametrize("called", [{"made"}, {"other"}, set()])
def test_a_name_that_two_calls_of_a_line_or_none_have_tells_nothing(called):
    source = Source({"cell": "if a: made([made(x) for x in y])"})
    assert source.blocks("cell", 1, called) == source.blocks("cell", 1)


def test_calls_from_a_line_on_are_those_of_its_function_but_not_on_other_branches():
    source = Source(
        {"cell": "if rank:\n    one()\n    two()\nelse:\n    three()\ndef f():\n    four()\nfive()\n"}
    )
    assert source.calls_from("cell", 2) == [("one", 2), ("two", 3), ("five", 8)]
    assert source.calls_from("cell", 5) == [("three", 5), ("five", 8)]


def test_calls_of_one_line_are_told_in_the_order_in_which_they_are_made():
    source = Source({"cell": "if rank: one(two()); one()\nelse: three(); four()\n"})
    assert source.calls_from("cell", 1) == [("two", 1), ("one", 1), ("one", 1)]
    assert source.calls_from("cell", 2) == [("three", 2), ("four", 2)]


def test_ways_out_are_those_of_the_function_and_of_the_loops_that_the_line_is_in():
    assert [(way.keyword, way.line) for way in SOURCE.exits("cell", 13)] == [("return", 12)]
    text = "for a in b:\n    for c in d:\n        break\n    if c: continue\n    e()\n    if d: break\n"
    assert [way.line for way in Source({"cell": text}).exits("cell", 5)] == [4, 6]
    text = (
        "for a in b:\n    for c in d:\n        e()\n        break\n    else:\n        continue\n    break\n"
    )
    assert [way.line for way in Source({"cell": text}).exits("cell", 3)] == [4, 6, 7]
    assert [way.line for way in Source({"cell": text}).exits("cell", 7)] == [6, 7]


def test_text_that_is_no_python_has_no_blocks():
    assert Source({"cell": "if (:\n"}).blocks("cell", 1) == ()


def test_a_line_that_is_not_there_has_no_blocks():
    assert SOURCE.blocks("cell", 1000) == Source({}).blocks("no such file", 3) == ()


def test_of_a_long_file_only_the_statement_around_the_line_is_read():
    head = "x = (\n" + "1,\n" * LONGEST + ")\n" + 'text = """\nif (:\n"""\n' + "value = 0\n" * 10
    source = Source({"long": head + CELL + "value = 1\n" * 10})
    first = (head).count("\n")
    assert [block.text for block in source.blocks("long", first + 7)][:2] == [
        "else of elif rank == 1:",
        "else of if rank == 0:",
    ]
    assert [block.line for block in source.blocks("long", first + 13)] == [first + 11, first + 10]
