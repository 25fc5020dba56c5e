"""S1: one user's events and everybody else's counts; and engines that let them touch, each of which is caught."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.report import caught, record, size
from tests.faults.separability import (
    BOUNDS,
    CAP,
    KEYS,
    batch,
    check_file_pair,
    check_user_pair,
    check_within_bounds,
)

from pianissimo.counting import UnknownHistogram
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.queries.shared import asked, columns, key_query
from pianissimo.stream.calendar import TickCalendar
from pianissimo.unit import User

row = st.fixed_dictionaries(
    {
        "drug": st.one_of(st.none(), st.sampled_from(KEYS), st.integers(-5, 5)),
        "many": st.lists(st.sampled_from(KEYS), max_size=6),
        "price": st.one_of(st.none(), st.integers(-(10**9), 10**9), st.floats(allow_nan=True, allow_infinity=True)),
    }
)
_pairs = 0


@settings(max_examples=350, deadline=None)
@given(rows=st.lists(row, max_size=8), events=st.lists(row, min_size=6, max_size=6), place=st.integers(0, 8))
def check_pairs(rows: list[dict[str, Any]], events: list[dict[str, Any]], place: int) -> None:
    """With and without one event, six times: what is sealed differs by its share."""
    global _pairs
    without = batch(rows)
    for event in events:
        _pairs += 1
        check_within_bounds(batch([*rows[:place], event, *rows[place:]]), without)


def test_one_event_moves_what_is_sealed_by_at_most_its_bound() -> None:
    check_pairs()
    record(
        "S1",
        "pairs of batches with and without one event",
        figure=f"{_pairs} pairs, {len(BOUNDS)} queries, 0 beyond the declared bound",
        bar=">= 2,000 pairs, measured <= declared",
        passed=_pairs >= 2000,
    )


def test_one_event_of_a_file_moves_its_own_tick_alone(tmp_path: Path) -> None:
    pairs = size(40, 2000)
    for seed in range(pairs):
        check_file_pair(seed, tmp_path)
    record(
        "S1",
        "pairs of files with and without one event, cut by the clock",
        figure=f"{pairs} pairs, 0 with another tick or beyond the bound",
        bar="one tick, measured <= declared",
        passed=True,
        seeds=f"0 to {pairs - 1}",
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_user_moves_what_is_released_by_at_most_her_cap_through_crashes() -> None:
    pairs = size(25, 1000)
    largest = max(check_user_pair(seed) for seed in range(pairs))
    record(
        "S1",
        "pairs of durable streams with and without one user, with crashes",
        figure=f"{pairs} pairs, largest difference {largest}, cap {CAP}",
        bar="measured <= the cap; reached by some pair",
        passed=largest == CAP,
        seeds=f"0 to {pairs - 1}",
    )


def n_event_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(self: FileTicks, tick: int) -> Any:
        rows = self._shares[0].rows
        assert rows is not None
        yield rows.table[3 * tick - 3 : 3 * tick]

    monkeypatch.setattr(FileTicks, "batches", batches)


def data_driven_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that comes after a later one goes to the later one's tick."""
    sound = TickCalendar.ticks
    monkeypatch.setattr(TickCalendar, "ticks", lambda self, times: sound(self, times).cum_max())


def first_k_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = UnknownHistogram.gather

    def gather(self: UnknownHistogram, state: Any, labels: pl.Series) -> Any:
        flat = labels.explode() if isinstance(labels.dtype, pl.List) else labels
        first = flat.drop_nulls().unique(maintain_order=True).head(2)
        if isinstance(labels.dtype, pl.List):
            return sound(self, state, labels.list.eval(pl.element().filter(pl.element().is_in(first.implode()))))
        return sound(self, state, labels.filter(labels.is_in(first.implode())))

    monkeypatch.setattr(UnknownHistogram, "gather", gather)


def nulls_by_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of which half is missing counts nowhere."""
    sound = columns.fault_of

    def fault_of(column: pl.Series) -> pl.Series:
        bad = sound(column)
        return bad if 2 * bad.sum() < len(bad) else pl.repeat(value=True, n=len(bad), eager=True, dtype=pl.Boolean)

    for module in (asked, key_query, columns):
        monkeypatch.setattr(module, "fault_of", fault_of)


def shared_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = FileTicks.batches
    monkeypatch.setattr(FileTicks, "batches", lambda self, tick: (each.head(2) for each in sound(self, tick)))


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("N-event ticks", n_event_ticks),
        ("data-driven watermark", data_driven_watermark),
        ("first-K keys", first_k_keys),
        ("shared quota", shared_quota),
        ("nulls judged by the batch", nulls_by_the_batch),
    ],
)
def test_a_mutant_that_lets_events_touch_is_caught(
    name: str, mutant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(200):
        try:
            check_file_pair(seed, tmp_path)
        except AssertionError as problem:
            caught(name, by=f"S1, pair {seed} of files: {str(problem).splitlines()[0]}")
            return
    raise AssertionError(f"{name} lives")


def cap_reset_by_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """What users have contributed is not stored with the state."""
    sound = DurableStream._recover

    def recover(self: DurableStream, found: Any, *, created: bool) -> Any:
        done = sound(self, found, created=created)
        for part in self._core.parts:
            if isinstance(self.plan.unit, User):
                part.run._state.users = part.run.mechanism.start(part.run._noise).users
        return done

    monkeypatch.setattr(DurableStream, "_recover", recover)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cap_that_a_crash_resets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    cap_reset_by_a_crash(monkeypatch)
    for seed in range(60):
        try:
            check_user_pair(seed)
        except AssertionError as problem:
            caught("user cap reset by a crash", by=f"S1, pair {seed} of users: {str(problem).splitlines()[0]}")
            return
    raise AssertionError("a cap that a crash resets lives")


def test_events_are_random_enough() -> None:
    """The generator of pairs reaches every key."""
    from tests.faults.separability import random_event

    chance = random.Random(0)
    assert {random_event(chance)["drug"] for _ in range(200)} >= {*KEYS, None, 7}
    assert np.unique([len(random_event(chance)["many"]) for _ in range(200)]).size == 6
