"""Bars of released numbers: whether each holds what it is about."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seen:
    """One released number: what its bar is about, which ends it has, and whether it held."""

    query: str
    about: str
    ends: str
    held: bool


Bar = dict[str, Any]


def seen(query: str, about: str, bar: Bar, truth: float) -> Seen:
    """Whether a bar holds a number; ends that are null are open."""
    low, high = bar["low"], bar["high"]
    slack = 1e-9 * (1 + abs(truth))
    held = (low is None or low <= truth + slack) and (high is None or truth <= high + slack)
    ends = {(False, False): "both", (False, True): "low", (True, False): "high", (True, True): "none"}
    return Seen(query, about, ends[low is None, high is None], held)


def narrowed(bar: Bar, factor: float) -> Bar:
    """The bar, so many times as wide: one that claims too much."""
    if bar["estimate"] is None:
        return bar
    ends = {
        end: bar[end] if bar[end] is None else bar["estimate"] + factor * (bar[end] - bar["estimate"])
        for end in ("low", "high")
    }
    return bar | ends
