"""The figures in the README follow what was measured."""

from benchmarks.readme import refreshed

MEASURED = """# A title

- date: today

| measured | with | median |
|---|---|---|
| a start | Four Ranks | 1 s |
|  | a peer | 5 s |
| a cell | Four Ranks | 2 s |
|  | a peer | 6 s |
"""
README = """# Four Ranks

| a start | Four Ranks | in another section |

## Figures

Words.

- date: yesterday

| measured | with | median |
|---|---|---|
| a cell | Four Ranks | 20 s |
|  | a peer | 60 s |
| a start | Four Ranks | 10 s |
| a figure of old | Four Ranks | 7 s |

More words.
"""


def test_lines_that_were_measured_are_replaced_and_nothing_else():
    assert refreshed(README, MEASURED) == (
        README.replace("yesterday", "today")
        .replace("20 s", "2 s")
        .replace("60 s", "6 s")
        .replace("10 s", "1 s")
    )


def test_what_is_up_to_date_stays_as_it_is():
    assert refreshed(refreshed(README, MEASURED), MEASURED) == refreshed(README, MEASURED)
