"""When a release begins and ends, wherever it is read."""

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.durable.durable_stream import open_stream
from pianissimo.io.folder import FolderSink
from pianissimo.io.inspect import verify_folder
from pianissimo.stream.release import payload_of, release_of

ORIGIN = datetime(2026, 3, 28, 23, tzinfo=UTC)
"""Midnight in Berlin, before a day of 23 hours."""

DAYS = [ORIGIN, ORIGIN + timedelta(hours=23), ORIGIN + timedelta(hours=47)]
MOMENT = pl.Datetime("us", "UTC")


def stream(**fields: Any) -> pp.Stream:
    base: dict[str, Any] = {"budget": pp.Budget(1, 1e-9), "horizon": 8}
    base |= {"tick": "1d", "origin": ORIGIN, "time_zone": "Europe/Berlin"}
    queries = [pp.Count("n"), pp.Histogram("drugs", key="drug", domain=["a", "b"])]
    return pp.Stream("s", **({"queries": queries} | base | fields))


def test_tables_of_a_release_say_when_their_tick_is() -> None:
    live = stream().start()
    releases = [live.tick([{"drug": "a"}]), live.tick()]
    for release, start, end in zip(releases, DAYS, DAYS[1:], strict=False):
        assert (release.start, release.end) == (start, end)
        for table in release.values():
            assert table.columns[-5:] == ["low", "high", "start", "end", "since"]
            assert table.schema["start"] == table.schema["end"] == MOMENT
            assert set(table.select("start", "end", "since").rows()) == {(start, end, ORIGIN)}
    assert "2026-03-28T23:00:00Z" in releases[0]._repr_html_()


def test_windows_tell_their_own_start() -> None:
    live = stream().start()
    last = [live.tick(), live.tick()][-1]
    for window in (live.window(2), live.window("48h"), last.between(0, 2)):
        assert (window.start, window.end) == (DAYS[0], DAYS[2])
        assert window["n"].select("start", "end", "since").row(0) == (DAYS[0], DAYS[2], DAYS[0])
    assert live.between(1, 2).start == DAYS[1]


def test_json_says_it_in_its_head_and_not_in_every_row() -> None:
    release = stream().start().tick([{"drug": "a"}])
    for text in (release.to_json(), payload_of(release, stream="s", incarnation=b"").decode()):
        content = json.loads(text)
        assert (content["start"], content["end"]) == ("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z")
        assert list(content)[list(content).index("tick") + 1] == "start"
        assert list(content["releases"]["drugs"][0]) == ["key", "estimate", "low", "high"]
    for back in (release_of(text.encode()), pickle.loads(pickle.dumps(release))):
        assert (back.start, back.end) == (release.start, release.end)
        assert all(back[name].equals(release[name]) for name in release)


def test_without_an_origin_everything_is_as_it_was() -> None:
    release = stream(origin=None, time_zone="UTC").start().tick([{"drug": "a"}])
    assert release.start is release.end is None
    assert release["drugs"].columns == ["key", "estimate", "low", "high"]
    assert list(release.to_dict()) == ["tick", "coverage", "releases"]
    told = stream(origin=None, time_zone="UTC").plan().to_dict()
    assert not {"origin", "time_zone"} & set(told)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_files_have_the_columns_and_the_store_has_the_same(form: Any, tmp_path: Path) -> None:
    state, out = tmp_path / "state", tmp_path / "out"
    asked = stream(origin=ORIGIN + timedelta(microseconds=5))
    plan = asked.plan().to_dict()
    with open_stream(asked, state, sinks=[FolderSink(out, plan=plan, format=form)]) as live:
        first = live.tick([{"drug": "a"}])
        live.tick()
        assert live.released(1)["n"].equals(first["n"])
        assert (live.window(2).start, live.window(2).end) == (first.start, live.released(2).end)
    with open_stream(asked, state) as live:
        assert live.tick().start == live.released(2).end
    found = pp.read_releases(out)
    assert found["drugs"].columns == ["tick", "start", "end", "since", "key", "estimate", "low", "high"]
    assert found["n"]["start"].to_list() == [first.start, first.end]
    stored = pp.read_releases(state)
    for name, table in found.items():
        assert_frame_equal(stored[name].filter(pl.col("tick") < 3), table)
    told = json.loads((out / "plan.json").read_text())
    assert (told["tick"], told["origin"], told["time_zone"]) == ("1d", "2026-03-28T23:00:00.000005Z", "Europe/Berlin")
    with open_stream(asked, state, sinks=[FolderSink(out, plan=plan, format=form)]):
        pass
    assert verify_folder(state, out) == 3
    (text,) = [path.read_text() for path in (out / "n").glob("ticks-00000001*") if form != "parquet"] or [""]
    assert form == "parquet" or "2026-03-28T23:00:00.000005Z" in text


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_run_without_a_store_writes_the_same_columns(form: Any, tmp_path: Path) -> None:
    live = stream().start()
    releases = [live.tick([{"drug": "a"}]), live.tick()]
    folder = FolderSink(tmp_path / "out", plan=live.plan.to_dict(), format=form)
    for release in releases:
        folder.write(release)
    table = pp.read_releases(tmp_path / "out")["n"]
    assert table.schema["start"] == MOMENT
    assert table.select("tick", "start", "end").rows() == [(1, *DAYS[:2]), (2, *DAYS[1:])]
    shown = CliRunner().invoke(cli, ["releases", str(tmp_path / "out"), "--query", "n", "--json"])
    lines = [json.loads(line) for line in shown.output.splitlines()]
    assert [(each["tick"], each["start"]) for each in lines] == [
        (1, "2026-03-28T23:00:00Z"),
        (2, "2026-03-29T22:00:00Z"),
    ]
    assert set(lines[0]["release"][0]) == {"estimate", "low", "high"}
    text = CliRunner().invoke(cli, ["releases", str(tmp_path / "out"), "--query", "n", "--tick", "2"]).output
    assert "n, tick 2, start 2026-03-30 00:00:00+02:00, end 2026-03-31 00:00:00+02:00" in text
