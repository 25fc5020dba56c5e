"""A stream as plain data that JSON can hold, and back: what a store keeps of it, so that the store explains itself."""

from dataclasses import fields
from datetime import timedelta
from enum import Enum
from fractions import Fraction
from typing import Any, cast

import numpy as np

from pianissimo import queries as kinds
from pianissimo.budget import Budget
from pianissimo.errors import StateError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Unit
from pianissimo.stream.stream import Stream
from pianissimo.unit import User


def stream_to_plain(stream: Stream) -> dict[str, Any]:
    """All that the user wrote, domains included.

    >>> from pianissimo.queries import Count
    >>> stream = Stream("s", budget=Budget(1, 1e-9), horizon=10, queries=[Count("n")], tick="1m")
    >>> stream_from_plain(stream_to_plain(stream)) == stream
    True
    """
    tick = cast(timedelta | None, stream.tick)
    return {
        "name": stream.name,
        "epsilon": _plain(stream.budget.epsilon),
        "delta": _plain(stream.budget.delta),
        "horizon": stream.horizon,
        "unit": _plain(stream.unit),
        "coverage": stream.coverage,
        "tick_seconds": None if tick is None else tick.total_seconds(),
        "queries": [{"kind": type(query).__name__} | _fields(query) for query in stream.queries],
    }


def stream_from_plain(content: dict[str, Any]) -> Stream:
    """The stream that `stream_to_plain` wrote down."""
    try:
        seconds = content["tick_seconds"]
        return Stream(
            content["name"],
            budget=Budget(_value(content["epsilon"]), _value(content["delta"])),
            horizon=content["horizon"],
            unit=_unit(_value(content["unit"])),
            coverage=content["coverage"],
            tick=None if seconds is None else timedelta(seconds=seconds),
            queries=[_query(each) for each in content["queries"]],
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        raise StateError(
            "a stored stream must be of this version, got another; use the version that wrote it"
        ) from None


def _query(content: dict[str, Any]) -> Any:
    named = {name: _value(value) for name, value in content.items() if name not in ("kind", "name")}
    return getattr(kinds, content["kind"])(content["name"], **named)


def _unit(value: Any) -> Unit | User:
    return value if isinstance(value, User) else Unit(value)


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}


def _plain(value: object) -> Any:
    if isinstance(value, Domain):
        return {"domain": value.labels.to_list()}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, User):
        return {"user": _fields(value)}
    if isinstance(value, timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


def _value(value: Any) -> Any:
    if isinstance(value, dict) and "domain" in value:
        return Domain(value["domain"])
    if isinstance(value, dict) and "fraction" in value:
        return Fraction(value["fraction"])
    if isinstance(value, dict) and "user" in value:
        return User(**{name: _value(each) for name, each in value["user"].items()})
    if isinstance(value, dict) and "seconds" in value:
        return timedelta(seconds=value["seconds"])
    if isinstance(value, list):
        return tuple(_value(each) for each in value)
    return value
