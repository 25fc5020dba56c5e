"""The line below a table of a release: which share of bars holds what truth, and what no bar tells."""

import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.stream.shown import legends
from pianissimo.stream.shown.legends import legend
from pianissimo.stream.shown.plan_table import FIRST_SEEN

CLOSED = pl.DataFrame({"estimate": [30], "low": [10], "high": [50], "cap": [64]})
OPEN = CLOSED.with_columns(high=pl.lit(None, dtype=pl.Int64))
CAPPED = "number of events, of events up to the cap of 16 a user"
WORDS_OF_THE_PAGE = Path(legends.__file__).parents[2] / "service" / "page" / "words.js"


def told(about: str, **more: Any) -> dict[str, Any]:
    return {"kind": "count", "error_about": about, "words": [], **more}


@pytest.mark.parametrize(
    ("table", "query", "words"),
    [
        (CLOSED, told("number of events"), "90 % of such intervals, low to high, hold the true number of events."),
        (
            CLOSED,
            told("mean of x, of values cut to 0 .. 9", kind="mean"),
            "hold the true mean of x, of values cut to 0 .. 9 (above 9 counts as 9, below 0 as 0). "
            "What is cut off is in no bar.",
        ),
        (
            OPEN,
            told(CAPPED),
            "With a chance of 95 % each low end is below the true number of events, of events up to the cap of 64 a "
            "user. The high end is open: what the cap cuts off is missing, and nothing bounds it.",
        ),
        (
            OPEN.rename({"low": "high", "high": "low"}),
            told(CAPPED),
            "The low end is open: nothing bounds what is too much.",
        ),
        (OPEN.with_columns(low=pl.lit(None, dtype=pl.Int64)), told(CAPPED), legends.BOTH_OPEN),
        (
            CLOSED,
            told(CAPPED, words=["Bars reach over what the cap cuts off, as no user has more than 1,000."]),
            "they reach over what the cap cuts off too.",
        ),
        # Extremes are bounds on one side, with the chance of the others.
        (
            OPEN,
            told("quantiles of x", kind="quantiles"),
            "90 % of such intervals, low to high, hold the true quantiles of x.",
        ),
    ],
)
def test_a_legend_tells_what_bars_hold(table: pl.DataFrame, query: dict[str, Any], words: str) -> None:
    assert legend("q", table, 0.9, query).endswith(words)


def test_there_is_a_legend_where_there_are_bars() -> None:
    assert legend("above_cap", CLOSED, 0.95) == (
        "95 % of such intervals, low to high, hold the true number of users above the cap."
    )
    for table, coverage in ((CLOSED, None), (CLOSED.clear(), 0.95), (CLOSED.drop("low"), 0.95)):
        assert legend("q", table, coverage, told("number of events")) == ""
    assert legend("exhausted", CLOSED, 0.95) == "", "its bars have a chance of their own"


@pytest.mark.parametrize("table", [CLOSED, OPEN, OPEN.rename({"low": "high", "high": "low"})])
def test_of_what_a_threshold_chose_it_is_said_that_noise_did(table: pl.DataFrame) -> None:
    threshold = {"least": 56, "largest": 60}
    for kind in ("alarm", "trending"):
        assert legend("q", table, 0.95, told("number", kind=kind)).endswith(legends.JUST_REPORTED)
    for kind in ("histogram", "top_k", "heavy_hitters"):
        assert legend("q", table, 0.95, told("number", kind=kind, threshold=threshold)).endswith(legends.JUST_SHOWN)
        assert "of them miss" not in legend("q", table, 0.95, told("number", kind=kind, threshold=None))
    assert "of them miss" not in legend("q", table, 0.95, told("sum", kind="sum", threshold=threshold))
    page = WORDS_OF_THE_PAGE.read_text()
    assert f" {legends.JUST_REPORTED}" in page
    assert f" {legends.JUST_SHOWN}" in page


