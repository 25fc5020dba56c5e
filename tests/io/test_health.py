"""The file that says how a stream is: also where there is no room for a second one, and told where it cannot be."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pianissimo import Budget, Count, Stream
from pianissimo.cli.main import cli
from pianissimo.durable.durable_stream import open_stream
from pianissimo.errors import DiskFullError, StoreError
from pianissimo.io import loop
from pianissimo.io.loop import Reports, StreamLoop
from pianissimo.storage.files import write_whole

STREAM = Stream("s", budget=Budget(4, 1e-6), horizon=20, queries=[Count("n")], tick="1m")


class Fixed:
    """A source without events; what is planned for a tick happens before it is read."""

    def __init__(self, plans: dict[int, Any]) -> None:
        self._plans = plans

    def seek(self, position: Any, tick: int) -> None: ...

    @property
    def position(self) -> Any:
        return None

    def batches(self, tick: int) -> Any:
        self._plans.get(tick, lambda: None)()
        yield [{}]


def no_room(path: Path, content: bytes, mode: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_where_no_second_file_fits_the_first_is_written_over_and_people_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    health, seen, full = tmp_path / "health.json", [], [True] * 3

    def fill() -> None:
        monkeypatch.setattr(loop, "write_whole", no_room)
        if full:
            full.pop()
            seen.append(read(health))
            raise DiskFullError("state.db must have room on its disk, got none; make room")

    def empty() -> None:
        seen.append(read(health))
        monkeypatch.setattr(loop, "write_whole", write_whole)

    monkeypatch.setattr(loop, "FIRST_WAIT", 0.001)
    with open_stream(STREAM, tmp_path / "state") as live:
        StreamLoop(live, Fixed({3: fill, 5: empty}), 6, reports=Reports(health=health)).run()
    assert [(each["state"], each["tick"]) for each in seen] == [
        ("running", 2),
        ("waiting for room", 2),
        ("waiting for room", 2),
        ("running", 4),
    ]
    assert "message" not in seen[-1]  # nothing is left of what was longer
    assert read(health)["state"] == "done"
    (told,) = capsys.readouterr().err.splitlines()
    assert told == (
        f"{health} must be a file that can be written, got: No space left on device; "
        "the stream is waiting for room: state.db must have room on its disk, got none; make room"
    )


def test_a_stream_that_fails_for_want_of_room_says_so_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    health = tmp_path / "health.json"

    def fail() -> None:
        monkeypatch.setattr(loop, "write_whole", no_room)
        raise StoreError("the disk must have room")

    with open_stream(STREAM, tmp_path / "state") as live, pytest.raises(StoreError):
        StreamLoop(live, Fixed({2: fail}), 6, reports=Reports(health=health)).run()
    assert (read(health)["state"], read(health)["message"]) == ("failed", "the disk must have room")
    assert "the stream is failed: the disk must have room" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_at_all_stops_nothing_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_stream(STREAM, tmp_path / "state") as live:
        assert (
            StreamLoop(live, Fixed({}), 6, reports=Reports(health=tmp_path / "nowhere" / "health.json")).run().tick == 6
        )
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("place", ["nowhere/health.json", "."])
def test_a_place_for_health_that_cannot_be_is_refused_at_the_start(tmp_path: Path, place: str) -> None:
    (tmp_path / "e.csv").write_text("time\n2026-01-01T00:30:00Z\n")
    (tmp_path / "s.toml").write_text(
        """
        stream = { name = "s", epsilon = 1, delta = 1e-9, tick = "1h", horizon = 4, origin = 2026-01-01 }
        source = { path = "e.csv", time = "time" }
        queries.n.kind = "count"
        """
    )
    words = ["run", tmp_path / "s.toml", "--state", tmp_path / "state", "--health", tmp_path / place, "--quiet"]
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == 2
    assert "health must be a file in a folder that is there, got" in result.stderr
    assert not (tmp_path / "state").exists()
