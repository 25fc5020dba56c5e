"""Streams in memory: any table in, tables with error bars out, all of a tick or none of it."""

import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pianissimo as pp
from pianissimo.stream import Live
from pianissimo.testing import NoNoise

ROWS = [{"drug": "aspirin", "region": "north"}] * 300 + [{"drug": "ibuprofen", "region": "south"}] * 200


def stream(**changes: Any) -> pp.Stream:
    parameters: dict[str, Any] = {
        "budget": pp.Budget(epsilon=4.0, delta=1e-6),
        "horizon": 8,
        "queries": [
            pp.Count("purchases"),
            pp.Histogram("drugs", key="drug"),
            pp.Histogram("regions", key="region", domain=["north", "south", "west"]),
        ],
    }
    return pp.Stream("pharmacy", **{**parameters, **changes})


def quiet(some: pp.Stream) -> Live:
    """The stream without noise."""
    return Live(some.plan(), NoNoise())


def estimates(release: pp.StreamRelease, name: str) -> dict[str, int]:
    return {row["key"]: row["estimate"] for row in release[name].to_dicts()}


def test_without_noise_releases_are_the_running_statistics() -> None:
    live = quiet(stream())
    for tick in (1, 2, 3):
        release = live.tick(ROWS)
        assert release.tick == tick
        assert release["purchases"]["estimate"].item() == 500 * tick
        assert estimates(release, "drugs") == {"aspirin": 300 * tick, "ibuprofen": 200 * tick}
        assert estimates(release, "regions") == {"north": 300 * tick, "south": 200 * tick, "west": 0}


def test_error_bars_surround_the_estimate_by_the_plans_error() -> None:
    live = quiet(stream())
    release = live.tick(ROWS)
    half = live.plan.queries[0].mechanism.error(1, 0.95)
    assert release["purchases"].to_dicts() == [{"estimate": 500, "low": 500 - half, "high": 500 + half}]
    assert release["drugs"].columns == ["key", "estimate", "low", "high"]
    assert release["drugs"].schema == {"key": pl.String, "estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64}


def as_duckdb(frame: pl.DataFrame) -> Any:
    connection = duckdb.connect()
    connection.register("batch", frame.to_arrow())
    return connection.sql("select * from batch")


@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame,
        lambda frame: frame.lazy(),
        lambda frame: frame.to_arrow(),
        lambda frame: frame.to_arrow().to_batches()[0],
        lambda frame: pa.RecordBatchReader.from_batches(frame.to_arrow().schema, frame.to_arrow().to_batches()),
        lambda frame: pd.DataFrame(frame.to_dicts()),
        as_duckdb,
        lambda frame: frame.to_dicts(),
        lambda frame: frame.to_dict(as_series=False),
        lambda frame: frame.with_columns(pl.col("drug").cast(pl.Categorical)),
        lambda frame: frame.with_columns(pl.col("drug").cast(pl.Enum(["aspirin", "ibuprofen"]))),
    ],
    ids=[
        "polars",
        "lazy",
        "arrow table",
        "arrow batch",
        "arrow reader",
        "pandas",
        "duckdb",
        "dicts",
        "columns",
        "categorical",
        "enum",
    ],
)
def test_any_table_goes_in(convert: Callable[[pl.DataFrame], object]) -> None:
    release = quiet(stream()).tick(convert(pl.DataFrame(ROWS)))
    assert estimates(release, "drugs") == {"aspirin": 300, "ibuprofen": 200}


def test_pandas_and_dicts_come_out() -> None:
    release = quiet(stream()).tick(ROWS)
    assert list(release["drugs"].to_pandas()["key"]) == ["aspirin", "ibuprofen"]
    assert release["drugs"].to_dicts()[0]["estimate"] == 300
    assert release.to_dict()["releases"]["purchases"][0]["estimate"] == 500


def test_lists_of_labels_are_cut_within_the_event() -> None:
    live = quiet(stream(queries=[pp.Histogram("drugs", key="drug", max_keys_per_event=2)]))
    release = live.tick([{"drug": ["a", "b", "a", "c"]}] * 100 + [{"drug": []}] * 50)
    assert estimates(release, "drugs") == {"a": 100, "b": 100}


def test_whole_numbers_are_labels_too() -> None:
    live = quiet(stream(queries=[pp.Histogram("shelves", key="shelf", domain=["7", "8"])]))
    assert estimates(live.tick(pl.DataFrame({"shelf": [7, 7, 9]})), "shelves") == {"7": 2, "8": 0}


