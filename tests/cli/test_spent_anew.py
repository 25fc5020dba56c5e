"""`run` says that a stream which begins spends its budget, and warns where the same one has begun before."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pianissimo.cli.main import cli
from pianissimo.io.inspect import streams_beside

_FILE = """
[stream]
name = "shop"
horizon = 2
tick = "1h"
origin = "2026-01-01T00:00:00Z"
epsilon = 1.0
delta = 1e-6

[source]
path = "sales.csv"
time = "time"

[queries.sales]
kind = "count"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("sales.csv").write_text("time\n2026-01-01T00:30:00Z\n")
    Path("shop.toml").write_text(_FILE)
    return Path("shop.toml")


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(cli, ["run", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done


def test_a_new_stream_says_what_it_spends_and_going_on_does_not(file: Path) -> None:
    assert "This is a new stream, and spends epsilon 1 and delta 1e-06. It is kept in shop.state" in run(file).stdout
    again = run(file).output
    assert "spends" not in again
    assert "goes on" in again


@pytest.mark.parametrize("options", [(), ("--quiet",), ("--json",)])
def test_another_folder_for_the_same_stream_is_a_warning(file: Path, options: tuple[str, ...]) -> None:
    run(file)
    told = run(file, "--state", "other", *options)
    shown = told.stderr if options else told.stdout
    assert "Warning: stream 'shop' was begun before, in shop.state. This is another one" in shown
    assert "spends epsilon 1 and delta 1e-06 once more" in shown
    assert "pianissimo run shop.toml --state shop.state" in shown
    if options:
        assert "Warning" not in told.stdout
    assert "in other, and in 1 more" in run(file, "--in-memory", "--out", "out").stdout


def test_streams_of_other_names_and_what_is_no_stream_are_passed_over(file: Path, tmp_path: Path) -> None:
    run(file)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "state.db").write_bytes(b"no database")
    assert streams_beside([tmp_path, tmp_path / "none"], "shop") == [tmp_path / "shop.state"]
    assert streams_beside([tmp_path], "shop", but=tmp_path / "shop.state") == []
    assert streams_beside([tmp_path], "another") == []
