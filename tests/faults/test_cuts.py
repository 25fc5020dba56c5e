"""What is sealed, and all noise with it, does not know where the batches of a tick were cut."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.faults.homes import Home
from tests.faults.world import events

pytest_plugins = ["tests.faults.fixtures"]

Cut = Callable[[list[Any]], list[list[Any]]]
CUTS: dict[str, Cut] = {
    "one batch": lambda rows: [rows],
    "two batches": lambda rows: [rows[:3], rows[3:]],
    "an event each": lambda rows: [[row] for row in rows],
    "empty ones between": lambda rows: [[], rows[:7], [], rows[7:], []],
}
LAST = 4


def payloads(home: Home, cut: Cut) -> list[bytes]:
    """The bytes of all releases; tick 3 has no events."""
    copy = home.copy()
    with copy.open() as live:
        for tick in range(1, LAST + 1):
            *first, last = cut([] if tick == 3 else events(tick)) or [[]]
            for batch in first:
                live.add(batch)
            live.tick(last or None, position={"read": tick})
        found = [live.payload(tick) for tick in range(1, LAST + 1)]
    copy.drop()
    return found


def test_the_same_events_give_the_same_bytes_wherever_they_are_cut(sqlite_home: Home) -> None:
    expected = payloads(sqlite_home, CUTS["one batch"])
    assert all(payloads(sqlite_home, cut) == expected for cut in CUTS.values())


def test_a_seal_of_batches_as_they_came_is_caught(sqlite_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = payloads(sqlite_home, CUTS["one batch"])
    monkeypatch.setattr("pianissimo.durable.durable_stream.DurableStream._combined", lambda live: live._added)
    assert payloads(sqlite_home, CUTS["two batches"]) != expected
