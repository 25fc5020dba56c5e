import json
import re
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import pianissimo.stream.stream
from pianissimo.cli.main import cli
from pianissimo.errors import InputError, SpecError
from pianissimo.io import read_plan, read_releases
from pianissimo.io.inspect import read_status
from pianissimo.io.runs import run_durably, run_file
from pianissimo.stream.source_spec import FileFormat
from pianissimo.stream.spec import StreamSpec, load_spec
from pianissimo.testing import NoNoise

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEC = """
[stream]
name = "pharmacy"
epsilon = 1.0
delta = 1e-9
tick = "1h"
horizon = "24h"
origin = 2026-01-05T00:00:00Z
[source]
path = "purchases.csv"
time = "time"
until = 6
[queries.purchases]
kind = "count"
[queries.regions]
kind = "histogram"
key = "region"
domain = ["north", "south"]
nulls = "refuse"
[queries.drugs]
kind = "histogram"
key = "drug"
"""
ROWS = [
    ("2026-01-05T00:10:00Z", "north", "aspirin"),
    ("2026-01-05T03:59:59.999999Z", "south", "aspirin"),
    ("2026-01-05T00:20:00Z", "north", "ibuprofen"),
    ("2026-01-05T04:00:00Z", "elsewhere", "aspirin"),
]
NORTH = [2, 2, 2, 2, 2, 2]
SOUTH = [0, 0, 0, 1, 1, 1]
COUNTS = [2, 2, 2, 3, 4, 4]


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pianissimo.stream.stream, "KeyedNoise", lambda secret: NoNoise())


def prepare(folder: Path, lines: list[str] | None = None, spec: str = SPEC) -> StreamSpec:
    (folder / "pharmacy.toml").write_text(spec)
    text = "\n".join(["time,region,drug", *([",".join(row) for row in ROWS] if lines is None else lines)])
    (folder / "purchases.csv").write_text(text + "\n")
    return load_spec(folder / "pharmacy.toml")


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_without_noise_it_is_the_plain_statistic_at_every_tick(tmp_path: Path, form: FileFormat) -> None:
    summary = run_file(prepare(tmp_path), tmp_path / "out", format=form)
    assert (summary.loop.tick, summary.refused) == (6, None)
    found = read_releases(tmp_path / "out")
    assert found["purchases"]["tick"].to_list() == [1, 2, 3, 4, 5, 6]
    assert found["purchases"]["estimate"].to_list() == COUNTS
    regions = found["regions"]
    assert regions.filter(pl.col("key") == "north")["estimate"].to_list() == NORTH
    assert regions.filter(pl.col("key") == "south")["estimate"].to_list() == SOUTH
    assert not (tmp_path / "out" / "refused.jsonl").exists()


MORE = """
[queries.revenue]
kind = "sum"
value = "price"
range = [0, 50]
grid = 0.01
nulls = "refuse"
every = "2h"
tidy = ["non_negative"]
[queries.top_regions]
kind = "top_k"
key = "region"
k = 1
domain = ["north", "south"]
every = 3
[queries.rest]
kind = "histogram"
key = "drug"
other = true
every = 4
"""
PRICED = [f"{row[0]},{row[1]},{row[2]},{price}" for row, price in zip(ROWS, ("1.25", "80", "2", "-3"), strict=True)]
PRICED += ["2026-01-05T00:00:00Z,north,aspirin,free", "2026-01-05T00:00:00Z,north,aspirin,nan"]


def prepare_prices(folder: Path, spec: str = SPEC + MORE) -> StreamSpec:
    prepared = prepare(folder, spec=spec)
    (folder / "purchases.csv").write_text("\n".join(["time,region,drug,price", *PRICED]) + "\n")
    return prepared


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize("horizon", ["24h", "none"])
def test_sums_top_lists_and_rests_are_released_at_their_ticks(tmp_path: Path, form: FileFormat, horizon: str) -> None:
    spec = prepare_prices(tmp_path, (SPEC + MORE).replace('horizon = "24h"', f'horizon = "{horizon}"'))
    summary = run_file(spec, tmp_path / "out", format=form)
    assert summary.loop.tick == 6
    found = read_releases(tmp_path / "out")
    assert found["purchases"]["estimate"].to_list() == COUNTS
    assert found["revenue"].select("tick", "estimate", "tidy").rows() == [
        (2, 3.25, 3.25),
        (4, 53.25, 53.25),  # 80 is above the range
        (6, 53.25, 53.25),  # and -3 below
    ]
    assert found["top_regions"].select("tick", "key", "estimate").rows() == [(3, "north", 2), (6, "north", 2)]
    assert found["rest"].select("tick", "key", "estimate").rows() == [(4, None, 3)]
    assert summary.refused is not None
    assert [json.loads(line)["line"] for line in summary.refused.read_text().splitlines()] == [6, 7]
    assert read_plan(tmp_path / "out")["horizon"] == (24 if horizon == "24h" else 2**32)


