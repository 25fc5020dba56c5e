"""The enumeration audit: every selection keeps its claim on all small neighbors, and every mutant is caught."""

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.audit.enumeration import (
    ROOM,
    THRESHOLD,
    Case,
    Lattice,
    Law,
    enumerated_cases,
    hockey_stick,
    k_bar_law,
    noisy_threshold_law,
    race_law,
    repeated_law,
    worst_quotient,
)

from pianissimo.selection import LimitedDomain, OptimalThreshold, PayWhatYouGet

CASES = enumerated_cases()
SOUND = [case for case in CASES if not case.is_mutant]
MUTANTS = [case for case in CASES if case.is_mutant]


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_a_selection_keeps_its_claim_on_all_small_neighbors(case: Case) -> None:
    assert 0 <= worst_quotient(case) <= 1 + ROOM


@pytest.mark.parametrize("case", MUTANTS, ids=lambda case: case.name)
def test_a_mutant_is_caught(case: Case) -> None:
    assert worst_quotient(case) > 1.2


@pytest.mark.parametrize("flaw", ["D1", "D2", "D4", "D17", "threshold not charged", "without the + 1"])
def test_the_printed_flaws_are_among_the_mutants(flaw: str) -> None:
    assert any(flaw in case.name for case in MUTANTS)


@pytest.mark.parametrize(
    "what", ["limited domain, k", "limited domain, Laplace", "strict", "fixed threshold, Laplace", "questions"]
)
def test_the_claims_are_attained(what: str) -> None:
    """The audit sees nearly all of the claimed delta, so that it would see a little more than it."""
    assert max(worst_quotient(case) for case in SOUND if what in case.name) > 0.999


def test_the_printed_flaws_have_the_known_size() -> None:
    """Card, section 5: 2.71 delta without the + 1, 2.99 delta for D17; d = .080 where the threshold is free."""
    found = {case.name: worst_quotient(case) for case in MUTANTS}
    by_flaw = {
        flaw: next(value for name, value in found.items() if flaw in name) for flaw in ("+ 1", "D17", "m lowered")
    }
    assert by_flaw["+ 1"] == pytest.approx(2.71, abs=0.01)
    assert by_flaw["D17"] == pytest.approx(2.99, abs=0.01)
    assert by_flaw["m lowered"] == pytest.approx(1.98, abs=0.03)
    plan = PayWhatYouGet(epsilon=Fraction(1, 2), delta=Fraction(1, 10**4), steps=1, calls=40)
    free = next(value for name, value in found.items() if "not charged" in name)
    assert free * float(plan.loss.bad) == pytest.approx(0.080, abs=0.001)


def test_repeated_questions_attain_their_claim() -> None:
    """Card 3.2: epsilon = .5, delta = .02, k* = l* = 3: d(1.5) = .05881, and .05768 with the paper's offset."""
    for offset, expected in ((1 + math.log(0.98 / 0.02) / 0.5, 0.05881), (1 + math.log(1 / 0.02) / 0.5, 0.05768)):
        with_label, without = (asked_three_times(counts, offset) for counts in ((1,), (0,)))
        assert hockey_stick(with_label, without, 1.5) == pytest.approx(expected, abs=5e-6)


def asked_three_times(counts: tuple[int, ...], offset: float) -> Law:
    single = race_law(counts, k=1, candidates=1, epsilon=Fraction(1, 2), offset=offset)
    return repeated_law(lambda _: single, steps=3, calls=3)


def test_the_race_has_the_chances_of_the_card() -> None:
    """Card 3.1, k = 1, paper's offset."""
    law = race_law((5, 3, 3, 1), k=1, candidates=3, epsilon=Fraction(1), offset=1 + math.log(10))
    assert [law[item,] for item in (0, 1, 2, THRESHOLD)] == pytest.approx(
        [0.56544, 0.07652, 0.07652, 0.28151], abs=5e-6
    )


def test_k_bar_has_the_chances_of_the_card() -> None:
    """Card 3.6; the wrong sign gives others."""
    mechanism = OptimalThreshold(k=2, d_bar=5, epsilon=Fraction(1), delta=Fraction(1, 10))
    expected = [0.15369, 0.27851, 0.56780]
    assert k_bar_law(mechanism, (9, 8, 3, 2, 1)) == pytest.approx(expected, abs=2e-5)
    wrong = k_bar_law(mechanism, (9, 8, 3, 2, 1), plus=True)
    assert sum(wrong) == pytest.approx(1)
    assert wrong != pytest.approx(expected, abs=1e-2)


def test_a_race_without_noise_of_conditioning_has_mass_one() -> None:
    limited = LimitedDomain(k=3, candidates=3, epsilon=Fraction(1), delta=Fraction(1, 100))
    law = race_law((3, 2, 1, 0), k=3, candidates=3, epsilon=limited.epsilon, offset=float(limited.offset))
    assert sum(law.values()) == pytest.approx(1)


@pytest.mark.parametrize("ties_pass", [False, True])
def test_a_noisy_threshold_has_the_law_of_a_plain_sum(ties_pass: bool) -> None:
    """Against a sum over all noises of two labels and the threshold."""
    noise = Lattice.of("laplace", Fraction(1, 2))
    reach = noise.reach
    window = np.arange(-reach - 2, reach + 12)
    law = noisy_threshold_law((3, 2, 1), candidates=2, offset=2, noise=noise, window=window, ties_pass=ties_pass)
    assert sum(float(part.sum()) for part in law.values()) == pytest.approx(1)
    first, second = window[:, None, None], window[None, :, None]
    level = window[None, None, :]
    chances = noise.at(first - 3) * noise.at(second - 2) * noise.at(level - 3)
    passes = [(value >= level) if ties_pass else (value > level) for value in (first, second)]
    assert law[0, 1] == pytest.approx((chances * (passes[0] & passes[1])).sum(axis=2))
    assert law[0,] == pytest.approx((chances * (passes[0] & ~passes[1])).sum(axis=(1, 2)))
    assert float(law[()].sum()) == pytest.approx((chances * (~passes[0] & ~passes[1])).sum())
