"""Small rules about users, each by itself: what counts as a unit, where rows of a user go, what noise a law has."""

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from pianissimo.errors import InputError, ParameterError
from pianissimo.labels import Domain
from pianissimo.noise import HaarPlan, KeyedNoise, Noise, Secret, TreePlan
from pianissimo.noise.keyed import secret_key
from pianissimo.noise.laws import gaussian_node, laplace_node
from pianissimo.unit import EvenPeriods
from pianissimo.users import AdaptiveCap, FixedCap, UserDistinct, UserStatistics, UserSum, each_period, user_table
from pianissimo.users.accepted_units import pairs_of
from pianissimo.users.counters import Counters, Law, RunningCounters, Sensitivity
from pianissimo.users.each_period import EachPeriod, OctaveCap, OnePeriod, PeriodStates
from pianissimo.users.heads import SumHead
from pianissimo.users.label_sums_head import LabelSumsHead
from pianissimo.users.user_labels import Appearance, UserLabels
from pianissimo.users.user_table import PairUnits, users_by_shard

NOISE = KeyedNoise(Secret(bytes(range(32))))
BUDGET: dict[str, Any] = {"cap": FixedCap(units=2), "plan": TreePlan, "horizon": 8, "rho": Fraction(1, 2)}


def test_an_event_without_labels_has_no_unit() -> None:
    events = pl.DataFrame({"user": [1, 2, 3], "label": [["a", "a", "b"], [], ["c"]]})
    assert pairs_of(events, None).rows() == [(1, "a"), (1, "b"), (3, "c")]
    assert pairs_of(events, 1).rows() == [(1, "a"), (3, "c")]
    with pytest.raises(InputError, match="labels must not be null"):
        pairs_of(pl.DataFrame({"user": [1], "label": [["a", None]]}), None)


def test_a_missing_value_is_refused_as_a_value() -> None:
    mechanism = UserDistinct(**BUDGET)
    with pytest.raises(InputError, match="values must not be missing"):
        mechanism.gather(mechanism.start(NOISE), pl.DataFrame({"user": ["ann", "bob"], "value": ["x", None]}))


def test_rows_of_users_go_with_them_to_their_shard() -> None:
    chance = np.random.default_rng(7)
    names = chance.integers(0, 2**64, size=(40, 2), dtype=np.uint64)
    counts = chance.integers(1, 5, size=40)
    ends = np.cumsum(counts)
    found = users_by_shard(names, counts, 4)
    assert sorted(user for _, users, _ in found for user in users.tolist()) == list(range(40))
    assert len(found) == 4
    for _, users, rows in found:
        assert rows.tolist() == [row for user in users for row in range(ends[user] - counts[user], ends[user])]


def test_pairs_are_kept_under_a_key_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[Any] = []

    def noted(noise: Noise) -> bytes:
        keys.append(secret_key(noise))
        return secret_key(noise)

    monkeypatch.setattr(user_table, "secret_key", noted)
    PairUnits(NOISE, 1, 8)
    assert keys == [secret_key(NOISE.at("pairs"))]
    assert keys != [secret_key(NOISE)]


def test_pairs_are_restored_with_all_their_ticks_or_refused() -> None:
    none = np.empty(0, dtype=np.uint64)
    for ticks, logs in ((0, 0), (1, 2), (2, 2)):
        PairUnits(NOISE, 1, 8).take_logged([ticks, none], [none] * logs)
    for ticks, logs in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="the logs of all their ticks"):
            PairUnits(NOISE, 1, 8).take_logged([ticks, none], [none] * logs)


def test_a_law_of_no_ticks_has_no_noise_and_a_prefix_alone_its_own() -> None:
    assert Law(None, 0, None).half_width(0.95) == 0
    node, plan = laplace_node(Fraction(7)), TreePlan.calibrated(horizon=8, epsilon=Fraction(1, 2))
    alone = Law(None, 0, node)
    assert Law(plan, 0, node).half_width(0.95) == alone.half_width(0.95) > 0
    assert Law(plan, 3, node).half_width(0.95) > alone.half_width(0.95)
    assert Law(None, 0, gaussian_node(Fraction(49))).half_width(0.95) == 14


