"""The compiled core answers or raises whatever it is given: it never panics, and never takes the process with it."""

import subprocess
import sys
from pathlib import Path

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
