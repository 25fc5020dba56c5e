"""Labels that are not shown are looked at in turn: lower thresholds for the same chance, and a fraction of the work."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.report import size
from tests.shared_checks import counting_noise, resumed, stored

import pianissimo as pp
from pianissimo import codec
from pianissimo.counting import ThresholdRule, UnknownHistogram
from pianissimo.counting.reachable import Turns, turns_of
from pianissimo.errors import ParameterError
from pianissimo.labels import LabelIndex
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, SplinePlan, TreePlan
from pianissimo.noise.plan import variance_at
from pianissimo.noise.running import evaluate, rounded
from pianissimo.testing import SeededNoise

DELTA = Fraction(1, 4)
PLANS: dict[str, Any] = {
    "tree": TreePlan.calibrated(horizon=8, rho=2.0),
    "haar": HaarPlan.calibrated(horizon=7, rho=2.0),
    "spline": SplinePlan.calibrated(horizon=16, rho=2.0),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
LABELS = [f"label {place}" for place in range(6)]


def made(plan: Any, every: int, **fields: Any) -> UnknownHistogram:
    return UnknownHistogram(plan=plan, delta=DELTA, history=8, test_every=every, **fields)


def releases(mechanism: UnknownHistogram, ticks: list[list[int]], noise: Any) -> list[dict[str, int]]:
    """Of labels that get so many events at each tick; it is stored and resumed in the middle."""
    run: Any = Run(mechanism, noise)
    found, logs = [], []
    for tick, counts in enumerate(ticks, 1):
        events = [label for label, count in zip(LABELS, counts, strict=True) for _ in range(count)]
        run.update(pl.Series(events, dtype=pl.String))
        found.append(run.release().value.to_dict())
        logs.append(codec.unpack("log", 1, codec.pack("log", 1, run.log())))
        if tick == len(ticks) // 2:
            run = resumed(mechanism, noise, stored(run), logs)
    return found


def by_the_rule(mechanism: UnknownHistogram, ticks: list[list[int]], noise: Any) -> list[dict[str, int]]:
    """The same from its definition: all noise from nothing, one label after the other."""
    index = LabelIndex(noise)
    index.slots_or_new(pl.Series(LABELS))
    turns = turns_of(pl.Series(LABELS), mechanism.test_every)
    total, shown, found = np.zeros(len(LABELS), dtype=np.int64), set[int](), []
    for tick, counts in enumerate(ticks, 1):
        total += np.array(counts)
        noises = evaluate(mechanism.plan, noise, tick, index.keys(0, len(LABELS)))
        estimates = rounded(total, noises, mechanism.plan.shift)
        for place, estimate in enumerate(estimates):
            is_due = tick % mechanism.test_every == turns[place]
            if is_due and total[place] >= mechanism.min_count and estimate >= mechanism.threshold(tick):
                shown.add(place)
        found.append({LABELS[place]: int(estimates[place]) for place in sorted(shown)})
    return found


@every_plan
@settings(max_examples=size(12, 100), deadline=None)
@given(
    ticks=st.lists(st.lists(st.sampled_from([0, 1, 3, 6, 9, 40]), min_size=6, max_size=6), min_size=2, max_size=7),
    seed=st.integers(0, 2**32),
    every=st.integers(2, 5),
    min_count=st.sampled_from([1, 4]),
)
def test_it_shows_what_its_rule_says(plan: Any, ticks: list[list[int]], seed: int, every: int, min_count: int) -> None:
    mechanism = made(plan, every, min_count=min_count)
    assert releases(mechanism, ticks, SeededNoise(seed)) == by_the_rule(mechanism, ticks, SeededNoise(seed))


def chance(plan: Any, threshold: Any, ticks: range) -> float:
    """What a label of one event has at most of being shown at these ticks, by a sum of the tails there."""
    shift = 0.5 if plan.shift else 0.0
    return sum(math.exp(-((threshold(tick) - 1 - shift) ** 2) / (2 * float(variance_at(plan, tick)))) for tick in ticks)


@every_plan
@pytest.mark.parametrize("every", [2, 3, 5])
def test_in_every_turn_the_chances_of_a_lone_label_add_up_to_at_most_delta(plan: Any, every: int) -> None:
    own = made(plan, every).threshold
    for turn in range(every):
        assert chance(plan, own, range(turn or every, plan.horizon + 1, every)) <= DELTA


def test_thresholds_are_lower_than_where_all_labels_are_looked_at_each_time() -> None:
    plan = HaarPlan.calibrated(horizon=525_600, rho=0.5)
    plain, in_turn = (
        UnknownHistogram(plan=plan, delta=Fraction(1, 10**9), test_every=every).threshold(1_000) for every in (1, 1_440)
    )
    assert in_turn < plain


def test_looking_at_all_labels_below_the_lower_threshold_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: labels are looked at in every release, with the thresholds of one in five.

    A lone label is then shown more often than delta allows by the very sum that the thresholds come from, and the rule
    of the definition differs from what is released.
    """
    plan = PLANS["spline"]
    assert chance(plan, made(plan, 5).threshold, range(1, plan.horizon + 1)) > DELTA
    ticks = [[4] * 6, *([[0] * 6] * 6)]
    shown = by_the_rule(made(plan, 5), ticks, SeededNoise(2))
    assert releases(made(plan, 5), ticks, SeededNoise(2)) == shown
    monkeypatch.setattr(Turns, "due", lambda self, labels, tick: np.arange(len(labels)))
    assert releases(made(plan, 5), ticks, SeededNoise(2)) != shown


