"""D10: files cut into ranges give the same payloads, and the same file of refused rows, as files read in one piece."""

import gzip
import json
import os
import pickle
import shutil
import signal
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.workers.cut_batches import CutBatches

import pianissimo as pp
from pianissimo import codec
from pianissimo.errors import InputError, SourceError
from pianissimo.io.runs import run_durably
from pianissimo.io.sources import event_files, file_ranges
from pianissimo.io.sources.file_ranges import FileRange, FileRules, ranges_of_file
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import LedgerSpec, SinkSpec, StreamSpec
from pianissimo.workers import GatheredRange, ProcessWorkers, gather_plan

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
TICKS = 4


def spec_of(path: Path, **source: Any) -> StreamSpec:
    user = pp.user("who", max_events_per_user=2)
    queries = [pp.Count("n"), pp.Histogram("found", key="drug"), pp.Sum("paid", value="price", range=(0, 10), grid=1)]
    stream = pp.Stream(
        "s", budget=pp.Budget(8, 1e-6), unit=user, horizon=TICKS, queries=queries, tick="1m", origin=ORIGIN
    )
    return StreamSpec(stream=stream, source=FileSource(path=path, time="time", **{"max_refused": 0.9} | source))


def rows(count: int = 300) -> list[dict[str, Any]]:
    """Rows of all ticks, in no order; some of them cannot be counted."""
    random = np.random.default_rng(1)
    found: list[dict[str, Any]] = []
    for number in range(count):
        when = ORIGIN + timedelta(seconds=int(random.integers(0, 60 * TICKS)))
        row = {"time": when.isoformat(), "who": f"u{random.integers(0, 40)}", "drug": "abc"[number % 3], "price": 3}
        if number % 17 == 0:
            row["time"] = "yesterday"
        if number % 23 == 0:
            row["who"] = "x" * 1000
        found.append(row)
    return found


def write(folder: Path, form: str) -> Path:
    made = rows()
    path = folder / f"events.{form}"
    if form == "parquet":
        pl.DataFrame(made).write_parquet(path, row_group_size=50)
    elif form == "csv":
        lines = [",".join(map(str, row.values())) for row in made]
        # Lines that are none, blank ones before the header and among rows, and one without an end.
        lines[40:40] = ["", "no row", "", '"open']
        path.write_text("\ufeff\n\ntime,who,drug,price\r\n" + "\n".join(lines))
    else:
        lines = list(map(json.dumps, made))
        lines[40:40] = ["", "{", "", "[]"]
        text = "\n".join(lines).encode()
        if form.endswith("gz"):
            path.write_bytes(gzip.compress(text))
        else:
            path.write_bytes(text)
    return path


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_ranges, "TEXT_BYTES", 3000)
    monkeypatch.setattr(file_ranges, "PIECE", 64)
    monkeypatch.setattr(event_files, "PIECE", 64)


def begun(spec: StreamSpec, folder: Path) -> Path:
    """A stream that has begun, to be copied."""
    folder.mkdir()
    with spec.stream.open(folder / "state"):
        return folder


def ran(spec: StreamSpec, made: Path, copy: Path, workers: Any = None) -> tuple[list[bytes], list[dict[str, Any]]]:
    """The payloads of a copy of a stream, and what its file of refused rows tells."""
    shutil.copytree(made, copy)
    run_durably(spec, str(copy / "state"), workers=workers)
    with spec.stream.open(copy / "state") as live:
        payloads = [live.payload(tick) for tick in range(1, TICKS + 1)]
    side = RefusedFile.beside(copy / "state", copy / "state.witness")
    return payloads, [json.loads(line) for line in side.read_text().splitlines()]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "jsonl.gz"])
def test_ranges_give_the_same_payloads_and_the_same_refused_rows(form: str, tmp_path: Path) -> None:
    spec = spec_of(write(tmp_path, form))
    made = begun(spec, tmp_path / "made")
    whole = ran(spec, made, tmp_path / "inline")
    assert len(whole[1]) > 10
    assert ran(spec, made, tmp_path / "cut", CutBatches(1)) == whole


def test_processes_read_files_and_one_that_is_killed_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(write(tmp_path, "jsonl"))
    made = begun(spec, tmp_path / "made")
    whole = ran(spec, made, tmp_path / "inline")
    workers, sound = ProcessWorkers(2), ProcessWorkers.gather

    def gather(self: ProcessWorkers, ranges: Any, rules: Any = None) -> Any:
        for place, found in enumerate(sound(self, ranges, rules)):
            if place in (1, 3):
                os.kill(self.processes[place % 2], signal.SIGKILL)
            yield found

    monkeypatch.setattr(ProcessWorkers, "gather", gather)
    assert ran(spec, made, tmp_path / "processes", workers) == whole


def test_ranges_that_are_not_kept_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_ranges, "HELD_BYTES", 2000)
    spec = spec_of(write(tmp_path, "parquet"))
    made = begun(spec, tmp_path / "made")
    assert ran(spec, made, tmp_path / "cut", CutBatches(1)) == ran(spec, made, tmp_path / "inline")


