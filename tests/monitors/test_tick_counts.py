"""Alarms and trends of single events: the noisy counts of one tick, held against every tiny world."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from tests.monitors.tick_worlds import law_of, least_delta

import pianissimo as pp
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked, Guarantee, Mixed, Pure
from pianissimo.mechanism import Run
from pianissimo.monitors import Found, TickCounts, lone_event_threshold, noise_margin, tick_noise
from pianissimo.noise import Noise
from pianissimo.stream import choosing
from pianissimo.stream.live_core import LiveCore
from pianissimo.testing import NoNoise, SeededNoise

HALF = Fraction(1, 2)
REACH = 5
TAIL = 8 * math.exp(-2 * REACH)
"""What draws of scale 1/2 beyond the reach can add to a delta, of at most four of them and a factor e^epsilon."""


def known(**fields: Any) -> TickCounts:
    ready: dict[str, Any] = {"horizon": 2, "scale": HALF, "threshold": 2, "domain": Domain(["a", "b"])}
    return TickCounts(**(ready | fields))


def unknown(**fields: Any) -> TickCounts:
    delta = Fraction(1, 50)
    least = lone_event_threshold(HALF, delta)
    ready: dict[str, Any] = {"horizon": 2, "scale": HALF, "threshold": least, "delta": delta}
    return TickCounts(**(ready | fields))


# The card's numbers


def test_thresholds_and_margins_are_those_of_the_card() -> None:
    assert [lone_event_threshold(Fraction(1), Fraction(1, 10**power)) for power in (9, 6)] == [22, 15]
    assert noise_margin(Fraction(1), 8760, Fraction(1, 20)) == 12
    a = math.exp(-1)
    assert a**21 / (1 + a) <= 1e-9 < a**20 / (1 + a)
    assert math.log(8760 / (0.05 * (1 + a))) == pytest.approx(11.76, abs=0.01)


def test_a_stream_of_alarms_has_the_margin_of_the_card_in_its_plan() -> None:
    alarm = pp.Alarm("hot", where="t > 39")
    (told,) = pp.Stream("s", budget=pp.Budget(1, 0), horizon=8760, queries=[alarm]).plan().to_dict()["queries"]
    assert (told["margin"], told["threshold"], told["guarantee"]["epsilon"]) == (12, {"least": 12, "largest": 12}, 1.0)
    assert told["expected_error"] == {"coverage": 0.95, "typical": 3.0, "largest": 3.0}
    trend = pp.Trending("terms", key="k")
    plan = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=8760, queries=[trend]).plan()
    assert plan.to_dict()["queries"][0]["threshold"] == {"least": 22, "largest": 22}
    assert plan.price.epsilon == 1.0
    assert 9e-10 < plan.price.delta <= 1e-9
    assert "differential privacy with epsilon 1 and delta 1e-09" in str(plan)


@pytest.mark.parametrize("alarms", [1, 2, 5])
def test_alarms_that_one_event_may_match_have_the_noise_of_all(alarms: int) -> None:
    queries = [pp.Alarm(f"a{place}", where=f"t > {place}") for place in range(alarms)]
    plan = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=24, queries=queries).plan()
    assert {each.mechanism.scale for each in plan.queries} == {Fraction(alarms)}
    assert plan.price.epsilon == 1.0


def test_labels_of_an_event_are_paid_for() -> None:
    trend = pp.Trending("tags", key="tags", max_keys_per_event=4)
    (planned,) = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=24, queries=[trend]).plan().queries
    loss = planned.guarantee.loss
    assert isinstance(loss, Mixed)
    assert [planned.mechanism.scale, loss.pure] == [4, 1]
    assert planned.mechanism.delta * 4 == loss.bad <= Fraction(1, 10**6)
    few = known(max_keys_per_event=4).guarantee.loss
    assert isinstance(few, Pure)
    assert few.epsilon == 4  # of a domain of two no event holds more


# Every tiny world

WORLDS: list[tuple[list[Any], int, list[str]]] = [
    # The events of each tick without the one that is hidden; which tick that is in; what it holds; how many draws.
    ([[], []], 1, ["a"]),
    ([[["a"]], [["a"]]], 2, ["a"]),
    ([[["a"], ["a"]], []], 1, ["a"]),
]


def lost(mechanism: TickCounts, draws: int) -> float:
    """The largest logarithm of a ratio of chances over the worlds, where no tail is cut off."""
    found = 0.0
    for ticks, tick, held in WORLDS:
        more = [[*events, held] if place == tick else events for place, events in enumerate(ticks, 1)]
        one, other = (law_of(mechanism, each, draws, 9) for each in (ticks, more))
        shared = [(one[seen], other[seen]) for seen in one if min(one[seen], other.get(seen, 0)) > 1e-6]
        found = max(found, *(abs(math.log(left / right)) for left, right in shared))
    return found


def deltas(mechanism: TickCounts, epsilons: list[float], draws: int, worlds: Any = WORLDS) -> list[float]:
    """The largest delta over the worlds, for each epsilon."""
    pairs = []
    for ticks, tick, held in worlds:
        more = [[*events, held] if place == tick else events for place, events in enumerate(ticks, 1)]
        pairs.append([law_of(mechanism, each, draws, REACH) for each in (ticks, more)])
    return [max(least_delta(one, other, epsilon) for one, other in pairs) for epsilon in epsilons]


TWO_LABELS = [([[["b"]]], 1, ["a", "b"]), ([[["a"], ["a", "b"]]], 1, ["a", "b"])]


def test_listed_keys_are_pure(tell_worst: Any) -> None:
    one = known(domain=Domain(["a"]))
    assert one.guarantee.loss == Pure(epsilon=Fraction(2), distance=one.guarantee.loss.as_booked().distance)
    promised, below = deltas(one, [2.0, 1.8], 2)
    tell_worst("alarms and trends of events, listed keys", lost(one, 2) / 2)
    assert promised <= TAIL
    assert below > 10 * TAIL  # the promise is attained
    promised, below = deltas(known(max_keys_per_event=2), [4.0, 3.5], 2, TWO_LABELS)
    assert promised <= math.exp(4) * TAIL
    assert below > 0.002


def test_unknown_keys_stay_within_their_delta(tell_worst: Any) -> None:
    mechanism = unknown()
    loss = mechanism.guarantee.loss
    assert isinstance(loss, Mixed)
    (worst,) = deltas(mechanism, [float(loss.pure)], 2)
    tell_worst("trends of events, the delta of unknown keys", worst / float(loss.bad))
    assert worst <= float(loss.bad) + TAIL
    assert worst > float(loss.bad) / math.exp(2)  # t is a whole number
    both = unknown(max_keys_per_event=2)
    assert deltas(both, [4.0], 2, [([[]], 1, ["a", "b"]), *TWO_LABELS])[0] <= 2 / 50 + math.exp(4) * TAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class OneNoiseForAllTicks(TickCounts):
    """Mutant: the noise of a tick does not hold its number, so that the next tick has it again."""

    def release(self, state: Any, tick: int, noise: Noise) -> Found:
        return TickCounts.release(self, state, 1, noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseOfOneKey(TickCounts):
    """Mutant: the scale is not multiplied by the number of keys that an event may hold."""

    @property
    def guarantee(self) -> Guarantee:
        return known(domain=self.domain).guarantee


def test_noise_that_is_taken_again_is_caught() -> None:
    parameters = {"horizon": 2, "scale": HALF, "threshold": 2, "domain": Domain(["a"])}
    assert deltas(OneNoiseForAllTicks(**parameters), [2.0], 1)[0] > 0.1  # type: ignore[arg-type]


def test_a_scale_without_the_number_of_keys_is_caught() -> None:
    mutant = NoiseOfOneKey(horizon=2, scale=HALF, threshold=2, domain=Domain(["a", "b"]), max_keys_per_event=2)
    loss = mutant.guarantee.loss
    assert isinstance(loss, Pure)
    assert deltas(mutant, [float(loss.epsilon)], 2, TWO_LABELS)[0] > 0.05


def test_a_threshold_without_one_more_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: t in place of 1 + t, as if a lone key had a count of 0."""
    monkeypatch.setattr("pianissimo.monitors.tick_counts.lone_event_threshold", lambda *_: 1)
    mutant = unknown(threshold=lone_event_threshold(HALF, Fraction(1, 50)) - 1)
    loss = mutant.guarantee.loss
    assert isinstance(loss, Mixed)
    assert deltas(mutant, [float(loss.pure)], 2, WORLDS[:1])[0] > 2 * float(loss.bad)


