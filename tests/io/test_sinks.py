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

from pianissimo.errors import InputError, ParameterError
from pianissimo.io import folder as sinks
from pianissimo.io import read_plan, read_releases
from pianissimo.io.folder import FolderSink
from pianissimo.stream import StreamRelease
from pianissimo.stream.source_spec import FileFormat

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
    folder = FolderSink(path, plan=PLAN, format=form, is_new=True)
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
    assert_frame_equal(read_releases(tmp_path)["drugs"], expected([release(1, {})], "drugs"))


@settings(max_examples=100, deadline=None)
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


REST = {"key": None, "estimate": 7, "low": 1, "high": 13}
EMPTY_LABEL = {"key": "", "estimate": 9, "low": 3, "high": 15}
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def of_one(tick: int, name: str, rows: list[dict[str, Any]], schema: dict[str, Any]) -> StreamRelease:
    return StreamRelease(tick=tick, coverage=0.95, tables={name: pl.DataFrame(rows, schema=schema)})


@pytest.mark.parametrize("form", FORMATS)
def test_the_row_without_key_is_not_the_empty_label(tmp_path: Path, form: FileFormat) -> None:
    ticks: list[list[dict[str, Any]]] = [[REST], [EMPTY_LABEL, REST], [EMPTY_LABEL], []]
    releases = [of_one(tick, "drugs", rows, LABELED) for tick, rows in enumerate(ticks, 1)]
    write(tmp_path, releases, form)
    found = read_releases(tmp_path)["drugs"]
    assert_frame_equal(found, expected(releases, "drugs"))
    assert found["key"].to_list() == [None, "", None, ""]
    if form == "csv":
        part = tmp_path / "drugs" / "ticks-00000002-00000002.csv"
        assert part.read_text() == '"tick","key","estimate","low","high"\n2,"",9,3,15\n2,,7,1,13\n'


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FLOATS, FLOATS, FLOATS, FLOATS), min_size=1, max_size=4))
def test_sums_are_the_same_floating_point_numbers_in_all_formats(values: list[tuple[float, ...]]) -> None:
    columns = ("estimate", "low", "high", "tidy")
    releases = [
        of_one(tick, "revenue", [dict(zip(columns, row, strict=True))], dict.fromkeys(columns, pl.Float64))
        for tick, row in enumerate(values, 1)
    ]
    with TemporaryDirectory() as folder:
        for form in FORMATS:
            write(Path(folder, form), releases, form)
            found = read_releases(Path(folder, form))["revenue"]
            assert_frame_equal(found, expected(releases, "revenue"), check_exact=True)


@pytest.mark.parametrize("form", FORMATS)
def test_whole_sums_stay_floating_point_numbers(tmp_path: Path, form: FileFormat) -> None:
    releases = [of_one(1, "revenue", [{"estimate": 10, "low": 7, "high": 13}], dict.fromkeys(COUNT, pl.Float64))]
    write(tmp_path, releases, form)
    assert_frame_equal(read_releases(tmp_path)["revenue"], expected(releases, "revenue"))


@pytest.mark.parametrize("form", FORMATS)
def test_tidy_estimates_are_kept_also_where_no_label_is_shown(tmp_path: Path, form: FileFormat) -> None:
    schema = LABELED | {"tidy": pl.Int64}
    shown = EMPTY_LABEL | {"tidy": 8}
    empty, full = of_one(1, "drugs", [], schema), of_one(2, "drugs", [shown, REST | {"tidy": 0}], schema)
    write(tmp_path / "empty", [empty], form)
    assert_frame_equal(read_releases(tmp_path / "empty")["drugs"], expected([empty], "drugs"))
    write(tmp_path / "both", [empty, full], form)
    assert_frame_equal(read_releases(tmp_path / "both")["drugs"], expected([empty, full], "drugs"))


