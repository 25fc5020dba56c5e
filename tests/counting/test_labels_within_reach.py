"""Which labels are looked at, how many events they need, and what a total beside them costs, at ties and limits.

Labels that are left out must not be reachable by any noise, and no noise shows a label of too few events.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.counting.test_turns import made

from pianissimo.counting import ThresholdRule, UnknownHistogram, unknown
from pianissimo.counting.known import joined_shards
from pianissimo.counting.label_sums import LabelSums
from pianissimo.counting.reachable import Leaders, Reachable, Turns, most_added, turns_of
from pianissimo.counting.unknown import threshold_at
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, TopDownPlan, TreePlan
from pianissimo.noise.laws import LaplaceNode, gaussian_node
from pianissimo.noise.plan import is_pure, plan_loss, variance_at
from pianissimo.testing import NoNoise

PLAN: Any = TreePlan.calibrated(horizon=8, rho=2.0)
MOST = most_added(PLAN)


class Loudest(NoNoise):
    """Every draw is as large as draws get."""

    def at(self, *_: Any) -> "Loudest":
        return self

    def draw(self, law: str, parameter: Fraction, keys: Any, out: Any) -> None:
        out[:] = gaussian_node(parameter).bound


def test_where_one_event_is_within_reach_all_labels_are_looked_at() -> None:
    counts = np.array([1, 2, 3])
    assert Reachable(1).slots(counts) is None
    assert Reachable(2).slots(counts).tolist() == [1, 2]  # type: ignore[union-attr]


def test_what_is_remembered_of_labels_within_reach_grows_with_the_labels_alone() -> None:
    near = Reachable(2)
    for labels in (2, 2, 5, 5, 6):
        near.note(np.arange(labels))
        assert near.slots(np.arange(labels)).tolist() == list(range(2, labels))  # type: ignore[union-attr]
        assert len(near._are_in) == labels


def test_leaders_are_told_apart_only_beyond_twice_the_noise() -> None:
    """Up to there the noise at hand is kept from one release to the next."""
    leaders = Leaders(PLAN, 1)
    at_hand = leaders.noise
    assert leaders.slots(np.array([2 * MOST, 0])) is None
    assert leaders.noise is at_hand
    assert leaders.slots(np.array([2 * MOST + 2, 0])).tolist() == [0]  # type: ignore[union-attr]
    assert leaders.noise is not at_hand


def test_only_what_is_taken_away_makes_all_labels_be_looked_at() -> None:
    counts, one = np.array([9 * MOST, 0]), np.array([0])
    leaders = Leaders(PLAN, 1)
    leaders.note(one, np.array([0]))
    assert leaders.slots(counts) is not None
    leaders.note(one, np.array([-1]))
    assert leaders.slots(counts) is None
    leaders.note(one, np.array([5]))
    assert leaders.slots(counts) is None


def test_leaders_begin_anew_when_fewer_than_half_are_left() -> None:
    """Those at the bound itself are left; a half is enough to go on."""
    leaders, counts = Leaders(PLAN, 1), np.full(4, 10 * MOST)
    assert leaders.slots(counts).tolist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    counts[:2] = 20 * MOST, 18 * MOST
    assert leaders.slots(counts).tolist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    counts[0] += 1
    assert leaders.slots(counts).tolist() == [0]  # type: ignore[union-attr]


def test_the_turns_of_labels_are_public_numbers() -> None:
    labels = pl.Series(["aspirin", "ibuprofen", "paracetamol"])
    assert turns_of(labels, 4).tolist() == [0, 2, 3]
    turns = Turns(4)
    due = [turns.due(labels[:some], tick).tolist() for some, tick in ((1, 4), (1, 2), (3, 2), (3, 3), (3, 5))]
    assert due == [[0], [], [1], [2], []]


def test_no_noise_shows_a_label_of_too_few_events_in_its_turn() -> None:
    run: Any = Run(made(PLAN, 2, min_count=4), Loudest())
    shown = []
    for events in ("aaaabbb", ""):
        run.update(pl.Series(list(events), dtype=pl.String))
        shown.append(set(run.release().value.labels))
    assert shown[-1] == {"a"}


@pytest.mark.parametrize("cut", ThresholdRule)
def test_a_threshold_is_above_what_rounding_could_take(cut: ThresholdRule, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spread that is a whole number was perhaps rounded down to it."""
    monkeypatch.setattr(unknown, "_spread_at", lambda *_: 3.0)
    monkeypatch.setattr(unknown, "_constant_spread", lambda *_: 3.0)
    assert threshold_at(PLAN, 1, Fraction(1, 10), cut) == 5


