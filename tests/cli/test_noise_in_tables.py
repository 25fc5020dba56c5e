"""What the terminal shows of what cannot be told from noise: no count below zero, and no order of noise."""

import io
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from rich.console import Console

import pianissimo as pp
from pianissimo import service
from pianissimo.cli.main import cli
from pianissimo.cli.render import release_table
from pianissimo.durable.durable_stream import open_stream
from pianissimo.stream.shown import told_rows
from pianissimo.testing import NoNoise


def shown(rows: pl.DataFrame, *, never_below_zero: bool = True) -> list[list[str]]:
    """The lines of a table, as words."""
    console = Console(width=120, file=io.StringIO())
    console.print(release_table(None, rows, never_below_zero=never_below_zero))
    assert isinstance(console.file, io.StringIO)
    return [line.split() for line in console.file.getvalue().splitlines()]


LABELS = pl.DataFrame(
    {
        "key": ["b", "few", "a", "none", None],
        "estimate": [900, 80, 1000, -189, -5],
        "low": [800, -20, 900, -400, -105],
        "high": [1000, 180, 1100, -10, 95],
    }
)


def test_labels_that_stand_out_come_first_and_noise_by_name() -> None:
    lines = shown(LABELS)
    assert lines[1:6] == [
        ["a", "1,000", "900", "1,100"],
        ["b", "900", "800", "1,000"],
        ["few", "at", "most", "180", "0", "180"],
        ["none", "at", "most", "179", "0", "179"],
        ["all", "that", "are", "not", "shown", "at", "most", "100", "0", "100"],
    ]
    assert " ".join(lines[6]).startswith("2 of 4 labels cannot be told from noise: they have no order. Cut at 0")


def test_of_noise_alone_it_is_said_that_it_is_noise() -> None:
    lines = shown(LABELS.filter(pl.col("low") < 0))
    assert " ".join(lines[-1]).startswith("2 labels, none can be told from noise: they have no order.")
    one = shown(pl.DataFrame({"estimate": [-189], "low": [-900], "high": [522]}))
    assert one[1] == ["at", "most", "711", "0", "711"]
    assert " ".join(one[2]).startswith("It cannot be told from noise. Cut at 0; --json has the numbers")


def test_what_is_below_zero_is_shown_as_zero_would_be_however_low_the_noise() -> None:
    for estimate in (-1, -60, -99, -100, -101, -500, -5000):
        bar = pl.DataFrame({"estimate": [estimate], "low": [estimate - 100], "high": [estimate + 100]})
        assert shown(bar)[1] == ["at", "most", "100", "0", "100"]
    assert shown(pl.DataFrame({"estimate": [0], "low": [0], "high": [0]}))[1] == ["about", "0", "0", "0"]


def test_a_mean_that_noise_took_to_an_end_of_its_range_is_shown_as_a_bound() -> None:
    rows = pl.DataFrame(
        {
            "key": ["a", "b", "c", "d", "e"],
            "estimate": [0.0, 200.0, 30.5, 17.5, None],
            "low": [0.0, 120.5, 0.0, 0.0, 0.0],
            "high": [69.5, 200.0, 60.5, 190.0, 200.0],
        }
    )
    console = Console(width=120, file=io.StringIO())
    console.print(release_table(None, rows, query={"kind": "mean", "range": [0, 200]}))
    assert isinstance(console.file, io.StringIO)
    assert [line.split() for line in console.file.getvalue().splitlines()][1:] == [
        ["b", "at", "least", "120.5", "120.5", "200"],
        ["c", "30.5", "0", "60.5"],
        ["d", "not", "known", "0", "190"],
        ["a", "at", "most", "69.5", "0", "69.5"],
        ["e", "not", "known", "0", "200"],
    ]