@pytest.mark.parametrize("plan", [TreePlan, HaarPlan])
def test_only_units_that_move_pay_for_moves(plan: Any) -> None:
    def counters(**named: Any) -> Counters:
        own = Sensitivity(total=1, squared=1, **named)
        return Counters(
            kind=plan, horizon=8, loss=Fraction(1, 2), is_pure=False, sensitivity=own, weights=(Fraction(1),)
        )

    still, priced = counters(), counters(moves_priced=True)
    assert still.prefix(1, 2, 3) == priced.prefix(1, 2, 3) == gaussian_node(Fraction(4))
    assert counters(moves=True).prefix(1, 2, 3) == gaussian_node(Fraction(8))
    moving = counters(moves=True, moves_priced=True)
    own, node = moving.plan(1, 2, 3), moving.prefix(1, 2, 3)
    assert own is not None
    assert node is not None
    # A unit that leaves the prefix for the plan costs what one may: 1 / 8 a unit, a half over four squared units.
    assert own.cost + 1 / node.variance <= 2 * Fraction(1, 8)


def test_the_shares_of_all_starts_are_at_most_the_whole() -> None:
    own = Sensitivity(total=1, squared=1)
    fields: dict[str, Any] = {"kind": TreePlan, "horizon": 8, "loss": Fraction(1), "is_pure": False, "sensitivity": own}
    Counters(weights=(Fraction(1, 3), Fraction(2, 3)), **fields)
    with pytest.raises(ParameterError, match="sum to at most 1"):
        Counters(weights=(Fraction(1, 3), Fraction(2, 3), Fraction(1, 99)), **fields)


def test_ends_are_whole_numbers_of_coarse_steps() -> None:
    domain = Domain(["a", "b"])
    assert SumHead(name="v", low=-15, high=10, coarse=5).magnitude == 3
    assert LabelSumsHead(name="v", domain=domain, low=-15, high=10, coarse=5).ends == (-3, 2)
    for low, high in ((-14, 10), (-15, 9), (-14, 9)):
        for make in (SumHead, lambda **named: LabelSumsHead(domain=domain, **named)):
            with pytest.raises(ParameterError, match="must be multiples of coarse, got 5"):
                make(name="v", low=low, high=high, coarse=5)


def test_the_least_value_of_the_first_label_is_a_value() -> None:
    head = LabelSumsHead(name="v", domain=Domain(["a", "b"]), low=-4, high=4, coarse=2)
    column = pl.Series([{"key": "a", "value": -4}, {"key": "b", "value": -4}, {"key": "b", "value": 4}, None])
    codes = head.encode(column)
    assert codes.tolist() == [0, 9, 17, -1]
    assert head.rounded(codes, np.zeros(4, dtype=np.uint64)).tolist() == [0, 5, 9, -1]


@pytest.mark.parametrize("means", [False, True])
def test_a_label_has_the_sum_of_its_own_values(means: bool) -> None:
    head = LabelSumsHead(name="v", domain=Domain(["a", "b"]), low=-2, high=3, means=means)
    rows = [{"key": key, "value": value} for key, value in (("a", 3), ("b", -2), ("b", 1), ("x", 9))]
    totals = np.zeros(head.cells, dtype=np.int64)
    head.add(totals, head.encode(pl.Series(rows)), None)
    assert totals.tolist() == ([5, 3, 0, 7] if means else [3, -1])
    head.add(totals, head.encode(pl.Series(rows)), np.array([-1, -1, -1, -1]))
    assert not totals.any()


def statistics_by_period(first_cap: int = 1) -> EachPeriod:
    inner = UserStatistics(cap=FixedCap(units=64), plan=TreePlan, horizon=2, rho=Fraction(1, 2))
    follow = OctaveCap(epsilon=Fraction(1), first=first_cap, levels=6)
    return EachPeriod(inner=inner, periods=EvenPeriods(2), horizon=100, follow=follow)


def test_ticks_that_are_missing_are_those_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    states = PeriodStates(statistics_by_period(), NOISE)
    monkeypatch.setattr(each_period, "missing_of", lambda _: {1, 2})
    monkeypatch.setattr(each_period, "lasting_of", lambda _: {2})
    states.stand_at(5)
    assert (states.missing(), states.lasting()) == ({5, 6}, {6})


