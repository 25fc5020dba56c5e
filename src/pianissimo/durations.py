"""Lengths of time written as a person writes them: 30s, 1m, 1h, 7d."""

import re
from datetime import timedelta

from pianissimo.errors import ParameterError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration_of(value: object) -> timedelta:
    """The length of time that a text such as '90m' means.

    >>> duration_of("90m")
    datetime.timedelta(seconds=5400)
    """
    if isinstance(value, timedelta) and value > timedelta(0):
        return value
    parts = re.fullmatch(r"([0-9]{1,12})([a-z])", value) if isinstance(value, str) else None
    if parts and parts[2] in _UNITS and int(parts[1]) > 0:
        try:
            return timedelta(**{_UNITS[parts[2]]: int(parts[1])})
        except OverflowError:
            pass
    raise ParameterError(f"must be a duration such as '30s', '1m', '1h' or '1d', got {_shown(value)}")


def ticks_in(length: object, tick: timedelta | None) -> int:
    """How many ticks a length of time is: a whole number of them.

    >>> ticks_in("1h", timedelta(minutes=15))
    4
    """
    if isinstance(length, int) and not isinstance(length, bool):
        return length
    span = duration_of(length)
    if tick is None:
        raise ParameterError("a window must be a number of ticks where the stream has no tick length, got a duration")
    if span % tick:
        raise ParameterError(f"a window must be a whole number of ticks of {tick}, got {_shown(length)}")
    return span // tick


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