def test_noise_is_drawn_for_labels_whose_turn_it_is() -> None:
    drawn: list[int] = []
    run: Any = Run(made(PLANS["tree"], 8), counting_noise(3, drawn))
    run.update(pl.Series([f"rare {place}" for place in range(800)]))
    run.release()
    assert max(drawn) < 200


@pytest.mark.parametrize(
    "fields",
    [{"domain": ["a"]}, {"constant_threshold": True}, {"remember": False}],
    ids=["domain", "constant", "forgets"],
)
def test_what_has_no_turns_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="test_every must be 1"):
        pp.Histogram("drugs", key="drug", test_every=4, **fields)


def test_a_mechanism_without_memory_or_with_one_threshold_has_no_turns() -> None:
    for fields in ({"remember": False}, {"cut": ThresholdRule.CONSTANT}):
        with pytest.raises(ParameterError, match="test_every must be 1"):
            made(PLANS["haar"], 2, **fields)


def test_users_have_no_turns() -> None:
    query = pp.Histogram("drugs", key="drug", test_every=4)
    with pytest.raises(ParameterError, match="test_every of query 'drugs' must be 1 where users are hidden"):
        pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=9, queries=[query], unit=pp.user("who")).plan()


def test_a_stream_looks_at_labels_in_turn() -> None:
    query = pp.Histogram("drugs", key="drug", test_every=4)
    stream = pp.Stream("turns", budget=pp.Budget(1, 1e-9), horizon=8, queries=[query])
    live = stream.start()
    shown = [set(live.tick(pl.DataFrame({"drug": LABELS * 500}))["drugs"]["key"]) for _ in range(4)]
    turns = turns_of(pl.Series(LABELS), 4)
    for tick, labels in enumerate(shown, 1):
        due = {t % 4 for t in range(1, tick + 1)}
        assert labels == {label for label, turn in zip(LABELS, turns, strict=True) if turn in due}
    assert shown[-1] == set(LABELS)


def test_a_delta_that_is_large_for_so_many_labels_is_warned_of() -> None:
    query = pp.Histogram("drugs", key="drug", expected_keys=10**9)
    stream = pp.Stream("many", budget=pp.Budget(1, 1e-9), horizon=8, queries=[query])
    with pytest.warns(pp.BudgetWarning, match="of 1,000,000,000 labels that are expected about 1 "):
        told = stream.plan().to_dict()["warnings"]
    assert any("1e-11 or less" in each for each in told)
    few = pp.Stream("few", budget=pp.Budget(1, 1e-12), horizon=8, queries=[query])
    assert few.plan().to_dict()["warnings"] == []
