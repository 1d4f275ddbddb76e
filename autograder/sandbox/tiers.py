"""The kinds of sandbox that there are, the strongest first; the only place where one is chosen."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

from autograder.sandbox import bubblewrap, landlocked
from autograder.sandbox.launch import Launch, Unconfined, launch
from autograder.sandbox.sandbox import Sandbox, SandboxMissing


class Tier(Enum):
    """How what students wrote is kept from everything else. docs/security.md says what each tier holds."""

    NAMESPACES = "namespaces"
    LANDLOCK = "landlock"
    NONE = "none"

    @property
    def confine(self) -> type[Sandbox] | type[Unconfined]:
        """The class that starts processes in it."""
        return _KINDS[self][0]

    @property
    def launch(self) -> Launch:
        """Starts processes for cells in it."""
        return partial(launch, self.confine)

    @property
    def launch_on_gpus(self) -> Launch | None:
        """Starts processes with the machine's GPUs in it; None where there are no such."""
        return partial(launch, bubblewrap.BubblewrapWithGpus) if self is Tier.NAMESPACES else None

    def satisfies(self, asked: Tier | None) -> bool:
        """Tell whether it is as strong as what was asked for; None is any sandbox."""
        order = list(Tier)
        return order.index(self) <= order.index(asked or Tier.LANDLOCK)

    def __str__(self) -> str:
        return _SAID[self]


_KINDS: dict[Tier, tuple[type[Sandbox] | type[Unconfined], Callable[[], None]]] = {
    Tier.NAMESPACES: (bubblewrap.Bubblewrap, bubblewrap.check),
    Tier.LANDLOCK: (landlocked.Landlocked, landlocked.check),
    Tier.NONE: (Unconfined, lambda: None),
}
_SAID = {
    Tier.NAMESPACES: "namespaces (bubblewrap)",
    Tier.LANDLOCK: "landlock (without namespaces)",
    Tier.NONE: "none: the code could forge this",
}


def choose(asked: Tier | None = None) -> Tier:
    """Return the tier that was asked for or, by default, the strongest sandbox that can be had here.

    Raises:
        SandboxMissing: when it cannot be had, with what to do.
    """
    reasons = []
    for tier in (asked,) if asked else (Tier.NAMESPACES, Tier.LANDLOCK):
        if not (reason := missing(tier)):
            return tier
        reasons.append(reason)
    raise SandboxMissing(" ".join(dict.fromkeys(reasons)))  # which may be the same


def missing(tier: Tier) -> str:
    """Say why a tier cannot be had here, and what to do; "" if it can."""
    try:
        _KINDS[tier][1]()
    except SandboxMissing as error:
        return str(error)
    return ""
