"""How much of the past is kept for windows, and what it takes: known before any data.

What it takes is told for labels that all move at every tick. A move of fewer than 64 has a byte at most (`Recent`), and
several ticks together, between checkpoints, are counted as two.
"""

from typing import Any

from pianissimo.noise.recent import lasting_ticks

DEFAULT_HISTORY = 1440
"""How many past releases are kept, where nobody says so: a day of minutes."""

_LEAST_DEFAULT = 60
_DEFAULT_BYTES = 2**28
_CHECKPOINT_FACTOR = 2


def default_history(series: int | None) -> int:
    """How many past releases are kept of so many labels, where nobody says so: of very many, fewer.

    None where nobody knows how many there will be: what is kept is public, and does not depend on what comes.

    >>> [default_history(labels) for labels in (None, 100_000, 1_000_000, 10_000_000)]
    [1440, 1440, 268, 60]
    """
    if series is None or series * DEFAULT_HISTORY <= _DEFAULT_BYTES:
        return DEFAULT_HISTORY
    return max(_LEAST_DEFAULT, _DEFAULT_BYTES // series)


def past_told(history: int, releases: int, *, every: int, series: int | None, move_bytes: int) -> dict[str, Any]:
    """What a plan tells of it, of a query that is published so many times: at most how many bytes, at the end.

    >>> past_told(60, 1440, every=1, series=1000, move_bytes=1)
    {'ticks': 60, 'checkpoints': 32, 'bytes_per_series': 134, 'bytes': 134000}
    """
    checkpoints = lasting_ticks(history, releases) if history else set()
    each = (min(history, releases) + _CHECKPOINT_FACTOR * len(checkpoints)) * move_bytes
    before = sum(tick < releases - history for tick in checkpoints)
    told = {"ticks": history * every, "checkpoints": before, "bytes_per_series": each}
    return told | {"bytes": None if series is None else each * series}
