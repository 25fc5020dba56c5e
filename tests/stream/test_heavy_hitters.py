"""Heavy hitters in whole streams: what the planner takes and why, error bars that hold the truth, files, bad input."""

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared_checks import resumed, stored

import pianissimo as pp
from pianissimo.counting import UnknownHistogram
from pianissimo.mechanism import Run
from pianissimo.noise import Noise
from pianissimo.queries.heavy_hitters import COUNTER_BYTES, EXACT_BYTES
from pianissimo.sketches import HeavyKeys, PublishedTree, RunningSketch, SetTree, SketchTree
from pianissimo.stream import Live
from pianissimo.stream.spec import load_spec
from pianissimo.testing import NoNoise, SeededNoise


def stream(**fields: Any) -> pp.Stream:
    stream_fields: dict[str, Any] = {
        name: fields.pop(name) for name in ("budget", "horizon", "unit", "coverage", "tick") if name in fields
    }
    known: dict[str, Any] = {"budget": pp.Budget(4.0, 1e-6), "horizon": 8, **stream_fields}
    return pp.Stream("web", queries=[pp.HeavyHitters("pages", key="page", **fields)], **known)


def planned(**fields: Any) -> Any:
    return stream(**fields).plan().queries[0]


def quiet(**fields: Any) -> Live:
    return Live(stream(**fields).plan(), NoNoise())


def rows(pages: list[Any]) -> list[dict[str, Any]]:
    return [{"page": page} for page in pages]


def counted(table: pl.DataFrame, reach: float) -> dict[str, float]:
    """What was counted, from the lower ends of bars that reach so far below it."""
    assert (table["low"] + reach <= table["estimate"]).all()
    assert (table["estimate"] <= table["high"]).all()
    return dict(zip(table["key"].to_list(), (table["low"] + reach).to_list(), strict=True))


def test_a_sketch_is_taken_where_nobody_said_how_many_keys_there_are() -> None:
    plan = planned(k=64)
    assert isinstance(plan.mechanism, SketchTree)
    assert "UnknownHistogram over haar was left out: expected_keys" in plan.reason
    assert "RunningSketch, k = 64 has" in plan.reason
    # Eight releases are four levels, each with an open node and an ended one.
    assert plan.to_dict()["memory"] == 2 * 4 * 64 * COUNTER_BYTES


def test_exact_counts_are_taken_where_the_expected_keys_fit_the_memory() -> None:
    plan = planned(expected_keys=1000)
    assert isinstance(plan.mechanism, UnknownHistogram)
    assert plan.to_dict()["memory"] == 1000 * EXACT_BYTES
    assert "exact counts of 1,000 labels fit the 64 MiB allowed" in plan.reason
    assert "SketchTree, k = 1024 has" in plan.reason


def test_exact_counts_that_do_not_fit_are_left_out() -> None:
    plan = planned(expected_keys=10**9)
    assert isinstance(plan.mechanism, SketchTree)
    assert "244,141 MiB of memory, more than the 64 MiB allowed" in plan.reason
    left_out = next(other for other in plan.alternatives if isinstance(other.mechanism, UnknownHistogram))
    assert not left_out.selectable


def test_in_little_memory_one_running_sketch_is_left() -> None:
    assert isinstance(planned(k=64, memory=64 * COUNTER_BYTES).mechanism, RunningSketch)
    with pytest.raises(pp.ParameterError, match=r"it needs about 0\.00781 MiB of memory, more than the 0\.00781 MiB"):
        planned(k=64, memory=64 * COUNTER_BYTES - 1)


def test_a_running_sketch_is_for_few_releases() -> None:
    names = [other.name for other in planned(horizon=1000).alternatives]
    assert any(name.startswith("PublishedTree") for name in names)
    assert not any(name.startswith("RunningSketch") for name in names)


def test_many_keys_an_event_make_a_tree_of_sets() -> None:
    few, many = planned(max_keys_per_event=2), planned(max_keys_per_event=200)
    assert isinstance(few.mechanism, SketchTree)
    assert isinstance(many.mechanism, SetTree)
    assert many.to_dict()["memory"] == (4 + 1) * 1024 * COUNTER_BYTES
    assert not any(other.name.startswith(("PublishedTree", "RunningSketch")) for other in many.alternatives)