def test_a_total_behind_the_rest_is_paid_for_beside_the_labels() -> None:
    rest = TreePlan.calibrated(horizon=8, rho=0.5)
    alone, both = (
        UnknownHistogram(plan=PLAN, delta=Fraction(1, 10), rest_plan=each).guarantee.loss.as_booked()
        for each in (None, rest)
    )
    total = plan_loss(rest, magnitude=1).as_booked()
    assert total.rho > 0
    assert total.distance > 0
    assert (both.rho, both.distance) == (alone.rho + total.rho, alone.distance + total.distance)


def test_answers_of_several_shards_are_all_there() -> None:
    answers = [[pl.Series("key", keys), [np.array(numbers)]] for keys, numbers in ((["b", "d"], [1, 2]), (["a"], [3]))]
    labels, (numbers,) = joined_shards(answers)
    assert (labels.to_list(), numbers.tolist()) == (["a", "b", "d"], [3, 1, 2])


def test_the_error_of_sums_is_in_steps_of_the_sum_and_not_of_the_noise() -> None:
    """Wavelets of Laplace noise are drawn in fractions: the error of a sum is about that of its deviation."""
    plan = HaarPlan.calibrated(horizon=8, epsilon=1.0)
    assert is_pure(plan)
    assert plan.shift
    sums = LabelSums(plan=plan, low=0, high=1, domain=Domain(["a"]))
    deviation = float(variance_at(plan, 3)) ** 0.5
    assert deviation < sums.error(3, 0.9) < 4 * deviation


def test_no_noise_shows_the_sum_of_a_label_of_too_few_events() -> None:
    own: dict[str, Any] = {"plan": PLAN, "sum_plan": PLAN, "low": 0, "high": 1, "delta": Fraction(1, 10)}
    run: Any = Run(LabelSums(**own, min_count=4), Loudest())
    run.update(pl.DataFrame({"key": list("aaaabbb"), "value": [1] * 7}).to_struct())
    assert run.release().value.labels.to_list() == ["a"]


@pytest.mark.parametrize(("low", "high"), [(2, 7), (-3, 8), (-9, -2)])
def test_the_sum_is_the_same_combination_of_every_form_of_series(low: int, high: int) -> None:
    pure, gaussian = HaarPlan.calibrated(horizon=8, epsilon=1), HaarPlan.calibrated(horizon=8, rho=1)
    for plan, other in ((pure, None), (pure, pure), (gaussian, gaussian)):
        sums = LabelSums(plan=plan, sum_plan=other, low=low, high=high, domain=Domain(["a"]))
        parts = list(zip(sums._weights, sums._moves, strict=True))
        assert [sum(weight * move[place] for weight, move in parts) for place in (0, 1)] == [0, 1]


@pytest.mark.parametrize("keys", [1, 256, 257])
def test_the_chance_of_any_of_several_labels_is_exact_or_more(keys: int) -> None:
    delta = Fraction(1, 10**5)
    own: dict[str, Any] = {"plan": PLAN, "delta": delta, "max_keys_per_event": keys}
    for made_of in (UnknownHistogram(**own), LabelSums(**own, sum_plan=PLAN, low=0, high=1)):
        assert made_of.guarantee.loss.as_booked().bad == (1 - (1 - delta) ** keys if keys <= 256 else 257 * delta)


@pytest.mark.parametrize("scales", [(300, 300, 300), (1, 1, 300), (300, 1, 1), (Fraction(1, 2), 2, 40)])
def test_the_spread_of_laplace_noise_is_about_the_least_that_moments_give(scales: tuple[Any, ...]) -> None:
    """Chernoff's bound by the moments in closed form, at 20,000 factors."""
    delta = Fraction(1, 10**6)
    plan = TopDownPlan(height=2, noises=tuple(LaplaceNode(Fraction(scale)) for scale in scales), horizon=256)
    for tick in (1, 17, 100, 256):
        weights = [(abs(term.weight) / 2.0**plan.shift, float(scales[term.level])) for term in plan.terms_at(tick)]
        factors = np.linspace(0, min(1 / (weight * scale) for weight, scale in weights), 20_002)[1:-1]
        total = np.full(len(factors), math.log(256 / float(delta)))
        for weight, scale in weights:
            q = math.exp(-1 / scale)
            total += 2 * math.log(1 - q) - np.log1p(-q * np.exp(factors * weight))
            total -= np.log1p(-q * np.exp(-factors * weight))
        assert unknown._spread_at(plan, tick, delta, 256) == pytest.approx(float((total / factors).min()), rel=2e-3)
