"""Sums, top lists, intervals, schedules, the rest, tidy estimates, open horizons and pure budgets, in whole streams."""

import io
import pickle
from collections import deque
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

import pianissimo as pp
from pianissimo.mechanism import Run
from pianissimo.stream import Live
from pianissimo.testing import NoNoise, SeededNoise

DRUGS = ["aspirin"] * 300 + ["ibuprofen"] * 200 + ["rare"]
BATCH = pl.DataFrame({"drug": DRUGS, "price": [2.5] * 300 + [-1.26] * 200 + [1e9]})


def stream(*queries: Any, **changes: Any) -> pp.Stream:
    parameters: dict[str, Any] = {"budget": pp.Budget(epsilon=4.0, delta=1e-6), "horizon": 8, "queries": queries}
    return pp.Stream("pharmacy", **{**parameters, **changes})


def quiet(*queries: Any, **changes: Any) -> Live:
    return Live(stream(*queries, **changes).plan(), NoNoise())


def estimates(table: pl.DataFrame) -> dict[str | None, int]:
    return dict(zip(table["key"].to_list(), table["estimate"].to_list(), strict=True))


def test_a_sum_is_rounded_to_its_grid_and_clipped_to_its_range() -> None:
    live = quiet(pp.Sum("revenue", value="price", range=(-5, 10), grid=0.1))
    table = live.tick(BATCH)["revenue"]
    assert table["estimate"].item() == pytest.approx(300 * 2.5 - 200 * 1.3 + 10)
    half = live.plan.queries[0].mechanism.error(1, 0.95) * 0.1
    assert table["high"].item() - table["estimate"].item() == pytest.approx(half)
    assert table.schema == {"estimate": pl.Float64, "low": pl.Float64, "high": pl.Float64}


def test_a_sum_costs_by_its_largest_step() -> None:
    wide = stream(pp.Sum("s", value="price", range=(-500, 100))).plan().queries[0]
    narrow = stream(pp.Sum("s", value="price", range=(0, 1))).plan().queries[0]
    assert wide.expected_error.typical == pytest.approx(500 * narrow.expected_error.typical, rel=0.01)
    assert wide.guarantee.loss.as_booked().rho <= narrow.guarantee.loss.as_booked().rho * Fraction(101, 100)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "2.5", True, [1]])
def test_values_that_are_no_numbers_are_refused_alone(value: object) -> None:
    query = pp.Sum("revenue", value="price", range=(0, 10), nulls="refuse")
    rows = [{"price": 2}, {"price": value}, {"price": 3}]
    with pytest.raises(pp.InputError, match="column 'price' must hold finite numbers"):
        quiet(query).tick(rows)
    assert quiet(query).tick(rows, drop_bad_rows=True)["revenue"]["estimate"].item() == 5


def test_a_top_list_is_ordered_by_its_estimates() -> None:
    live = quiet(
        pp.TopK("known", key="drug", k=2, domain=["aspirin", "ibuprofen", "rare", "never"]),
        pp.TopK("unknown", key="drug", k=1),
    )
    release = live.tick(BATCH)
    assert estimates(release["known"]) == {"aspirin": 300, "ibuprofen": 200}
    assert release["known"]["key"].to_list() == ["aspirin", "ibuprofen"]
    assert estimates(release["unknown"]) == {"aspirin": 300}


def test_a_top_list_takes_events_with_any_number_of_labels() -> None:
    domain = [f"label {number}" for number in range(40)]
    events = [{"drug": domain[:30]}] * 4000 + [{"drug": domain[10:12]}] * 4000
    known = stream(pp.TopK("top", key="drug", k=2, domain=domain, max_keys_per_event=None))
    unknown = stream(pp.TopK("top", key="drug", k=2, max_keys_per_event=None))
    for some in (known, unknown):
        release = some.start().tick(events)
        assert sorted(release["top"]["key"].to_list()) == ["label 10", "label 11"]
    names = {each.name for each in known.plan().queries[0].alternatives} | {known.plan().queries[0].chosen.name}
    assert {"MetaTopList of KnownGumb", "SparseGumbel"} < names
    assert unknown.plan().queries[0].chosen.name == "MetaTopList of UnkGumb"
    assert "biased low" in unknown.plan().queries[0].chosen.note


def test_intervals_leave_out_what_cannot_tell_them() -> None:
    live = quiet(pp.Count("c"), pp.TopK("top", key="drug", k=1, max_keys_per_event=None))
    live.tick(pl.DataFrame({"drug": [["a", "b"]] * 900}))
    assert tuple(live.window(1)) == ("c",)


