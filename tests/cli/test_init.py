"""`pianissimo init` writes a file that plan, check and run accept, and reads no value of the data."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from pianissimo.cli import init_command
from pianissimo.cli.main import cli
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import load_spec
from pianissimo.unit import User

ROWS = "time;customer;drug;price\n2026-01-05T00:10:00Z;annabel;aspirin;3.5\n2026-01-05T01:10:00Z;bob;mixture;7\n"
GIVEN = ["--origin", "2026-01-05T00:00:00Z", "--horizon", "1d"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "sales.csv"
    place.write_text(ROWS, encoding="utf-8")
    return place


def run(*arguments: str | Path, typed: str = "") -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments], input=typed)


def test_what_it_writes_is_planned_checked_and_run(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "sales.toml"
    made = run("init", file, "--csv", data, "--count-by", "drug", "--sum", "price=0..50", "--yes", *GIVEN)
    assert made.exit_code == 0, made.output
    spec = load_spec(file)
    assert isinstance(spec.source, FileSource)
    assert (spec.source.time, spec.source.delimiter, spec.source.path) == ("time", ";", data)
    assert [query.name for query in spec.stream.queries] == ["events", "drug", "sum_of_price"]
    for command in ("plan", "check", "run"):
        done = run(command, file)
        assert done.exit_code == 0, done.output


def test_a_user_column_hides_users(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "sales.toml"
    made = run("init", file, "--csv", data, "--user", "customer", "--count-by", "drug", "--yes", *GIVEN)
    assert made.exit_code == 0, made.output
    unit = load_spec(file).stream.unit
    assert isinstance(unit, User)
    assert unit.column == "customer"
    assert "one user with all her events" in made.output


def test_ticks_follow_the_clocks_that_are_named(tmp_path: Path, data: Path) -> None:
    """The origin is midnight there: 23 o'clock of the day before in UTC."""
    data.write_text("time,drug\n2026-01-05 00:10:00,a\n2026-01-05 23:50:00,b\n", encoding="utf-8")
    file = tmp_path / "sales.toml"
    days = ["--tick", "1d", "--horizon", "3d", "--time-zone", "Europe/Berlin"]
    made = run("init", file, "--csv", data, "--yes", *days, "--origin", "2026-01-05")
    assert made.exit_code == 0, made.output
    assert "from 2026-01-05 00:00:00+01:00 on, by the clocks of Europe/Berlin" in made.output
    stream = load_spec(file).stream
    assert (stream.time_zone, str(stream.origin)) == ("Europe/Berlin", "2026-01-04 23:00:00+00:00")
    told = " ".join(run("check", file).output.split())
    assert "rows per tick, largest 2" in told
    today = tmp_path / "today.toml"
    assert run("init", today, "--csv", data, "--yes", *days).exit_code == 0
    begin = load_spec(today).stream.origin
    assert isinstance(begin, datetime)
    assert begin.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M:%S") == "00:00:00"


def test_no_value_of_the_data_is_read(tmp_path: Path, data: Path) -> None:
    data.write_bytes(ROWS.splitlines()[0].encode() + b"\n" + b"\xff\xfe" * 100)  # what follows is not even text
    file = tmp_path / "sales.toml"
    assert run("init", file, "--csv", data, "--yes").exit_code == 0
    text = file.read_text(encoding="utf-8")
    assert not any(value in text for value in ("annabel", "aspirin", "mixture", "3.5"))