@pytest.mark.parametrize("held", [2000, 2**30])
def test_what_is_unpacked_ahead_is_what_is_unpacked_when_it_is_wanted(
    held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_ranges, "HELD_BYTES", held)
    spec = spec_of(write(tmp_path, "parquet"))
    made, threads = begun(spec, tmp_path / "made"), list[str]()
    whole, sound = ran(spec, made, tmp_path / "inline"), codec.unpack

    def unpack(kind: str, version: int, body: bytes) -> Any:
        threads.extend([threading.current_thread().name] if kind == "gathered" else [])
        return sound(kind, version, body)

    monkeypatch.setattr(codec, "unpack", unpack)
    assert ran(spec, made, tmp_path / "small", CutBatches(1)) == whole
    assert set(threads) == {threading.main_thread().name}
    monkeypatch.setattr(gather_plan, "UNPACKED_AHEAD", 0)
    assert ran(spec, made, tmp_path / "ahead", CutBatches(1)) == whole
    assert {name[:5] for name in threads[len(threads) // 2 :]} == {"files"}


def test_a_run_that_was_stopped_goes_on_with_other_workers(tmp_path: Path) -> None:
    spec = spec_of(write(tmp_path, "csv"))
    made = begun(spec, tmp_path / "made")
    whole, _ = ran(spec, made, tmp_path / "inline")
    copy = shutil.copytree(made, tmp_path / "two lives")
    half = spec_of(tmp_path / "events.csv", until=2)
    run_durably(half, str(copy / "state"), workers=CutBatches(1))
    run_durably(spec, str(copy / "state"))
    with spec.stream.open(copy / "state") as live:
        assert [live.payload(tick) for tick in range(1, TICKS + 1)] == whole
    other = shutil.copytree(made, tmp_path / "other way")
    run_durably(half, str(other / "state"))
    run_durably(spec, str(other / "state"), workers=CutBatches(1))
    with spec.stream.open(other / "state") as live:
        assert [live.payload(tick) for tick in range(1, TICKS + 1)] == whole


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_every_byte_of_a_text_file_is_in_one_range(form: str, tmp_path: Path) -> None:
    path = write(tmp_path, form)
    rules = FileRules(spec_of(path))
    ranges = ranges_of_file(path, form, rules.checker)  # type: ignore[arg-type]
    content = path.read_bytes()
    parts = [each.part or (0, len(content)) for each in ranges]
    assert len(ranges) > 3
    assert b"".join(content[start:end] for start, end in parts) == content
    assert all(content[end - 1 : end] == b"\n" for _, end in parts[:-1])


def test_what_travels_holds_neither_sinks_nor_ledger(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl")
    spec = replace(
        spec_of(path),
        sinks=(SinkSpec(name="hook", kind="webhook", url="https://canary-hook"),),
        ledger=LedgerSpec(place="canary-ledger"),
    )
    packed = pickle.dumps((FileRules(spec), ranges_of_file(path, "jsonl", FileRules(spec).checker)))
    assert b"canary" not in packed
    assert pickle.loads(packed)[0].checker.wanted.names == ["who", "drug", "price", "time"]


def test_a_file_that_changes_between_naming_and_reading_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl")
    rules = FileRules(spec_of(path))
    first: FileRange = ranges_of_file(path, "jsonl", rules.checker)[0]
    with path.open("a") as file:
        file.write("{}")
    with pytest.raises(SourceError, match="must stay as it is"):
        first.read(rules)


def test_too_many_refused_rows_stop_the_run_before_any_release(tmp_path: Path) -> None:
    spec = spec_of(write(tmp_path, "jsonl"), max_refused=0.01)
    with pytest.raises(InputError, match="max_refused"):
        run_durably(spec, str(tmp_path / "state"), workers=CutBatches(1))
    with spec.stream.open(tmp_path / "state") as live:
        assert live.tick_number == 0


def test_a_worker_that_refuses_says_so_in_the_words_of_one_process(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("time,who\n" + "2026-01-01T00:00:01Z,ann\n" * 10)
    spec = spec_of(path)
    with pytest.raises(InputError) as inline:
        run_durably(spec, str(tmp_path / "one"))
    with pytest.raises(InputError) as worked:
        run_durably(spec, str(tmp_path / "two"), workers=ProcessWorkers(1))
    assert str(worked.value) == str(inline.value)


def test_a_changed_rule_of_the_side_file_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken variant: lines that are counted from the beginning of their range."""
    spec = spec_of(write(tmp_path, "jsonl"))
    made = begun(spec, tmp_path / "made")
    whole = ran(spec, made, tmp_path / "inline")
    sound = CutBatches.gather

    def gather(self: CutBatches, ranges: Any, rules: Any = None) -> Any:
        for found in sound(self, ranges, rules):
            report = found.report
            yield GatheredRange(found.pieces, file_ranges.RangeReport(report.refused, 0, report.counted, report.given))

    monkeypatch.setattr(CutBatches, "gather", gather)
    broken = ran(spec, made, tmp_path / "broken", CutBatches(1))
    assert broken[0] == whole[0]
    assert broken[1] != whole[1]