def test_what_a_sketch_does_not_count_is_in_the_error_where_events_are_expected() -> None:
    noise = planned(k=9).expected_error
    both = planned(k=9, expected_events=10**6).expected_error
    assert both.largest == pytest.approx(noise.largest + 10**5, rel=1e-3)
    assert both.typical == pytest.approx(10**5 / 3**0.5, rel=0.15)
    assert "1 / 10 of the 1,000,000 labels at the end" in planned(k=9, expected_events=10**6).chosen.note


def test_the_plan_shows_memory_thresholds_and_reasons() -> None:
    text = stream(expected_keys=10**9).plan().explain()
    assert "a list of heavy hitters: SketchTree, k = 1024" in text
    assert "memory   about 1 MiB of the 64 MiB allowed" in text
    assert "was left out: it needs about 244,141 MiB" in " ".join(text.split())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"memory": 1024 * COUNTER_BYTES},
        {"expected_keys": 1000},
        {"max_keys_per_event": 5},
        {"max_keys_per_event": 500},
        {"horizon": None},
        {"horizon": 1},
    ],
    ids=str,
)
def test_plans_stay_within_the_budget(fields: dict[str, Any]) -> None:
    asked = stream(**fields)
    more = pp.Stream(
        "web",
        budget=asked.budget,
        horizon=asked.horizon,
        queries=[*asked.queries, pp.Count("n"), pp.TopK("t", key="page", k=3)],
    )
    for each in (asked, more):
        price = each.plan().price
        assert price.epsilon <= 4.0
        assert price.delta <= 1e-6


def test_thresholds_are_told_in_counts() -> None:
    for mechanism, horizon in ((SketchTree, 8), (SetTree, 8)):
        tree = mechanism.calibrated(horizon=horizon, rho=1.0, bad=1e-6, k=10)
        unit = 11 if mechanism is SketchTree else 1
        every = [-(-tree.threshold(tick) // unit) for tick in range(1, horizon + 1)]
        assert pp.HeavyHitters("h", key="page").thresholds(tree) == (min(every), max(every))


def test_unknown_labels_need_a_delta() -> None:
    with pytest.raises(pp.ParameterError, match="unknown labels must have a delta"):
        stream(budget=pp.Budget(1.0, 0)).plan()


def test_users_are_hidden_by_a_sketch_with_a_fixed_cap() -> None:
    with pytest.raises(pp.ParameterError, match="'pages' must have a fixed cap where users are hidden"):
        stream(unit=pp.user("visitor")).plan()
    assert stream(unit=pp.user("visitor", max_events_per_user=3)).plan().protected == "user"


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"memory": -1}, "memory must be a whole number"),
        ({"expected_keys": 0}, "expected_keys must be a whole number of at least 1, got 0"),
        ({"expected_events": 1.5}, "expected_events must be a whole number"),
        ({"max_keys_per_event": None}, "max_keys_per_event must be a whole number"),
        ({"tidy": "ranked"}, "tidy must be non_negative or monotone for a list of heavy hitters"),
        ({"key": ""}, "key must be the name of a column"),
    ],
    ids=str,
)
def test_parameters_are_checked(field: dict[str, Any], message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        pp.HeavyHitters("pages", **{"key": "page", **field})


def test_a_counter_beyond_the_largest_sketch_is_refused() -> None:
    with pytest.raises(pp.ParameterError, match="k must be at most 4194304"):
        planned(k=2**22 + 1, memory=2**40)


CHOICES: dict[str, dict[str, Any]] = {
    "tree of sketches": {"k": 4},
    "running sketch": {"k": 4, "memory": 4 * COUNTER_BYTES},
    "exact": {"expected_keys": 10},
    "few keys an event": {"k": 4, "max_keys_per_event": 2},
    "sets": {"k": 4, "max_keys_per_event": 30},
}
every_choice = pytest.mark.parametrize("fields", CHOICES.values(), ids=CHOICES.keys())


@every_choice
def test_the_tables_have_one_shape(fields: dict[str, Any]) -> None:
    live = quiet(**fields)
    for table in (live.tick(None)["pages"], live.tick(rows(["a"] * 900 + ["rare"]))["pages"]):
        assert table.columns == ["key", "estimate", "low", "high"]
        assert table.schema["key"] == pl.String
    assert table["key"].to_list() == ["a"]


def bars_hold(fields: dict[str, Any], noise: Noise, ticks: list[dict[str, int]], scale: int) -> None:
    """Whether low .. high holds the true count of every shown key, at every tick."""
    # The name of a run is random: without this seeded noise would be another each time.
    with patch("pianissimo.stream.live.secrets.token_bytes", bytes):
        live = Live(stream(coverage=1 - 1e-9, **fields).plan(), noise)
    truth: Counter[str] = Counter()
    for tick in ticks:
        pages = [page for page, times in tick.items() for _ in range(times * scale)]
        truth.update(pages)
        for key, _, low, high in live.tick(rows(pages))["pages"].iter_rows():
            assert low <= truth[key] <= high


many_ticks = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9)), min_size=1, max_size=8)


