"""Histograms of unknown labels: card 2.8, with the threshold of the card 'Continual counting', section 8b.2."""

import math
from fractions import Fraction
from statistics import NormalDist

import polars as pl
import pytest
from tests.audit.sampler_tables import ideal_probability
from tests.shared_checks import GivenNoise

from pianissimo.counting import UnknownHistogram
from pianissimo.counting.unknown import threshold_at
from pianissimo.errors import InputError, ParameterError
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.plan import NoisePlan, terms_of, variance_at
from pianissimo.testing import NoNoise, SeededNoise

DELTA = Fraction(1, 10**6)


def normal_threshold(plan: TreePlan, tick: int, delta: float) -> float:
    """The card's m_t for continuous noise: 1 + tau sqrt(L S(t)) z(delta / R)."""
    return 1 + math.sqrt(variance_at(plan, tick)) * NormalDist().inv_cdf(1 - delta / plan.horizon)


def test_it_gives_the_vector_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts 3, 6, 10, 12 and draws 1, 2, -1, 0.5, in halves, cut at the card's m_t: shown at ticks 2, 3 and 4."""
    plan = TreePlan(base=2, noise=GaussianNode(Fraction(3)), horizon=4)
    cuts = [normal_threshold(plan, tick, 0.01) for tick in (1, 2, 3, 4)]
    assert cuts == pytest.approx([5.861925, 5.861925, 7.875800, 5.861925], abs=1e-6)
    monkeypatch.setattr(UnknownHistogram, "threshold", lambda _, tick: 2 * cuts[tick - 1])
    run = Run(
        UnknownHistogram(plan=plan, delta=Fraction(1, 100), remember=False),
        GivenNoise({(0, 1): 2, (1, 1): 4, (0, 3): -2, (2, 1): 1}),
    )
    shown, before = [], 0
    for count in (3, 6, 10, 12):
        run.update(pl.Series(["u"] * (2 * (count - before))))
        before = count
        shown.append(run.release().value.to_dict())
    assert shown == [{}, {"u": 16}, {"u": 22}, {"u": 25}]


def test_it_gives_the_vector_of_the_card_for_a_constant_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's constant m = 1 + tau L sqrt(r - 1) z(delta / T) = 9.421101 shows ticks 3 and 4 of the same vector."""
    plan = TreePlan(base=2, noise=GaussianNode(Fraction(3)), horizon=4)
    constant = 1 + plan.levels * NormalDist().inv_cdf(1 - 0.01 / 4)
    assert constant == pytest.approx(9.421101, abs=1e-6)
    monkeypatch.setattr(UnknownHistogram, "threshold", lambda *_: 2 * constant)
    run = Run(
        UnknownHistogram(plan=plan, delta=Fraction(1, 100), remember=False),
        GivenNoise({(0, 1): 2, (1, 1): 4, (0, 3): -2, (2, 1): 1}),
    )
    shown, before = [], 0
    for count in (3, 6, 10, 12):
        run.update(pl.Series(["u"] * (2 * (count - before))))
        before = count
        shown.append(run.release().value.to_dict())
    assert shown == [{}, {}, {"u": 22}, {"u": 25}]


