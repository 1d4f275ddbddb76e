"""Messages between the notebook and its ranks; a `channel` carries them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .bars import Bar
from .calls import Record, Tracing
from .parcel import Parcel
from .places import NotebookCell, Place
from .progress import Progress
from .remote_error import RemoteError

LOOPBACK = "127.0.0.1"  # where ranks and their store listen, if all are on one machine
RANK_NAMES = ("rank", "world_size", "device", "torch", "dist")  # that every rank has from the start
TEXT_LIMIT = 256 * 1024  # characters a rank may show in one cell: a page that people can still scroll


@dataclass(frozen=True)
class Location:
    """The place of a rank in a world over several nodes.

    Attributes:
        node: the number of its node.
        local_rank: its number among the ranks of that node.
        local_world_size: number of these.
        interface: the network interface by which they reach the others.
        hosts: the address of each node.
    """

    node: int
    local_rank: int
    local_world_size: int
    interface: str
    hosts: tuple[str, ...]


@dataclass
class Settings:
    """The notebook's decisions for one rank, before it is forked."""

    rank: int
    world_size: int  # of the moment: a `Form` may change it
    backend: str
    device: str  # as torch names it: "cpu" or "cuda:1"
    store_port: int  # of the rendezvous store
    directory: str
    path: list[str]  # sys.path of the notebook
    environment: dict[str, str] = field(repr=False)
    start_method: str  # "fork" or "spawn"
    ranks_per_gpu: int = 0  # on the GPU that has most of them
    location: Location | None = None  # of a world over several nodes

    @property
    def store_host(self) -> str:
        """The address of the rendezvous store, which rank 0 serves."""
        return LOOPBACK if self.location is None else self.location.hosts[0]

    @property
    def local_world_size(self) -> int:
        """Number of ranks on this rank's machine."""
        return self.world_size if self.location is None else self.location.local_world_size


# --- from the notebook to a rank -------------------------------------------------------------------------


@dataclass(slots=True)
class Form:
    """Form the default process group, leaving the one before."""

    generation: int  # a number that no earlier group of this world had
    world_size: int


@dataclass(slots=True)
class Virtualize:
    """Become a rank of a world whose other ranks are not there."""

    rank: int
    world_size: int


@dataclass(slots=True)
class Execute:
    """Run a cell's source in the rank's shell."""

    source: str
    execution_count: int | None  # of the notebook's cell, so that tracebacks name it
    trace: Tracing | None


@dataclass(slots=True)
class Run:
    """Call a function; answer with its return value."""

    parcel: Parcel  # of (function, args, kwargs)
    cells: Mapping[str, NotebookCell]  # of the notebook, by file
    trace: Tracing | None


@dataclass(slots=True)
class Launch:
    """Run a script or a module as Python itself does. It is the last that this rank runs."""

    name: str  # the script's path, or the name of the module
    arguments: tuple[str, ...]
    is_module: bool
    backend: str  # of its default process group; "auto" for what it asks for itself
    trace: Tracing | None = None


@dataclass(slots=True)
class Push:
    """Set variables."""

    parcel: Parcel  # of a dict
    cells: Mapping[str, NotebookCell]  # of the notebook, by file


@dataclass(slots=True)
class Pull:
    """Answer with the value of an expression."""

    expression: str


@dataclass(slots=True)
class Interrupt:
    """Raise KeyboardInterrupt in the code that the rank is running."""


@dataclass(slots=True)
class Rescue:
    """Make a collective that the rank is blocked in fail, so that its main thread comes back."""

    everything: bool = False  # all connections that the rank has opened, not its process groups' alone


@dataclass(slots=True)
class Leave:
    """End this process: as Python does when it has run a program, else when open files are written out."""


@dataclass(slots=True)
class Complete:
    """Answer with what may stand at a place of a cell's source: `RankShell.completions`."""

    source: str
    cursor: int
    number: int = field(default_factory=itertools.count().__next__)


@dataclass(slots=True)
class Inspect:
    """Answer with what is known of a name: `RankShell.inspection`."""

    name: str
    detail_level: int
    omit_sections: tuple[str, ...]
    number: int = field(default_factory=itertools.count().__next__)


@dataclass(slots=True)
class Probe:
    """Answer at once with a `State`, even while the main thread is busy."""

    number: int  # for the answer to repeat
    detailed: bool  # with the rank's recent calls, which cost a busy rank half a millisecond


# --- from a rank to the notebook -------------------------------------------------------------------------


@dataclass(slots=True)
class Stream:
    """Text that was printed."""

    name: str  # "stdout" or "stderr"
    text: str
    is_raw: bool = False  # by C code or a child process, not through sys.stdout or sys.stderr


@dataclass(slots=True)
class Display:
    """A rich value: a figure, a table, the last expression of a cell."""

    data: dict[str, Any]  # by MIME type
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    update: bool = False


@dataclass(slots=True)
class Clear:
    """The rank called `clear_output`."""

    wait: bool


@dataclass(slots=True)
class Done:
    """The end of a request."""

    error: RemoteError | None = None
    parcel: Parcel | None = None  # of what Run returned or Pull found
    record: Record | None = None  # of a traced cell
    dropped: int = 0  # characters printed beyond the limit
    bars: tuple[Bar, ...] = ()  # of the cell's loops
    gpu_bytes: int = 0  # that the rank's tensors take on its GPU
    left_group: bool = False  # the rank has no default process group any more
    broke_group: bool = False  # a call that failed has broken the default process group


@dataclass(slots=True)
class Answer:
    """Reply to a Complete or an Inspect."""

    number: int  # of the question: an earlier one may have been given up
    value: Any


@dataclass(slots=True)
class State:
    """The activity of a rank now."""

    busy: bool
    progress: Progress
    where: str = ""  # the line of the reader's code that the main thread is in
    places: dict[tuple[str, int], Place] = field(default_factory=dict)  # of the progress' calls
    cells: dict[str, str] = field(default_factory=dict)  # the text of those that these lines are in, by file
    at: float = field(default_factory=time.perf_counter)  # when, on the clock of calls
    bars: tuple[Bar, ...] = ()  # of the cell's loops
    postponed: bool = False  # the rank is interrupted as soon as an import, or a call of C code, ends
    handling: bool = False  # the cell's code is in an `except` or a `finally` that an interrupt has led to
    telling: bool = False  # the cell has raised, and the rank is making the text of its error
    number: int = 0  # of the report that was asked for


# A rank answers each with Done, one after another.
Request: TypeAlias = Form | Virtualize | Execute | Run | Launch | Push | Pull
ToRank: TypeAlias = Request | Interrupt | Rescue | Leave | Complete | Inspect | Probe
FromRank: TypeAlias = Stream | Display | Clear | Done | Answer | State