def test_a_pure_stream_can_be_run(tmp_path: Path) -> None:
    text = SPEC.replace("1e-9", "0").replace('key = "drug"', 'key = "drug"\ndomain = ["aspirin"]')
    assert run_file(prepare(tmp_path, spec=text), tmp_path / "out").loop.tick == 6
    assert read_plan(tmp_path / "out")["budget"]["delta"] == 0
    assert read_releases(tmp_path / "out")["drugs"]["tick"].to_list() == [1, 2, 3, 4, 5, 6]


def test_an_interrupted_run_keeps_what_it_released(tmp_path: Path) -> None:
    def interrupt(tick: int, last: int) -> None:
        if tick == 3:
            raise KeyboardInterrupt

    spec = prepare(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_file(spec, tmp_path / "out", progress=interrupt)
    assert read_releases(tmp_path / "out")["purchases"]["tick"].to_list() == [1, 2, 3]
    with pytest.raises(InputError, match=r"got some up to tick 3; .* A run in memory cannot be taken up again"):
        run_file(spec, tmp_path / "out")


@pytest.mark.usefixtures("exact")
def test_a_bad_row_changes_nothing_but_itself_and_goes_to_the_side_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lines = [",".join(row) for row in ROWS]
    lines.insert(1, '2026-01-05T00:30:00Z,"north,secret-drug')
    lines.insert(3, "2026-01-05T00:30:00Z,,secret-drug")
    lines.append("2026-01-05T06:00:00Z,north,secret-drug")
    summary = run_file(prepare(tmp_path, lines), tmp_path / "out")
    assert read_releases(tmp_path / "out")["purchases"]["estimate"].to_list() == COUNTS
    assert summary.refused == tmp_path / "out" / "refused.jsonl"
    text = summary.refused.read_text()
    assert [json.loads(line) for line in text.splitlines()] == [
        {
            "file": "purchases.csv",
            "line": 3,
            "reason": "a line must be UTF-8 text of 3 fields, in quotes where they hold a comma or a quote",
        },
        {
            "file": "purchases.csv",
            "line": 5,
            "reason": "column 'region' must not be null and its labels must have at most 256 bytes",
        },
        {
            "file": "purchases.csv",
            "line": 8,
            "reason": "column 'time' must be before the end of tick 6, the last one",
        },
    ]
    assert stat.S_IMODE(summary.refused.stat().st_mode) == 0o600
    assert "secret" not in text
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


@pytest.mark.usefixtures("exact")
def test_without_events_every_tick_is_released_all_the_same(tmp_path: Path) -> None:
    assert run_file(prepare(tmp_path, []), tmp_path / "out").loop.tick == 6
    assert read_releases(tmp_path / "out")["purchases"]["estimate"].to_list() == [0] * 6


@pytest.mark.usefixtures("exact")
def test_a_file_of_bad_rows_is_released_like_one_without_rows(tmp_path: Path) -> None:
    # Where nothing else is asked for, whether there is a release does not depend on what the rows hold.
    spec = SPEC.replace("until = 6", 'until = 6\nmax_refused = "100%"')
    summary = run_file(prepare(tmp_path, ["x", "y"], spec), tmp_path / "out")
    assert summary.refused is not None
    assert read_releases(tmp_path / "out")["purchases"]["estimate"].to_list() == [0] * 6


def test_progress_is_told_in_ticks(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run_file(prepare(tmp_path), tmp_path / "out", progress=lambda tick, last: told.append((tick, last)))
    assert told == [(tick, 6) for tick in range(1, 7)]


def test_the_plan_in_the_folder_is_the_plan_of_the_stream(tmp_path: Path) -> None:
    spec = prepare(tmp_path)
    run_file(spec, tmp_path / "out")
    assert read_plan(tmp_path / "out") == json.loads(json.dumps(spec.stream.plan().to_dict()))


def test_a_second_run_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    spec = prepare(tmp_path)
    run_file(spec, tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="spends the budget again"):
        run_file(spec, tmp_path / "out")
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


def test_nothing_is_written_of_input_that_cannot_be_counted(tmp_path: Path) -> None:
    spec = prepare(tmp_path)
    (tmp_path / "purchases.csv").write_text("time,region\n2026-01-05T00:10:00Z,north\n")
    with pytest.raises(InputError, match="columns 'drug' must be in the file, got a header that lacks them"):
        run_file(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    prepare(tmp_path)
    assert run_file(spec, tmp_path / "out").loop.tick == 6


def test_refused_lines_of_an_earlier_attempt_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "refused.jsonl").write_text("of an earlier attempt")
    assert run_file(prepare(tmp_path), tmp_path / "out").refused is None
    assert not (tmp_path / "out" / "refused.jsonl").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    spec = prepare(tmp_path)
    with pytest.raises(InputError, match="must be a folder that can be written, got: Not a directory"):
        run_file(spec, tmp_path / "purchases.csv" / "out")


def test_a_spec_without_source_cannot_be_run(tmp_path: Path) -> None:
    head, _, tail = SPEC.partition("[source]")
    spec = prepare(tmp_path, spec=head + tail[tail.index("[queries") :])
    with pytest.raises(SpecError, match="must have a"):
        run_file(spec, tmp_path / "out")


def test_a_run_over_files_that_is_finished_lags_behind_nothing(tmp_path: Path) -> None:
    """Its last tick is that of the file, and the clock goes on to the end of the horizon, which is long past."""
    spec, state = prepare(tmp_path), str(tmp_path / "state")
    run_durably(spec, state)
    done = read_status(state)
    assert (done.released_tick, done.last_tick, done.finished, done.lag) == (6, 24, True, 0)
    told = CliRunner().invoke(cli, ["status", state]).output
    assert re.search(r"finished +yes +\(whether the last run released all that its file asks for\)", told)
    # What the file of health says of another tick, or what it cannot say, is of no run that finished this one.
    for text in ('{"state": "done", "tick": 5}', '{"state": "stopped", "tick": 6}', "[]", "{", ""):
        (tmp_path / "state" / "health.json").write_text(text)
        assert (read_status(state).finished, read_status(state).lag) == (False, 18)


@pytest.mark.usefixtures("exact")
def test_the_example_counts_what_is_in_its_file(tmp_path: Path) -> None:
    run_file(load_spec(EXAMPLES / "pharmacy.toml"), tmp_path / "out")
    found = read_releases(tmp_path / "out")
    purchases = pl.read_csv(EXAMPLES / "purchases.csv")
    last = {name: table.filter(pl.col("tick") == 96) for name, table in found.items()}
    assert last["purchases"]["estimate"].to_list() == [purchases.height]
    assert dict(last["regions"].select("key", "estimate").rows()) == Counter(purchases["region"].to_list())
    drugs = Counter(purchases["drug"].to_list())
    shown = dict(last["drugs"].select("key", "estimate").rows())
    assert shown
    assert shown == {drug: drugs[drug] for drug in shown}
    assert found["regions_by_hour"]["tick"].unique().to_list() == list(range(4, 97, 4))
    assert last["regions_by_hour"].drop("low", "high").equals(last["regions"].drop("low", "high"))
    cents = sum(round(100 * min(price, 50)) for price in purchases["price"].to_list())
    assert last["revenue"]["estimate"].to_list() == last["revenue"]["tidy"].to_list() == [cents / 100]
    listed = read_plan(tmp_path / "out")["queries"][-1]
    assert (listed["name"], listed["domain"]) == ("top_drugs", "10 labels")
    common = Counter(drug for drug in purchases["drug"].to_list() if not drug.startswith("rare"))
    assert last["top_drugs"].select("key", "estimate").rows() == common.most_common(3)
    assert (EXAMPLES / "purchases.csv").stat().st_size < 100_000


def test_the_example_is_within_its_error_bars_by_far(tmp_path: Path) -> None:
    # Eight half-widths of 95 %, 15 standard deviations: false_alarm_rate below 1e-45 for all values together.
    run_file(load_spec(EXAMPLES / "pharmacy.toml"), tmp_path / "out")
    times = pl.read_csv(EXAMPLES / "purchases.csv")["time"].str.to_datetime("%Y-%m-%dT%H:%MZ")
    ticks = (times.dt.hour().cast(pl.Int64) * 4 + times.dt.minute() // 15 + 1).to_list()
    purchases = read_releases(tmp_path / "out")["purchases"]
    assert purchases["tick"].to_list() == list(range(1, 97))
    for tick, estimate, low, high in purchases.drop("start", "end", "since").rows():
        truth = sum(each <= tick for each in ticks)
        assert low <= estimate <= high
        assert abs(estimate - truth) <= 8 * (high - estimate)


def test_the_example_data_can_be_made_again(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "make_pharmacy_data.py", tmp_path], check=True)
    assert (tmp_path / "purchases.csv").read_bytes() == (EXAMPLES / "purchases.csv").read_bytes()
    text = (EXAMPLES / "pharmacy.toml").read_text().replace("purchases.csv", "purchases.parquet")
    (tmp_path / "pharmacy.toml").write_text(text)
    assert run_file(load_spec(tmp_path / "pharmacy.toml"), tmp_path / "out").refused is None