def test_intervals_are_what_their_ticks_added() -> None:
    queries = (
        pp.Count("purchases"),
        pp.Sum("revenue", value="price", range=(-5, 10), grid=0.1),
        pp.Histogram("drugs", key="drug"),
        pp.Histogram("known", key="drug", domain=["aspirin", "never"]),
        pp.TopK("top", key="drug", k=1, domain=["aspirin", "ibuprofen"]),
    )
    live = quiet(*queries, tick="15m")
    for _ in range(3):
        release = live.tick(BATCH)
    release = live.tick(BATCH.head(10))
    hour = live.window("30m")
    assert hour["purchases"]["estimate"].item() == len(DRUGS) + 10
    assert estimates(hour["drugs"]) == {"aspirin": 310, "ibuprofen": 200}
    assert estimates(hour["known"]) == {"aspirin": 310, "never": 0}
    assert estimates(release.between(3, 4)["top"]) == {"aspirin": 10}
    assert estimates(release.between(0, 4)["known"]) == {"aspirin": 910, "never": 0}
    assert release.between(3, 4)["revenue"]["estimate"].item() == pytest.approx(25)


def test_intervals_of_a_label_reach_back_before_it_was_shown() -> None:
    live = quiet(pp.Histogram("drugs", key="drug"))
    live.tick(pl.DataFrame({"drug": ["late"] * 5}))
    assert len(live.tick(None)["drugs"]) == 0
    release = live.tick(pl.DataFrame({"drug": ["late"] * 500}))
    assert estimates(release.between(0, 2)["drugs"]) == {"late": 5}


@pytest.mark.usefixtures("repeated")
def test_intervals_have_their_own_error_bars_that_cover() -> None:
    """false_alarm_rate: 500 labels, nominal 0.95; fewer than 425 held has a binomial chance of 1e-17."""
    domain = [f"label {number:03d}" for number in range(500)]
    some = stream(pp.Histogram("h", key="k", domain=domain), horizon=64, budget=pp.Budget(0.3, 1e-9))
    live = Live(some.plan(), SeededNoise(3))
    for _ in range(64):
        release = live.tick(None)
    widths = {}
    for start, end in ((63, 64), (40, 64), (31, 33), (0, 17)):
        table = release.between(start, end)["h"]
        assert int(((table["low"] <= 0) & (table["high"] >= 0)).sum()) >= 425
        widths[start, end] = int(table["high"][0] - table["estimate"][0])
    independent = 2**0.5 * (release["h"]["high"][0] - release["h"]["estimate"][0])
    assert widths[63, 64] < 0.8 * independent, "neighboring ticks share noise"


@pytest.mark.parametrize(
    ("interval", "message"),
    [((2, 2), "must lie within the 3 released ticks"), ((0, 4), "must lie within"), ((-1, 2), "must lie within")],
)
def test_impossible_intervals_are_refused(interval: tuple[int, int], message: str) -> None:
    live = quiet(pp.Count("c"))
    for _ in range(3):
        release = live.tick(None)
    with pytest.raises(pp.ParameterError, match=message):
        release.between(*interval)
    with pytest.raises(pp.ParameterError, match="no tick length"):
        live.window("1h")


def test_a_schedule_publishes_at_its_ticks_with_less_noise() -> None:
    live = quiet(pp.Count("each"), pp.Histogram("hourly", key="drug", every=4), horizon=10)
    names = [tuple(live.tick(BATCH)) for _ in range(10)]
    assert names == [("each", "hourly") if tick in (4, 8) else ("each",) for tick in range(1, 11)]
    assert live.plan.queries[1].guarantee.horizon == 2
    often = stream(pp.Histogram("h", key="drug"), horizon=1440).plan().queries[0]
    seldom = stream(pp.Histogram("h", key="drug", every=60), horizon=1440).plan().queries[0]
    assert seldom.expected_error.typical < 0.8 * often.expected_error.typical
    assert often.thresholds is not None
    assert seldom.thresholds is not None
    assert seldom.thresholds[1] < 0.8 * often.thresholds[1]


def test_a_schedule_counts_all_ticks_up_to_its_releases() -> None:
    live = quiet(pp.Histogram("hourly", key="drug", every=2, domain=["aspirin"]))
    live.tick(BATCH)
    release = live.tick(BATCH)
    assert estimates(release["hourly"]) == {"aspirin": 600}
    with pytest.raises(pp.ParameterError, match="must begin and end at ticks where a query is published"):
        release.between(1, 2)


