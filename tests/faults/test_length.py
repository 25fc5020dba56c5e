"""What a stream costs after a long time: a start, `status` and the last release read as much as after a short one."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner
from tests.faults.report import record

from pianissimo import Budget, Count, Stream
from pianissimo.cli.main import cli
from pianissimo.durable.durable_stream import DurableStream, open_stream
from pianissimo.errors import PianissimoError
from pianissimo.io.inspect import read_status, seen_releases, stored_request, verify
from pianissimo.storage.connection import Connection, Row

STREAM = Stream("s", budget=Budget(4, 1e-6), horizon=400, queries=[Count("n")], tick="1m")
SHORT, LONG = 20, 180


class Taking:
    """A sink that takes everything."""

    name = "taking"

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        pass


def opened(folder: Path) -> DurableStream:
    return open_stream(STREAM, folder / "state", sinks=[Taking()])


@contextmanager
def rows_read() -> Iterator[Counter[str]]:
    """How many rows come of each table."""
    found: Counter[str] = Counter()
    execute = Connection.execute

    def counting(self: Connection, statement: str, values: Row = ()) -> list[Row]:
        rows = execute(self, statement, values)
        words = statement.split()
        if words[0] == "SELECT":
            found[words[words.index("FROM") + 1] + (", one" if "tick = ?" in statement else "")] += len(rows)
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "execute", counting)
        yield found


def test_a_start_a_status_and_the_last_release_read_as_much_at_any_length(tmp_path: Path) -> None:
    told: list[dict[str, int]] = []
    for length in (SHORT, LONG):
        with opened(tmp_path) as live:
            while live.tick_number < length:
                live.tick([{}])
        with rows_read() as found:
            with opened(tmp_path) as live:
                assert live.tick_number == length
            assert read_status(tmp_path / "state").released_tick == length
            last = seen_releases(tmp_path / "state", chosen=lambda end: range(end, end + 1))
            assert last.tables["n"]["tick"].to_list() == [length]
        # What windows are answered from, each with its own seal, is bounded by itself: see `history=`.
        windows = ("history", "checkpoints", "seals, one")
        told.append({table: count for table, count in found.items() if table not in windows})
    figure = f"{sum(told[0].values())} rows after {SHORT} ticks, {sum(told[1].values())} after {LONG}"
    record("R25", "a start, status and the last release", figure=figure, bar="as many", passed=told[0] == told[1])
    assert 0 < told[1]["seals"] < SHORT
    assert 0 < told[1]["releases"] < SHORT
    assert told[1]["outbox"] < 10


def test_verify_looks_at_all_of_it_and_tells_how_far_it_is(tmp_path: Path) -> None:
    with opened(tmp_path) as live:
        while live.tick_number < SHORT:
            live.tick([{}])
    told: list[tuple[int, int]] = []
    found = verify(stored_request(tmp_path / "state"), tmp_path / "state", progress=lambda *each: told.append(each))
    assert (found.seals, found.releases) == (SHORT, SHORT)
    assert told == [(SHORT, SHORT)]


@pytest.mark.parametrize(
    ("length", "said"), [(8, "no release had to be computed again"), (9, "the last release was"), (10, "the last 2 re")]
)
def test_verify_says_what_it_made_again(tmp_path: Path, length: int, said: str) -> None:
    with opened(tmp_path) as live:
        while live.tick_number < length:
            live.tick([{}])
    shown = CliRunner().invoke(cli, ["verify", str(tmp_path / "state")])
    assert shown.exit_code == 0
    assert said in shown.output
    assert "last 0" not in shown.output


def test_an_early_release_that_is_gone_is_found_by_verify(tmp_path: Path) -> None:
    with opened(tmp_path) as live:
        while live.tick_number < SHORT:
            live.tick([{}])
    connection = apsw.Connection(str(tmp_path / "state" / "state.db"))
    connection.execute("DROP TRIGGER releases_stays_delete")
    connection.execute("DELETE FROM releases WHERE tick = 3")
    connection.close()
    with opened(tmp_path) as live:
        live.tick([{}])
    with pytest.raises(PianissimoError, match="must have one release"):
        verify(stored_request(tmp_path / "state"), tmp_path / "state")
