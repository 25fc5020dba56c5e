import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from pianissimo.engine import ReleaseFolder, read_plan, read_releases, sinks
from pianissimo.errors import InputError, ParameterError
from pianissimo.stream import StreamRelease
from pianissimo.stream.spec import FileFormat

FORMATS: list[FileFormat] = ["parquet", "jsonl", "csv"]
PLAN = {"name": "pharmacy", "budget": {"epsilon": 1.0, "delta": 1e-09}, "unit": "Ereignis für Ereignis"}
COUNT = {"estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64}
LABELED: dict[str, Any] = {"key": pl.String} | COUNT


def release(tick: int, labels: dict[str, int]) -> StreamRelease:
    rows = [{"key": key, "estimate": count, "low": count - 5, "high": count + 5} for key, count in labels.items()]
    tables = {
        "drugs": pl.DataFrame(rows, schema=LABELED),
        "purchases": pl.DataFrame({"estimate": [tick], "low": [tick - 3], "high": [tick + 3]}, schema=COUNT),
    }
    return StreamRelease(tick=tick, coverage=0.95, tables=tables)


def expected(releases: list[StreamRelease], name: str) -> pl.DataFrame:
    tables = [each[name].with_columns(pl.lit(each.tick, dtype=pl.Int64).alias("tick")) for each in releases]
    return pl.concat(tables).select("tick", pl.exclude("tick"))


def write(path: Path, releases: list[StreamRelease], form: FileFormat = "parquet") -> None:
    with ReleaseFolder(path, plan=PLAN, format=form) as folder:
        for each in releases:
            folder.write(each)


RELEASES = [release(1, {}), release(2, {"aspirin": 70}), release(3, {"aspirin": 90, "ibuprofen": 61})]


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_read_again(tmp_path: Path, form: FileFormat) -> None:
    write(tmp_path / "new" / "out", RELEASES, form)
    found = read_releases(tmp_path / "new" / "out")
    assert list(found) == ["drugs", "purchases"]
    for name, table in found.items():
        assert_frame_equal(table, expected(RELEASES, name))
    assert read_plan(tmp_path / "new" / "out") == PLAN
    assert found["drugs"].columns == ["tick", "key", "estimate", "low", "high"]
    assert found["purchases"].columns == ["tick", "estimate", "low", "high"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_histogram_that_shows_nothing_keeps_its_columns(tmp_path: Path, form: FileFormat) -> None:
    write(tmp_path, [release(1, {})], form)
    assert_frame_equal(read_releases(tmp_path, "drugs")["drugs"], expected([release(1, {})], "drugs"))


@settings(max_examples=100)
@given(st.lists(st.dictionaries(st.text(max_size=6), st.integers(-(2**62), 2**62), max_size=4), max_size=4))
def test_all_formats_hold_the_same_values(ticks: list[dict[str, int]]) -> None:
    releases = [release(tick, labels) for tick, labels in enumerate(ticks, 1)]
    with TemporaryDirectory() as folder:
        for form in FORMATS:
            write(Path(folder, form), releases, form)
            found = read_releases(Path(folder, form))
            assert list(found) == (["drugs", "purchases"] if releases else [])
            for name, table in found.items():
                assert_frame_equal(table, expected(releases, name))


@pytest.mark.parametrize("form", FORMATS)
def test_parts_are_bounded_and_none_is_lost(tmp_path: Path, form: FileFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "MOST_TICKS", 4)
    monkeypatch.setattr(sinks, "MOST_ROWS", 50)
    releases = [release(tick, {f"drug-{n}": n for n in range(tick)}) for tick in range(1, 31)]
    write(tmp_path, releases, form)
    parts = sorted((tmp_path / "drugs").iterdir())
    assert parts[0].name == f"ticks-00000001-00000004.{form}"
    assert [part.name for part in parts] == [part.name for part in sorted((tmp_path / "purchases").iterdir())]
    assert len(parts) > 30 // 4
    for name, table in read_releases(tmp_path).items():
        assert_frame_equal(table, expected(releases, name))


def test_the_plan_is_there_before_any_release(tmp_path: Path) -> None:
    folder = ReleaseFolder(tmp_path, plan=PLAN)
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == PLAN
    assert read_releases(tmp_path) == {}
    folder.close()


def test_what_was_released_before_an_error_is_kept(tmp_path: Path) -> None:
    def interrupted() -> None:
        with ReleaseFolder(tmp_path, plan=PLAN) as folder:
            folder.write(RELEASES[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read_releases(tmp_path)["purchases"]["tick"].to_list() == [1]


def test_closing_twice_writes_once(tmp_path: Path) -> None:
    with ReleaseFolder(tmp_path, plan=PLAN) as folder:
        folder.write(RELEASES[0])
        folder.close()
    assert read_releases(tmp_path)["purchases"].height == 1


def test_a_folder_that_holds_releases_is_refused_and_left_alone(tmp_path: Path) -> None:
    write(tmp_path, RELEASES)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    message = (
        f"{tmp_path} must not hold releases yet, got some; releasing the same events again spends the budget again: "
        "choose an empty folder"
    )
    with pytest.raises(InputError) as refusal:
        ReleaseFolder(tmp_path, plan={})
    assert str(refusal.value) == message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "plan.json").unlink()
    with pytest.raises(InputError, match="must not hold releases yet"):
        ReleaseFolder(tmp_path, plan={})


def test_of_two_runs_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "check_free", lambda path: None)  # both looked before either wrote
    ReleaseFolder(tmp_path, plan=PLAN)
    with pytest.raises(InputError, match="must not hold releases yet"):
        ReleaseFolder(tmp_path, plan=PLAN)


def test_other_files_in_the_folder_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "refused.jsonl").write_text("{}\n")
    (tmp_path / "plots").mkdir()
    write(tmp_path, RELEASES)
    assert list(read_releases(tmp_path)) == ["drugs", "purchases"]


def test_a_part_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ReleaseFolder(tmp_path, plan=PLAN)
    folder.write(RELEASES[0])
    synced: list[int] = []

    def fail(descriptor: int) -> None:
        synced.append(descriptor)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(InputError, match="must be a folder that can be written, got: No space left on device"):
            folder.close()
    assert synced
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["plan.json"]


@pytest.mark.parametrize("form", FORMATS)
def test_damaged_parts_are_refused(tmp_path: Path, form: FileFormat) -> None:
    write(tmp_path, RELEASES, form)
    (part,) = (tmp_path / "drugs").iterdir()
    part.write_bytes(b'tick,"\xff' + part.read_bytes()[:20])
    with pytest.raises(InputError, match="must be a part of releases, got damaged content"):
        read_releases(tmp_path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must be a folder of releases with a plan.json, got none"):
        read_releases(tmp_path)
    write(tmp_path, RELEASES)
    with pytest.raises(InputError, match="must hold releases of 'regions', got 'drugs', 'purchases'"):
        read_releases(tmp_path, "regions")
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(InputError, match=r"plan.json must be JSON, got damaged text"):
        read_plan(tmp_path)
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(InputError, match=r"plan.json must be a JSON object, got something else"):
        read_plan(tmp_path)


def test_a_file_is_no_folder_and_a_format_is_one_of_three(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be a folder for releases, got a file"):
        ReleaseFolder(tmp_path / "file", plan=PLAN)
    with pytest.raises(InputError, match="must be a folder that can be written, got: Not a directory"):
        ReleaseFolder(tmp_path / "file" / "out", plan=PLAN)
    with pytest.raises(ParameterError, match="format must be one of csv, jsonl, parquet, got 'xls'"):
        ReleaseFolder(tmp_path, plan=PLAN, format="xls")  # type: ignore[arg-type]
