"""A stream that the command line runs, in Python, and the other way round."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.start import Request
from pianissimo.errors import ConfigError, LeaseError, SpecError, StateError

SPEC = """
[stream]
name = "shop"
epsilon = 1.0
delta = 1e-9
tick = "1d"
horizon = "30d"
origin = 2026-03-28
time_zone = "Europe/Berlin"
[source]
path = "events.csv"
time = "time"
until = {until}
[queries.n]
kind = "count"
[queries.drugs]
kind = "histogram"
key = "drug"
domain = ["a", "b"]
"""
EVENTS = "time,drug\n2026-03-28T10:00,a\n2026-03-29T23:30,b\n2026-03-30T23:59:59+02:00,a\n"


def write(folder: Path, until: object = 3) -> Path:
    (folder / "events.csv").write_text(EVENTS)
    (folder / "stream.toml").write_text(SPEC.format(until=until))
    return folder / "stream.toml"


def run(file: Path, state: Path) -> None:
    done = CliRunner().invoke(cli, ["run", str(file), "--state", str(state), "--quiet"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_python_goes_on_where_the_command_line_stands(tmp_path: Path) -> None:
    file, state = write(tmp_path), tmp_path / "state"
    run(file, state)
    stream = pp.load(file)
    with stream.open(state) as live:
        assert live.tick_number == 3
        release = live.tick([{"drug": "a"}], position=live.position)
        assert (str(release.start), release.tick) == ("2026-03-30 22:00:00+00:00", 4)
    assert pp.read_releases(state)["n"]["tick"].to_list() == [1, 2, 3, 4]
    run(write(tmp_path, until=5), state)
    assert pp.read_releases(str(state))["n"]["tick"].to_list() == [1, 2, 3, 4, 5]


def check_no_row_is_lost(folder: Path) -> None:
    """A tick from Python amid those of a file: it is refused, and the file's rows all count."""
    file, state = write(folder, until=2), folder / "state"
    run(file, state)
    with pp.load(file).open(state) as live:
        for batch in ([{"drug": "a"}] * 5, None):
            with suppress(StateError):
                live.tick(batch)
        live.add([{"drug": "a"}])
    run(write(folder), state)
    with pp.load(file).open(state) as live:
        states: Any = live._core.dump()
    assert states[0]["run"]["state"]["total"] == 3


def test_a_tick_from_python_amid_those_of_a_source_is_refused(tmp_path: Path) -> None:
    check_no_row_is_lost(tmp_path)
    with pp.load(tmp_path / "stream.toml").open(tmp_path / "state") as live:
        with pytest.raises(StateError, match=r"go on with `pianissimo run`, or give position=live\.position"):
            live.tick()
        assert live.tick(position=live.position).tick == 4


def test_a_tick_that_keeps_the_place_unasked_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose, as it was: the rows of the file's next tick are lost."""
    sound = DurableStream.tick

    def broken(self: DurableStream, batch: object = None, **options: Any) -> Any:
        return sound(self, batch, **{"position": self.position, **options})

    monkeypatch.setattr(DurableStream, "tick", broken)
    with pytest.raises(AssertionError):
        check_no_row_is_lost(tmp_path)


def test_the_command_line_goes_on_where_python_stands(tmp_path: Path) -> None:
    file, state = write(tmp_path, until="2026-03-31"), tmp_path / "state"
    with pp.load(file).open(state) as live:
        first = live.tick([{"drug": "a"}])
    run(file, state)
    found = pp.read_releases(state)["n"]
    assert found["tick"].to_list() == [1, 2, 3]
    assert found["estimate"][0] == first["n"]["estimate"][0]
    assert (found["end"] - found["start"]).dt.total_hours().to_list() == [24, 23, 24]


def test_written_by_hand_it_is_the_same_stream(tmp_path: Path) -> None:
    by_hand = pp.Stream(
        "shop",
        budget=pp.Budget(1.0, 1e-9),
        tick="1d",
        horizon=30,
        origin="2026-03-28",
        time_zone="Europe/Berlin",
        queries=[pp.Count("n"), pp.Histogram("drugs", key="drug", domain=["a", "b"])],
    )
    assert Request(by_hand).digest == Request(pp.load(write(tmp_path))).digest
    run(write(tmp_path), tmp_path / "state")
    with by_hand.open(tmp_path / "state") as live:
        assert live.tick_number == 3
    plain = pp.load(write(tmp_path))
    changes: list[dict[str, Any]] = [{"origin": "2026-03-27"}, {"time_zone": "Europe/Paris"}, {"tick": "2d"}]
    for change in changes:
        with pytest.raises(ConfigError, match=f"stream.{next(iter(change))}"):
            replace(plain, **change).open(tmp_path / "state")


def test_a_file_that_is_at_fault_is_told(tmp_path: Path) -> None:
    file = write(tmp_path, until="2026-03-30T12:00:00")
    with pytest.raises(SpecError, match=r"source.until must be a whole number of ticks after stream.origin"):
        pp.load(file)
    file.write_text(SPEC.format(until=3).replace("Europe/Berlin", "Berlin"))
    with pytest.raises(SpecError, match=r"stream.time_zone must be a name such as 'Europe/Berlin' or 'UTC'"):
        pp.load(file)


def test_opened_twice_in_one_process_it_names_the_way_out(tmp_path: Path) -> None:
    stream, state = pp.load(write(tmp_path)), tmp_path / "state"
    with stream.open(state) as live:
        with pytest.raises(
            LeaseError, match=r"that this process has opened already; close\(\) the first, or use it in"
        ):
            stream.open(state)
        live.tick()
    lost = stream.open(state)
    with stream.open(state, take_over=True) as live:
        assert live.tick().tick == 2
    lost.close()
    stream.open(state).close()


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    file, state = write(tmp_path), tmp_path / "state"
    run(file, state)
    left = state / ".health.json.999.tmp"
    left.write_text("half of it")
    run(file, state)
    assert not left.exists()