def test_a_period_is_restored_from_its_own_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(each_period, "restore", lambda *restored: taken.extend(restored[1:]))
    logs = [{"first": 1, "parts": "earlier"}, {"first": 3, "parts": "own"}, {"segments": "of the tick"}]
    states = PeriodStates(statistics_by_period(), NOISE)
    states.take_logged({"before": None, "open": {"first": 3, "last": 4, "cap": 1, "state": "stored"}}, logs)
    assert taken == ["stored", ["own", {"segments": "of the tick"}]]
    assert (states.open.first, states.open.last) == (3, 4)


def test_noise_is_added_to_the_buckets_that_the_next_cap_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    each = statistics_by_period()
    assert each.follow is not None
    period = OnePeriod(each, NOISE, 1, 1)
    drawn = np.array([0, 0, 0, 500, 0, 0])
    lots = SimpleNamespace(at=lambda _: SimpleNamespace(laplace=lambda _scale, keys: drawn[keys.astype(np.int64)]))
    monkeypatch.setattr(each_period, "sealed", lambda *_: lots)
    assert each._next_cap(period) == 8
    assert each.follow.chosen(-drawn) == 1


def test_limits_of_labels_are_those_that_can_be_told_apart() -> None:
    fields = BUDGET | {"delta": Fraction(1, 10**6)}
    UserLabels(per_label=2**32 - 1, **fields)
    with pytest.raises(ParameterError, match=r"per_label must be below 2\^32"):
        UserLabels(per_label=2**32, **fields)
    for other, said in ((Fraction(-1, 9), "not be negative"), (Fraction(1), "be at least 0 and below 1")):
        with pytest.raises(ParameterError, match=f"other must {said}"):
            UserLabels(other=other, **fields)


def test_a_value_beyond_all_bounds_is_above_the_cap_in_coarse_steps_too() -> None:
    batch = pl.DataFrame({"user": ["ann"], "value": [2**63 - 1]})
    for coarse in (1, 2, 1000):
        mechanism = UserSum(coarse=coarse, **BUDGET)
        assert mechanism.gather(mechanism.start(NOISE), batch)[1].tolist() == [3]


def test_a_series_that_begins_after_a_restart_has_the_noise_that_it_would_have_had() -> None:
    counters = Counters(
        kind=TreePlan,
        horizon=8,
        loss=Fraction(1, 2),
        is_pure=False,
        sensitivity=Sensitivity(total=1, squared=1),
        weights=(Fraction(1, 2), Fraction(1, 2)),
    )
    place, grown = (2, 4, 3), RunningCounters(counters)
    for tick, count in ((3, 2), (4, 2), (5, 6), (6, 9)):
        released = grown.release(np.arange(count), place, tick, NOISE)
        assert released.tolist() == RunningCounters(counters).release(np.arange(9), place, tick, NOISE)[:count].tolist()
    assert len({*(released - np.arange(count)).tolist()}) > 1


def test_a_run_of_one_tick_needs_no_noise_for_a_restart() -> None:
    def made(horizon: int, loss: dict[str, Any]) -> UserStatistics:
        return UserStatistics(cap=AdaptiveCap(epsilon=Fraction(1, 2)), plan=TreePlan, horizon=horizon, **loss)

    losses: list[dict[str, Any]] = [{"rho": Fraction(1, 2**least)} for least in range(20, 80)]
    losses += [{"epsilon": each["rho"]} for each in losses]
    refused: list[list[str]] = [[], []]
    for loss in losses:
        for horizon, found in enumerate(refused, 1):
            try:
                made(horizon, loss)
            except ParameterError:
                found.append(str(loss))
    # The last cap's share is the least, and a prefix under it has the largest noise of all.
    assert {*refused[0]} < {*refused[1]} < {*map(str, losses)}


@pytest.mark.parametrize("delta", [Fraction(1, 10**6), Fraction(3, 10**7), Fraction(1e-9)])
def test_a_threshold_is_that_of_its_formula_at_any_fraction(delta: Fraction) -> None:
    """The card's x_t: of one unit on a label, and of as many as a user may have on it."""
    rule, variance, cap = Appearance(releases=30, delta=delta), Fraction(400), 16
    for most in (1, 3, 16):
        one = math.sqrt(800 * math.log(30 * cap / float(delta))) - (most - 1)
        all_of_them = math.sqrt(800 * math.log(30 * cap / (most * float(delta))))
        assert rule.spread(variance, cap, most) == pytest.approx(max(one, all_of_them), rel=1e-8)