@every_choice
@settings(max_examples=15)
@given(ticks=many_ticks)
def test_without_noise_error_bars_hold_the_truth(fields: dict[str, Any], ticks: list[dict[str, int]]) -> None:
    bars_hold(fields, NoNoise(), ticks, scale=40)


@every_choice
@settings(max_examples=15)
@given(ticks=many_ticks, seed=st.integers(0, 2**30))
def test_error_bars_hold_the_truth(fields: dict[str, Any], ticks: list[dict[str, int]], seed: int) -> None:
    """False alarms: 8 ticks of 15 examples in 5 cases at a coverage of 1 - 1e-9, below 1e-6; seeded."""
    bars_hold(fields, SeededNoise(seed), ticks, scale=200)


def test_bars_of_published_nodes_allow_for_nodes_that_hide_the_key() -> None:
    mechanism = PublishedTree.gaussian(horizon=3, rho=2.0, bad=1e-6, k=4)
    run: Run[Any, Any, Any] = Run(mechanism, NoNoise())
    run.update(pl.Series(["a"] * 500 + ["b"] * 500))
    run.release()
    run.update(pl.Series([], dtype=pl.String))
    run.release()
    run.update(pl.Series(["a"] * (mechanism.node.threshold - 1)))
    release = run.release()
    table = pp.HeavyHitters("h", key="page").table(mechanism, release, 0.95)
    assert counted(table, mechanism.reach(3, 0.95)) == {"a": 500.0, "b": 500.0}
    assert isinstance(release.value, HeavyKeys)
    assert release.value.slack is not None
    # No decrements; the second node hides up to one below its threshold.
    assert release.value.slack.tolist() == [mechanism.node.threshold - 1] * 2
    assert table["high"].to_list()[0] >= 500 + mechanism.node.threshold - 1


def test_without_noise_a_wide_sketch_counts_exactly() -> None:
    live = quiet(k=1000, memory=1000 * COUNTER_BYTES)
    mechanism = live.plan.queries[0].mechanism
    assert isinstance(mechanism, RunningSketch)
    live.tick(rows(["a"] * 700 + ["b"] * 500))
    table = live.tick(rows(["a"] * 10))["pages"]
    assert counted(table, 2 * mechanism.reach(2, 0.95)) == {"a": 710, "b": 500}


def test_a_reduced_sketch_is_below_the_truth_by_the_labels_over_all_counters() -> None:
    live = quiet(k=9)
    mechanism = live.plan.queries[0].mechanism
    assert isinstance(mechanism, SketchTree)
    table = live.tick(rows(["a"] * 700 + ["b"] * 300))["pages"]
    assert counted(table, math.ceil(mechanism.reach(1, 0.95) / 10)) == {"a": 700 - 100, "b": 300 - 100}


def test_labels_of_an_event_are_cut_first_come_first_kept() -> None:
    for wide in (2, 30):
        live = quiet(k=100, max_keys_per_event=wide)
        table = live.tick(rows([["a", "a", "b", "c"]] * 3000 + ["d"] * 3000 + [[]]))["pages"]
        assert table["key"].to_list() == (["a", "b", "d"] if wide == 2 else ["a", "b", "c", "d"])