@pytest.mark.parametrize("batch", [None, [], {}, pl.DataFrame(schema={"drug": pl.String, "region": pl.String})])
def test_a_tick_may_be_empty(batch: object) -> None:
    live = quiet(stream())
    live.tick(ROWS)
    assert live.tick(batch)["purchases"]["estimate"].item() == 500


GOOD = {"drug": ["aspirin"] * 99, "region": ["north"] * 99}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pl.DataFrame({"drug": ["a"]}), "columns 'region' must be in the batch, got 'drug'"),
        (pl.DataFrame({"other": [1]}), "columns 'drug', 'region' must be in the batch, got 'other'"),
        (
            pl.DataFrame({"drug": [1.5], "region": ["north"]}),
            "must hold texts, whole numbers, booleans, dates or lists of these, got Float64",
        ),
        (pl.DataFrame({"drug": [float("nan")], "region": ["north"]}), "must hold texts"),
        (pl.DataFrame({**GOOD, "region": ["north"] * 98 + [None]}), "column 'region' must not be null"),
        (pl.DataFrame({**GOOD, "drug": ["x"] * 98 + ["x" * 257]}), "at most 256 bytes"),
        (pl.DataFrame({**GOOD, "drug": [["x", None]] * 99}), "column 'drug' must not be null"),
        (pl.DataFrame({**GOOD, "drug": [["x" * 300]] * 99}), "at most 256 bytes"),
        ("drugs.csv", "a batch must be a table or a list of dicts, got str"),
        ([1, 2], "rows of a list must be dicts"),
        (17, "a batch must be a table"),
        ({"drug": ["a"], "region": ["b", "c"]}, "a batch must be a table"),
    ],
)
def test_a_bad_batch_is_refused_whole(batch: object, message: str) -> None:
    """Nothing of it is counted, not even by the queries that could have; and no label is in the message."""
    asked = stream().queries
    live = quiet(stream(queries=[asked[0], *(replace(query, nulls="refuse") for query in asked[1:])]))
    with pytest.raises(pp.InputError, match=message) as caught:
        live.tick(batch)
    assert "xxx" not in str(caught.value)
    assert live.tick_number == 0
    assert live.tick(ROWS)["purchases"]["estimate"].item() == 500


def test_after_the_horizon_nothing_is_released() -> None:
    live = quiet(stream(horizon=2))
    live.tick(ROWS)
    live.tick(ROWS)
    with pytest.raises(pp.HorizonError, match="all 2 releases are made; start a new stream"):
        live.tick(ROWS)


def test_unknown_names_are_told() -> None:
    with pytest.raises(KeyError, match="must be a query published at this tick, one of purchases, drugs, regions"):
        quiet(stream()).tick(ROWS)["prices"]


def test_two_runs_have_different_noise() -> None:
    """1000 estimates agree by chance about one time in 2 sigma sqrt(pi); false_alarm_rate: below 1e-9."""
    domain = [str(number) for number in range(1000)]
    some = stream(queries=[pp.Histogram("h", key="drug", domain=domain)], budget=pp.Budget(0.1, 1e-6))
    one, other = (some.start().tick(None)["h"]["estimate"].to_numpy() for _ in range(2))
    assert (one == other).sum() < 100


def test_even_the_same_secret_gives_two_runs_different_noise() -> None:
    from pianissimo.testing import SeededNoise

    some = stream(budget=pp.Budget(0.01, 1e-9))
    releases = [Live(some.plan(), SeededNoise(1)).tick(ROWS)["regions"]["estimate"].to_list() for _ in range(2)]
    assert releases[0] != releases[1]


def test_a_live_stream_shows_nothing_and_is_not_copied() -> None:
    live = stream().start()
    live.tick(ROWS)
    assert repr(live) == "Live('pharmacy', tick=1 of 8)"
    with pytest.raises(TypeError, match="not copied or pickled"):
        pickle.dumps(live)