def test_answers_are_asked_for_in_a_terminal(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_command, "somebody_is_there", lambda: True)
    file = tmp_path / "sales.toml"
    typed = "shop\n\n\ncustomer\ndrug\nprice=0..50\n1d\n90d\n\n2026-01-05T00:00:00Z\n2\n1e-8\n"
    made = run("init", file, "--csv", data, typed=typed)
    assert made.exit_code == 0, made.output
    assert "Columns: time, customer, drug, price" in made.output
    stream = load_spec(file).stream
    assert (stream.name, stream.budget.epsilon, stream.budget.delta, stream.horizon) == ("shop", 2, 1e-8, 90)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--time", "when"], "one of time, customer, drug, price"),
        (["--sum", "price"], "price=0..50"),
        (["--sum", "price=1..x"], "price=0..50"),
        (["--origin", "soon"], "origin must be a time"),
        (["--epsilon", "-1"], "epsilon"),
        (["--tick", "often"], "tick"),
        (["--time-zone", "Berlin"], "time_zone must be a name such as 'Europe/Berlin' or 'UTC', got 'Berlin'"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_file(tmp_path: Path, data: Path, wrong: list[str], told: str) -> None:
    file = tmp_path / "sales.toml"
    made = run("init", file, "--csv", data, "--yes", *wrong)
    assert made.exit_code == 2
    assert told in made.output
    assert not file.exists()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    made = run("init", tmp_path / "nowhere" / "sales.toml", "--yes")
    assert made.exit_code == 2
    assert "FILE must be in a folder that can be written, got " in made.output


def test_whoever_gives_the_stream_file_for_its_folder_is_told_the_folder(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "sales.toml"
    assert run("init", file, "--csv", data, "--yes", *GIVEN).exit_code == 0
    for command in ("status", "verify", "releases"):
        refused = run(command, file)
        assert refused.exit_code == 2
        assert f"it is kept in {tmp_path / 'sales.state'} unless --state said another" in refused.output


def test_numbers_of_status_and_check_are_told_with_their_meaning(tmp_path: Path, data: Path) -> None:
    rows = "time,customer,price\n" + "2026-01-05T00:10:00Z,a,30\n" * 1200
    data.write_text(rows, encoding="utf-8")
    file = tmp_path / "sales.toml"
    made = run("init", file, "--csv", data, "--sum", "price=0..20", "--user", "customer", "--yes", *GIVEN)
    assert made.exit_code == 0, made.output
    told = " ".join(run("check", file).output.split())
    assert "rows 1,200 first_time" in told
    assert "rows per tick, largest 1,200 " in told
    assert "nulls: sum_of_price 0 rows without a value that it counts" in told
    assert "outside: sum_of_price 1,200 rows with a value outside its range" in told
    assert "cut_share: sum_of_price -33.3% of the sum, by cutting values to its range" in told
    assert "above 20: 1 user," in told
    assert run("run", file).exit_code == 0
    status = " ".join(run("status", tmp_path / "sales.state").output.split())
    assert "finished yes (whether the last run" in status


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("mine", encoding="utf-8")
    assert run("init", file, "--yes").exit_code == 2
    assert file.read_text(encoding="utf-8") == "mine"


def test_odd_names_of_columns_are_quoted(tmp_path: Path) -> None:
    data, file = tmp_path / "odd.csv", tmp_path / "odd.toml"
    data.write_text('"time","größe ""x""\\","größe"\n', encoding="utf-8")
    made = run("init", file, "--csv", data, "--count-by", "größe", "--yes", *GIVEN)
    assert made.exit_code == 0, made.output
    assert load_spec(file).stream.queries[1].name == "gr_e"


def test_a_column_that_is_not_there_is_told_with_its_flag(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "sales.toml"
    refused = run("init", file, "--csv", data, "--count-by", "Drug", "--yes", *GIVEN)
    assert refused.exit_code == 2
    assert "--count-by must name a column, one of time, customer, drug, price, got 'Drug'" in refused.output
    data.write_text(ROWS.replace("time;", "moment;"), encoding="utf-8")
    refused = run("init", file, "--csv", data, "--yes", *GIVEN)
    assert refused.exit_code == 2
    assert "--time must name a column, one of moment, " in refused.output
    assert "'time'" not in refused.output  # nobody typed it
    assert not file.exists()


def test_a_release_without_labels_says_why(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "sales.toml"
    assert run("init", file, "--csv", data, "--count-by", "drug", "--yes", *GIVEN).exit_code == 0
    assert run("run", file).exit_code == 0
    seen = run("releases", tmp_path / "sales.state", "--last", "1", "--query", "drug")
    assert seen.exit_code == 0, seen.output
    assert "No label is shown: none has reached its threshold, " in seen.output
    both = run("releases", tmp_path / "sales.state", "--last", "1")
    assert both.exit_code == 0, both.output
    assert both.output.count("No label is shown") == 1  # a count has no labels, and no threshold


@pytest.mark.parametrize(
    ("header", "time"),
    [("when", "when"), ("Created", "Created"), ("paid_at", "paid_at"), ("order date", "order date")],
)
def test_a_column_that_is_called_like_a_time_is_found(tmp_path: Path, data: Path, header: str, time: str) -> None:
    data.write_text(ROWS.replace("time;", f"{header};"), encoding="utf-8")
    file = tmp_path / "sales.toml"
    assert run("init", file, "--csv", data, "--yes", *GIVEN).exit_code == 0
    source = load_spec(file).source
    assert isinstance(source, FileSource)
    assert source.time == time


def test_of_two_columns_that_end_like_times_none_is_taken(tmp_path: Path, data: Path) -> None:
    data.write_text(ROWS.replace("time;customer;", "paid_at;sent_at;"), encoding="utf-8")
    refused = run("init", tmp_path / "sales.toml", "--csv", data, "--yes", *GIVEN)
    assert refused.exit_code == 2
    assert "--time must name a column, one of paid_at, sent_at, " in refused.output


def test_how_times_are_written_can_be_said(tmp_path: Path, data: Path) -> None:
    rows = "time;price\n05/01/2026 00:10;3.5\n05/01/2026 01:10;7\n"
    data.write_text(rows, encoding="utf-8")
    file = tmp_path / "sales.toml"
    assert run("init", file, "--csv", data, "--time-format", "%d/%m/%Y %H:%M", "--yes", *GIVEN).exit_code == 0
    assert run("check", file).exit_code == 0
    other = tmp_path / "other.toml"
    assert run("init", other, "--csv", data, "--yes", *GIVEN).exit_code == 0
    told = run("check", other)
    assert told.exit_code == 2
    assert "they look like '%d/%m/%Y %H:%M'" in told.output
