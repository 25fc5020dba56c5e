"""Promises that no other test ties to the line that carries them, each with the variant that would break it."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Self, cast

import numpy as np
import polars as pl
import pytest
from tests.mechanisms import CASES, USER_CASES, Case

from pianissimo.loss.composition import price
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.losses import Booked, Race
from pianissimo.loss.race_clock import epsilon_of_races
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.noise.keyed import Integers, Keys, PathPart
from pianissimo.noise.laws import GaussianNode, LaplaceNode
from pianissimo.sketches import PureHistogram, SetTree, SketchTree, private_release, release_shards, sparse_histogram
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.reduction import reduce
from pianissimo.sketches.sparse_histogram import worst_delta
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import AdaptiveCap, EachPeriod, UserDistinct

PLAIN = ("counter over haar", "known histogram over haar", "unknown histogram over haar")
BETWEEN = {name: CASES[name] for name in PLAIN} | {
    name: case
    for name, case in (CASES | USER_CASES).items()
    if getattr(case.mechanism, "history", 0) and not isinstance(case.mechanism, EachPeriod)
}
EVENTS = [["a", "b"], ["a"], ["c", "a"], ["b"], ["a"]]
LOUD = HaarPlan.calibrated(horizon=6, rho=Fraction(1, 100))


def plain(value: Any) -> Any:
    """What is shown, in a form that can be compared."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value.tolist() if isinstance(value, np.ndarray) else repr(value)


@pytest.mark.parametrize("name", BETWEEN)
def test_a_window_that_is_asked_again_is_answered_alike(name: str) -> None:
    """Noise that is drawn afresh at each question averages to nothing."""
    case: Case = BETWEEN[name]
    answers = []
    for _ in range(2):
        run = Run(replace(cast(Any, case.mechanism), history=6), SeededNoise(22))
        for tick in range(4):
            run.update(case.as_batch(EVENTS * (3 + tick)))
            run.release()
        answers += [plain(run.between(2, 4).value) for _ in range(3)]
    assert answers == answers[:1] * 6


@pytest.mark.parametrize("name", PLAIN)
def test_a_window_has_the_noise_of_its_two_ends(name: str) -> None:
    """So that it tells nothing beside them: up to the rounding of each, with noise of ten and more."""
    case = CASES[name]
    run = Run(replace(cast(Any, case.mechanism), plan=LOUD, history=6), SeededNoise(22))
    shown = [{"": 0}]
    for tick in range(4):
        run.update(case.as_batch(EVENTS * (80 + tick)))
        value = run.release().value
        shown.append(value.to_dict() if hasattr(value, "to_dict") else {"": value})
    compared = 0
    for start, end in itertools.combinations(range(1, 5), 2):
        value = run.between(start, end).value
        window = value.to_dict() if hasattr(value, "to_dict") else {"": value}
        for label in set(window) & set(shown[start]) & set(shown[end]):
            compared += 1
            assert abs(window[label] - (shown[end][label] - shown[start][label])) <= 1
    assert compared >= 6


@pytest.mark.parametrize("kind", [HaarPlan, TreePlan])
@pytest.mark.parametrize("budget", [{"epsilon": Fraction(4)}, {"rho": Fraction(2)}])
def test_a_value_that_moves_out_of_the_prefix_costs_what_one_unit_may(kind: Any, budget: dict[str, Any]) -> None:
    """Without the user it may be given later, by somebody else: it leaves the prefix and enters the plan behind it."""
    cap = AdaptiveCap(epsilon=Fraction(8), first=2, fourfold=0, levels=3)
    counters = UserDistinct(cap=cap, plan=kind, horizon=6, **budget).counters[0]
    assert counters.sensitivity.moves
    for start, since in ((2, 1), (2, 5), (3, 3)):
        units = cap.caps[start - 1]
        share = cap.weights[start - 1] * next(iter(budget.values()))
        node, plan = counters.prefix(start, units, since), counters.plan(start, units, since)
        assert plan is not None
        if isinstance(node, LaplaceNode):
            assert 1 / node.scale + plan.cost <= share / units
        else:
            assert isinstance(node, GaussianNode)
            assert 1 / node.variance + plan.cost <= 2 * share / units**2


def hockey_sticks(variance: int, most: int) -> Callable[[int, float], float]:
    """The divergence of a shift by one in so many coordinates of discrete Gaussian noise, by convolution."""
    reach = 12 * math.isqrt(variance) + 8
    places = np.arange(-reach, reach + 1)
    one = np.exp(-(places.astype(float) ** 2) / (2 * variance))
    one /= one.sum()
    sums = [np.ones(1)]
    for _ in range(most):
        sums.append(np.convolve(sums[-1], one))

    def divergence(shared: int, epsilon: float) -> float:
        if shared == 0:
            return max(0.0, -math.expm1(epsilon))
        total = np.arange(-shared * reach, shared * reach + 1)
        loss = (2 * total + shared) / (2 * variance)
        return float((sums[shared] * np.maximum(0, -np.expm1(epsilon - loss))).sum())

    return divergence


