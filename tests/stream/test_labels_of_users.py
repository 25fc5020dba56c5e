"""Labels that nobody listed, asked of users: plans, tables, windows, lists of labels; in memory and durable alike."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.stream.test_users import quiet

import pianissimo as pp

BUDGET = pp.Budget(1, 1e-9)


def pages(unit: Any = None, budget: Any = BUDGET, horizon: int = 8, **fields: Any) -> pp.Stream:
    hidden = pp.user("reader", max_events_per_user=16) if unit is None else unit
    queries = [pp.Histogram("pages", key="url", **fields)]
    return pp.Stream("news", unit=hidden, budget=budget, horizon=horizon, queries=queries)


@pytest.mark.parametrize(("count", "largest"), [("users", 693), ("events", 2765)])
def test_thresholds_of_a_month_of_hours_are_as_low_as_promised(count: str, largest: int) -> None:
    plan = pages(horizon=720, count=count).plan()
    told = json.loads(plan.to_json())["queries"][0]
    assert told["threshold"]["largest"] <= largest
    assert told["caps"][0]["threshold"] == told["threshold"]
    assert told["expected_error"]["typical"] > 0
    assert (
        f"labels of url appear from about {told['threshold']['least']:,} {count} on ({largest:,} at some ticks)"
        in str(plan).replace("\n", " ")
    )


def test_no_cell_under_so_many_people_is_said_of_users_alone() -> None:
    assert "none of fewer than 10 users is ever shown" in str(pages(count="users", min_count=10).plan())
    told = str(pages(min_count=10).plan())
    assert "none of fewer than 10 events is ever shown" in told
    assert "10 users" not in told


def rows(readers: int, *urls: str) -> list[dict[str, Any]]:
    return [{"reader": reader, "url": url} for reader in range(readers) for url in urls]


def test_users_and_events_of_each_label_are_counted() -> None:
    batch = rows(4000, "home", "home", "news") + rows(3000, "sport")
    for fields, wanted in (
        ({"count": "users"}, {"home": 4000, "news": 4000, "sport": 3000}),
        ({}, {"home": 8000, "news": 4000, "sport": 3000}),
        ({"count": "users", "domain": ["home", "none"]}, {"home": 4000, "none": 0}),
    ):
        live = quiet(pages(**fields).plan())
        table = live.tick(batch)["pages"]
        assert table.columns == ["key", "estimate", "low", "high", "cap"]
        assert dict(zip(table["key"], table["estimate"], strict=True)) == wanted
        assert table["high"].null_count() == table.height
        live.tick(rows(5000, "sport"))
        window = live.window(1)["pages"]
        news = 2000 if fields.get("count") == "users" else 5000
        assert dict(zip(window["key"], window["estimate"], strict=True)).get("sport", news) == news


def test_bars_of_users_are_closed_where_the_cap_follows() -> None:
    table = quiet(pages(unit=pp.user("reader"), count="users").plan()).tick(rows(6000, "home"))["pages"]
    assert table["high"].null_count() == 0
    table = quiet(pages(unit=pp.user("reader", max_events_per_user=16, most_events_per_user=9)).plan()).tick(
        rows(6000, "home")
    )["pages"]
    assert table["high"].null_count() == 0


def test_a_top_list_has_the_largest_of_the_shown() -> None:
    stream = pp.Stream(
        "news",
        unit=pp.user("reader", max_events_per_user=16),
        budget=BUDGET,
        horizon=8,
        queries=[pp.TopK("top", key="urls", k=2, count="users", max_keys_per_event=None)],
    )
    live = quiet(stream.plan())
    assert live.tick()["top"].height == 0
    batch = [{"reader": reader, "urls": ["a", "b", f"own {reader}"][: 1 + reader % 3]} for reader in range(3000)]
    assert live.tick(batch)["top"].select("key", "estimate").rows() == [("a", 3000), ("b", 2000)]


def test_rows_that_do_not_match_use_up_no_units() -> None:
    unit = pp.user("reader", max_events_per_user=1)
    batch = pl.DataFrame(rows(2000, "home", "news")).with_columns(kind=pl.col("url").replace({"home": "x"}))
    live = quiet(pages(unit=unit, where="kind = 'news'").plan())
    assert live.tick(batch)["pages"]["key"].to_list() == ["news"]


def test_the_row_of_what_is_not_shown_has_its_own_price() -> None:
    live = quiet(pages(other=True).plan())
    table = live.tick(rows(4000, "home") + [{"reader": reader, "url": f"own {reader}"} for reader in range(4000)])
    assert table["pages"]["key"].to_list() == ["home", None]
    assert table["pages"]["estimate"].to_list() == [4000, 4000]


def test_min_count_holds_for_events_too() -> None:
    asked = [pp.Histogram("pages", key="url", min_count=20)]
    plan = pp.Stream("news", budget=pp.Budget(40, 1e-2), horizon=2, queries=asked).plan()
    assert plan.queries[0].thresholds is not None
    assert plan.queries[0].thresholds[0] >= 20
    found = quiet(plan).tick(rows(19, "few") + rows(30, "many"))["pages"]
    assert found["key"].to_list() == ["many"]


@pytest.mark.parametrize("count", ["users", "events"])
def test_a_durable_stream_goes_on_as_one_in_memory(count: str, tmp_path: Path) -> None:
    """It is opened anew for each tick: what was shown stays shown, and no pair is forgotten."""
    stream = pages(count=count, budget=pp.Budget(40, 1e-2), horizon=12)
    shown: list[list[str]] = []
    for tick in range(1, 12):
        with stream.open(tmp_path / "state") as opened:
            release = opened.tick(rows(40 * tick, "home", f"page {tick % 3}"))
            shown.append(release["pages"]["key"].to_list())
            assert opened.window(1)["pages"].height == release["pages"].height
    assert shown[-1] == ["home", "page 0", "page 1", "page 2"]
    assert all(set(before) <= set(after) for before, after in pairwise(shown))


def test_who_comes_in_ten_periods_of_running_totals_is_not_ten_people() -> None:
    unit = pp.user("reader", max_events_per_user=4, within=2, reset=False)
    running = " ".join(str(pages(unit, count="users", min_count=10).plan()).split())
    assert "none of fewer than 10 pairs of a user and a period is ever shown" in running
    assert "number of users of each url, each once in a period, of labels up to the cap of 4 a user" in running
    anew = str(pages(pp.user("reader", max_events_per_user=4, within=2), count="users", min_count=10).plan())
    assert "none of fewer than 10 users is ever shown" in " ".join(anew.split())


@pytest.mark.parametrize("kind", [pp.Histogram, pp.TopK])
def test_bars_over_the_cut_know_that_each_label_of_an_event_is_a_unit(kind: Any) -> None:
    def high(keys: int, most: int) -> int:
        unit = pp.user("reader", first_cap=16, most_events_per_user=most)
        query = kind("pages", key="url", domain=["home", "news"], max_keys_per_event=keys, **more)
        stream = pp.Stream("news", unit=unit, budget=BUDGET, horizon=8, queries=[query])
        return int(max(quiet(stream.plan()).tick(rows(2, "home"))["pages"]["high"].to_list()))

    more = {"k": 2} if kind is pp.TopK else {}
    # Ten events of two labels are twenty units, of which the cap of 16 cuts off four; of five events none is cut off.
    assert high(2, 10) > high(2, 5) + 4