def test_losses_that_are_not_added_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: tick counts beside a running count, each with the whole budget."""
    queries = [pp.Alarm("hot", where="t > 39"), pp.Count("n", where="t > 1")]
    stream = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=8760, queries=queries)
    plan = stream.plan()
    assert 0.99 < plan.price.epsilon <= 1
    shares, pure = choosing._gaussian_shares, choosing._pure_shares
    monkeypatch.setattr(
        choosing,
        "_gaussian_shares",
        lambda queries, *more: [
            shares([each], *more)[0] if not each.watched else pure([each], more[0])[0] for each in queries
        ],
    )
    monkeypatch.setattr(choosing, "_pure_shares", lambda queries, budget: [pure([each], budget)[0] for each in queries])
    with pytest.raises(ParameterError, match="epsilon must be so small, and delta so large"):
        choosing.make_plan(stream)


def test_a_pure_alarm_beside_gaussian_counts_is_priced_with_both() -> None:
    queries = [pp.Alarm("hot", where="t > 39"), pp.Histogram("codes", key="k")]
    plan = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=8760, queries=queries).plan()
    alarm, codes = (each.guarantee.loss for each in plan.queries)
    assert isinstance(alarm, Pure)
    assert isinstance(codes, Booked)
    assert alarm.epsilon == HALF
    own = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=8760, queries=queries[1:]).plan().queries[0].guarantee.loss
    assert isinstance(own, Booked)
    assert codes.rho < own.rho / 3  # about a quarter: half of epsilon
    assert 0.999 < plan.price.epsilon <= 1
    assert plan.price.method == "pure plus integer orders"


# What is released


def stream(*queries: Any, **fields: Any) -> pp.Stream:
    ready: dict[str, Any] = {"budget": pp.Budget(1, 1e-6), "horizon": 100}
    return pp.Stream("s", queries=queries, **(ready | fields))


def quiet(*queries: Any) -> LiveCore:
    return LiveCore(stream(*queries).plan(), lambda every: NoNoise())


def ticked(core: LiveCore, tick: int, rows: list[dict[str, Any]]) -> dict[str, pl.DataFrame]:
    core.update(core.inputs(rows, tick, drop_bad_rows=False))
    return core.release(tick)


def test_it_rings_whenever_it_is_so_and_remembers_nothing() -> None:
    core = quiet(pp.Alarm("hot", where="t > 39"), pp.Trending("terms", key="k", nulls="label"))
    rows = [{"t": 40, "k": "x"}] * 90 + [{"t": 1, "k": None}] * 80 + [{"t": None, "k": "rare"}]
    for tick in range(1, 9):
        tables = ticked(core, tick, rows)
        assert list(tables) == ["hot", "terms"]
        assert tables["hot"]["estimate"].to_list() == [90]
        assert tables["terms"]["key"].to_list() == ["(null)", "x"]
        assert tables["terms"].columns == ["key", "estimate", "low", "high"]
    assert [table.height for table in ticked(core, 9, []).values()] == [0, 0]
    assert tables["hot"].columns == ["estimate", "low", "high"]


def test_lists_of_labels_count_up_to_their_number() -> None:
    core = quiet(pp.Trending("tags", key="tags", domain=["a", "b", "c"], max_keys_per_event=2, threshold=50))
    table = ticked(core, 1, [{"tags": ["a", "a", "b", "c"]}] * 60)["tags"]
    assert dict(table.select("key", "estimate").iter_rows()) == {"a": 60, "b": 60}


def test_bars_hold_what_is_counted() -> None:
    """Counts far above the threshold, so that the cut does not choose among the noise."""
    core = LiveCore(stream(pp.Alarm("hot", where="t > 39"), horizon=400).plan(), lambda every: SeededNoise(4))
    bars = [ticked(core, tick, [{"t": 40}] * 60)["hot"].row(0, named=True) for tick in range(1, 401)]
    held = sum(bar["low"] <= 60 <= bar["high"] for bar in bars)
    assert held >= 365  # P[|Z| <= 3] is .964 at scale 1: fewer with a chance below 1e-4
    assert len({bar["estimate"] for bar in bars}) > 4


def test_false_alarms_are_as_rare_as_the_plan_says() -> None:
    mechanism = known(horizon=400, domain=Domain(["a"]), scale=Fraction(1), threshold=noise_margin(Fraction(1), 400))
    rang = 0
    for seed in range(4):
        run = Run(mechanism, SeededNoise(seed))
        rang += any(len(run.release().value) for _ in range(400))
    assert rang <= 2  # 4 runs of at most 5 %: more with a chance below 1e-3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (pp.Alarm("a", where="t > 1", alarms_per_user=2), "alarms_per_user of query 'a' must be left out where single"),
        (pp.Trending("a", key="k", max_keys_per_user=2), "max_keys_per_user of query 'a' must be left out"),
        (pp.Trending("a", key="k", threshold=9), "must have a threshold of at least 15, got 9"),
    ],
)
def test_what_is_of_users_is_refused(query: Any, message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        stream(query).plan()


def test_unknown_keys_need_a_delta_and_listed_ones_none() -> None:
    with pytest.raises(pp.ParameterError, match="must have a delta"):
        stream(pp.Trending("a", key="k"), budget=pp.Budget(1, 0)).plan()
    plan = stream(pp.Trending("a", key="k", domain=["x"]), pp.Count("n"), budget=pp.Budget(1, 0)).plan()
    assert plan.price.method == "pure"
    with pytest.raises(pp.ParameterError, match="max_keys_per_event of query 'a' must be left out where users"):
        stream(pp.Trending("a", key="k", max_keys_per_event=2), unit=pp.user("u")).plan()


def test_a_low_threshold_of_listed_keys_is_allowed_and_its_false_alarms_told() -> None:
    told = str(stream(pp.Alarm("hot", where="t > 39", threshold=2)).plan())
    assert "and what no event holds at 0.099 of the ticks" in told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": Fraction(1, 9)}, "delta must be 0 where the domain is known"),
        ({"threshold": 0}, "threshold must be"),
        ({"scale": Fraction(1, 100)}, "scale must be between"),
        ({"domain": None, "delta": Fraction(1, 10**9)}, "threshold must be at least 12 where the domain is unknown"),
    ],
)
def test_parameters_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        known(**change)


def test_a_large_epsilon_takes_the_least_noise_that_can_be_drawn() -> None:
    assert tick_noise(Fraction(100), 1).scale == Fraction(1, 8)
    assert stream(pp.Alarm("hot", where="t > 39"), budget=pp.Budget(9.5, 1e-6)).plan().price.epsilon <= 8


def test_durable_it_goes_on_as_in_memory(tmp_path: Any) -> None:
    asked = stream(pp.Alarm("hot", where="t > 39"), pp.Trending("terms", key="k"), pp.Quantiles("t", value="t"))
    rows = [{"t": 40.0, "k": "x"}] * 900
    with asked.open(tmp_path / "state") as live:
        told = [live.tick(rows)]
    with asked.open(tmp_path / "state") as live:
        assert live.released(1).to_json() == told[0].to_json()
        told += [live.tick(rows) for _ in range(9)]
    for release in told:
        assert release["terms"]["key"].to_list() == ["x"]
        assert abs(release["hot"]["estimate"].item() - 900) < 90
    # Each tick has noise of its own: that ten draws of both are all the same has a chance below 1e-14.
    assert len({(release["hot"]["estimate"].item(), release["terms"]["estimate"].item()) for release in told}) > 1