def test_our_thresholds_are_those_of_the_card_made_sound() -> None:
    """Sub-Gaussian instead of normal tails: never below the card's m_t, and never more than a third above it."""
    for base, horizon in ((2, 1000), (4, 1000), (3, 100)):
        plan = TreePlan.calibrated(horizon=horizon, rho=0.5, base=base)
        for tick in (1, 2, 3, horizon // 2, horizon - 1, horizon):
            ours = threshold_at(plan, tick, DELTA)
            normal = normal_threshold(plan, tick, float(DELTA))
            assert normal <= ours <= 1.34 * normal + 1


def test_thresholds_of_the_haar_plan_are_those_of_the_card() -> None:
    """T = R = 2^12, rho = 0.5, delta = 1e-6: V_max rule 33.9, mean per tick 28.9 (before rounding up)."""
    plan = HaarPlan.calibrated(horizon=4096, rho=0.5)
    cuts = [threshold_at(plan, tick, DELTA) for tick in range(1, 4097)]
    assert max(cuts) == 34
    assert sum(cuts) / 4096 == pytest.approx(28.9 + 0.5, abs=0.2)


@pytest.mark.parametrize(
    "plan",
    [HaarPlan.calibrated(horizon=4, rho=0.7), TreePlan.calibrated(horizon=4, rho=0.7, base=2)],
    ids=["haar", "tree"],
)
@pytest.mark.parametrize("delta", [Fraction(1, 5), Fraction(1, 1000)])
def test_a_label_of_one_event_is_shown_with_at_most_its_chance(plan: NoisePlan, delta: Fraction) -> None:
    """Exactly, from the noise's distribution: the sum over ticks of P[1 + noise >= threshold] is at most delta."""
    total = sum(chance_of_passing(plan, tick, threshold_at(plan, tick, delta)) for tick in range(1, 5))
    assert 0 < total <= delta


def test_a_threshold_lower_by_one_half_would_be_caught() -> None:
    """The twin that must fail: the rounding of the release forgotten, at a delta where it matters."""
    plan, delta = HaarPlan.calibrated(horizon=4, rho=200.0), Fraction(1, 3)

    def total(cut: int) -> float:
        return sum(chance_of_passing(plan, tick, threshold_at(plan, tick, delta) - cut) for tick in range(1, 5))

    assert total(0) <= delta < total(1)


def test_a_spread_that_is_whole_but_for_a_rounding_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was worked out in floating point, and may be a little more than it seems."""
    monkeypatch.setattr("pianissimo.counting.unknown._spread_at", lambda *_: 7.0)
    assert threshold_at(TreePlan.calibrated(horizon=4, rho=1.0), 1, DELTA) == 1 + 7 + 1


def chance_of_passing(plan: NoisePlan, tick: int, threshold: int) -> float:
    """P[1 + floor(N + 1/2) >= threshold], by convolving the exact chances of the nodes."""
    law = {0: 1.0}
    for term in terms_of(plan, tick):
        variance = plan.noises[term.level].variance
        reach = int(9 * float(variance) ** 0.5) + 2
        chances = {x: float(ideal_probability("gaussian", variance, x)) for x in range(-reach, reach + 1)}
        mixed: dict[int, float] = {}
        for value, chance in law.items():
            for x, other in chances.items():
                place = value + term.weight * x
                mixed[place] = mixed.get(place, 0.0) + chance * other
        law = mixed
    denominator = 2**plan.shift
    half = denominator // 2
    return sum(chance for value, chance in law.items() if 1 + (value + half) // denominator >= threshold)


def test_only_labels_past_the_threshold_are_shown_in_byte_order() -> None:
    histogram = UnknownHistogram(plan=HaarPlan.calibrated(horizon=8, rho=0.5), delta=DELTA)
    run = Run(histogram, NoNoise())
    cut = histogram.threshold(1)
    run.update(pl.Series(["z"] * cut + ["ä"] * (cut + 1) + ["m"] * (cut - 1) + ["b"] * cut))
    assert run.release().value.to_dict() == {"b": cut, "z": cut, "ä": cut + 1}


@pytest.mark.parametrize("remember", [True, False])
def test_a_shown_label_stays_if_it_is_remembered(remember: bool) -> None:
    plan = TreePlan(base=2, noise=GaussianNode(Fraction(3)), horizon=4)
    histogram = UnknownHistogram(plan=plan, delta=Fraction(1, 100), remember=remember)
    run = Run(histogram, GivenNoise({(0, 1): 100}))
    run.update(pl.Series(["u"]))
    assert run.release().value.to_dict() == {"u": 101}
    assert run.release().value.to_dict() == ({"u": 1} if remember else {})


def test_a_late_label_has_the_noise_it_would_always_have_had() -> None:
    """Its noise is a function of the label and the node, not of when it came."""
    plan = HaarPlan.calibrated(horizon=16, rho=5.0)
    early = Run(UnknownHistogram(plan=plan, delta=Fraction(1, 10)), SeededNoise(7))
    late = Run(UnknownHistogram(plan=plan, delta=Fraction(1, 10)), SeededNoise(7))
    early.update(pl.Series(["a"] * 500 + ["b"] * 500))
    late.update(pl.Series(["b"] * 500))
    for _ in range(9):
        early.release()
        late.release()
    late.update(pl.Series(["a"] * 500))
    assert early.release().value.to_dict() == late.release().value.to_dict()


def test_a_label_of_one_event_is_rarely_ever_shown() -> None:
    """Card 2.8: constant count 1, T = R = 100, r = 3, delta = 0.2, here over 20,000 labels.

    The card simulates 0.1015 for normal tails; sub-Gaussian ones are stricter. false_alarm_rate: below 1e-100, as 0.2
    is more than 30 deviations away.
    """
    plan = TreePlan.calibrated(horizon=100, rho=0.5, base=3)
    run = Run(UnknownHistogram(plan=plan, delta=Fraction(1, 5)), SeededNoise(11))
    run.update(pl.Series([f"label {number}" for number in range(20_000)]))
    for _ in range(100):
        value = run.release().value
    share = len(value.labels) / 20_000
    assert 0.005 < share < 0.1015


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (pl.Series(["a", None]), "must not be null"),
        (pl.Series([["a", None]]), "must not be null"),
        (pl.Series(["a" * 257]), "at most 256 bytes"),
        (pl.Series([1.5]), "must be texts or lists of texts"),
    ],
)
def test_bad_batches_are_refused_whole(events: pl.Series, message: str) -> None:
    run = Run(UnknownHistogram(plan=HaarPlan.calibrated(horizon=8, rho=0.5), delta=DELTA), NoNoise())
    run.update(pl.Series(["a"] * 90))
    with pytest.raises(InputError, match=message):
        run.update(events)
    assert run.release().value.to_dict() == {"a": 90}


def test_the_chance_must_be_a_chance() -> None:
    with pytest.raises(ParameterError, match="delta must be above 0 and below 1"):
        UnknownHistogram(plan=HaarPlan.calibrated(horizon=8, rho=0.5), delta=Fraction(0))
