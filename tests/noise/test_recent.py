"""What is kept of the past: the same sums as of all ticks, at ticks that are a function of limit and tick alone."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pianissimo.errors import ParameterError
from pianissimo.noise.recent import Recent, checkpoint_distance, lasting_ticks, pack

SLOTS = 9
LARGE = 2**62
AMOUNTS = st.one_of(st.integers(-3, 3), st.sampled_from([LARGE, -LARGE, 2**40]))
MOVES = st.lists(st.tuples(st.integers(0, SLOTS - 1), AMOUNTS), max_size=2 * SLOTS)
Totals = NDArray[np.int64]


def moved(recent: Recent, batches: list[list[tuple[int, int]]], total: Totals) -> Totals:
    """Close a tick of some batches; the totals after it."""
    now = total.copy()
    for batch in batches:
        slots, amounts = (np.array([each[place] for each in batch], dtype=np.int64) for place in (0, 1))
        recent.add(slots, amounts)
        np.add.at(now, slots, amounts)
    recent.close()
    return now


class Store:
    """What a durable stream stores of it: each log and each checkpoint once."""

    def __init__(self, limit: int) -> None:
        self.limit, self.logs, self.checkpoints = limit, list[Any](), dict[int, Any]()

    def take(self, recent: Recent, tick: int) -> None:
        self.logs.append(recent.log())
        found = recent.checkpoint()
        if found is not None:
            self.checkpoints[tick] = found
            self.checkpoints = {each: self.checkpoints[each] for each in recent.lasting()}

    def restarted(self, recent: Recent) -> Recent:
        found = Recent(self.limit)
        last = self.logs[max(0, len(self.logs) - self.limit) :]
        found.take_logged(recent.to_plain(), [*(self.checkpoints[each] for each in sorted(self.checkpoints)), *last])
        return found


@given(st.integers(1, 6), st.lists(st.lists(MOVES, max_size=2), min_size=1, max_size=24), st.data())
def test_an_interval_is_the_difference_of_totals_also_after_restarts(limit: int, ticks: Any, data: Any) -> None:
    recent, store = Recent(limit), Store(limit)
    totals = [np.zeros(SLOTS, dtype=np.int64)]
    restarts = data.draw(st.sets(st.integers(1, len(ticks)), max_size=3))
    for tick, batches in enumerate(ticks, 1):
        totals.append(moved(recent, batches, totals[-1]))
        store.take(recent, tick)
        if tick in restarts:
            recent = store.restarted(recent)
    check_all_intervals(recent, limit, totals)


@pytest.mark.parametrize("limit", [1, 3, 4, 24])
def test_a_restart_at_every_tick_changes_nothing(limit: int) -> None:
    recent, store, random = Recent(limit), Store(limit), np.random.default_rng(5)
    totals = [np.zeros(SLOTS, dtype=np.int64)]
    for tick in range(1, 40 * checkpoint_distance(limit) + 2):
        sparse = [(int(random.integers(SLOTS)), tick)]
        batch = [(slot, slot - tick) for slot in range(SLOTS)] if tick % 3 else sparse
        totals.append(moved(recent, [batch], totals[-1]))
        store.take(recent, tick)
        recent = store.restarted(recent)
    check_all_intervals(recent, limit, totals)


def check_all_intervals(recent: Recent, limit: int, totals: list[Totals]) -> None:
    """Those between kept ticks are differences of totals, and all others are refused."""
    last = len(totals) - 1
    kept = {*range(max(0, last - limit), last + 1)} | lasting_ticks(limit, last)
    for start in range(last):
        for end in {start + 1, last - 1, last} - {start}:
            if {start, end} <= kept:
                assert np.array_equal(recent.between(start, end, size=SLOTS), totals[end] - totals[start])
            else:
                with pytest.raises(ParameterError, match="at ticks that are kept"):
                    recent.between(start, end, size=SLOTS)


@pytest.mark.parametrize("limit", [1, 2, 3, 16, 60])
def test_all_that_is_said_to_be_kept_is_there_after_many_ticks(limit: int) -> None:
    recent, total = Recent(limit), 0
    totals = [0]
    for tick in range(1, 40 * checkpoint_distance(limit) * 4 + 2):
        total += tick % 5
        recent.add(np.zeros(1, dtype=np.int64), np.array([tick % 5]))
        recent.close()
        totals.append(total)
        if tick % 7 == 0:
            for start in lasting_ticks(limit, tick) - {tick}:
                assert recent.between(start, tick, size=1).tolist() == [totals[tick] - totals[start]]


def test_checkpoints_are_public_and_few() -> None:
    kept = sorted(lasting_ticks(1440, 525_600))
    assert kept[0] == 0
    assert not any(each % 90 for each in kept)
    assert len(kept) < 100
    # Each midnight of the last two weeks, and no gap wider than an eighth of its age.
    assert {*range(525_600 - 15 * 1440, 525_600, 1440)} <= {*kept}
    assert all(later - before <= max(90, (525_600 - before) / 8) for before, later in pairwise(kept))
    # The number grows with the logarithm of the ticks.
    assert len(lasting_ticks(1440, 2**32)) < 230
    # What is forgotten stays so.
    for tick in range(3, 3000, 3):
        assert lasting_ticks(24, tick) - {tick} <= lasting_ticks(24, tick - 3)


def test_what_moved_does_not_change_what_is_kept_or_refused() -> None:
    runs = []
    for moves in ([], [(0, 1)], [(each, LARGE) for each in range(SLOTS)]):
        recent, said = Recent(4), []
        for _ in range(70):
            moved(recent, [moves], np.zeros(SLOTS, dtype=np.int64))
        for start in range(70):
            try:
                recent.between(start, 70, size=SLOTS)
            except ParameterError as refusal:
                said.append(str(refusal))
        runs.append((said, sorted(recent.lasting())))
    assert runs[0] == runs[1] == runs[2]


def test_a_refusal_names_ticks_that_are_answered() -> None:
    recent = Recent(4)
    for _ in range(100):
        recent.close()
    with pytest.raises(ParameterError, match=r"got 41 to 100: each from 96 on is, .* near 41 40 and 44; ask"):
        recent.between(41, 100, size=1)
    with pytest.raises(ParameterError, match=r"got 40 to 51: .* near 51 48 and 52; ask"):
        recent.between(40, 51, size=1)
    for start, end in ((40, 100), (44, 99), (40, 52), (0, 48)):
        assert recent.between(start, end, size=1).tolist() == [0]
    none = Recent(0)
    none.close()
    with pytest.raises(ParameterError, match="got one of history=0"):
        none.between(0, 1, size=1)


def test_logs_of_earlier_versions_are_taken_and_checkpoints_begin_then() -> None:
    before = [[np.array([3, 0], dtype=np.uint32), np.array([tick, 1])] for tick in range(1, 9)]
    recent = Recent(4)
    recent.take_logged({"tick": 8, "closed": 4, "open": []}, [[each] for each in before])
    assert recent.between(5, 8, size=4).tolist() == [3, 0, 0, 21]
    for _ in range(6):
        recent.add(np.array([1]), np.array([2]))
        recent.close()
    assert recent.between(8, 14, size=4).tolist() == [0, 12, 0, 0]
    with pytest.raises(ParameterError, match="at ticks that are kept"):
        recent.between(0, 14, size=4)


def test_many_moves_take_few_bytes() -> None:
    random = np.random.default_rng(3)
    amounts = random.poisson(3, 100_000)
    slots = np.flatnonzero(amounts)
    assert len(pack(slots, amounts[slots])) < 0.7 * 100_000
    few = np.sort(random.choice(100_000, 1000, replace=False))
    assert len(pack(few, np.ones(1000, dtype=np.int64))) < 4 * 1000


@pytest.mark.parametrize(("start", "end"), [(2, 2), (3, 2), (-1, 2), (0, 5), (4, 5), (-2, -1)])
def test_an_interval_has_ticks_and_all_of_them_were_released(start: int, end: int) -> None:
    recent = Recent(16)
    for _ in range(4):
        recent.close()
    with pytest.raises(ParameterError, match="must lie within the 4 released ticks"):
        recent.between(start, end, size=1)
