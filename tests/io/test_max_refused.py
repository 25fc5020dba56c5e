"""Refusing everything is no success: a share above which a run stops, decided before any release."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result
from prometheus_client import generate_latest
from tests.io.reading import write_count

from pianissimo.cli.main import cli
from pianissimo.errors import InputError, SpecError
from pianissimo.io.metrics import Metrics
from pianissimo.io.runs import run_durably
from pianissimo.io.sources import event_files
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.stream.spec import load_spec

WAYS = [("--out",), ("--state",), ("--in-memory", "--out")]
GOOD, BAD = "2026-01-05T02:30:00Z", "1767580215"
NO_TIME = "column 'time' must be a date-time such as 2026-01-31T12:00:00Z"


def prepare(folder: Path, good: int, bad: int, more: str = "", name: str = "events.csv") -> Path:
    times = [GOOD] * good + [BAD] * bad
    if name.endswith("parquet"):
        pl.DataFrame({"time": times}).write_parquet(folder / name)
    else:
        (folder / name).write_text("time\n" + "".join(f"{time}\n" for time in times))
    return write_count(folder, more, path=name)


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.mark.parametrize("name", ["events.csv", "events.parquet"])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_of_which_all_rows_are_refused_ends_with_code_2_and_releases_nothing(
    tmp_path: Path, way: tuple[str, ...], name: str
) -> None:
    file = prepare(tmp_path, 0, 1000, name=name)
    ended = invoke("run", file, *way, tmp_path / "place", "--quiet")
    assert ended.exit_code == 2
    assert "source.max_refused" in ended.stderr
    assert "1000" not in ended.stderr.replace(str(tmp_path), "")
    place = tmp_path / "place"
    assert not (place / "plan.json").exists()
    assert not (place / "state.db").exists(), "nothing is charged either"
    assert not (tmp_path / "s.state").exists()
    # Mended, the same command goes on.
    file = prepare(tmp_path, 0, 1000, 'time_format = "epoch_s"', name=name)
    assert invoke("run", file, *way, tmp_path / "place", "--quiet").exit_code == 0


@pytest.mark.parametrize(
    ("good", "bad", "more", "code"),
    [
        (50, 50, "", 0),
        (49, 51, "", 2),
        (0, 0, "", 0),
        (99, 1, 'max_refused = "1%"', 0),
        (98, 2, 'max_refused = "1%"', 2),
        (98, 2, "max_refused = 0.01", 2),
        (99, 1, "max_refused = 0", 2),
        (100, 0, "max_refused = 0", 0),
        (0, 100, 'max_refused = "100%"', 0),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_the_share_of_all_rows_decides(
    tmp_path: Path, good: int, bad: int, more: str, code: int, way: tuple[str, ...]
) -> None:
    file = prepare(tmp_path, good, bad, more)
    assert invoke("run", file, *way, tmp_path / "place", "--quiet").exit_code == code


def test_pieces_of_parquet_are_all_judged_and_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "PIECE", 8)
    file = prepare(tmp_path, 12, 12, name="events.parquet")
    told: list[int] = []
    ticks = FileTicks(load_spec(file), lambda _, lines: told.append(lines.height))
    ticks.seek(None, 0)
    assert sum(batch.height for tick in range(1, 25) for batch in ticks.batches(tick)) == 12
    assert sum(told) == 12
    with pytest.raises(InputError, match="max_refused"):
        FileTicks(load_spec(prepare(tmp_path, 12, 13, name="events.parquet"))).seek(None, 0)


def test_a_share_that_is_judged_after_the_first_release_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken on purpose: without the judgement all ticks of noise come out."""
    file = prepare(tmp_path, 0, 100)
    monkeypatch.setattr(event_files, "check_share", lambda *_: None)
    with pytest.raises(AssertionError):
        check_nothing_is_released(file, tmp_path / "broken")
    monkeypatch.undo()
    check_nothing_is_released(file, tmp_path / "state")


def check_nothing_is_released(file: Path, state: Path) -> None:
    try:
        run_durably(load_spec(file), str(state))
    except InputError:
        return
    raise AssertionError("ticks of noise alone were released")


@pytest.mark.parametrize("value", ['"1"', '"x%"', '"101%"', "-0.1", "1.5", "true", '"nan%"', "nan", "[]"])
def test_what_is_no_share_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(SpecError, match=r"source\.max_refused must be a share such as '1%', or a number from 0 to 1"):
        load_spec(prepare(tmp_path, 1, 0, f"max_refused = {value}"))


def health(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state" / "health.json").read_text())
    return found


def test_the_owner_may_see_refused_rows_by_reason(tmp_path: Path) -> None:
    file = prepare(tmp_path, 5, 3)
    assert invoke("run", file, "--state", tmp_path / "state", "--quiet").exit_code == 0
    assert "refused" not in health(tmp_path)
    assert json.loads(invoke("status", tmp_path / "state", "--json").stdout)["refused"] is None
    shown = json.loads(invoke("status", tmp_path / "state", "--json", "--show-refused").stdout)
    assert shown["refused"] == {NO_TIME: 3}
    assert f"3 rows: {NO_TIME}" in invoke("status", tmp_path / "state", "--show-refused").stdout
    assert NO_TIME not in invoke("status", tmp_path / "state").stdout


def test_health_tells_them_only_where_that_is_asked_for_and_to_the_owner_alone(tmp_path: Path) -> None:
    file = prepare(tmp_path, 5, 3)
    words = ("run", file, "--state", tmp_path / "state", "--quiet", "--show-refused")
    assert invoke(*words).exit_code == 0
    assert health(tmp_path)["refused"] == {NO_TIME: 3}
    assert stat.S_IMODE((tmp_path / "state" / "health.json").stat().st_mode) == 0o600


def test_metrics_tell_them_by_reason_only_where_that_is_asked_for() -> None:
    figures, publisher = Metrics(), SimpleNamespace(undelivered={}, failures={})
    figures.tell(1, 2, 0, publisher)  # type: ignore[arg-type]
    assert b"pianissimo_refused_records{" not in generate_latest(figures.registry)
    figures.tell(2, 2, 0, publisher, {NO_TIME: 3})  # type: ignore[arg-type]
    assert figures.registry.get_sample_value("pianissimo_refused_records", {"reason": NO_TIME}) == 3
