"""D5, D6, D12, D13, D14: what must not change a release, and broken workers, whose releases are others."""

import os
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.workers import test_same_bytes as same
from tests.workers.cut_batches import CutBatches

from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.errors import LeaseError, StateError
from pianissimo.noise.keyed import KeyedNoise
from pianissimo.noise.name_keys import NamesOnly, names_root
from pianissimo.storage.purpose_keys import Keys
from pianissimo.workers import GatheredPiece, GatheredRange, Gatherer, ProcessWorkers, hands

USERS = same.SMALL["users within a period"]


def test_a_piece_that_comes_after_its_tick_was_sealed_is_refused(tmp_path: Path) -> None:
    """D5: a zombie's late piece counts nowhere."""
    cut = CutBatches(1)
    with same.opened(USERS, tmp_path, cut) as live:
        assert cut.gatherer is not None
        late = cut.gatherer.gathered(1, [same.events(1)])
        live.tick(same.events(1))
        before = live.payload(1)
        with pytest.raises(StateError, match="must be of tick 2"):
            live.add(late)
        live.tick(same.events(2))
        assert live.payload(1) == before


def test_a_driver_that_was_overtaken_seals_nothing_with_its_workers(tmp_path: Path) -> None:
    """D6: two drivers, each with workers; the first one's pieces are as good as gone."""
    folder = same.begun(USERS, tmp_path / "begun")
    whole = same.payloads(USERS, folder)
    first = same.opened(USERS, folder, CutBatches(2))
    first.tick(same.events(1))
    first.add(same.events(2)[:7])
    options = Options(take_over=True, workers=CutBatches(3), snapshot_every=2)
    with DurableStream(Request(USERS), wire(folder / "state", secret=same.SECRET), options) as second:
        with pytest.raises(LeaseError):
            first.tick(same.events(2)[7:])
        for tick in range(2, same.TICKS + 1):
            second.tick(same.events(tick))
        assert [second.payload(tick) for tick in range(1, same.TICKS + 1)] == whole
    first.close()


def test_no_draw_is_made_by_those_who_gather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D12: all draws are the stream's own, however often ranges are tried; each input once, as in one process."""
    folder = same.begun(USERS, tmp_path / "begun")
    drawn: list[tuple[bytes, str, str, bytes]] = []
    sound = KeyedNoise.draw

    def draw(self: KeyedNoise, law: str, parameter: Any, keys: Any, out: Any) -> None:
        drawn.append((self._path, law, str(parameter), keys.tobytes()))
        sound(self, law, parameter, keys, out)

    monkeypatch.setattr(KeyedNoise, "draw", draw)
    monkeypatch.setattr(NamesOnly, "draw", lambda *_: pytest.fail("a gatherer draws"))

    class Twice(CutBatches):
        def gather(self, ranges: Any, rules: Any = None) -> Any:
            ranges = list(ranges)
            list(super().gather(ranges, rules))
            return super().gather(ranges, rules)

    whole = same.payloads(USERS, folder)
    once, drawn[:] = list(drawn), []
    assert same.payloads(USERS, folder, Twice(3)) == whole
    assert drawn == once


class OwnNames(CutBatches):
    """A broken variant: each part names users by a key of its own, so that each has a cap of its own."""

    def gather(self, ranges: Any, rules: Any = None) -> Any:
        assert self.plan is not None
        for place, each in enumerate(ranges):
            noise = names_root(Keys(same.SECRET).user, self.plan.incarnation, bytes([place]))
            yield Gatherer(self.plan, noise).of(each, rules)


class Backwards(CutBatches):
    """A broken variant: pieces come in the order in which they were ready."""

    def gather(self, ranges: Any, rules: Any = None) -> Any:
        return reversed(list(super().gather(ranges, rules)))


class Doubled(CutBatches):
    """A broken variant: a range that was tried twice counts twice."""

    def gather(self, ranges: Any, rules: Any = None) -> Any:
        for found in super().gather(ranges, rules):
            yield GatheredRange([*found.pieces, *found.pieces])


class Capped(CutBatches):
    """A broken variant: each part cuts a user's rows off by what it has seen itself."""

    def ranges_of(self, batch: object, tick: int, options: dict[str, Any]) -> Any:
        assert isinstance(batch, pl.DataFrame)
        kept = batch.with_columns(place=pl.int_range(pl.len()).over("user")).filter(pl.col("place") < 1).drop("place")
        return super().ranges_of(kept, tick, options)


@pytest.mark.parametrize("broken", [OwnNames, Backwards, Doubled, Capped])
def test_broken_workers_are_caught(broken: type[CutBatches], tmp_path: Path) -> None:
    """D13."""
    folder = same.begun(USERS, tmp_path / "begun")
    assert same.payloads(USERS, folder, broken(5)) != same.payloads(USERS, folder)


def test_a_seal_of_pieces_as_they_came_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: whoever seals what each worker handed in binds noise to how many there were."""
    folder = same.begun(USERS, tmp_path / "begun")
    whole = same.payloads(USERS, folder)
    monkeypatch.setattr("pianissimo.durable.stored_ticks.StoredTicks._combined", lambda live: live._added)
    assert same.payloads(USERS, folder, CutBatches(3)) != whole


def test_neighbors_differ_by_what_they_differ_by_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D14: with and without one user, through two processes of which one is killed in each tick."""
    monkeypatch.setattr(hands, "ROWS_A_SLICE", 100)
    sound_events, sound_ranges = same.events, ProcessWorkers.ranges_of

    def kill_one(self: ProcessWorkers, *given: Any) -> Any:
        os.kill(self.processes[0], signal.SIGKILL)
        return sound_ranges(self, *given)

    monkeypatch.setattr(ProcessWorkers, "ranges_of", kill_one)
    folder = same.begun(USERS, tmp_path / "begun")
    found = []
    for without in (None, 7):
        monkeypatch.setattr(same, "TICKS", 2)
        monkeypatch.setattr(
            same,
            "events",
            lambda tick, out=without: sound_events(tick).filter(pl.col("user") != (-1 if out is None else out)),
        )
        found.append(same.payloads(USERS, folder))
        assert same.payloads(USERS, folder, ProcessWorkers(2)) == found[-1]
    assert found[0] != found[1]


def test_what_was_gathered_shows_nothing_of_itself() -> None:
    piece = GatheredPiece(3, b"secret")
    assert repr(piece) == "GatheredPiece(tick=3)"
    assert "secret" not in repr(GatheredRange([piece], {"rows": "secret"}))
