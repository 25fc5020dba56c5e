"""Shifting heavy hitters: test vectors, domains, thresholds, states, and what is refused."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.monitors.calibrating import trends
from tests.monitors.noises import GivenBits, uniform
from tests.shared_checks import check_life_cycle, check_resuming, check_splitting, resumed, stored

from pianissimo.errors import InputError, ParameterError
from pianissimo.labels import Domain
from pianissimo.loss.composition import price
from pianissimo.loss.losses import Neighbors, Race, Unit
from pianissimo.mechanism import Run
from pianissimo.monitors import FixedLength, TrendingMonitor, quiet_threshold
from pianissimo.monitors.race_monitor import race_noise
from pianissimo.noise import Noise
from pianissimo.testing import NoNoise, SeededNoise

TEN = Fraction(10)
MEDIAN = race_noise(TEN).median


def frame(rows: list[tuple[Any, str]]) -> pl.DataFrame:
    return pl.DataFrame(
        {"user": [user for user, _ in rows], "key": pl.Series([key for _, key in rows], dtype=pl.String)},
        schema_overrides=None if rows else {"user": pl.Int64},
    )


def holders(users: range, key: str) -> list[tuple[int, str]]:
    return [(user, key) for user in users]


def known(**fields: Any) -> TrendingMonitor:
    ready: dict[str, Any] = {
        "horizon": 6,
        "alarms_per_user": 1,
        "scale": TEN,
        "threshold": 50,
        "domain": Domain(["x", "z"]),
    }
    return TrendingMonitor(**(ready | fields))


CASES = {
    "known": known(
        alarms_per_user=2, max_keys_per_user=2, threshold=5, scale=Fraction(1), domain=Domain(list("abcde"))
    ),
    "huge": known(threshold=30, scale=Fraction(1), domain=FixedLength("abcde", 1), max_keys_per_user=2),
    "unknown": known(
        scale=Fraction(1, 4),
        threshold=8,
        domain=None,
        delta_skip=Fraction(1, 10**6),
        max_keys_per_user=3,
        alarms_per_user=3,
    ),
}
every_case = pytest.mark.parametrize("trending", CASES.values(), ids=CASES)


def test_vector_of_the_card() -> None:
    noise = GivenBits({("test", 1): uniform(1.0), ("test", 2): uniform(1.0)})
    run = Run(known(), noise)
    run.update(frame(holders(range(60), "x")))
    # E = 1 makes y = 60; an estimate is y less the median of the noise. z has E = 1 too: y = 0.
    assert run.release().value.to_dict() == {"x": 60 - MEDIAN}
    run.update(frame(holders(range(105), "z")))
    assert run.release().value.to_dict() == {}


@pytest.mark.parametrize("threshold", ["formula", "forty"])
def test_lone_holders_are_reported_as_rarely_as_the_card_says(threshold: str) -> None:
    skip, ticks, b = Fraction(18, 10**8), 1000, TEN
    least = math.ceil(1 + 10 * math.log(ticks / skip))
    assert known(horizon=ticks, threshold=least, domain=None, delta_skip=skip).threshold == least
    limit = least if threshold == "formula" else 40
    any_report = 1 - (1 - race_noise(b).chance(limit - 1)) ** ticks
    expected = 1.8e-7 if threshold == "formula" else 1.0
    assert float(any_report) == pytest.approx(expected, rel=0.1)


def test_without_noise_the_keys_above_the_threshold_are_found() -> None:
    rows = [*holders(range(80), "x"), *holders(range(80, 120), "y"), *holders(range(120, 190), "z")]
    run = Run(known(threshold=50, domain=Domain(["x", "y", "z"])), NoNoise())
    run.update(frame(rows))
    assert run.release().value.to_dict() == {"x": 80, "z": 70}


def test_users_are_charged_for_life_and_new_ones_are_not() -> None:
    run = Run(known(alarms_per_user=2), NoNoise())
    found = []
    for start in (0, 0, 0, 40, 200):
        run.update(frame(holders(range(start, start + 100), "x")))
        found.append(run.release().value.to_dict().get("x"))
    # Users 0 to 99 were charged twice; of 40 to 139 only 40 are left, too few.
    assert found == [100, 100, None, None, 100]


def test_holders_of_what_is_not_reported_are_not_charged() -> None:
    run = Run(known(), NoNoise())
    for _ in range(4):
        run.update(frame(holders(range(40), "x")))
        assert len(run.release().value) == 0
    run.update(frame(holders(range(90), "x")))
    assert run.release().value.to_dict() == {"x": 90}


def test_a_user_counts_with_her_first_keys_of_the_tick() -> None:
    rows = [(user, key) for user in range(70) for key in ("a", "a", "b", "c")]
    run = Run(known(max_keys_per_user=2, domain=Domain(list("abc"))), NoNoise())
    run.update(frame(rows))
    assert run.release().value.to_dict() == {"a": 70, "b": 70}


def test_a_user_is_charged_for_each_key_that_is_reported() -> None:
    run = Run(known(max_keys_per_user=2, alarms_per_user=2), NoNoise())
    run.update(frame([*holders(range(70), "x"), *holders(range(70), "z")]))
    assert run.release().value.to_dict() == {"x": 70, "z": 70}
    run.update(frame(holders(range(70), "x")))
    assert run.release().value.to_dict() == {}


def test_keys_outside_a_domain_take_no_place() -> None:
    for domain in (Domain(["x", "z"]), FixedLength("xz", 1)):
        threshold = 50 if isinstance(domain, Domain) else 60
        run = Run(known(domain=domain, threshold=threshold), NoNoise())
        run.update(frame([(user, key) for user in range(90) for key in ("elsewhere", "x")]))
        assert run.release().value.to_dict()["x"] == 90


def test_reports_are_in_the_order_of_their_bytes_whatever_the_order_of_events() -> None:
    trending = known(scale=Fraction(1, 4), threshold=6, domain=None, delta_skip=Fraction(1, 100), horizon=2)
    rows = [(10 * place + user, key) for place, key in enumerate(["ä", "b", "a", "Z", "aa"]) for user in range(10)]
    found = []
    for order in (rows, rows[::-1], sorted(rows, key=lambda each: hash(each[1]))):
        run = Run(trending, NoNoise())
        run.update(frame(order))
        found.append(run.release().value.labels.to_list())
    assert found == [["Z", "a", "aa", "b", "ä"]] * 3


def test_numbers_and_texts_as_users_give_the_same_reports() -> None:
    found = []
    for cast in (pl.Int64, pl.Int32, pl.String, pl.Categorical):
        run = Run(known(), NoNoise())
        batch = frame(holders(range(70), "x"))
        users = batch["user"].cast(pl.String).cast(cast) if cast == pl.Categorical else batch["user"].cast(cast)
        run.update(batch.with_columns(users))
        found.append(run.release().value.to_dict())
    assert found == [{"x": 70}] * 4


@every_case
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_batches_split_anyhow_count_the_same(trending: TrendingMonitor, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abcdef")), max_size=60))
    check_splitting(trending, frame(rows), data.draw(st.lists(st.integers(0, 60), max_size=3)))  # type: ignore[arg-type]


@every_case
@pytest.mark.parametrize("stop", range(4))
def test_saving_and_resuming_change_nothing(trending: TrendingMonitor, stop: int) -> None:
    generator = np.random.default_rng(5)
    ticks = [frame([(int(user), "abcde"[user % 5]) for user in generator.integers(0, 60, 150)]) for _ in range(4)]
    check_resuming(trending, ticks, stop)


@every_case
def test_a_run_saved_in_the_middle_of_a_tick_goes_on(trending: TrendingMonitor) -> None:
    first, second = frame(holders(range(60), "a")), frame([*holders(range(30, 90), "b"), *holders(range(9), "a")])
    straight, broken = Run(trending, SeededNoise(1)), Run(trending, SeededNoise(1))
    for run in (straight, broken):
        run.update(first)
    after = resumed(trending, SeededNoise(1), stored(broken))
    for run in (straight, after):
        run.update(second)
    assert straight.release().value.to_dict() == after.release().value.to_dict()


@every_case
def test_the_life_cycle_is_that_of_every_mechanism(trending: TrendingMonitor) -> None:
    check_life_cycle(trending, frame(holders(range(40), "a")))  # type: ignore[arg-type]


def test_every_key_has_noise_of_its_own_at_every_tick() -> None:
    keys = [f"{place:03}" for place in range(300)]
    run = Run(known(threshold=0, scale=Fraction(20), domain=Domain(keys), horizon=2), SeededNoise(1))
    first, second = (run.release().value.to_dict() for _ in range(2))
    both = [(first.get(key, -99), second.get(key, -99)) for key in keys]
    assert abs(stats.spearmanr(both).statistic) < 0.3
    assert len({one for one, _ in both}) > 50


def test_known_keys_are_reported_as_often_as_the_law_says() -> None:
    # Weights 0 and 1; exact binomial tails, rate 1e-9 each. A scale 10% off must fail.
    count, scale, threshold = 60_000, Fraction(4), 6
    domain = Domain([f"{place:05}" for place in range(count)])
    run = Run(known(horizon=1, domain=domain, scale=scale, threshold=threshold), SeededNoise(4))
    run.update(frame([(place, f"{place:05}") for place in range(count // 2)]))
    found = run.release().value.labels.cast(pl.Int64).to_numpy()
    for weight, times in ((1, int((found < count // 2).sum())), (0, int((found >= count // 2).sum()))):
        chance = float(race_noise(scale).chance(threshold - weight))
        assert stats.binomtest(times, count // 2, chance).pvalue > 1e-9
        off = float(race_noise(scale * 11 / 10).chance(threshold - weight))
        assert stats.binomtest(times, count // 2, off).pvalue < 1e-9


def test_in_a_huge_domain_empty_keys_have_the_law_of_a_known_domain() -> None:
    # 676 keys, of which 3 have holders: the number of reports and their values, over many ticks, against exact laws.
    domain, scale, threshold, ticks = FixedLength("abcdefghijklmnopqrstuvwxyz", 2), Fraction(4), 18, 1500
    trending = known(horizon=ticks, domain=domain, scale=scale, threshold=threshold, alarms_per_user=30_000)
    run = Run(trending, SeededNoise(6))
    law, median = race_noise(scale), race_noise(scale).median
    numbers, keys, values = list[int](), Counter[str](), list[int]()
    for _ in range(ticks):
        run.update(frame([(1, "ab"), (2, "cd"), (3, "ef")]))
        found = run.release().value.to_dict()
        empty = {key: value + median for key, value in found.items() if key not in ("ab", "cd", "ef")}
        numbers.append(len(empty))
        keys.update(empty.keys())
        values += empty.values()
    chance = float(law.chance(threshold))
    assert stats.binomtest(sum(numbers), 673 * ticks, chance).pvalue > 1e-9
    assert stats.binomtest(sum(numbers), 673 * ticks, float(law.chance(threshold - 1))).pvalue < 1e-9
    expected = np.append(stats.binom.pmf(np.arange(15), 673, chance), stats.binom.sf(14, 673, chance)) * ticks
    observed = np.bincount(np.minimum(numbers, 15), minlength=16)
    assert stats.chisquare(observed, expected).pvalue > 1e-9
    spread = np.array([keys[domain.label(place)] for place in range(676)])
    assert spread[[domain_number(key) for key in ("ab", "cd", "ef")]].sum() == 0
    rest = np.delete(spread, [domain_number(key) for key in ("ab", "cd", "ef")])
    assert stats.chisquare(rest).pvalue > 1e-9
    edges = [threshold, 19, 20, 22, 24, 28, 34, 10**6]
    tails = np.array([float(law.chance(edge)) for edge in edges])
    shares = -np.diff(tails) / tails[0]
    assert stats.chisquare(np.histogram(values, edges)[0], shares * len(values)).pvalue > 1e-9


def domain_number(key: str) -> int:
    return (ord(key[0]) - 97) * 26 + ord(key[1]) - 97


def test_keys_of_exhausted_users_belong_to_the_empty_ones() -> None:
    domain = FixedLength("ab", 1)
    run = Run(known(domain=domain, scale=Fraction(1), threshold=3, horizon=300), SeededNoise(2))
    run.update(frame(holders(range(50), "a")))
    assert "a" in run.release().value.to_dict()
    found = Counter[str]()
    for _ in range(299):
        run.update(frame(holders(range(50), "a")))
        found.update(run.release().value.labels.to_list())
    # Both keys have weight 0 now, and are reported about equally often: 299 * 0.0486 = 14.5.
    assert 2 <= found["a"] <= 40
    assert 2 <= found["b"] <= 40


def test_where_most_keys_are_held_the_empty_ones_are_still_alike() -> None:
    # Of 10 keys 8 are held; threshold 1 reports each of the others about every other tick. Exact tails, rate 1e-9.
    ticks, scale = 400, Fraction(2)
    trending = known(
        horizon=ticks, domain=FixedLength("abcdefghij", 1), scale=scale, threshold=1, alarms_per_user=30_000
    )
    run, found = Run(trending, SeededNoise(8)), Counter[str]()
    for _ in range(ticks):
        run.update(frame(list(enumerate("abcdefgh"))))
        found.update(run.release().value.labels.to_list())
    chance = float(race_noise(scale).chance(1))
    assert stats.binomtest(found["i"], ticks, chance).pvalue > 1e-9
    assert stats.binomtest(found["j"], ticks, chance).pvalue > 1e-9
    assert stats.binomtest(found["a"], ticks, float(race_noise(scale).chance(0))).pvalue > 1e-9


def test_the_guarantee_counts_overshoot_bad_mass_and_distance() -> None:
    trending = known(domain=None, threshold=190, delta_skip=Fraction(1, 10**6), max_keys_per_user=3, alarms_per_user=4)
    promise = trending.guarantee
    assert isinstance(promise.loss, Race)
    assert (promise.loss.charges, promise.loss.scale, promise.loss.bad) == (6, TEN, Fraction(1, 10**6))
    assert (promise.unit, promise.neighbors) == (Unit.USER, Neighbors.ADD_OR_REMOVE)
    assert promise.loss.distance == Fraction(6 * 3, 2**110)
    replaced = known(
        domain=None,
        threshold=190,
        delta_skip=Fraction(1, 10**6),
        max_keys_per_user=3,
        alarms_per_user=4,
        replacement=True,
    ).guarantee
    assert isinstance(replaced.loss, Race)
    assert (replaced.loss.bad, replaced.neighbors) == (Fraction(2, 10**6), Neighbors.REPLACE)


@pytest.mark.parametrize("domain", [None, ["x", "z"], FixedLength("abcdefgh", 30)])
@pytest.mark.parametrize("within", [None, 1])
@pytest.mark.parametrize(("k", "s"), [(1, 1), (4, 3)])
def test_a_calibrated_monitor_is_within_its_budget(domain: Any, within: int | None, k: int, s: int) -> None:
    numbered = isinstance(domain, FixedLength)
    asked = {"alarms_per_user": k, "max_keys_per_user": s, "domain": ["x"] if numbered else domain}
    trending = trends(horizon=1000, within=within, **asked)
    assert (trending.replacement, trending.period) == (False, within)
    if numbered:
        trending = replace(trending, domain=domain, threshold=quiet_threshold(trending.scale, 1000 * domain.size))
    priced = price([trending.guarantee.loss], 1e-6)
    assert 0.99 < priced.epsilon <= 1
    assert Run(trending, NoNoise()).release().value.to_dict() == {}


def test_a_calibrated_monitor_of_an_unknown_domain_has_the_scale_of_the_table() -> None:
    for k, b in ((1, 11.56), (4, 15.71), (16, 24.20)):
        trending = trends(horizon=1000, alarms_per_user=k)
        assert float(trending.scale) == pytest.approx(b, rel=1e-3)


def test_detectable_weights_are_those_of_the_table() -> None:
    trending = trends(horizon=10**6, alarms_per_user=1, domain=[str(place) for place in range(1000)])
    assert abs(trending.threshold - 267) <= 1
    assert abs(trending.detectable() - 302) <= 2
    assert trending.detectable(ticks=10) < trending.detectable()
    with pytest.raises(ParameterError, match="candidates"):
        known(domain=None, threshold=200, delta_skip=Fraction(1, 100)).detectable()


def test_a_threshold_below_the_minimum_is_refused_and_the_minimum_is_named() -> None:
    with pytest.raises(ParameterError, match="at least 174 where the domain is unknown, got 173"):
        known(domain=None, threshold=173, delta_skip=Fraction(2, 10**7), horizon=6, scale=TEN)
    assert known(domain=None, threshold=174, delta_skip=Fraction(2, 10**7), horizon=6, scale=TEN).threshold == 174
    with pytest.raises(ParameterError, match="threshold of at least 249, got 100"):
        trends(horizon=1000, alarms_per_user=1, threshold=100)
    with pytest.raises(ParameterError, match="at least about"):
        known(domain=FixedLength("ab", 40), threshold=50)


@pytest.mark.parametrize(
    "fields",
    [
        {"horizon": 0},
        {"alarms_per_user": 0},
        {"max_keys_per_user": 0},
        {"scale": 10.0},
        {"scale": Fraction(0)},
        {"scale": Fraction(3000)},
        {"threshold": None},
        {"threshold": 1.5},
        {"delta_skip": Fraction(1, 2)},
        {"domain": None},
        {"domain": None, "delta_skip": 1e-6},
        {"alarms_per_user": 2**15},
    ],
)
def test_what_cannot_be_a_monitor_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        known(**fields)


@pytest.mark.parametrize(
    "batch",
    [
        pl.DataFrame({"user": [1]}),
        pl.DataFrame({"user": [1], "key": [2]}),
        pl.DataFrame({"user": [1], "key": pl.Series([None], dtype=pl.String)}),
        pl.DataFrame({"user": pl.Series([None], dtype=pl.Int64), "key": ["x"]}),
        pl.DataFrame({"user": [1.5], "key": ["x"]}),
        pl.DataFrame({"user": [1], "key": ["x" * 257]}),
    ],
)
def test_a_batch_that_cannot_be_counted_is_refused_and_nothing_of_it_counts(batch: pl.DataFrame) -> None:
    run = Run(known(), NoNoise())
    run.update(frame(holders(range(60), "x")))
    with pytest.raises(InputError) as caught:
        run.update(batch)
    assert "x" * 257 not in str(caught.value)
    assert run.release().value.to_dict() == {"x": 60}


@pytest.mark.parametrize(
    "make", [lambda: FixedLength("", 1), lambda: FixedLength("aa", 2), lambda: FixedLength("ab", 129)]
)
def test_alphabets_that_cannot_be_are_refused(make: Callable[[], FixedLength]) -> None:
    with pytest.raises(ParameterError):
        make()


def test_an_alphabet_may_have_characters_that_patterns_use() -> None:
    domain = FixedLength("^]-\\é.", 2)
    labels = [domain.label(number) for number in range(domain.size)]
    assert len(set(labels)) == 36
    assert domain.contains(pl.Series(labels)).all()
    assert not domain.contains(pl.Series(["ab", "^", "^]]", "^]\n", ""])).any()


def test_states_and_runs_show_no_data() -> None:
    run = Run(known(), NoNoise())
    run.update(frame([(123456789, "x")]))
    assert "123456789" not in repr(run)
    assert "123456789" not in repr(run._state)


def test_noise_protocol_is_all_that_is_asked() -> None:
    noise: Noise = NoNoise()
    assert Run(known(), noise).release().value.to_dict() == {}