@pytest.mark.parametrize(
    ("moved", "variance", "tau", "epsilon"),
    [
        (1, 4, 3, 0.5),
        (3, 4, 3, 1.0),
        (6, 9, 4, 0.5),
        (8, 30, 9, 0.2),
        (10, 6, 5, 1.5),
        (12, 50, 14, 0.3),
        (4, 2, 2, 2.0),
    ],
)
def test_a_sparse_histogram_keeps_every_condition_and_not_those_at_the_ends_alone(
    moved: int, variance: int, tau: int, epsilon: float
) -> None:
    divergence = hockey_sticks(variance, moved)
    mass = [math.exp(-z * z / (2 * variance)) for z in range(-400, 401)]
    hidden = math.log1p(-sum(mass[400 + tau :]) / sum(mass))
    worst = []
    for shared in range(moved + 1):
        log_a = (moved - shared) * hidden
        with_keys = -math.expm1(log_a) + math.exp(log_a) * divergence(shared, epsilon - log_a)
        worst.append(max(with_keys, divergence(shared, epsilon + log_a)))
    assert max(worst) * (1 - 1e-9) <= worst_delta(moved, variance, tau, epsilon) <= max(worst) * 1.002


def test_a_sparse_histogram_that_is_worst_between_the_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real divergences are worst at an end; one that has all its size from the first shared key on is not."""
    monkeypatch.setattr(sparse_histogram, "shift_divergence", lambda _variance, shared, _epsilon: 0.05 * (shared > 0))
    moved, variance, tau = 8, 9, 8
    hidden = math.exp(sparse_histogram._log_hidden(variance, tau))
    worst = 1 - hidden ** (moved - 1) * (1 - 0.05)
    assert worst > 1.05 * (1 - hidden**moved)
    assert not sparse_histogram.holds_for_all(moved, variance, tau, 1.0, worst * 0.999)
    assert worst <= worst_delta(moved, variance, tau, 1.0) <= worst * 1.01


class NotedNoise(NoNoise):
    """Notes under which path and key each number is drawn."""

    def __init__(self, noted: list[tuple[Any, ...]], path: tuple[PathPart, ...] = ()) -> None:
        self.noted, self._path = noted, path

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.noted, self._path + path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self.noted += [(*self._path, key.tobytes()) for key in np.atleast_1d(keys)]
        out[:] = 0


@pytest.mark.parametrize("keys", [[["a"], ["b"]], [[], []]])
def test_no_two_shards_share_a_draw(keys: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """One noise over two shards would show the exact difference of their error levels."""
    noted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(private_release, "fresh_noise", lambda: NotedNoise(noted))
    shards = [
        Contents(pl.Series("key", each, dtype=pl.String), np.full(len(each), 40), 0, 40 * len(each), k=4)
        for each in keys
    ]
    release_shards(shards, k=4, epsilon=1, delta=1e-6, ledger="not accounted for")
    assert len(noted) == sum(map(len, keys)) + len(keys)
    assert len(set(noted)) == len(noted)


@pytest.mark.parametrize(("keys", "with_total"), [(1, False), (1, True), (3, False), (3, True)])
def test_a_pure_release_has_noise_for_all_that_a_user_moves(keys: int, with_total: bool) -> None:
    """Reduced counts move by 2 k - 1 together, the number of elements by one more; m elements by m times as much."""
    k = 5
    of = PureHistogram.of_sketch(
        k=k, epsilon=Fraction(3), universe=range(1000), with_total=with_total, max_keys_per_user=keys
    )
    moved = keys * (2 * k if with_total else 2 * k - 1)
    assert of.loss.epsilon == 3 == moved * of.rate
    noted = LawNoise()
    contents = Contents(pl.Series("key", [7]), np.array([900]), 0, 900, k=k, max_keys_per_user=keys)
    of.release(reduce(contents, k=k), noted)
    assert set(noted.scales) == {moved / Fraction(3)}
    assert len(noted.scales) == 1 + with_total


class LawNoise(NoNoise):
    """Notes the scale of every Laplace draw."""

    def __init__(self) -> None:
        self.scales: list[Fraction] = []

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self.scales.append(parameter)
        out[:] = 0


@pytest.mark.parametrize(("charges", "scale", "rho"), [(2, 2, Fraction(1, 50)), (16, 4, Fraction(1, 1000))])
def test_a_race_and_what_is_beside_it_share_one_delta(charges: int, scale: int, rho: Fraction) -> None:
    """At no split of delta in two parts is there less epsilon than what is told, and both parts are used."""
    race, delta = Race(charges=charges, scale=Fraction(scale)), Fraction(1, 10**6)
    told = price([race, Booked(rho)], delta)
    assert told.method == "race plus integer orders"
    splits = [Fraction(part, 240) for part in range(2, 239)]
    best = min(epsilon_of_races([race], delta * part) + epsilon_from_rho(rho, delta * (1 - part)) for part in splits)
    assert best * (1 - 1e-9) <= told.epsilon <= best * 1.02


@pytest.mark.parametrize(("keys", "with_total"), [(1, False), (1, True), (3, False), (3, True)])
def test_trees_of_sketches_pay_for_every_level_and_every_key(keys: int, with_total: bool) -> None:
    """m elements move a node by m^2 (k^2 + k - 1) in squares, one set by k, each at L levels; a total is one more."""
    asked: dict[str, Any] = {
        "horizon": 8,
        "k": 5,
        "rho": Fraction(1),
        "bad": Fraction(1, 100),
        "with_total": with_total,
    }
    levels = 4  # of 8 ticks
    tree = SketchTree.calibrated(**asked, max_keys_per_event=keys)
    booked = tree.guarantee.loss.as_booked()
    assert booked.rho == Fraction(keys**2 * levels * (5**2 + 5 - 1 + with_total)) / (2 * tree.variance) <= 1
    sets = SetTree.calibrated(**asked, max_keys_per_event=keys)
    assert sets.guarantee.loss.as_booked().rho == Fraction((5 + with_total) * levels) / (2 * sets.variance) <= 1
    assert booked.bad == sets.guarantee.loss.as_booked().bad == Fraction(1, 100)
