"""What a long and hostile run found: forks, damage, clocks, labels, faults of libraries, and what is lost twice."""

import json
import os
import random
import shutil
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tests.faults.report import record
from tests.io.running import write_spec

from pianissimo import Budget, Count, Histogram, Stream
from pianissimo.cli.main import cli
from pianissimo.durable.durable_stream import open_stream
from pianissimo.errors import PianissimoError
from pianissimo.io import read_releases
from pianissimo.io.folder import FolderSink
from pianissimo.io.inspect import read_status, seen_releases, stored_plan, stored_request, verify_folder
from pianissimo.io.loop import Reports, StreamLoop
from pianissimo.io.sources.source_records import Records, RowJudge
from pianissimo.stream.release import StreamRelease

STREAM = Stream("s", budget=Budget(4, 1e-6), horizon=40, queries=[Count("n")], tick="1m")


def in_a_child(do: Callable[[], object]) -> str:
    """What a forked child says when it does something; the alarm ends one that hangs."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            do()
            said = "it went on"
        except BaseException as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_refused_at_once(tmp_path: Path) -> None:
    with open_stream(STREAM, tmp_path / "state") as live, STREAM.start() as memory:
        live.tick([{}])
        memory.tick([{}])
        told = [
            in_a_child(do)
            for do in (
                lambda: live.tick([{}]),
                lambda: live.add([{}]),
                lambda: live.window(1),
                lambda: live.released(1),
                lambda: memory.tick([{}]),
                lambda: memory.window(1),
            )
        ]
        refused = sum(said.startswith("StateError: a run must stay in the process") for said in told)
        record("R26", "a forked child", figure=f"{refused} of 6 calls refused", bar="all", passed=refused == 6)
        assert in_a_child(live.close) == "it went on"
        live.tick([{}])  # of which the child has closed nothing


def test_whatever_is_damaged_status_and_releases_answer_or_refuse(tmp_path: Path) -> None:
    with open_stream(STREAM, tmp_path / "state") as live:
        for _ in range(9):
            live.tick([{}])
    raw, rng, refused = (tmp_path / "state" / "state.db").read_bytes(), random.Random(21), 0
    place = raw.find(b'"horizon"')  # in what is written down of the stream, which is damaged in every second copy
    for number in range(60):
        content = bytearray(raw)
        for _ in range(1 + number % 4):
            at = place - 200 + rng.randrange(400) if number % 2 else rng.randrange(len(content))
            content[at] = rng.randrange(256)
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "state", copy)
        (copy / "state.db").write_bytes(bytes(content))
        for look in (read_status, stored_request, stored_plan, seen_releases):
            try:
                look(copy)
            except PianissimoError:
                refused += 1
        shutil.rmtree(copy)
    record(
        "R26", "status of damaged stores", figure=f"{refused} of 240 refused", bar="no traceback", passed=refused > 20
    )


def test_labels_that_a_spreadsheet_would_take_for_formulas_are_text_in_csv(tmp_path: Path) -> None:
    labels = ['=HYPERLINK("http://x","y")', "+1", "-1", "@a", "\tb", "'quoted", "''", "plain", "", "a=b"]
    table = pl.DataFrame({"key": [*labels, None], "estimate": range(11), "low": range(11), "high": range(11)})
    sink = FolderSink(tmp_path, plan={"digest": "3f"}, format="csv")
    sink.write(StreamRelease(tick=1, coverage=0.95, tables={"drugs": table}))
    text = next((tmp_path / "drugs").iterdir()).read_text()
    assert not any(line.split(",", 1)[1].lstrip('"')[:1] in "=+-@\t" for line in text.splitlines()[1:9])
    assert read_releases(tmp_path)["drugs"]["key"].to_list() == [*labels, None]


def test_a_clock_that_went_ahead_and_back_is_told(tmp_path: Path) -> None:
    moment, seen = [5], []

    class Waiting:
        def seek(self, position: Any, tick: int) -> None: ...

        position = None

        def batches(self, tick: int) -> Any:
            moment[0] = 2  # set back from tick 5 on
            for now in (2, tick) if tick == 6 else ():
                moment[0] = now
                yield None
                seen.append(json.loads((tmp_path / "health.json").read_text()))
            moment[0] = tick

    with open_stream(STREAM, tmp_path / "state") as live:
        reports = Reports(health=tmp_path / "health.json", lag=lambda tick: moment[0] - tick)
        StreamLoop(live, Waiting(), 6, reports=reports).run()
    states = [each["state"] for each in seen]
    passed = states == ["waiting for the clock", "running"]
    record("R26", "a clock that is put back", figure=", then ".join(states), bar="it is told", passed=passed)
    assert seen[0]["lag"] == 0
    assert "must be behind tick 5, which is released, got one that is 3 ticks before" in seen[0]["message"]


def test_what_a_library_raises_over_one_record_refuses_that_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = RowJudge([Histogram("drugs", key="drug", domain=["a", "b"])])
    sound = judge._json.read

    def read(numbers: pl.Series, texts: pl.Series) -> Any:
        if texts.str.contains("boom").any():
            raise RuntimeError("row of user 7")
        return sound(numbers, texts)

    monkeypatch.setattr(judge._json, "read", read)
    texts = pl.Series(['{"drug": "boom"}' if number in (3, 11) else '{"drug": "a"}' for number in range(16)])
    found = judge.read(Records(place="f", rank=(), numbers=pl.Series(range(16)), texts=texts))
    refused = found.refused["line"].to_list()
    record("R24", "a library raises over two rows", figure=f"{refused}", bar="[3, 11]", passed=refused == [3, 11])
    assert found.table.height == 14
    assert "user 7" not in found.refused["reason"][0]


def test_what_nobody_foresaw_in_a_source_is_a_clear_stop_that_health_tells(tmp_path: Path) -> None:
    class Broken:
        position = None

        def seek(self, position: Any, tick: int) -> None: ...

        def batches(self, tick: int) -> Any:
            raise ZeroDivisionError("user 7")
            yield

    with open_stream(STREAM, tmp_path / "state") as live, pytest.raises(PianissimoError, match="got ZeroDivisionError"):
        StreamLoop(live, Broken(), 6, reports=Reports(health=tmp_path / "health.json")).run()
    told = json.loads((tmp_path / "health.json").read_text())
    assert told["state"] in ("refused", "failed")
    assert "user 7" not in told["message"]


def files_spec(folder: Path, rows: str, **options: Any) -> Path:
    (folder / "events.csv").write_text(rows)
    path = write_spec(folder, 'path = "events.csv"\ntime = "time"', ticks=40, **options)
    text = path.read_text()
    begin = text.index("origin = ")
    path.write_text(text[:begin] + "origin = 2026-01-01" + text[text.index("\n", begin) :])
    return path


def run(*words: object) -> Any:
    return CliRunner().invoke(cli, [str(each) for each in words])


def test_a_start_that_fails_is_told_by_health(tmp_path: Path) -> None:
    spec = files_spec(tmp_path, "time,drug\n2026-01-01T00:00:01,a\n")
    assert run("run", spec, "--quiet").exit_code == 0
    health = tmp_path / "s.state" / "health.json"
    assert json.loads(health.read_text())["state"] == "done"
    (tmp_path / "events.csv").write_text(",".join(f"c{number}" for number in range(5000)) + "\n")
    done = run("run", spec, "--quiet")
    assert done.exit_code == 2
    told = json.loads(health.read_text())
    assert told["state"] == "failed"
    assert "at most 4096 columns" in told["message"]


def test_events_of_complete_files_are_read_again_after_store_and_witness_were_restored_together(tmp_path: Path) -> None:
    """Store and witness are of tick 20, the folder has tick 30: nothing of ticks 21 to 30 may be lost."""
    rows = "".join(f"2026-01-01T00:00:{second % 40:02},a\n" for second in range(4000))
    spec = files_spec(tmp_path, f"time,drug\n{rows}", more="[ledger]\nbudget = { epsilon = 9, delta = 1e-5 }")
    state, out = tmp_path / "s.state", tmp_path / "out"
    stop_at(spec, 20)
    assert run("run", spec, "--quiet", "--out", out).exit_code == 0
    kept = tmp_path / "kept"
    shutil.copytree(state, kept)
    witness = next(tmp_path.glob("*.witness"))
    shutil.copy(witness, tmp_path / "witness.kept")
    stop_at(spec, 30)
    assert run("run", spec, "--quiet", "--out", out).exit_code == 0
    assert read_releases(out)["n"]["tick"].max() == 30
    shutil.rmtree(state)
    shutil.copytree(kept, state)
    shutil.copy(tmp_path / "witness.kept", witness)
    refused = run("run", spec, "--quiet", "--out", out)
    assert refused.exit_code == 3
    done = run("recover", state, "--accept-rollback", "--out", out)
    assert done.exit_code == 0, done.output
    stop_at(spec, 40)
    assert run("run", spec, "--quiet", "--out", out).exit_code == 0
    last = read_releases(out)["n"].filter(pl.col("tick") == 40)
    # After tick 20 each second has 100 rows; without ticks 21 to 30 it would be 1,000.
    missed = abs(last["estimate"].item() - 2000)
    record(
        "R21", "both restored at tick 20, a sink at 30", figure=f"{missed} of 2000", bar="noise", passed=missed < 300
    )
    # The folder is the only copy of ticks 21 to 30: that is no fault of it, and nobody is told to remove it.
    assert verify_folder(state, out) == 40
    assert run("verify", state, "--out", out).exit_code == 0
    shutil.rmtree(out / "drugs")
    told = run("verify", state, "--out", out)
    assert told.exit_code == 3
    assert "keep the folder" in told.output
    assert "remove" not in told.output


def stop_at(spec: Path, tick: int) -> None:
    """Let a run end at a tick, as if it were stopped there."""
    text = spec.read_text()
    kept = "".join(line for line in text.splitlines(keepends=True) if "until" not in line)
    spec.write_text(kept.replace("[source]", f"[source]\nuntil = 2026-01-01T00:00:{tick:02}Z", 1))


def test_release_builds_of_the_core_check_overflows() -> None:
    """As the design says: a number that does not fit stops the process, and wraps to nothing that is released."""
    manifest = tomllib.loads((Path(__file__).parents[2] / "Cargo.toml").read_text())
    assert manifest["profile"]["release"]["overflow-checks"] is True


def test_a_place_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = files_spec(tmp_path, "time,drug\n2026-01-01T00:00:01,a\n")
    monkeypatch.setenv("STORE", str(tmp_path / "elsewhere"))
    assert run("run", spec, "--quiet", "--state", "env:STORE").exit_code == 0
    assert read_status(tmp_path / "elsewhere").released_tick == 40
    for command in ("status", "verify", "releases", "budget"):
        assert run(command, "env:STORE").exit_code == 0
    missing = run("status", "env:NOTHING")
    assert missing.exit_code == 2
    assert "NOTHING must hold a folder or a URL" in missing.output


@pytest.mark.parametrize(("columns", "counted"), [(4096, 2), (4097, 0), (5000, 0)])
def test_a_followed_csv_of_many_columns_is_read_or_its_rows_are_refused(columns: int, counted: int) -> None:
    header = ",".join(["drug", *(f"c{number}" for number in range(columns - 1))])
    texts = pl.Series([",".join(["a"] * columns)] * 2)
    judge = RowJudge([Histogram("drugs", key="drug", domain=["a", "b"])])
    found = judge.read(Records(place="f.csv", rank=(), numbers=pl.Series([2, 3]), texts=texts, header=header))
    assert (found.table.height, found.refused.height) == (counted, 2 - counted)
