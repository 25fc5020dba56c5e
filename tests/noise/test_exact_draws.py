"""Draws by inversion of as many bits as they need: binomial, geometric, uniform."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pianissimo.errors import ParameterError
from pianissimo.noise.exact_draws import Bits, binomial, check_few, geometric, laplace_passes, rational, uniform_below
from pianissimo.noise.keyed import Keys
from pianissimo.testing import NoNoise


class GivenBits(NoNoise):
    """Uniform bits that begin with a number's and go on with so much of the next unit."""

    def __init__(self, start: int, fill: int | Fraction) -> None:
        self.start, self.fill = start, fill

    def bits(self, keys: Keys) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
        words = [self.start if int(key) == 0 else int(self.fill * (2**128 - 1)) for key in keys]
        return np.array([[word % 2**64, word >> 64] for word in words], dtype=np.uint64)


@pytest.mark.parametrize("trials", [1, 7, 2**64])
def test_a_binomial_draw_is_the_inverse_of_its_distribution(trials: int) -> None:
    """At uniform numbers right below and above each step, also where 128 bits do not decide."""
    rate, least = Fraction(1, 3), 3 if trials < 100 else 133
    with localcontext(prec=200):
        third = Decimal(1) / 3
        p = (-third * least).exp() / (1 + (-third).exp())
        term = (trials * (1 - p).ln()).exp()
        total = Decimal(0)
        for count in range(min(trials, 8)):
            total += term
            term *= p / (1 - p) * (trials - count) / (count + 1)
            word = int(total * 2**128)
            rest = total * 2**128 - word
            assert binomial(trials, laplace_passes(rate, least), GivenBits(word - 1, 1)) == count
            assert binomial(trials, laplace_passes(rate, least), GivenBits(word + 1, 0)) == count + 1
            # The uniform number begins like the chance itself; what follows decides.
            assert binomial(trials, laplace_passes(rate, least), GivenBits(word, 0)) == count
            assert binomial(trials, laplace_passes(rate, least), GivenBits(word, 1)) == count + (rest < 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 2**128 - 1), st.integers(0, 2**128 - 1))
def test_the_binomial_number_is_the_exact_inversion(trials: int, chance: int, bits: int) -> None:
    # What follows the bits is a third, which no sum of chances ends with.
    success, below, number = Fraction(chance, 2**128), Fraction(0), 0
    for number in range(trials + 1):
        below += math.comb(trials, number) * success**number * (1 - success) ** (trials - number)
        if (bits + Fraction(1, 3)) / 2**128 < below:
            break
    assert binomial(trials, rational(success), GivenBits(bits, Fraction(1, 3))) == number


def test_the_binomial_number_of_astronomically_many_trials_is_poisson() -> None:
    trials, chance = 2**120, rational(Fraction(1, 2**118))
    for place in range(1, 200):
        share = place / 200
        assert binomial(trials, chance, GivenBits(int(share * 2**60) << 68, 0)) == stats.poisson.ppf(share, 4.0)


def test_no_trials_and_certain_failure_have_no_successes_and_certain_success_has_all() -> None:
    assert binomial(0, rational(Fraction(1, 2)), NoNoise()) == 0
    assert binomial(5, rational(Fraction(0)), GivenBits(2**128 - 1, 1)) == 0
    assert binomial(5, rational(Fraction(1)), GivenBits(0, 0)) == 5


def test_too_many_successes_are_refused() -> None:
    with pytest.raises(ParameterError, match="raise the threshold"):
        check_few(10**9, laplace_passes(Fraction(1), 1))


def test_a_geometric_draw_is_the_inverse_of_its_distribution() -> None:
    rate = Fraction(1, 7)
    with localcontext(prec=200):
        for step in (1, 2, 50):
            chance = (-(Decimal(1) / 7) * step).exp()
            word = int(chance * 2**128)
            # P[j >= step] = a^step, so that smaller uniform numbers give larger draws.
            assert geometric(rate, GivenBits(word - 1, 1)) == step
            assert geometric(rate, GivenBits(word + 1, 0)) == step - 1
            assert geometric(rate, GivenBits(word, 0)) == step
            assert geometric(rate, GivenBits(word, 1)) == step - 1


def test_uniform_draws_do_not_go_on_for_ever() -> None:
    with pytest.raises(ParameterError, match="must not be all alike"):
        uniform_below(3, GivenBits(2**128 - 1, 1))
    assert Bits(GivenBits(5, 1)).first(130) == 5 * 4 + 3


class BitsOf(NoNoise):
    """The uniform bits of one number below 1."""

    def __init__(self, number: Fraction) -> None:
        self.number = number

    def bits(self, keys: Keys) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
        words = [int(self.number * 2 ** (128 * (int(key) + 1))) % 2**128 for key in keys]
        return np.array([[word % 2**64, word >> 64] for word in words], dtype=np.uint64)


@pytest.mark.parametrize("bits", [150, 300, 700])
def test_draws_are_decided_by_bits_far_behind_the_first(bits: int) -> None:
    near = Fraction(1, 2**bits)
    step = Fraction(2, 3)
    assert binomial(1, rational(Fraction(1, 3)), BitsOf(step - near)) == 0
    assert binomial(1, rational(Fraction(1, 3)), BitsOf(step + near)) == 1
    with localcontext(prec=400):
        chance = Fraction((-Decimal(1) / 7).exp())
    assert geometric(Fraction(1, 7), BitsOf(chance - near)) == 1
    assert geometric(Fraction(1, 7), BitsOf(chance + near)) == 0
    tiny = laplace_passes(Fraction(1), 200)
    with localcontext(prec=400):
        shown = Decimal(-200).exp() / (1 + Decimal(-1).exp())
        chance = Fraction((2**290 * (1 - shown).ln()).exp())
    assert binomial(2**290, tiny, BitsOf(chance - near)) == 0
    assert binomial(2**290, tiny, BitsOf(chance + near)) == 1


def test_the_last_bits_of_all_are_the_last_number() -> None:
    for trials in (1, 2, 3):
        assert binomial(trials, rational(Fraction(1, 2)), GivenBits(2**128 - 1, 1)) == trials
    # Nothing but zeros at first: the draw is large, and what follows tells how large.
    assert geometric(Fraction(1), GivenBits(0, Fraction(1, 2))) == math.floor(129 * math.log(2))


def test_uniform_numbers_below_a_power_of_two_take_no_second_attempt() -> None:
    assert uniform_below(4, GivenBits(2**128 - 1, 1)) == 3
    assert uniform_below(1, GivenBits(0, 0)) == 0
    assert uniform_below(5, GivenBits(2**127, 0)) == 4


def test_few_successes_are_let_pass_up_to_the_limit() -> None:
    check_few(2**12, rational(Fraction(1)))
    with pytest.raises(ParameterError, match="raise the threshold"):
        check_few(2**12 + 1, rational(Fraction(1)))
