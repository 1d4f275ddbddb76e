"""Numbers as people read them: KiB are 1024 bytes, GB/s are 10⁹ bytes per second."""

from __future__ import annotations

_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_TIMES = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"))
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def size(nbytes: float | None) -> str:
    """Write bytes, for instance "4 MiB"."""
    return _in_unit(nbytes, _SIZES)


def time(seconds: float | None) -> str:
    """Write seconds, for instance "3.14 ms"."""
    return _in_unit(seconds, _TIMES)


def rate(bytes_per_second: float | None) -> str:
    """Write a bandwidth, for instance "1.5 GB/s"."""
    return _in_unit(bytes_per_second, _RATES)


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit, in seconds, and its name, that suits an axis of this length."""
    return next((unit for unit in _TIMES if seconds >= 2 * unit[0]), _TIMES[-1])


def _in_unit(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if not value:
        return "–" if value is None else "0"
    factor, name = next((unit for unit in units if value >= unit[0]), units[-1])
    scaled = value / factor
    return f"{scaled:.0f} {name}" if scaled >= 100 else f"{scaled:.3g} {name}"
