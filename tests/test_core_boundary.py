"""The compiled core answers or raises whatever it is given: it never panics, and never takes the process with it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pianissimo import _core


def test_calls_at_random_leave_the_process_alive() -> None:
    command = [sys.executable, "-m", "tests.core_boundary", "4000", "17"]
    made = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1], timeout=300
    )
    last = made.stdout.splitlines()[-1] if made.stdout else "nothing was called"
    assert (made.returncode, last) == (0, "done"), made.stderr[-500:]


@pytest.mark.parametrize("size", [2**28 + 1, 2**31, 2**40, 2**63])
def test_sizes_from_outside_are_checked_before_they_are_allocated(size: int) -> None:
    with pytest.raises(ValueError, match=f"keys must be at most 268435456, got {size}"):
        _core.ChargeBook(1, 1).weights(size)
    with pytest.raises(ValueError, match=f"more must be at most 268435456, got {size}"):
        _core.SlotTable().reserve(size)


def test_a_sequence_that_says_it_is_long_is_looked_at_before_memory_is_asked_for() -> None:
    """Once, room was made for as many elements as an array of no memory said it had: the process was gone."""
    claim, secret = np.broadcast_to(np.zeros(1, np.uint8), 2**40), bytes(32)
    slots: Any = _core.TextSlots(secret)
    asked: list[Callable[[Any], object]] = [
        lambda claim: _core.count_texts(claim, secret),
        lambda claim: _core.number_texts(claim, secret),
        lambda claim: _core.are_texts(np.zeros(16, np.uint8), claim),
        lambda claim: _core.read_json_lines(b"", claim),
        lambda claim: _core.read_json_lines(b"", [], claim),
        lambda claim: _core.Root(secret).label_keys(b"", b"", claim),
        lambda claim: _core.Root(secret).add_draws(claim, np.zeros(0, np.uint64), np.zeros(0, np.int64)),
        slots.find,
    ]
    for ask in asked:
        with pytest.raises(TypeError):
            ask(claim)


@pytest.mark.parametrize(("value", "decrements"), [(2**63 - 1, 0), (8, 0), (1, 8)])
def test_a_sketch_is_restored_with_no_more_than_its_total(value: int, decrements: int) -> None:
    """Once, a count near 2^63 was taken, and the next key of its kind ended in a panic."""
    listing = _core.KeyListing.of_integers(np.array([1]), np.array([value]))
    with pytest.raises(ValueError, match="no count, nor the decrements, may be above the total"):
        _core.Sketch(4, False, bytes(32), listing, decrements, 7)
