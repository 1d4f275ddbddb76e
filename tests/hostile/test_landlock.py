"""The corpus in the sandbox without namespaces: attackers get the same. `make tiers` runs all else in it."""

from autograder.sandbox.tiers import Tier
from tests.hostile import test_hostile

TIERS = (Tier.LANDLOCK,)
together = test_hostile.together
test_it_gets_what_it_deserves = test_hostile.test_it_gets_what_it_deserves
test_answers_beside_attacks_keep_their_points = test_hostile.test_answers_beside_attacks_keep_their_points
test_who_only_looks_around_gets_hold_of_nothing = test_hostile.test_who_only_looks_around_gets_hold_of_nothing
test_nothing_outside_was_touched = test_hostile.test_nothing_outside_was_touched_seen_or_left_running
