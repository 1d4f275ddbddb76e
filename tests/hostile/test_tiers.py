"""The tiers of sandbox differ as the table in docs/security.md says."""

import os

from autograder.sandbox.tiers import Tier

TIERS = (Tier.NAMESPACES, Tier.LANDLOCK)
LOOKS = """
import os

def sees(what, look):
    try:
        print("sees", what if look() else "nothing")
    except OSError:
        print("sees nothing")

sees("that a file exists", lambda: os.stat({course!r} + "/gradebook.db").st_size)
sees("a number of a process", lambda: os.stat("/proc/{pid}"))
sees("a port", lambda: "{port:04X}" in open("/proc/net/tcp").read())
sees("what a file holds", lambda: open({course!r} + "/gradebook.db").read())
sees("a command line", lambda: open("/proc/{pid}/cmdline").read())
sees("names in a folder", lambda: os.listdir({course!r}))
"""
STARTS_RANKS = """
import fourranks
with fourranks.start(2) as world:
    print("sees", world.run(lambda: 42))
"""


def test_without_namespaces_code_sees_what_exists_and_no_more_than_that(grade, tier, outside):
    for folder in [outside.course, *outside.course.parents[:-2]]:  # so that other users may look at it
        folder.chmod(0o755)
    port = outside.server.getsockname()[1]
    graded = grade([], {"looks": LOOKS.format(course=str(outside.course), pid=os.getpid(), port=port)})
    seen = ["that a file exists", "a number of a process", "a port", *["nothing"] * 3]
    expected = [f"sees {what}" for what in (seen if tier is Tier.LANDLOCK else ["nothing"] * 6)]
    assert graded.outputs("looks")[0].text.splitlines() == expected


def test_cells_start_ranks_where_there_is_a_network_of_their_own(grade, tier):
    graded = grade([], {"starts_ranks": STARTS_RANKS})
    (output,) = graded.outputs("starts_ranks")
    if tier is Tier.LANDLOCK:
        assert output.ename == "StartError" and "checks start ranks, and cells cannot" in output.evalue
    else:
        assert output.text == "sees [42, 42]\n"
