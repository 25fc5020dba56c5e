"""All counters side by side: the tables, the names, the errors of those who ask for what is not there."""

import math
from fractions import Fraction

import pytest

from pianissimo.counting import Comparison, compare, make
from pianissimo.counting.compare import LONGEST_COMPARISON
from pianissimo.errors import ParameterError
from pianissimo.noise import DoublingPlan, SplinePlan, TopDownPlan, TreePlan
from pianissimo.noise.plan import NoisePlan, terms_of, variance_at
from pianissimo.noise.tree import ARITY, largest_digit_sum

NAMES = [
    "binary tree",
    "tree",
    "doubling",
    "haar",
    "haar + skipping",
    "spline",
    "top-down",
    "open haar",
    "open top-down",
    "toeplitz",
]
HORIZONS = (2**8, 2**12, 2**16, 2**20)

GAUSSIAN_TABLE = {
    "doubling": "9.17/6.66 14.1/10.6 19.0/14.6 23.9/18.5",
    "binary tree": "8.49/6.00 12.5/8.83 16.5/11.7 20.5/14.5",
    "tree": "6.93/4.91 10.5/7.41 13.7/9.73 17.2/12.2",
    "haar": "3.53/2.98 4.87/4.13 6.20/5.28 7.53/6.44",
    "haar + skipping": "3.30/2.97 4.46/4.09 5.62/5.22 6.77/6.35",
    "spline": "3.08/3.00 4.06/3.96 5.04/4.91 6.02/5.86",
    "open haar": "4.56/3.88 5.80/4.96 7.19/6.18 8.69/7.49",
}
LAPLACE_TABLE = {
    "doubling": "34.3/23.2 64.7/45.6 101/72.9 142/104",
    "binary tree": "36.0/25.5 63.7/45.0 96.2/68.0 133/93.9",
    "tree": "15.5/11.0 28.5/20.1 43.8/31.0 61.2/43.4",
    "haar": "14.7/12.5 24.4/20.9 35.7/30.6 48.3/41.5",
    "top-down": "10.7/9.0 17.7/14.8 25.9/21.6 35.0/29.1",
    "open top-down": "16.9/14.2 25.4/21.3 36.7/30.7 50.3/41.9",
}
RATIOS = {
    "doubling": (3.62, 4.15, 4.45, 4.64),
    "binary tree": (3.35, 3.68, 3.86, 3.98),
    "tree": (2.74, 3.09, 3.22, 3.34),
    "haar": (1.39, 1.43, 1.45, 1.46),
    "haar + skipping": (1.30, 1.32, 1.32, 1.32),
    "spline": (1.22, 1.20, 1.18, 1.17),
    "square root": (1.12, 1.09, 1.08, 1.07),
    "open haar": (1.80, 1.71, 1.69, 1.69),
}


def rows_of(place: int, *, pure: bool) -> dict[str, Comparison]:
    horizon = HORIZONS[place]
    found = compare(horizon=horizon, epsilon=1) if pure else compare(horizon=horizon, rho=0.5)
    return {row.name: row for row in found}


def is_written(number: str, value: float) -> bool:
    """Equal in the digits that are written, up to one in the last of them."""
    unit = 10.0 ** -len(number.partition(".")[2])
    return abs(value - float(number)) <= 0.501 * unit + 0.0001 * value


@pytest.mark.parametrize("place", range(len(HORIZONS)), ids=[str(horizon) for horizon in HORIZONS])
@pytest.mark.parametrize("pure", [False, True])
def test_plans_have_the_errors_of_the_tables(place: int, pure: bool) -> None:
    found = rows_of(place, pure=pure)
    for name, row in (LAPLACE_TABLE if pure else GAUSSIAN_TABLE).items():
        largest, typical = row.split()[place].split("/")
        assert is_written(largest, found[name].max_std), (name, largest, found[name].max_std)
        assert is_written(typical, found[name].rms_std), (name, typical, found[name].rms_std)
    if not pure:
        for name, ratios in RATIOS.items():
            assert found[name].ratio_to_optimum == pytest.approx(ratios[place], abs=0.012)


def test_a_million_ticks_are_within_the_promised_ratios() -> None:
    found = rows_of(3, pure=False)
    assert found["haar + skipping"].ratio_to_optimum <= 1.35
    assert found["spline"].ratio_to_optimum <= 1.20


@pytest.mark.parametrize("loss", [{"rho": 0.5}, {"epsilon": 1.0}])
def test_rows_come_best_first_and_say_what_runs_here(loss: dict[str, float]) -> None:
    rows = compare(horizon=300, **loss)
    assert [row.max_std for row in rows] == sorted(row.max_std for row in rows)
    assert rows[0].name == ("optimum" if "rho" in loss else "lower bound")
    assert rows[0].ratio_to_optimum == 1
    assert {row.name for row in rows if row.runs_here} == set(NAMES) - (
        {"open top-down"} if "rho" in loss else {"spline", "open haar", "toeplitz"}
    )
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        if row.runs_here:
            plan = make(row.name, horizon=300, **loss)
            profile = plan.variance_profile(300)
            assert [row.max_std, row.rms_std] == pytest.approx([profile.max() ** 0.5, profile.mean() ** 0.5], rel=0.002)
            assert row.ratio_to_optimum == pytest.approx(row.max_std / rows[0].max_std)


