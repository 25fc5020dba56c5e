import itertools
import math
import subprocess
import sys
from fractions import Fraction

import pytest
from scipy.stats import norm

from pianissimo.errors import ParameterError
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.exact_composition import epsilon_by_loss_distribution, optimal_epsilon
from pianissimo.loss.losses import Booked, GaussianRelease, Pure


def found(*losses: Pure | GaussianRelease, delta: float) -> float:
    epsilon = epsilon_by_loss_distribution(losses, delta)
    assert epsilon is not None
    return epsilon


def gaussian_delta(variance: float, counts: int, epsilon: float) -> float:
    """The exact delta of discrete Gaussian counts that all move by one, by enumeration."""
    reach = range(-math.ceil(9 * math.sqrt(variance)), math.ceil(9 * math.sqrt(variance)) + 1)
    mass = {k: math.exp(-k * k / (2 * variance)) for k in reach}
    total = sum(mass.values())
    # ln of the ratio at k is (1 - 2k) / (2 variance).
    return sum(
        max(
            0.0,
            math.prod(mass[k] / total for k in ks) * -math.expm1(epsilon - sum(1 - 2 * k for k in ks) / (2 * variance)),
        )
        for ks in itertools.product(reach, repeat=counts)
    )


@pytest.mark.parametrize(("variance", "counts"), [(1, 1), (4, 1), (16, 1), (1, 2), (4, 2)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_it_covers_the_exact_loss_of_discrete_gaussians_and_hardly_more(
    variance: int, counts: int, delta: float
) -> None:
    epsilon = found(GaussianRelease(Fraction(variance), counts), delta=delta)
    assert gaussian_delta(variance, counts, epsilon) <= delta
    assert gaussian_delta(variance, counts, epsilon - 1e-3) > delta
    # Less than integer orders give, which is the point.
    assert epsilon < epsilon_from_rho(Fraction(counts, 2 * variance), delta)


def test_the_formula_of_the_continuous_gaussian_is_flagged_as_too_small() -> None:
    continuous = float(norm.sf(5.33 - 0.5) - math.exp(5.33) * norm.sf(5.33 + 0.5))
    assert gaussian_delta(1, 1, 5.33) == pytest.approx(2.1 * continuous, rel=0.02)
    assert found(GaussianRelease(Fraction(1)), delta=continuous) > 5.33


def test_pure_losses_cost_no_less_than_the_optimal_composition_and_hardly_more() -> None:
    epsilons = [Fraction(1, 10)] * 30 + [Fraction(1, 3)] * 5
    epsilon = found(*map(Pure, epsilons), delta=1e-6)
    optimum = optimal_epsilon(epsilons, 1e-6)
    assert optimum * (1 - 1e-9) <= epsilon <= optimum + 1e-3


def test_more_losses_and_less_delta_cost_more() -> None:
    release = GaussianRelease(Fraction(50))
    assert found(release, delta=1e-6) < found(release, release, delta=1e-6)
    assert found(release, release, delta=1e-6) == found(GaussianRelease(Fraction(50), 2), delta=1e-6)
    assert found(release, delta=1e-6) < found(release, Pure(Fraction(1, 10)), delta=1e-6)
    assert found(release, delta=1e-6) < found(release, delta=1e-8)
    assert found(delta=1e-6) == found(Pure(Fraction(0)), GaussianRelease(Fraction(1), 0), delta=1e-6) == 0


def test_where_it_does_not_apply_it_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert epsilon_by_loss_distribution([Pure(Fraction(1))], 1e-10) is None
    assert epsilon_by_loss_distribution([Pure(Fraction(10**6))], 1e-6) is None
    monkeypatch.setattr("pianissimo.loss.exact_composition.is_available", lambda: False)
    assert epsilon_by_loss_distribution([Pure(Fraction(1))], 1e-6) is None


def test_the_loss_of_a_plan_is_refused() -> None:
    with pytest.raises(ParameterError, match="a loss distribution is known for single releases, got Booked"):
        epsilon_by_loss_distribution([Booked(Fraction(1))], 1e-6)  # type: ignore[list-item]
    with pytest.raises(ParameterError, match="variance must be positive, got 0"):
        GaussianRelease(Fraction(0))


def test_the_library_is_not_loaded_before_it_is_needed() -> None:
    script = "import sys, pianissimo.loss.exact_composition; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