@pytest.mark.parametrize("form", FORMATS)
def test_a_query_has_rows_at_the_ticks_it_is_published_at(tmp_path: Path, form: FileFormat) -> None:
    releases = [release(tick, {"aspirin": tick}) for tick in range(1, 15)]
    thinned = [
        StreamRelease(
            tick=each.tick,
            coverage=each.coverage,
            tables={name: each[name] for name, every in (("drugs", 4), ("purchases", 2)) if each.tick % every == 0},
        )
        for each in releases
    ]
    write(tmp_path, thinned, form)
    found = read_releases(tmp_path)
    assert found["drugs"]["tick"].to_list() == [4, 8, 12]
    assert found["purchases"]["tick"].to_list() == [2, 4, 6, 8, 10, 12, 14]
    assert found["drugs"]["estimate"].to_list() == [4, 8, 12]
    assert sorted(part.name for part in (tmp_path / "drugs").iterdir()) == [
        f"ticks-{tick:08}-{tick:08}.{form}" for tick in (4, 8, 12)
    ]


def test_parts_are_read_in_the_order_of_their_ticks_also_beyond_eight_digits(tmp_path: Path) -> None:
    ticks = [99_999_998, 99_999_999, 100_000_000, 2**32]
    write(tmp_path, [release(tick, {}) for tick in ticks])
    assert read_releases(tmp_path)["purchases"]["tick"].to_list() == ticks


def test_the_plan_is_there_before_any_release(tmp_path: Path) -> None:
    FolderSink(tmp_path, plan=PLAN)
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == PLAN
    assert read_releases(tmp_path) == {}


def test_a_folder_that_holds_releases_is_refused_and_left_alone(tmp_path: Path) -> None:
    write(tmp_path, RELEASES)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    message = (
        f"{tmp_path} must not hold releases yet, got some up to tick 3; if a run with a state wrote them, run again "
        "with the same one: it goes on. A run in memory cannot be taken up again, and releasing the same events once "
        "more, into another folder, spends the budget again"
    )
    with pytest.raises(InputError) as refusal:
        FolderSink(tmp_path, plan={}, is_new=True)
    assert str(refusal.value) == message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "plan.json").unlink()
    with pytest.raises(InputError, match="must not hold releases yet"):
        FolderSink(tmp_path, plan={}, is_new=True)


def test_a_folder_of_a_run_that_stored_nothing_is_refused_with_the_way_out(tmp_path: Path) -> None:
    FolderSink(tmp_path, plan=PLAN, is_new=True)  # and killed
    with pytest.raises(InputError) as refusal:
        FolderSink(tmp_path, plan=PLAN, is_new=True)
    assert str(refusal.value) == (
        f"{tmp_path} must not hold releases yet, got the plan of a run that has stored none; if that run was stopped, "
        "it has published nothing: remove plan.json there and run again"
    )
    (tmp_path / "plan.json").unlink()
    write(tmp_path, RELEASES)
    assert read_releases(tmp_path)["purchases"].height == 3


def test_of_two_runs_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "check_free", lambda path: None)  # both looked before either wrote
    FolderSink(tmp_path, plan=PLAN, is_new=True)
    with pytest.raises(InputError, match="must not hold releases yet"):
        FolderSink(tmp_path, plan=PLAN, is_new=True)


def test_other_files_in_the_folder_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "refused.jsonl").write_text("{}\n")
    (tmp_path / "plots").mkdir()
    write(tmp_path, RELEASES)
    assert list(read_releases(tmp_path)) == ["drugs", "purchases"]


