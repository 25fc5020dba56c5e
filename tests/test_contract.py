"""What every mechanism keeps: `tests/mechanisms.py` lists them, `pianissimo.testing` holds the checks."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mechanisms import CASES, Case

from pianissimo.errors import MergeError, StateError
from pianissimo.mechanism import Run
from pianissimo.privacy import float_up
from pianissimo.testing import SeededNoise, check_life_cycle, check_merging, check_resuming, check_splitting

events = st.lists(st.lists(st.sampled_from(["a", "b", "c", "nowhere", "ü"]), max_size=4), max_size=12)
ticks = st.lists(events, min_size=6, max_size=6)
every_mechanism = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
few_examples = settings(max_examples=25, deadline=None)


@every_mechanism
@few_examples
@given(batch=events, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_batches_split_anyhow_count_the_same(case: Case, batch: list[list[str]], cuts: list[int]) -> None:
    check_splitting(case.mechanism, case.as_batch(batch), cuts)


@every_mechanism
@few_examples
@given(stream=ticks, stop=st.integers(0, 6))
def test_saving_and_resuming_change_nothing(case: Case, stream: list[list[list[str]]], stop: int) -> None:
    check_resuming(case.mechanism, [case.as_batch(batch) for batch in stream], stop)


@every_mechanism
@few_examples
@given(left=events, right=events)
def test_merging_has_no_order(case: Case, left: list[list[str]], right: list[list[str]]) -> None:
    check_merging(case.mechanism, case.as_batch(left), case.as_batch(right))


@every_mechanism
def test_a_run_ends_at_its_horizon_and_stays_silent(case: Case) -> None:
    check_life_cycle(case.mechanism, case.as_batch([["a"], ["b"]]))


@every_mechanism
def test_the_promise_is_pinned(case: Case, request: pytest.FixtureRequest) -> None:
    """A line that changes in guarantees.json is a privacy change."""
    pinned = json.loads((Path(__file__).parent / "guarantees.json").read_text())
    guarantee = case.mechanism.guarantee
    ledger = guarantee.loss.as_ledger()
    assert pinned[request.node.callspec.id] == {
        "rho": str(ledger.rho),
        "bad": str(ledger.bad),
        "distance": float_up(ledger.distance),
        "unit": guarantee.unit.value,
        "neighbors": guarantee.neighbors.value,
        "horizon": guarantee.horizon,
    }


@every_mechanism
def test_runs_that_have_released_do_not_merge(case: Case) -> None:
    run, other = Run(case.mechanism, SeededNoise(1)), Run(case.mechanism, SeededNoise(1))
    other.release()
    with pytest.raises(MergeError, match="before their first release"):
        run.merge(other)


@every_mechanism
def test_damaged_and_foreign_states_are_refused(case: Case) -> None:
    run = Run(case.mechanism, SeededNoise(1))
    run.update(case.as_batch([["a"]]))
    stored = run.snapshot()
    for place in range(0, len(stored), 7):
        damaged = stored[:place] + bytes([stored[place] ^ 1]) + stored[place + 1 :]
        with pytest.raises(StateError):
            Run.resume(case.mechanism, SeededNoise(1), damaged)
    with pytest.raises(StateError):
        Run.resume(case.mechanism, SeededNoise(1), stored[:-1])
    for other in CASES.values():
        if other.mechanism != case.mechanism:
            with pytest.raises(StateError):
                Run.resume(other.mechanism, SeededNoise(1), stored)


def test_runs_of_other_parameters_do_not_merge() -> None:
    one, other = CASES["counter over haar"].mechanism, CASES["counter over tree"].mechanism
    with pytest.raises(MergeError, match="equal mechanisms"):
        Run(one, SeededNoise(1)).merge(Run(other, SeededNoise(1)))
