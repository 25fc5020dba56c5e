"""What every mechanism keeps: `tests/mechanisms.py` lists them, `tests/shared_checks.py` holds the checks."""

import copy
import json
import pickle
import unittest.mock
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.report import size
from tests.mechanisms import CASES, EVENT_CASES, USER_CASES, Case
from tests.pin_guarantees import PINNED, promise_of, promises
from tests.shared_checks import (
    check_combining,
    check_gathering,
    check_life_cycle,
    check_merging,
    check_resuming,
    check_splitting,
)

from pianissimo.errors import StateError
from pianissimo.mechanism import Run
from pianissimo.testing import SeededNoise

events = st.lists(st.lists(st.sampled_from(["a", "b", "c", "nowhere", "ü"]), max_size=4), max_size=12)
ticks = st.lists(events, min_size=6, max_size=6)
ALL_CASES = CASES | USER_CASES | EVENT_CASES
every_mechanism = pytest.mark.parametrize("case", ALL_CASES.values(), ids=ALL_CASES.keys())
few_examples = settings(max_examples=size(8, 25), deadline=None)


@every_mechanism
@few_examples
@given(batch=events, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_batches_split_anyhow_count_the_same(case: Case, batch: list[list[str]], cuts: list[int]) -> None:
    check_splitting(case.mechanism, case.as_batch(batch), cuts)


@every_mechanism
@few_examples
@given(batch=events, cuts=st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_what_pieces_add_together_is_what_the_whole_adds(case: Case, batch: list[list[str]], cuts: list[int]) -> None:
    check_combining(case.mechanism, case.as_batch(batch), cuts)


@every_mechanism
@few_examples
@given(stream=ticks, stop=st.integers(0, 6))
def test_saving_and_resuming_change_nothing(case: Case, stream: list[list[list[str]]], stop: int) -> None:
    check_resuming(case.mechanism, [case.as_batch(batch) for batch in stream], stop)


@every_mechanism
@few_examples
@given(stream=ticks, order=st.permutations(range(12)))
def test_what_a_tick_adds_can_be_stored_and_counted_later(
    case: Case, stream: list[list[list[str]]], order: list[int]
) -> None:
    check_gathering(case.mechanism, [case.as_batch(batch) for batch in stream], order)


@every_mechanism
@few_examples
@given(left=events, right=events)
def test_merging_has_no_order(case: Case, left: list[list[str]], right: list[list[str]]) -> None:
    if not hasattr(case.mechanism, "merge"):
        pytest.skip("this mechanism has no merge")
    check_merging(case.mechanism, case.as_batch(left), case.as_batch(right))


@every_mechanism
def test_a_run_ends_at_its_horizon_and_stays_silent(case: Case) -> None:
    check_life_cycle(case.mechanism, case.as_batch([["a"], ["b"]]))


def test_every_promise_is_pinned_also_of_sketches_trees_and_monitors() -> None:
    """Nothing is pinned that is not there, and nothing is there that is not pinned."""
    assert json.loads(PINNED.read_text()) == promises()


@every_mechanism
def test_the_promise_is_pinned(case: Case, request: pytest.FixtureRequest) -> None:
    """A line that changes in guarantees.json is a privacy change."""
    pinned = json.loads(PINNED.read_text())
    assert pinned[request.node.callspec.id] == promise_of(case.mechanism)


@every_mechanism
def test_damaged_and_foreign_states_are_refused(case: Case) -> None:
    run = Run(case.mechanism, SeededNoise(1))
    run.update(case.as_batch([["a"]]))
    state = run.dump()
    damaged: list[Any] = [None, {}, state | {"state": {}}, state | {"state": state["state"] | {"more": 1}}]
    for content in damaged:
        with pytest.raises(StateError):
            Run(case.mechanism, SeededNoise(1)).load(content, ())
    for other in ALL_CASES.values():
        if other.mechanism != case.mechanism:
            with pytest.raises(StateError, match="must belong to this mechanism"):
                Run(other.mechanism, SeededNoise(1)).load(state, ())


@every_mechanism
def test_a_run_is_not_copied(case: Case) -> None:
    run = Run(case.mechanism, SeededNoise(1))
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="not copied or pickled"):
            attempt(run)


@every_mechanism
def test_a_fork_does_not_go_on(case: Case) -> None:
    """Parent and child would release different data under one noise."""
    run = Run(case.mechanism, SeededNoise(1))
    assert run.release().tick == 1
    with (
        unittest.mock.patch("os.getpid", return_value=-1),
        pytest.raises(StateError, match="the process that began it"),
    ):
        run.release()


@every_mechanism
@pytest.mark.parametrize("tick", [-1, 7, 1.5, None])
def test_a_state_at_an_impossible_tick_is_refused(case: Case, tick: object) -> None:
    run = Run(case.mechanism, SeededNoise(1))
    run._tick = tick  # type: ignore[assignment]
    with pytest.raises(StateError, match="must stand at a tick"):
        Run(case.mechanism, SeededNoise(1)).load(run.dump(), ())


class FailingNoise(SeededNoise):
    """Noise whose n-th draw is interrupted."""

    __slots__ = ()
    left = -1

    def draw(self, law: str, parameter: Any, keys: Any, out: Any) -> None:
        FailingNoise.left -= 1
        if FailingNoise.left == 0:
            raise KeyboardInterrupt
        super().draw(law, parameter, keys, out)


@every_mechanism
@pytest.mark.parametrize("draw", range(1, 12))
def test_an_interrupted_release_is_never_repeated(case: Case, draw: int) -> None:
    """A retry must not meet half-stepped noise: the run refuses to go on."""
    FailingNoise.left = -1
    run = Run(case.mechanism, FailingNoise(5))
    batch = case.as_batch([["a"], ["b"], ["a"]])
    FailingNoise.left = draw
    try:
        for _ in range(6):
            run.update(batch)
            run.release()
    except KeyboardInterrupt:
        for attempt in (run.release, run.dump, lambda: run.update(batch)):
            with pytest.raises(StateError, match="interrupted half-way"):
                attempt()
    else:
        assert FailingNoise.left > 0, "so many draws were not made"
    finally:
        FailingNoise.left = -1


@every_mechanism
def test_a_run_has_one_caller_at_a_time(case: Case) -> None:
    """A signal handler or another thread in the middle of a release must not release the same tick with other data."""
    batch = case.as_batch([["a"]])
    run = Run(case.mechanism, SeededNoise(1))
    refusals: list[str] = []

    class Meddling(SeededNoise):
        __slots__ = ()

        def draw(self, law: str, parameter: Any, keys: Any, out: Any) -> None:
            for attempt in (run.release, run.dump, lambda: run.update(batch)):
                try:
                    attempt()
                except StateError as error:
                    refusals.append(str(error))
            super().draw(law, parameter, keys, out)

    run = Run(case.mechanism, Meddling(1))
    run.update(batch)
    assert run.release().tick == 1
    assert len(refusals) >= 3
    assert set(refusals) == {"a run must be used by one caller at a time, got another in the middle of a call"}
    assert run.release().tick == 2