def test_a_set_counts_once_whatever_it_repeats() -> None:
    live = quiet(k=100, max_keys_per_event=30)
    mechanism = live.plan.queries[0].mechanism
    assert isinstance(mechanism, SetTree)
    table = live.tick(rows([["a", "a", "b"]] * 3000))["pages"]
    assert counted(table, mechanism.reach(1, 0.95)) == {"a": 3000.0, "b": 3000.0}


def test_a_total_of_sets_is_one_more_count() -> None:
    plain = SetTree.calibrated(horizon=8, rho=1.0, bad=1e-6, k=10)
    told = SetTree.calibrated(horizon=8, rho=1.0, bad=1e-6, k=10, max_keys_per_event=7, with_total=True)
    assert plain.variance == 10 * 4 / Fraction(2)
    assert told.variance == 11 * 4 / Fraction(2)
    assert told.total_variance == 49 * told.variance
    assert told.guarantee.loss.as_booked().rho == plain.guarantee.loss.as_booked().rho == 1
    with pytest.raises(pp.ParameterError, match="max_keys_per_event must be given for a total"):
        SetTree.calibrated(horizon=8, rho=1.0, bad=1e-6, k=10, with_total=True)


def test_a_total_of_sets_is_the_number_of_keys_and_survives_a_restart() -> None:
    tree = SetTree.calibrated(horizon=8, rho=10**6, bad=0.5, k=3, max_keys_per_event=2, with_total=True)
    run: Run[Any, Any, Any] = Run(tree, NoNoise())
    for tick in range(1, 6):
        run.update(pl.Series([["a", "b", "c"], ["a"]] * tick))
        assert run.release().value.total == 3 * tick * (tick + 1) // 2
        run = resumed(tree, NoNoise(), stored(run))


@every_choice
@pytest.mark.parametrize("page", [None, "x" * 257, 1.5])
def test_keys_that_cannot_be_counted_are_refused_alone(fields: dict[str, Any], page: object) -> None:
    pages = ["a"] * 900 + [page]
    with pytest.raises(
        pp.InputError, match="column 'page' must not be null and its labels must have at most 256 bytes"
    ):
        quiet(**fields, nulls="refuse").tick(rows(pages))
    assert quiet(**fields, nulls="refuse").tick(rows(pages), drop_bad_rows=True)["pages"]["key"].to_list() == ["a"]
    assert quiet(**fields).tick(rows(pages))["pages"]["key"].to_list() == ["a"]


def test_estimates_can_be_kept_from_falling() -> None:
    live = Live(stream(k=9, tidy="monotone").plan(), SeededNoise(3))
    tables = [live.tick(rows(["a"] * 500))["pages"] for _ in range(8)]
    tidy = [table["tidy"][0] for table in tables]
    assert tidy == sorted(tidy)


def test_a_stream_file_asks_for_heavy_hitters(tmp_path: Path) -> None:
    file = tmp_path / "web.toml"
    text = """
    [stream]
    name = "web"
    epsilon = 1
    delta = 1e-9
    tick = "1h"
    horizon = "24h"
    [queries.pages]
    kind = "heavy_hitters"
    key = "page"
    k = 512
    max_keys_per_event = 3
    expected_events = 1_000_000
    expected_keys = 5000
    memory = 1_000_000
    every = "2h"
    """
    file.write_text(text)
    (query,) = load_spec(file).stream.queries
    assert query == pp.HeavyHitters(
        "pages",
        key="page",
        k=512,
        max_keys_per_event=3,
        expected_events=10**6,
        expected_keys=5000,
        memory=10**6,
        every=2,
    )
    file.write_text(text.replace("k = 512", "k = 0"))
    with pytest.raises(pp.SpecError, match=r"queries\.pages\.k must be a whole number of at least 1, got 0"):
        load_spec(file)
    file.write_text(text.replace('key = "page"', ""))
    with pytest.raises(
        pp.SpecError, match=r"queries\.pages\.key must be given, got nothing; it is the column of labels"
    ):
        load_spec(file)