def test_times_are_those_of_the_clocks_of_the_stream(tmp_path: Path) -> None:
    asked = [pp.Count("n"), pp.Mean("mean", value="x", range=(0, 9)), pp.Alarm("bell", where="x > 3")]
    for zone, first in (("Europe/Berlin", "2026-03-29 00:00:00+01:00"), ("UTC", "2026-03-29 00:00:00 UTC")):
        days: dict[str, Any] = {"tick": "1d", "origin": "2026-03-29", "time_zone": zone}
        stream = pp.Stream("days", budget=pp.Budget(1, 1e-6), horizon=8, queries=asked, **days)
        place = tmp_path / zone.replace("/", "-")
        with open_stream(stream, place, make_noise=lambda _: NoNoise()) as live:
            live.tick([{"x": 5.0}] * 900)
        text = " ".join(CliRunner().invoke(cli, ["releases", str(place)]).output.split())
        assert f"n, tick 1, start {first}, end 2026-03-30 00:00:00" in text
        assert f"tick start estimate low high 1 {first} 900" in text
        assert "Near the threshold more of them miss" in text
        asked_for = CliRunner().invoke(cli, ["releases", str(place), "--window", "1d", "--query", "n"]).output
        assert "mean has no windows" not in asked_for
        assert "mean has no windows" in CliRunner().invoke(cli, ["releases", str(place), "--window", "1d"]).output


def test_what_may_be_below_zero_is_shown_as_it_is() -> None:
    assert shown(LABELS, never_below_zero=False)[-1][-3:] == ["-5", "-105", "95"]
    nothing_known = pl.DataFrame(
        {"estimate": [-3], "low": [None], "high": [None]}, {"estimate": int, "low": int, "high": int}
    )
    assert shown(nothing_known)[1] == ["-3", "or", "less", "or", "more"]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stream = pp.Stream(
        "small",
        unit=pp.user("reader", first_cap=4),
        budget=pp.Budget(1, 1e-6),
        horizon=24,
        queries=[pp.Count("visits"), pp.Sum("gain", value="gain", range=(-10, 10)), pp.Users("active")],
    )
    place = tmp_path_factory.mktemp("small") / "small"
    with open_stream(stream, place, make_noise=lambda _: NoNoise()) as live:
        live.tick([{"reader": "r1", "gain": -2.0}])
    return place


def test_the_number_above_the_cap_is_cut_and_a_sum_with_a_sign_is_not(state: Path) -> None:
    told = CliRunner().invoke(cli, ["releases", str(state)])
    assert told.exit_code == 0, told.output
    parts = {part.split(",")[0]: part for part in told.output.split("\n\n") if part}
    assert "at most" in parts["above_cap"]
    assert "-" not in parts["above_cap"].replace("--json", "")
    assert "at most" in parts["active"]
    assert "Cut at 0" not in parts["gain"]
    raw = CliRunner().invoke(cli, ["releases", str(state), "--query", "active", "--json"])
    assert '"low": -' in raw.output


def test_an_extreme_is_shown_as_a_bound_and_a_quantile_that_nobody_knows_without_a_number() -> None:
    rows = pl.DataFrame(
        {
            "key": ["largest 1", "0.9", "0.5", "smallest 1"],
            "estimate": [249.0, 95.5, 22.5, 3.5],
            "low": [249.0, 90.0, 0.0, 0.0],
            "high": [2000.0, 100.5, 1990.0, 3.5],
        }
    )
    console = Console(width=120, file=io.StringIO())
    console.print(release_table(None, rows, query={"kind": "quantiles", "range": (0, 2000)}))
    assert isinstance(console.file, io.StringIO)
    assert [line.split() for line in console.file.getvalue().splitlines()][1:] == [
        ["largest", "1", "at", "least", "249", "249", "2,000"],
        ["0.9", "95.5", "90", "100.5"],
        ["0.5", "not", "known", "0", "1,990"],
        ["smallest", "1", "at", "most", "3.5", "0", "3.5"],
    ]
    share = re.search("NEARLY_ALL = ([0-9.]+);", (Path(service.__file__).parent / "page" / "numbers.js").read_text())
    assert share is not None
    assert float(share[1]) == told_rows.NEARLY_ALL, "the page has the same"
