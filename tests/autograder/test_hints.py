"""The hints as a whole: every kind of problem has one meaning."""

from collections import Counter
from types import ModuleType

from autograder import hints


def test_no_two_topics_call_different_problems_alike():
    topics = [module for module in vars(hints).values() if isinstance(module, ModuleType)]
    kinds = Counter(kind for topic in topics for kind in topic.BY_KIND)
    assert len(topics) > 3
    assert [kind for kind, count in kinds.items() if count > 1] == []
