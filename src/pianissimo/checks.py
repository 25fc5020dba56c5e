"""Parameter checks that all speak alike: what must hold, then what came.

Conditions are written so that NaN fails. Each check takes one keyword argument, whose name goes into the message.

Lengths of time written as a person writes them: 30s, 1m, 1h, 7d.
"""

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import Any

from pianissimo.errors import ParameterError

Real = int | float | Fraction
Length = Any
"""A number of ticks, or a length of time such as "1d", which is as many ticks as fit."""


LARGEST_WHOLE = 2**63 - 1
"""Of whole numbers that are asked for: what TOML, every column and every store can hold."""

SMALLEST_REAL, LARGEST_REAL = 1e-100, 1e100
"""Of other numbers, 0 aside: their squares and products stay far from where floating point ends."""


def size_fault(value: int | float) -> str | None:
    """What must hold of a number's size, and what came, where it is finite and beyond all that can be worked with."""
    if isinstance(value, int):
        return None if abs(value) <= LARGEST_WHOLE else f"must be at most 2^63 - 1 in size, got {_number(value)}"
    is_sound = value == 0 or not math.isfinite(value) or SMALLEST_REAL <= abs(value) <= LARGEST_REAL
    return None if is_sound else f"must be from 1e-100 to 1e100 in size, got {value}"


def check_positive(**parameter: Real) -> None:
    """Refuse what is not finite and above zero."""
    for name, value in parameter.items():
        _check_real(name, value)
        if not 0 < value < math.inf:
            raise ParameterError(f"{name} must be finite and positive, got {_number(value)}")
        _check_size(name, value)


def check_at_least(least: int, **parameter: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    for name, value in parameter.items():
        if isinstance(value, bool) or not isinstance(value, int) or not value >= least:
            raise ParameterError(f"{name} must be a whole number of at least {least}, got {_shown(value)}")
        _check_size(name, value)


def check_probability(**parameter: Real) -> None:
    """Refuse what is not strictly between 0 and 1."""
    for name, value in parameter.items():
        _check_real(name, value)
        if not 0 < value < 1:
            raise ParameterError(f"{name} must be above 0 and below 1, got {_number(value)}")
        _check_size(name, value)


def check_fraction(**parameter: Fraction) -> None:
    """Refuse what is not an exact Fraction of at least 0."""
    for name, value in parameter.items():
        if not isinstance(value, Fraction):
            raise ParameterError(f"{name} must be an exact Fraction, got {type(value).__name__}")
        if not value >= 0:
            raise ParameterError(f"{name} must not be negative, got {float(value)}")


def check_name(**parameter: str) -> None:
    """Refuse what is not a short text of letters, digits, `_` and `-`, as names of streams and queries are."""
    for name, value in parameter.items():
        well_formed = (
            isinstance(value, str) and 1 <= len(value) <= 64 and value.replace("-", "_").replace("_", "a").isalnum()
        )
        if not (well_formed and value.isascii()):
            raise ParameterError(f"{name} must be 1 to 64 letters, digits, '_' or '-', got {value!r}")


def is_utf8(text: str) -> bool:
    """Whether a text can be written: Python lets texts hold halves of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def decoded(content: bytes) -> str | None:
    """The text that bytes are, or None where they are no UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _check_real(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise ParameterError(f"{name} must be a number, got {value!r}")


def _check_size(name: str, value: Real) -> None:
    # What is worked out exactly may be of any size; what is asked for is no such fraction.
    fault = None if isinstance(value, Fraction) else size_fault(value)
    if fault is not None:
        raise ParameterError(f"{name} {fault}")


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration_of(value: object) -> timedelta:
    """The length of time that a text such as '90m' means."""
    if isinstance(value, timedelta) and value > timedelta(0):
        return value
    parts = re.fullmatch(r"([0-9]{1,12})([a-z])", value) if isinstance(value, str) else None
    if parts and parts[2] in _UNITS and int(parts[1]) > 0:
        try:
            return timedelta(**{_UNITS[parts[2]]: int(parts[1])})
        except OverflowError:
            pass
    raise ParameterError(f"must be a duration such as '30s', '1m', '1h' or '1d', got {_shown(value)}")


def length_of(value: object) -> timedelta | str:
    """The length of a tick: a duration, or a number of months of the calendar, as text."""
    parts = re.fullmatch(r"([0-9]{1,4})(mo|y)", value) if isinstance(value, str) else None
    if parts and int(parts[1]):
        return f"{int(parts[1]) * (12 if parts[2] == 'y' else 1)}mo"
    return duration_of(value)


def tick_length_of(value: object, time_zone: str = "") -> timedelta | str:
    """`length_of`, but whole days that are written in hours stay hours, as text: the clocks of a zone change none.

    >>> tick_length_of("24h", "Europe/Berlin"), tick_length_of("24h", "UTC")
    ('24h', datetime.timedelta(days=1))
    """
    length = length_of(value)
    if time_zone == "UTC" or isinstance(length, str) or length % timedelta(days=1):
        return length
    return f"{length // timedelta(hours=1)}h" if isinstance(value, str) and value[-1] in "smh" else length


def months_in(length: str) -> int:
    """How many months a length of the calendar has."""
    return int(length.removesuffix("mo"))


def length_text(length: timedelta | str) -> str:
    """A length as a person writes it."""
    if isinstance(length, str):
        return length
    for unit, name in (("d", "days"), ("h", "hours"), ("m", "minutes")):
        if not length % timedelta(**{name: 1}):
            return f"{length // timedelta(**{name: 1})}{unit}"
    return f"{length.total_seconds():g}s"


def whole_ticks_in(length: object, tick: timedelta | str) -> int | None:
    """How many ticks a length of time is; None where that is no whole number."""
    span, tick = length_of(length), length_of(tick)
    if isinstance(span, str) and isinstance(tick, str):
        count, rest = divmod(months_in(span), months_in(tick))
        return None if rest else count
    if isinstance(span, str) or isinstance(tick, str) or span % tick:
        return None
    return span // tick


def number_or_text(given: str) -> int | str:
    """What is written in digits as a number, and anything else as it is: also more digits than any number has."""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else given


def ticks_in(length: object, tick: timedelta | str | None, what: str = "a window") -> int:
    """How many ticks a length of time is: a whole number of them."""
    if isinstance(length, int) and not isinstance(length, bool):
        return length
    try:
        length_of(length)
    except ParameterError as refusal:
        raise ParameterError(f"{what} {refusal}") from None
    if tick is None:
        raise ParameterError(f"{what} must be a number of ticks where the stream has no tick length, got a duration")
    count = whole_ticks_in(length, tick)
    if count is None:
        raise ParameterError(f"{what} must be a whole number of ticks of {length_text(tick)}, got {_shown(length)}")
    return count


def _number(value: Real) -> str:
    """A number as it is told: not one with thousands of digits."""
    return "a number with more than 30 digits" if isinstance(value, int) and abs(value) >= 10**30 else str(value)


def _shown(value: object) -> str:
    text = _number(value) if type(value) is int else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
