"""What the terminal shows of what cannot be told from noise: no count below zero, and no order of noise."""

import io
import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from rich.console import Console

import pianissimo as pp
from pianissimo import service
from pianissimo.cli import render
from pianissimo.cli.main import cli
from pianissimo.cli.render import release_table
from pianissimo.durable.durable_stream import open_stream
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
        ["none", "about", "0", "0", "0"],
        ["all", "that", "are", "not", "shown", "at", "most", "95", "0", "95"],
    ]
    assert " ".join(lines[6]).startswith("2 of 4 labels cannot be told from noise: they have no order. Cut at 0")


def test_of_noise_alone_it_is_said_that_it_is_noise() -> None:
    lines = shown(LABELS.filter(pl.col("low") < 0))
    assert " ".join(lines[-1]).startswith("2 labels, none can be told from noise: they have no order.")
    one = shown(pl.DataFrame({"estimate": [-189], "low": [-900], "high": [522]}))
    assert one[1] == ["at", "most", "522", "0", "522"]
    assert " ".join(one[2]).startswith("It cannot be told from noise. Cut at 0; --json has the numbers")


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
    console.print(release_table(None, rows, quantiles={"kind": "quantiles", "range": (0, 2000)}))
    assert isinstance(console.file, io.StringIO)
    assert [line.split() for line in console.file.getvalue().splitlines()][1:] == [
        ["largest", "1", "at", "least", "249", "249", "2,000"],
        ["0.9", "95.5", "90", "100.5"],
        ["0.5", "not", "known", "0", "1,990"],
        ["smallest", "1", "at", "most", "3.5", "0", "3.5"],
    ]
    share = re.search("NEARLY_ALL = ([0-9.]+);", (Path(service.__file__).parent / "page" / "numbers.js").read_text())
    assert share is not None
    assert float(share[1]) == render._NEARLY_ALL, "the page has the same"