def test_ticks_from_several_threads_are_counted_one_by_one() -> None:
    live = quiet(stream(horizon=64))
    threads = [threading.Thread(target=lambda: [live.tick(ROWS) for _ in range(8)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.tick(None)["purchases"]["estimate"].item() == 500 * 32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"tick": "soon"}, "must be a duration such as"),
        ({"queries": [pp.Count("c", every=9)]}, "must be published within the 8 ticks of the horizon, got every 9"),
        ({"horizon": 2.5}, "horizon must be a whole number"),
        ({"queries": []}, "queries must be at least one, got none"),
        ({"queries": ["drugs"]}, "queries must be a list of Count, Sum, Mean, Histogram, TopK"),
        ({"queries": [pp.Count("a"), pp.Count("a")]}, "different names, got 'a' twice"),
        ({"budget": (1.0, 1e-9)}, r"budget must be a Budget\(epsilon, delta\), got tuple"),
        ({"unit": "events"}, "unit must be .event. or user"),
        ({"coverage": 1.0}, "coverage must be above 0 and below 1"),
    ],
)
def test_impossible_streams_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        stream(**changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pp.Budget(-1, 1e-9), "epsilon must be finite and positive, got -1"),
        (lambda: pp.Budget(float("nan"), 1e-9), "epsilon must be finite and positive, got nan"),
        (lambda: pp.Budget(1, -1e-9), "delta must be above 0 and below 1"),
        (lambda: pp.Budget(1, 1), "delta must be above 0 and below 1"),
        (lambda: pp.Count("two words"), "name must be 1 to 64 letters"),
        (lambda: pp.Count("c", weight=0), "weight must be finite and positive"),
        (lambda: pp.Histogram("h", key=""), "key must be the name of a column"),
        (lambda: pp.Histogram("h", key="k", domain="north"), "domain must be a list of texts, got one text"),
        (lambda: pp.Histogram("h", key="k", domain=[]), "at least one label"),
        (lambda: pp.Histogram("h", key="k", max_keys_per_event=0), "max_keys_per_event must be a whole number"),
    ],
)
def test_impossible_queries_and_budgets_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        make()


def test_most_error_bars_hold_the_truth() -> None:
    """8 ticks of 500 known labels: at least 93 % of the intervals. false_alarm_rate: ticks share noise, so each tick is
    judged alone by its 500 independent labels; below 0.85 has a binomial chance of 1e-17 each.
    """
    random = np.random.default_rng(1)
    domain = [f"label {number}" for number in range(500)]
    live = stream(queries=[pp.Histogram("h", key="k", domain=domain)], budget=pp.Budget(0.2, 1e-9)).start()
    truth = dict.fromkeys(domain, 0)
    for _ in range(8):
        labels = random.choice(domain, size=2000).tolist()
        for label in labels:
            truth[label] += 1
        table = live.tick(pl.DataFrame({"k": labels}))["h"]
        held = sum(row["low"] <= truth[row["key"]] <= row["high"] for row in table.to_dicts())
        assert held >= 425


def test_events_are_added_until_the_tick_and_a_closed_stream_takes_none() -> None:
    stream = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=2, queries=[pp.Count("n")])
    with Live(stream.plan(), NoNoise()) as live:
        live.add([{}] * 3)
        live.add([{}] * 4)
        assert live.tick([{}] * 5)["n"]["estimate"].to_list() == [12]
    with Live(stream.plan(), NoNoise()) as other:
        other.tick()
        other.tick()
        with pytest.raises(pp.HorizonError):
            other.add([{}])
    with pytest.raises(pp.StateError, match="must be open"):
        live.tick()


def test_a_release_is_a_mapping_and_is_shown_in_notebooks() -> None:
    stream = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=2, queries=[pp.Count("n")])
    release = stream.start().tick([{}] * 3)
    assert "n" in release
    assert "m" not in release
    assert (len(release), list(release), [name for name, _ in release.items()]) == (1, ["n"], ["n"])
    assert "<table" in release._repr_html_()
    assert repr(release) == "StreamRelease(tick=1, n)"
    assert "\n" not in repr(stream.plan())
    assert "n" in stream.plan()._repr_html_()


@pytest.mark.parametrize("unit", ["event", pp.user("user", max_events_per_user=1)])
def test_what_was_added_is_not_what_its_memory_holds_later(unit: Any) -> None:
    queries = [pp.Sum("paid", value="price", range=(0, 10)), pp.Histogram("h", key="kind", domain=["1", "2", "9"])]
    made = stream(queries=queries, unit=unit)
    batch = {"user": np.arange(3), "price": np.full(3, 5.0), "kind": np.array([1, 2, 2])}
    with Live(made.plan(), NoNoise()) as live:
        live.add(batch)
        for column in batch.values():
            column[:] = 9
        release = live.tick()
    assert release["paid"]["estimate"].item() == 15
    assert dict(zip(release["h"]["key"], release["h"]["estimate"], strict=True)) == {"1": 1, "2": 2, "9": 0}


@pytest.mark.parametrize(
    "queries",
    [
        [pp.Histogram("h", key="age", domain=["61", "70"]), pp.Count("n", where="age > 60")],
        [pp.Count("n", where="age > 60"), pp.Count("m", where="age = '61'")],
        [pp.Sum("s", value="age", range=(0, 9)), pp.Histogram("h", key="age")],
    ],
)
def test_a_column_is_read_as_texts_or_as_numbers(queries: list[Any]) -> None:
    with pytest.raises(pp.ParameterError, match="must read 'age' as numbers alone"):
        stream(queries=queries)
