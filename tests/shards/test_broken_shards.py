"""D13, D14 over shards: broken variants that must be caught, and neighbors through processes that are killed."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.faults.report import SOAK
from tests.shards.sharded_streams import USERS, begun, events, killed_at, opened, payloads, stream_of
from tests.shards.test_blobs import Recorded, blobs_of
from tests.workers.cut_batches import CutBatches

import pianissimo as pp
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.errors import DamageError
from pianissimo.shards.shard_owner import ShardOwner
from pianissimo.shards.sharded_core import ShardedCore
from pianissimo.storage import blobs, files
from pianissimo.testing import NoNoise
from pianissimo.workers import ProcessWorkers


def small(unit: Any = "event") -> pp.Stream:
    return stream_of(4, unit, queries=[pp.Count("n") if unit != "event" else pp.Histogram("found", key="label")])


def test_a_seal_that_knows_how_batches_were_cut_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, sound = begun(small(), tmp_path / "begun"), ShardedCore.combine
    whole = payloads(small(), folder, last=4)
    assert payloads(small(), folder, CutBatches(5), last=4) == whole

    def combine(self: ShardedCore, gathered: Any) -> Any:
        *own, shards = sound(self, gathered)
        return [*own, [[shard, digest, size + len(gathered)] for shard, digest, size in shards]]

    monkeypatch.setattr(ShardedCore, "combine", combine)
    assert payloads(small(), folder, CutBatches(5), last=4) != payloads(small(), folder, last=4)


def shared_draws(folder: Path) -> set[Any]:
    """What shards draw alike in two runs whose first ticks differ, but for what is bound to the beginning."""
    found, names = [], set[bytes]()
    for number, begins_with in enumerate((1, 9)):
        copy = Path(shutil.copytree(folder, folder.with_name(f"run {number}"), dirs_exist_ok=True))
        Recorded.drawn.clear()
        with opened(small(), copy, make_noise=Recorded) as live:
            for tick in (begins_with, 2, 3):
                live.tick(events(tick))
            names.add(live._record.mac)
        found.append({place for place in Recorded.drawn if not any(mac in place[1] for mac in names)})
        assert found[-1]
    return found[0] & found[1]


def test_noise_that_is_not_bound_to_the_seal_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = begun(small(), tmp_path / "begun")
    assert not shared_draws(folder)
    for path in tmp_path.glob("run *"):
        shutil.rmtree(path)
    monkeypatch.setattr(ShardOwner, "_mac_of", lambda self, tick: bytes(32))
    assert shared_draws(folder)


def test_noise_before_the_seal_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks shards before the seal draws where a driver that is killed there must have drawn nothing."""
    folder = begun(small(), tmp_path / "begun")

    def drawn() -> int:
        with opened(small(), folder, make_noise=Recorded) as live, killed_at("seal.begin"):
            Recorded.drawn.clear()
            live.tick(events(1))
        return len(Recorded.drawn)

    assert not drawn()
    sound = DurableStream._seal_held

    def seal(self: DurableStream, *, closes: bool) -> None:
        self._remember(1, bytes(32))
        self._core.add(self._held[-1].gathered)
        self._core.release(1)
        sound(self, closes=closes)

    monkeypatch.setattr(DurableStream, "_seal_held", seal)
    assert drawn()


def with_a_zombie(folder: Path) -> list[bytes]:
    """A try that was never sealed, whose writer stores what it had once more after the tick was sealed."""
    with opened(small(), folder) as live, killed_at("seal.begin"):
        live.tick(events(9))
    tried = {path: path.read_bytes() for path in blobs_of(folder, 1)}
    with opened(small(), folder) as live:
        live.tick(events(1))
        for path, content in tried.items():
            path.write_bytes(content)
    with opened(small(), folder) as live:
        return [live.payload(1)]


def test_a_blob_that_is_overwritten_in_place_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name by shard alone, and the last writer wins."""
    folder = begun(small(), tmp_path / "begun")
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert with_a_zombie(folder) == payloads(small(), copy, last=1)
    monkeypatch.setattr(blobs, "_text", lambda name: f"{name.shard}")
    monkeypatch.setattr(
        blobs,
        "write_many",
        lambda top, contents: [files.write_whole(top / name, each) for name, each in contents.items()],
    )
    with pytest.raises(DamageError, match="must be as it was written"):
        with_a_zombie(copy)


def test_a_cap_of_each_workers_own_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver hears the users above the cap of one worker's shards, and takes them for all."""
    stream = small(USERS)
    folder, sound = begun(stream, tmp_path / "begun"), ShardedCore._told
    whole = payloads(stream, folder, last=2)

    def told(self: ShardedCore, *, stores: bool) -> Any:
        found = sound(self, stores=stores)
        return found if stores else [each for each in found if each[0] % 2 == 0]

    monkeypatch.setattr(ShardedCore, "_told", told)
    assert payloads(stream, folder, last=2) != whole


@pytest.mark.parametrize("unit", [USERS, "event"] if SOAK else [USERS])
def test_neighbors_differ_by_what_they_differ_by_in_one_process(unit: Any, tmp_path: Path) -> None:
    """D14: with and without one event, or one user, through two processes of which one is killed in each tick."""
    stream = small(unit)
    folder = begun(stream, tmp_path / "begun")
    exact, noisy = [], []
    for number, out in enumerate((-1, 7)):
        given = [
            events(tick).filter(pl.col("user") != out)
            if unit != "event"
            else events(tick)[int(out == 7 and tick == 1) :]
            for tick in (1, 2)
        ]
        found = []
        ways: list[dict[str, Any]] = [{}, {"workers": ProcessWorkers(2)}, {"make_noise": lambda _: NoNoise()}]
        for way, options in enumerate(ways):
            copy = Path(shutil.copytree(folder, tmp_path / f"{number} {way}"))
            with opened(stream, copy, **options) as live:
                for rows in given:
                    if way == 1:
                        os.kill(options["workers"].owners[number], signal.SIGKILL)
                    last = live.tick(rows)
                found.append([live.payload(1), live.payload(2)])
        assert found[0] == found[1]
        noisy.append(found[0])
        exact.append({(name, *row[:1]): row[-3] for name, table in last.items() for row in table.iter_rows()})
    assert noisy[0] != noisy[1]
    if unit == "event":
        moved = {key: exact[0][key] - exact[1].get(key, 0) for key in exact[0] if exact[0][key] != exact[1].get(key)}
        assert list(moved.values()) in ([1], [])
