"""An answer that does not shard gets no points, whatever it says of its memory and wherever it keeps it.

`memory/` has what they try: ways to have the meter in a rank's own process show less, each tried with all
exercises in which ranks shard, and places for an optimizer's state, to be taken back one parameter at a time.
"""

import re
from pathlib import Path

import pytest

from autograder.inside.drivers import held_memory as drivers
from autograder.kit.student import Function
from tests.autograder import shelf
from tests.hostile.conftest import HONEST

TOPIC = "05_sharded_data_parallelism"
WAYS = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "memory").glob("*.py"))}
UNSHARDED = WAYS.pop("unsharded")  # an optimizer that keeps the state of all parameters in a place
PLACES = [name for name, code in WAYS.items() if "class Place" in code]
METERS = [name for name in WAYS if name not in PLACES]
CHECKS = {
    "ShardedOptimizer": "sharded_optimizer",
    "ShardedGradients": "sharded_gradients",
    "FullyShardedDataParallel": "fully_sharded_data_parallel",
}
# Solutions of the shelf that are right, and others that are wrong in nothing but what they hold.
RIGHT = {
    "ShardedOptimizer": "RightOptimizer",
    "ShardedGradients": "RightGradients",
    "FullyShardedDataParallel": "RightShards",
}
HOLD_TOO_MUCH = {
    "ShardedOptimizer": ["has_the_whole_state"],
    "ShardedGradients": ["lets_go_in_the_end"],
    "FullyShardedDataParallel": ["makes_shards_that_are_views", "keeps_weights_for_backward"],
}


def from_shelf(answer: str, name: str, way: str) -> str:
    """A solution of the shelf as an answer, which has the meter forged before it holds anything.

    An optimizer does so only where memory is measured: with large parameters.
    """
    helpers = "\n".join(shelf.sources(TOPIC, [CHECKS[answer]]))
    return f"""{helpers}
{way}

class {answer}({name}):
    def __init__(self, given, *arguments, **options):
        if not hasattr(given, "parameters"):
            given = list(given)
        if hasattr(given, "parameters") or len(given) == {drivers.NUM_PARAMETERS}:
            forge()
        super().__init__(given, *arguments, **options)
"""


NOTHING_FORGED = "def forge():\n    pass\n"
HONEST_ANSWERS = {answer: from_shelf(answer, name, NOTHING_FORGED) for answer, name in RIGHT.items()}
FORGED = {
    f"{way}_{name}": from_shelf(answer, name, WAYS[way])
    for way in METERS
    for answer, names in HOLD_TOO_MUCH.items()
    for name in names
    if way == "meter_shows_nothing" or answer == "ShardedOptimizer"
}
FORGED["marks_of_its_own_never_frees"] = from_shelf(
    "FullyShardedDataParallel", "never_frees", WAYS["marks_of_its_own"]
)
HIDDEN = {place: f"{WAYS['meter_shows_nothing']}\n{WAYS[place]}\n{UNSHARDED}" for place in PLACES}
SEEN = "at most 42 MiB, and 16 MiB for everything else"
# Their ends, as regular expressions; for all others, their memory is seen.
OTHERWISE = {
    "measured_twice_has_the_whole_state": "connections of this world have been closed",
    "kept_in_shared_memory": "PermissionError",
    "kept_in_a_file_without_a_name": "PermissionError",
    "kept_in_pipes": "PermissionError",
    "kept_in_sockets": "PermissionError",
    "kept_by_a_child": "PermissionError",
    "swapped_out": "madvise",
    "kept_beyond_the_board": "PermissionError|File too large",  # by the seal, or by the limit on files
    "kept_in_what_it_was_sent": "at most 1 MiB",
    "ballast_is_let_go_has_the_whole_state": "at most 1 MiB",
    "in_flight": "traffic by another way|wait forever",  # in case the messages meet, or not
    "meter_shows_nothing_lets_go_in_the_end": "MiB for everything else",
    "meter_shows_nothing_makes_shards_that_are_views": "MiB for everything else",
    "meter_shows_nothing_keeps_weights_for_backward": "MiB for everything else",
    "marks_of_its_own_never_frees": "at most 48 MiB, and 16 MiB for everything else",
}


@pytest.fixture(scope="module")
def graded(grade):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Function, "timeout", 120.0)  # with models of tens of MB
        return grade([], HONEST_ANSWERS | FORGED | HIDDEN)


@pytest.mark.timeout(1200)  # all of them are graded in the first test
@pytest.mark.parametrize("name", HONEST_ANSWERS)
def test_who_shards_in_another_way_gets_the_points(name, graded):
    assert graded.points(name) == 1, graded.text(name)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [*FORGED, *HIDDEN])
def test_who_does_not_shard_gets_none(name, graded):
    assert graded.points(name) == 0, graded.text(name)
    assert re.search(OTHERWISE.get(name, SEEN), graded.text(name))


def test_answers_beside_them_keep_their_points(graded):
    assert [graded.points(name) for name in HONEST] == [1, 1]