def test_the_rest_is_a_separate_total_less_what_is_shown() -> None:
    live = quiet(pp.Histogram("drugs", key="drug", other=True))
    table = live.tick(BATCH)["drugs"]
    assert estimates(table) == {"aspirin": 300, "ibuprofen": 200, None: 1}
    rest = table.filter(pl.col("key").is_null())
    assert rest["high"].item() - rest["estimate"].item() > table["high"][0] - table["estimate"][0]


def test_the_rest_does_not_tell_whether_hidden_labels_are_there() -> None:
    """With one tape of noise, the rest differs between neighbors by the one event alone, shown labels or not."""

    def rests(batch: pl.DataFrame) -> int:
        plan = stream(pp.Histogram("drugs", key="drug", other=True)).plan()
        run = Run(plan.queries[0].mechanism, SeededNoise(9))
        run.update(batch["drug"])
        rest = run.release().value.rest
        assert rest is not None
        return int(rest.estimate)

    alone = BATCH.filter(pl.col("drug") != "rare")
    assert rests(BATCH) - rests(alone) == 1


def test_a_constant_threshold_is_one_number() -> None:
    plan = stream(pp.Histogram("h", key="drug", constant_threshold=True), horizon=1440).plan().queries[0]
    assert plan.thresholds is not None
    assert plan.thresholds[0] == plan.thresholds[1]
    changing = stream(pp.Histogram("h", key="drug"), horizon=1440).plan().queries[0].thresholds
    assert changing is not None
    assert changing[0] < plan.thresholds[0] <= changing[1]


@pytest.mark.usefixtures("repeated")
def test_tidy_estimates_stand_beside_the_raw_ones() -> None:
    some = stream(
        pp.Histogram("h", key="drug", domain=["aspirin", "never"], tidy=["non_negative", "monotone"]),
        pp.TopK("t", key="drug", k=2, domain=["aspirin", "never"], tidy="ranked"),
        budget=pp.Budget(0.1, 1e-9),
    )
    live = Live(some.plan(), SeededNoise(4))
    before, changed = [0, 0], 0
    for _ in range(8):
        release = live.tick(None)
        tidy = release["h"]["tidy"].to_list()
        changed += release["h"]["estimate"].to_list() != tidy
        assert all(new >= old >= 0 for new, old in zip(tidy, before, strict=True))
        before = tidy
        assert release["h"].columns == ["key", "estimate", "low", "high", "tidy"]
        ranked = release["t"]["tidy"].to_list()
        assert ranked == sorted(ranked, reverse=True)
    assert changed


def test_an_open_horizon_has_no_end_in_sight() -> None:
    plan = stream(pp.Count("c"), pp.Histogram("h", key="drug"), horizon=None).plan()
    assert plan.horizon == 2**32
    assert plan.queries[0].chosen.name == "Counter over open haar"
    assert plan.queries[0].expected_error.typical < 2 * (
        stream(pp.Count("c"), pp.Histogram("h", key="drug"), horizon=2**20).plan().queries[0].expected_error.typical
    )
    live = quiet(pp.Count("c"), pp.Histogram("h", key="drug"), horizon=None)
    assert live.tick(BATCH)["c"]["estimate"].item() == len(DRUGS)


def test_a_pure_budget_has_laplace_noise_and_no_unknown_labels() -> None:
    plan = stream(pp.Count("c"), pp.Histogram("h", key="drug", domain=["a"]), budget=pp.Budget(1.0, 0)).plan()
    assert all(query.chosen.pure for query in plan.queries)
    assert plan.price.method == "pure"
    assert plan.price.epsilon <= 1.0
    assert 0 < plan.price.delta < 1e-20, "the distance of the drawn noise is told"
    with pytest.raises(pp.ParameterError, match="unknown labels must have a delta"):
        stream(pp.Histogram("h", key="drug"), budget=pp.Budget(1.0, 0)).plan()


