"""One-shot answers over known labels: cards 2.2 and 2.3."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tests.audit.replay import RecordingNoise
from tests.selection.label_noise import LabelNoise, keys_of

from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.selection import KnownGauss, KnownGumb, first_in_race, race_distance
from pianissimo.testing import SeededNoise

ABC = Domain(["a", "b", "c"])
RUNS = 20_000
FALSE_ALARM_RATE = 1e-9


def test_gauss_gives_the_vector_of_the_card() -> None:
    """{a: 3, b: 0} with noises .5 and -1, in halves."""
    one_shot = KnownGauss(domain=Domain(["a", "b"]), variance=Fraction(4))
    noise = LabelNoise("ab", gaussians={("a",): 1, ("b",): -2})
    labels, counts = one_shot.answer(pl.Series(["a", "b"]), keys_of("a", "b"), np.array([6, 0]), noise)
    assert (labels.to_list(), counts.tolist()) == (["a", "b"], [7, -2])


def test_gumb_gives_the_vector_of_the_card() -> None:
    """{a: 2, b: 1, c: 0}, Gumbels .1, 1.3, .3 -> b, a, c; k = 2, Gaussians b .5, a -.5: in tenths, tau = 2."""
    one_shot = KnownGumb(domain=ABC, k=2, scale=Fraction(10), variance=Fraction(400))
    noise = LabelNoise(
        "abc",
        gaussians={("a",): -5, ("b",): 5},
        gumbels={("race", "a"): 0.1, ("race", "b"): 1.3, ("race", "c"): 0.3},
    )
    labels, counts = one_shot.answer(ABC.labels, keys_of("a", "b", "c"), np.array([20, 10, 0]), noise)
    assert (labels.to_list(), counts.tolist()) == (["b", "a"], [15, 15])


def test_gumb_selects_by_the_race() -> None:
    """Whose law test_race.py holds against the card's .48633: its first k, over all labels, at this scale."""
    one_shot, keys, counts = (
        KnownGumb(domain=ABC, k=2, scale=Fraction(3, 2), variance=Fraction(4)),
        keys_of("a", "b", "c"),
        np.array([2, 1, 0]),
    )
    orders = set()
    for run in range(200):
        noise = SeededNoise(run)
        labels, _ = one_shot.answer(ABC.labels, keys, counts, noise)
        first = first_in_race(counts, noise.at("race").bits(keys), Fraction(3, 2), 3)[:2]
        assert labels.to_list() == ["abc"[place] for place in first]
        orders.add(tuple(labels))
    assert len(orders) == 6


def test_losses_are_those_of_the_card() -> None:
    """With tau: (D / (2 tau^2), 0), (k / tau^2, 0), and with a bound (k / 2 + min(k, D) / 2) / tau^2."""
    tau = Fraction(3)
    gauss = KnownGauss(domain=ABC, variance=tau**2, max_keys_per_event=2).loss
    assert gauss == Booked(rho=2 / (2 * tau**2), distance=3 * DRAW_DISTANCE)
    gumb = KnownGumb(domain=ABC, k=2, scale=tau / 2, variance=tau**2).loss
    assert gumb == Booked(rho=2 / tau**2, distance=race_distance(3, 2) + 2 * DRAW_DISTANCE)
    bounded = KnownGumb(domain=ABC, k=2, scale=tau / 2, variance=tau**2, max_keys_per_event=1).loss
    assert bounded.rho == Fraction(3, 2) / tau**2


def test_more_keys_than_the_domain_has_cost_no_more() -> None:
    losses = {KnownGauss(domain=ABC, variance=Fraction(9), max_keys_per_event=keys).loss for keys in (3, 9)}
    assert len(losses) == 1


@pytest.mark.parametrize("rho", [0.01, 0.5, Fraction(1, 3)])
def test_calibration_keeps_within_its_rho_and_near_it(rho: float | Fraction) -> None:
    for one_shot in (
        KnownGauss.calibrated(domain=ABC, rho=rho, max_keys_per_event=2),
        KnownGumb.calibrated(domain=ABC, k=2, rho=rho),
        KnownGumb.calibrated(domain=ABC, k=2, rho=rho, max_keys_per_event=1),
    ):
        assert 0.98 * Fraction(rho) < one_shot.loss.rho <= Fraction(rho)


def test_published_counts_carry_noise_of_their_own() -> None:
    """Publishing the race's own values would not be private; the counts' noise has another address."""
    noise = RecordingNoise(SeededNoise(1))
    one_shot = KnownGumb(domain=ABC, k=2, scale=Fraction(1), variance=Fraction(4))
    one_shot.answer(ABC.labels, keys_of("a", "b", "c"), np.array([2, 1, 0]), noise)
    assert [(call.path, call.law, len(call.keys)) for call in noise.calls] == [
        (("race",), "bits", 3),
        ((), "gaussian", 2),
    ]


def test_only_an_answer_that_can_lack_a_label_is_biased() -> None:
    assert not KnownGauss(domain=ABC, variance=Fraction(4)).biased
    assert KnownGumb(domain=ABC, k=2, scale=Fraction(1), variance=Fraction(4)).biased
    assert not KnownGumb(domain=ABC, k=3, scale=Fraction(1), variance=Fraction(4)).biased


def test_errors_cover_the_published_counts() -> None:
    """false_alarm_rate: 1e-9, by the exact binomial tail."""
    one_shot = KnownGauss(domain=ABC, variance=Fraction(10_000))
    keys = np.arange(RUNS, dtype=np.uint64)
    _, noisy = one_shot.answer(pl.Series([], dtype=pl.String), keys, np.zeros(RUNS, np.int64), SeededNoise(42))
    covered = int((np.abs(noisy) <= one_shot.error(0.95)).sum())
    assert stats.binom.cdf(covered, RUNS, 0.95) > FALSE_ALARM_RATE
    assert stats.binom.cdf(int((np.abs(noisy) <= 0.9 * one_shot.error(0.95)).sum()), RUNS, 0.95) < FALSE_ALARM_RATE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 4}, "k must be at most the 3 labels of the domain, got 4"),
        ({"k": 0}, "k must be a whole number of at least 1"),
        ({"scale": Fraction(0)}, "scale must be a Fraction"),
        ({"variance": 4.0}, "variance must be an exact Fraction"),
        ({"variance": Fraction(0)}, "variance must be finite and positive"),
        ({"max_keys_per_event": 0}, "max_keys_per_event must be a whole number"),
    ],
)
def test_impossible_parameters_are_refused(change: dict[str, object], message: str) -> None:
    sound: dict[str, object] = {"domain": ABC, "k": 2, "scale": Fraction(1), "variance": Fraction(4)}
    with pytest.raises(ParameterError, match=message):
        KnownGumb(**(sound | change))  # type: ignore[arg-type]