def stated_draws(plan: NoisePlan, horizon: int) -> int:
    """How many draws the noise of one tick takes from nothing, at most, as the plans state."""
    match plan:
        case TreePlan():
            return largest_digit_sum(horizon, plan.base)
        case DoublingPlan():
            # In period l there are l roots of earlier periods, and a node for each one in the binary place within it.
            period = horizon.bit_length() - 1
            return max(period + largest_digit_sum(horizon - 2**period + 1, 2), 2 * (period - 1))
        case SplinePlan():
            return 3 * plan.height + 1
        case TopDownPlan():
            return ARITY * plan.height + 1
    return len(plan.noises)


@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 17, 64, 100])
@pytest.mark.parametrize("loss", [{"rho": 0.5}, {"epsilon": 1.0}])
def test_no_tick_takes_more_draws_than_stated(horizon: int, loss: dict[str, float]) -> None:
    for row in compare(horizon=horizon, **loss):
        if row.runs_here and row.name != "toeplitz":
            plan = make(row.name, horizon=horizon, **loss)
            most = max(len(terms_of(plan, tick)) for tick in range(1, horizon + 1))
            assert most <= stated_draws(plan, horizon)
            if row.name in ("binary tree", "tree", "doubling", "haar"):
                assert most == stated_draws(plan, horizon)


@pytest.mark.parametrize("name", NAMES)
def test_plans_are_made_by_name_within_their_loss(name: str) -> None:
    made: list[NoisePlan] = []
    for loss, price in (({"rho": Fraction(1, 8)}, Fraction(1, 4)), ({"epsilon": Fraction(1, 2)}, Fraction(1, 2))):
        try:
            plan = make(name, horizon=200, **loss)
        except ParameterError:
            continue
        made.append(plan)
        assert plan.horizon >= 200
        assert Fraction(9, 10) * price < plan.cost <= price
        assert math.sqrt(variance_at(plan, 150)) == pytest.approx(math.sqrt(plan.variance_profile(200)[149]))
    assert made


def test_errors_scale_with_the_loss() -> None:
    for row, other in zip(
        sorted(compare(horizon=500, rho=0.5), key=lambda row: row.name),
        sorted(compare(horizon=500, rho=0.005), key=lambda row: row.name),
        strict=True,
    ):
        assert other.max_std == pytest.approx(10 * row.max_std, rel=2e-3)
        assert other.ratio_to_optimum == pytest.approx(row.ratio_to_optimum, rel=2e-3)


def test_plans_that_cannot_be_made_are_left_out() -> None:
    assert "toeplitz" not in {row.name for row in compare(horizon=5000, rho=0.5)}
    with pytest.raises(ParameterError, match="at most 4096, got 5000; take a haar or spline plan"):
        make("toeplitz", horizon=5000, rho=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "har", "horizon": 8, "rho": 0.5}, r"got 'har'; near to it are 'haar'"),
        ({"name": "splines", "horizon": 8, "rho": 0.5}, r"near to it are 'spline'"),
        ({"name": "?", "horizon": 8, "rho": 0.5}, r"near to it are 'binary tree', 'tree', .*'toeplitz'$"),
        (
            {"name": "spline", "horizon": 8, "epsilon": 1},
            r"loss of a spline plan must be rho, got epsilon, which suits .*'top-down'",
        ),
        ({"name": "open top-down", "horizon": 8, "rho": 1}, "must be epsilon, got rho, which suits"),
        ({"name": "haar", "horizon": 8}, "either rho or epsilon must be given, got both or neither"),
        ({"name": "haar", "horizon": 8, "rho": 1, "epsilon": 1}, "either rho or epsilon must be given"),
        ({"name": "haar", "horizon": 0, "rho": 1}, "horizon must be a whole number of at least 1, got 0"),
        ({"name": "haar", "horizon": 8, "rho": math.nan}, "rho must be finite and positive, got nan"),
        ({"name": "open haar", "horizon": 2**33, "rho": 1}, "horizon must be at most 4294967296 even for an open plan"),
    ],
)
def test_what_cannot_be_made_says_why(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make(**arguments)  # type: ignore[arg-type]


def test_a_comparison_has_a_longest_horizon() -> None:
    with pytest.raises(ParameterError, match="horizon of a comparison must be at most 16777216, got 16777217"):
        compare(horizon=LONGEST_COMPARISON + 1, rho=0.5)