def test_a_notebook_says_that_noise_chose_a_new_label() -> None:
    stream = pp.Stream("s", queries=[pp.Histogram("h", key="k")], budget=pp.Budget(1, 1e-6), horizon=8)
    assert legends.JUST_SHOWN in stream.start().tick([{"k": "a"}] * 900)._repr_html_()


def test_the_page_says_the_same() -> None:
    page = WORDS_OF_THE_PAGE.read_text()
    assert legends.BOTH_OPEN in page
    for end in (OPEN, OPEN.rename({"low": "high", "high": "low"})):
        *_, last = legend("q", end, 0.95, told(CAPPED)).split(". ")
        assert last in page
    assert "of such intervals hold" in page


def test_a_notebook_shows_it_below_each_table_also_after_a_copy() -> None:
    queries = [pp.Count("n"), pp.Sum("total", value="<b>", range=(0, 10)), pp.Users("people")]
    stream = pp.Stream("s", unit=pp.user("who", first_cap=2), queries=queries, budget=pp.Budget(1, 1e-6), horizon=8)
    live = stream.start()
    release = live.tick([{"who": f"w{each}", "<b>": 4} for each in range(3000)])
    for shown in (release, pickle.loads(pickle.dumps(release)), live.between(0, 1)):
        page = shown._repr_html_()
        assert "95 % of such intervals, low to high, hold the true number of users" in page
        assert page.count("The high end is open: what the cap cuts off is missing, and nothing bounds it.") >= 1
        assert "of values cut to 0 .. 10" in page
        assert "sum of &lt;b&gt;" in page


def test_a_stored_release_knows_its_plan(tmp_path: Path) -> None:
    stream = pp.Stream("s", queries=[pp.Count("n")], budget=pp.Budget(1, 1e-6), horizon=8)
    with stream.open(tmp_path / "state") as live:
        live.tick([{}] * 5)
        assert "hold the true number of events." in live.released(1)._repr_html_()


USERS_QUERIES = [
    pp.Users("people"),
    pp.Users("lately", per=2),
    pp.Distinct("things", key="thing"),
    pp.Histogram("holders", key="thing", domain=["a"], count="users"),
    pp.Sum("total", value="x", range=(0, 10)),
]


def test_what_is_said_of_a_window_is_what_it_has(tmp_path: Path) -> None:
    stream = pp.Stream(
        "s", unit=pp.user("who", max_events_per_user=2), queries=USERS_QUERIES, budget=pp.Budget(1, 1e-6), horizon=8
    )
    with stream.open(tmp_path / "state") as durable:
        for live in (stream.start(), durable):
            for _ in range(4):
                total = live.tick([{"who": f"w{each}", "thing": "a", "x": 4} for each in range(3000)])
            window = live.between(1, 4)
            for shown in (window, pickle.loads(pickle.dumps(window))):
                page = shown._repr_html_()
                assert "hold the true number of users, first seen in ticks 2 to 4." in page
                assert "the true number of users of each thing, of labels up to the cap" in page
                assert ", in ticks 2 to 4, each when she first holds it." in page
                assert "the last 2 ticks" not in page, "of an interval that was asked for"
                assert "first seen in ticks 2 to 4" in shown.about()["things"]["error_about"]
                assert shown.about()["total"]["error_about"].endswith(", in ticks 2 to 4")
            assert "in ticks" not in total._repr_html_()
            assert "first seen in the last 2 ticks" in total._repr_html_()
    last = CliRunner().invoke(cli, ["releases", str(tmp_path / "state"), "--window", "3", "--last", "1"]).output
    words = " ".join(last.split())
    assert "hold the true number of users, first seen in the last 3 ticks." in words
    assert "in the last 3 ticks, each when she first holds it" in words


def test_kinds_of_which_a_window_has_what_is_new_are_those_that_say_so() -> None:
    kinds: list[Any] = [getattr(pp, name) for name in pp.__all__]
    new = {each.kind for each in kinds if getattr(each, "of_window", "")}
    assert new == set(FIRST_SEEN)
    assert '["distinct", "users"].includes(query.kind)' in WORDS_OF_THE_PAGE.read_text()