def test_the_planner_takes_laplace_noise_where_it_is_better() -> None:
    """One count: pure epsilon wins for short horizons, Gaussian noise for long ones."""
    short = stream(pp.Count("c"), horizon=64, budget=pp.Budget(1.0, 1e-9)).plan()
    long = stream(pp.Count("c"), horizon=2**24, budget=pp.Budget(1.0, 1e-6)).plan()
    assert short.queries[0].chosen.pure
    assert not long.queries[0].chosen.pure
    assert any(not other.pure for other in short.queries[0].alternatives)
    assert any(other.pure for other in long.queries[0].alternatives)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pp.Sum("s", value="v", range=(1, 1)), "range must begin below its end"),
        (lambda: pp.Sum("s", value="v", range=(0, 1.05), grid=0.1), "multiples of the grid"),
        (lambda: pp.Sum("s", value="v", range=(0, float("inf"))), "two finite numbers"),
        (lambda: pp.Sum("s", value="v", range=(0, 1), grid=0), "grid must be finite and positive"),
        (lambda: pp.Sum("s", value="v", range=(0, 1e15), grid=0.001), r"at most 2\^40 steps"),
        (lambda: pp.TopK("t", key="k", k=3, domain=["a", "b"]), "k must be at most the 2 labels of the domain, got 3"),
        (lambda: pp.TopK("t", key="k", k=0), "k must be a whole number of at least 1"),
        (lambda: pp.Count("c", every=0), "every must be a whole number of at least 1"),
        (lambda: pp.Count("c", tidy="smooth"), "tidy must be of non_negative, monotone, ranked"),
        (lambda: pp.Count("c", tidy="ranked"), "tidy must be non_negative or monotone for a count"),
        (lambda: pp.TopK("t", key="k", k=1, tidy=["ranked", "monotone"]), "ranked or monotone for a top list"),
        (lambda: pp.Sum("s", value="v", range=(0, 1), grid=10**400), r"grid must be at most 2\^63 - 1 in size"),
        (lambda: pp.Count("c", weight=1e99), "weight must be between 1e-6 and 1e6"),
        (lambda: pp.Histogram("h", key="k", domain=["a"], other=True), "must stay off where the domain is known"),
    ],
)
def test_impossible_queries_are_refused(make: Any, message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        make()


def test_one_event_never_changes_what_another_counts_as() -> None:
    """Rows of Python values are judged one by one: a text beside numbers does not turn truths into texts."""
    live = quiet(pp.Histogram("h", key="a", domain=["1", "7", "true", "True", "x"]))
    rows: list[dict[str, object]] = [{"a": 7}] * 100
    without = live.tick(rows)["h"]["estimate"].to_numpy()
    with_text = live.tick([*rows, {"a": "x"}])["h"]["estimate"].to_numpy() - without
    assert (with_text - without).tolist() == [0, 0, 0, 0, 1]
    assert live.tick([*rows, {"a": True}, {"a": 2.5}])["h"]["estimate"].to_list() == [0, 300, 0, 1, 1]


def test_a_bad_row_changes_nothing_but_itself() -> None:
    live = quiet(pp.Histogram("h", key="a", domain=["x", "y"], max_keys_per_event=2))
    rows = [{"a": "x"}, {"a": ["x", "y"]}, {"a": ["y", None]}, {"a": None}, {"a": "\ud800"}, {"b": 1}, {"a": ("y",)}]
    table = live.tick(rows, drop_bad_rows=True)["h"]
    assert table["estimate"].to_list() == [2, 2]


def test_what_polars_cannot_collect_is_told_without_its_content() -> None:
    lazy = pl.LazyFrame({"drug": ["secret"]}).with_columns(pl.col("drug").cast(pl.Int64))
    with pytest.raises(pp.InputError, match="a batch must be a table") as caught:
        quiet(pp.Histogram("h", key="drug")).tick(lazy)
    assert "secret" not in str(caught.value)


def test_an_interrupted_tick_is_never_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    live = stream(pp.Count("c"), pp.Histogram("h", key="drug")).start()
    live.tick(BATCH)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pianissimo.counting.unknown.UnknownHistogram.release", interrupt)
    with pytest.raises(KeyboardInterrupt):
        live.tick(BATCH)
    monkeypatch.undo()
    with pytest.raises(pp.StateError, match="interrupted half-way must not go on"):
        live.tick(BATCH)


def test_a_live_stream_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    live = stream(pp.Count("c")).start()
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(pp.StateError, match="the process that began it"):
        live.tick(None)


def test_exact_fractions_are_budgets_too() -> None:
    assert stream(pp.Count("c"), budget=pp.Budget(1.0, Fraction(1, 10**9))).plan().price.epsilon <= 1.0


def test_many_keys_per_event_are_planned_quickly() -> None:
    plan = stream(pp.Histogram("h", key="drug", max_keys_per_event=10**6), budget=pp.Budget(5.0, 1e-6)).plan()
    assert plan.queries[0].guarantee.loss.as_booked().bad <= Fraction(1, 10**6)


def test_long_horizons_are_planned_without_listing_their_ticks() -> None:
    plan = stream(pp.Count("c"), horizon=10**9).plan()
    assert plan.queries[0].expected_error.largest > plan.queries[0].expected_error.typical > 0


def test_counts_of_events_that_hold_no_column_are_counted() -> None:
    assert quiet(pp.Count("c")).tick([{}, {"x": 1}])["c"]["estimate"].item() == 2
    assert quiet(pp.Count("c")).tick({"x": [1, 2, 3]})["c"]["estimate"].item() == 3
    assert quiet(pp.Count("c")).tick(np.zeros((4, 1)))["c"]["estimate"].item() == 4


SECRET = "SECRET-LABEL-OF-ONE-PERSON"


@pytest.mark.parametrize("shown", [1, 2, 10])
@pytest.mark.parametrize("as_rows", [True, False])
def test_no_hidden_label_travels_in_the_memory_of_a_released_table(shown: int, as_rows: bool) -> None:
    """Columns share the bytes of the columns they were taken from; binary formats would send these along."""
    labels = [f"a-very-common-drug-name-{number}" for number in range(shown) for _ in range(900)]
    labels += [f"{SECRET}-{number}" for number in range(shown)]
    some = stream(
        pp.Histogram("drugs", key="drug"),
        pp.TopK("top", key="drug", k=1),
        pp.TopK("any", key="drug", k=1, max_keys_per_event=None),
    )
    live = some.start()
    batch = [{"drug": label} for label in labels] if as_rows else pl.DataFrame({"drug": labels})
    release = live.tick(batch)
    for tables in (release, live.window(1)):
        for name in tables:
            stored = io.BytesIO()
            tables[name].write_ipc(stored)
            found = stored.getvalue() + pickle.dumps(tables[name]) + pickle.dumps(tables)
            assert SECRET.encode() not in found
            assert len(tables[name]) > 0


def test_a_domain_forgets_what_its_labels_were_taken_from() -> None:
    everyone = pl.Series(["a-known-drug-name-of-some-length", "another-known-drug-name-of-length", SECRET])
    domain = pp.Domain(everyone.filter(everyone != SECRET))
    assert SECRET.encode() not in pickle.dumps(domain.labels)


def test_values_of_other_containers_are_judged_one_by_one_too() -> None:
    query = pp.Histogram("h", key="k", domain=["7", "a"])
    for values in (
        deque([7, "a", None]),
        {"x": 7, "y": "a", "z": 2.5}.values(),
        np.array([7, "a", None], dtype=object),
    ):
        table = quiet(query).tick({"k": values}, drop_bad_rows=True)["h"]
        assert table["estimate"].to_list() == [1, 1]
    assert quiet(query).tick([{"k": np.int64(7)}])["h"]["estimate"].to_list() == [1, 0]


def test_what_changes_a_release_changes_the_digest() -> None:
    sums = [pp.Sum("s", value="v", range=(0, 500)), pp.Sum("s", value="v", range=(0, 5), grid=0.01)]
    columns = [pp.Histogram("h", key=key, domain=["x"]) for key in ("a", "b")]
    digests = {stream(query).plan().digest for query in [*sums, *columns]}
    assert len(digests) == 4


def test_the_rest_has_the_coverage_of_the_stream() -> None:
    widths = []
    for coverage in (0.5, 0.999):
        table = quiet(pp.Histogram("drugs", key="drug", other=True), coverage=coverage).tick(BATCH)["drugs"]
        rest = table.filter(pl.col("key").is_null())
        widths.append(rest["high"].item() - rest["estimate"].item())
    assert widths[1] > 4 * widths[0]


def test_the_rest_may_shrink_though_counts_do_not() -> None:
    live = quiet(pp.Histogram("drugs", key="drug", other=True, tidy="monotone"))
    first = live.tick(pl.DataFrame({"drug": [f"rare {number}" for number in range(400)]}))["drugs"]
    second = live.tick(pl.DataFrame({"drug": [f"rare {number}" for number in range(400)] * 200}))["drugs"]
    assert first.filter(pl.col("key").is_null())["tidy"].item() == 400
    assert second.filter(pl.col("key").is_null())["tidy"].item() == 0


def test_large_sums_do_not_wrap() -> None:
    live = quiet(pp.Sum("s", value="v", range=(0, 10**18), grid=10**12))
    table = live.tick({"v": [1e18] * 30})["s"]
    assert table["estimate"].item() == pytest.approx(3e19)
    assert table["low"].item() < table["estimate"].item() < table["high"].item()


def test_a_release_may_be_copied_and_sent() -> None:
    release = quiet(pp.Count("c")).tick(None)
    again = pickle.loads(pickle.dumps(release))
    assert again.to_dict() == release.to_dict()
    with pytest.raises(TypeError, match="ask the release of a tick"):
        again.between(0, 1)