def test_a_part_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = FolderSink(tmp_path, plan=PLAN)
    synced: list[int] = []

    def fail(descriptor: int) -> None:
        synced.append(descriptor)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left on device"):
            folder.write(RELEASES[0])
    assert synced
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["plan.json"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("calls", range(10))
def test_no_release_is_lost_or_stored_twice_when_a_write_fails(
    tmp_path: Path, form: FileFormat, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every file is synced and then its folder: columns.json, drugs and purchases of one tick, then of the next.
    real, left = os.fsync, iter(range(calls))

    def fail(descriptor: int) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        real(descriptor)

    folder = FolderSink(tmp_path, plan=PLAN, format=form)
    releases = [release(tick, {"aspirin": tick}) for tick in range(1, 6)]
    left_over: list[StreamRelease] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        for each in releases:
            try:
                folder.write(each)
            except OSError:
                left_over.append(each)
    assert left_over
    for each in left_over:
        folder.write(each)
    for name, table in read_releases(tmp_path).items():
        assert_frame_equal(table, expected(releases, name))


@pytest.mark.parametrize("form", FORMATS)
def test_damaged_parts_are_refused(tmp_path: Path, form: FileFormat) -> None:
    write(tmp_path, RELEASES, form)
    part = max((tmp_path / "drugs").iterdir())
    part.write_bytes(b'tick,"\xff' + part.read_bytes()[:20])
    with pytest.raises(InputError, match="must be a part of releases, got damaged content"):
        read_releases(tmp_path)


def test_parts_that_lost_a_number_or_a_column_are_refused(tmp_path: Path) -> None:
    for form, content in (
        ("jsonl", '{"tick":1,"key":"a","estimate":1,"low":0}\n'),
        ("jsonl", '{"tick":1,"key":"a","estimate":1,"low":0,"high":null}\n'),
        ("csv", '"tick","key","estimate","low"\n1,"a",1,0\n'),
        ("csv", '"tick","key","estimate","low","high"\n1,"a",1,0,\n'),
    ):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        write(folder, RELEASES, form)  # type: ignore[arg-type]
        part = min((folder / "drugs").iterdir())
        part.write_text(content)
        with pytest.raises(InputError, match="must be a part of releases, got damaged content"):
            read_releases(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "must be a folder of releases with a columns.json, got none"),
        ("{", "columns.json must be JSON, got damaged text"),
        ('{"drugs": 1}', "columns.json must hold columns and their types, got something else"),
        ('{"drugs": {"tick": "Int7"}}', "columns.json must hold columns and their types, got something else"),
        ("{}", "must be a part of releases, got damaged content"),
    ],
)
def test_parts_without_their_columns_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    write(tmp_path, RELEASES)
    (tmp_path / "columns.json").unlink()
    if content is not None:
        (tmp_path / "columns.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_releases(tmp_path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must be a folder of releases with a plan.json, got none"):
        read_releases(tmp_path)
    write(tmp_path, RELEASES)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(InputError, match=r"plan.json must be JSON, got damaged text"):
        read_plan(tmp_path)
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(InputError, match=r"plan.json must be a JSON object, got something else"):
        read_plan(tmp_path)


def test_a_file_is_no_folder_and_a_format_is_one_of_three(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be a folder for releases, got a file"):
        FolderSink(tmp_path / "file", plan=PLAN, is_new=True)
    with pytest.raises(InputError, match="must be a folder that can be written, got: Not a directory"):
        FolderSink(tmp_path / "file" / "out", plan=PLAN, is_new=True)
    with pytest.raises(ParameterError, match="format must be one of csv, jsonl, parquet, got 'xls'"):
        FolderSink(tmp_path, plan=PLAN, format="xls")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMATS)
def test_an_alarm_that_never_rang_keeps_its_columns_and_its_ticks(tmp_path: Path, form: FileFormat) -> None:
    releases = [of_one(tick, "fever", [], COUNT) for tick in (1, 2, 3)]
    write(tmp_path, releases, form)
    assert json.loads((tmp_path / "columns.json").read_text()) == {
        "fever": {"tick": "Int64"} | dict.fromkeys(COUNT, "Int64")
    }
    assert_frame_equal(read_releases(tmp_path)["fever"], expected(releases, "fever"))
    assert sinks.last_tick(tmp_path) == 3
