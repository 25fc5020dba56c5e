"""D2, D3, D5, D13 of what workers gather for shards: the driver passes it on, and who has the shards stores it."""

import os
import pickle
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.shards.sharded_streams import TICKS, USERS, begun, events, killed_at, opened, payloads, stream_of
from tests.workers.cut_batches import CutBatches

import pianissimo as pp
from pianissimo.errors import DiskFullError
from pianissimo.shards.shard_owner import ShardOwner
from pianissimo.shards.shard_task import StoreTask
from pianissimo.shards.sharded_core import ShardedCore
from pianissimo.storage.blobs import BlobFolder
from pianissimo.storage.purpose_keys import Keys
from pianissimo.workers import ProcessWorkers
from pianissimo.workers.bundles import ShardedParts, bundles_of
from pianissimo.workers.hands import TableSlice

UNITS = pytest.mark.parametrize("unit", ["event", USERS], ids=["events", "users"])


class Watched(CutBatches):
    """Notes what is asked."""

    def __init__(self, parts: int, **options: Any) -> None:
        super().__init__(parts, **options)
        self.stored: list[StoreTask] = []

    def ask(self, tasks: Sequence[Any]) -> list[Any]:
        self.stored += [task for task in tasks if isinstance(task, StoreTask)]
        return super().ask(tasks)


def test_bundles_share_the_hash_of_shards() -> None:
    for shards in (2, 7, 12, 64, 1000, 4096, 65536, 65521, 2 * 4093):
        count = bundles_of(shards)
        assert 1 <= count <= 256
        assert shards % count == 0
    assert [bundles_of(shards) for shards in (2, 7, 255, 256, 4096, 1000, 65521)] == [2, 7, 255, 256, 256, 250, 1]


@UNITS
@pytest.mark.parametrize("shards", [12, 257, 512])
def test_any_number_of_bundles_gives_the_bytes_of_one_process(unit: Any, shards: int, tmp_path: Path) -> None:
    stream = stream_of(shards, unit)
    folder = begun(stream, tmp_path / "begun")
    workers = Watched(5)
    assert payloads(stream, folder, workers, last=2) == payloads(stream, folder, last=2)
    assert len(workers.stored) > 0


@UNITS
def test_the_driver_opens_no_bundle_that_came_from_elsewhere(
    unit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts what is its own, and passes on what shards count: in other processes the methods are as they were."""
    stream = stream_of(16, unit)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)

    class Slices(ProcessWorkers):
        def ranges_of(self, batch: Any, tick: int, options: dict[str, Any]) -> Any:
            return [TableSlice(tick, batch[start : start + 100], options) for start in range(0, batch.height, 100)]

    def refuse(*_: Any) -> Any:
        raise AssertionError

    for owner, name in ((ShardedParts, "together"), (ShardedParts, "by_shard"), (ShardOwner, "put")):
        monkeypatch.setattr(owner, name, refuse)
    assert payloads(stream, folder, Slices(2)) == whole


def test_what_the_driver_gathered_itself_joins_what_came_from_elsewhere(tmp_path: Path) -> None:
    """Small batches of a tick are gathered here and others there, in the order in which they came."""
    stream = stream_of(16, USERS)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)

    class Every2nd(Watched):
        asked = 0

        def ranges_of(self, batch: object, tick: int, options: dict[str, Any]) -> Any:
            self.asked += 1
            return super().ranges_of(batch, tick, options) if self.asked % 2 else None

    workers = Every2nd(3)
    assert payloads(stream, folder, workers) == whole
    assert workers.stored


def test_a_part_that_counts_nothing_any_more_gets_nothing(tmp_path: Path) -> None:
    """Its last release is at tick 4 of 5: what workers gather of the last tick for it is passed over."""
    queries = [pp.Histogram("found", key="label"), pp.Histogram("now_and_then", key="label", every=2)]
    stream = stream_of(16, queries=queries, horizon=5)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder, last=5)
    workers = Watched(3)
    assert payloads(stream, folder, workers, last=5) == whole
    assert [len(task.closed) for task in workers.stored if task.tick > 3] == [0] * 3 + [1] * 3
    # Nothing of it is stored either, in whichever way.
    assert payloads(stream, folder, CutBatches(2), None, last=5) == whole


@UNITS
def test_a_task_has_the_keys_of_its_own_shards_alone(unit: Any, tmp_path: Path) -> None:
    workers = Watched(3)
    with opened(stream_of(16, unit), tmp_path, workers) as live:
        live.tick(events(1))
        core: Any = live._core
        root, told = Keys(core._holding.root), core._holding.told
        found = [each for task in workers.stored for each in told.worker(root.opener).of(task)]
    keys = [set(task.keys) for task in workers.stored]
    assert len(keys) == 3
    assert sum(map(len, keys)) == len(set().union(*keys)) <= 16
    packed = pickle.dumps(workers.stored)
    assert not any(bytes(root.shard(shard)) in packed for shard in range(16))
    assert repr(workers.stored[0]).startswith("StoreTask(tick=1, bundles=")
    # Of 16 shards each is a bundle: who stores has the keys of those that something is added to, and keeps none.
    assert {shard for shard, *_ in found} == set().union(*keys)
    owner = told.worker(root.opener)
    owner.of(workers.stored[0])
    assert not owner._shard_keys


def test_processes_that_are_killed_while_they_store_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick is stored by who is started in their place."""
    stream = stream_of(16, USERS)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    workers, sound, killed = ProcessWorkers(2), ProcessWorkers.ask, list[int]()

    def ask(self: ProcessWorkers, tasks: Sequence[Any]) -> list[Any]:
        if isinstance(tasks[0], StoreTask):
            killed.append(self.owners[len(killed) % 2])
            os.kill(killed[-1], signal.SIGKILL)
        return sound(self, tasks)

    monkeypatch.setattr(ProcessWorkers, "ask", ask)
    monkeypatch.setattr("pianissimo.workers.hands.ROWS_A_SLICE", 100)
    assert payloads(stream, folder, workers) == whole
    assert len(killed) == TICKS


def test_what_a_lost_try_left_in_a_queue_is_stored_late_and_counts_nowhere(tmp_path: Path) -> None:
    """D5: the driver dies before the seal and comes back with other events; its task runs when that tick is sealed."""
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder, last=2)
    workers = Watched(2)
    with opened(stream, folder, workers) as live, killed_at("seal.begin"):
        live.tick(events(9))
    with opened(stream, folder, CutBatches(2)) as live:
        live.tick(events(1))
        told = live._core._holding.told  # type: ignore[attr-defined]
        opener = Keys(live._core._holding.root).opener  # type: ignore[attr-defined]
        there = set(folder.glob("state.shards/*/1/*"))
        for task in workers.stored:
            told.worker(opener).of(task)
        late = set(folder.glob("state.shards/*/1/*")) - there
        assert late or not there.isdisjoint(folder.glob("state.shards/*/1/*"))
        live.tick(events(2))
        assert [live.payload(tick) for tick in (1, 2)] == whole
    opened(stream, folder).close()
    assert not late & set(folder.glob("state.shards/*/1/*"))


def test_a_disk_that_is_full_where_shards_are_is_told_and_the_tick_is_counted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder, last=2)
    sound, full = BlobFolder.put, [True]

    def put(self: BlobFolder, tick: int, contents: Any) -> None:
        if full[0] and tick == 2:
            raise DiskFullError("there must be room, got none")
        sound(self, tick, contents)

    monkeypatch.setattr(BlobFolder, "put", put)
    for workers in (None, CutBatches(3)):
        full[0] = True
        found = []
        for tick in (1, 2):
            with opened(stream, folder, workers) as live:
                if live.tick_number < tick:
                    if tick == 2 and full[0]:
                        with pytest.raises(DiskFullError):
                            live.tick(events(tick))
                        full[0] = False
                        continue
                    live.tick(events(tick))
                found.append(live.payload(tick))
        with opened(stream, folder, workers) as live:
            if live.tick_number < 2:
                live.tick(events(2))
            assert [live.payload(1), live.payload(2)] == whole


def test_pieces_in_another_order_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: which rows of a user count depends on her own order."""
    stream = stream_of(4, USERS)
    folder, sound = begun(stream, tmp_path / "begun"), ShardedParts.together
    whole = payloads(stream, folder, last=2)

    def together(self: ShardedParts, packed: Any, closed: Any = ()) -> Any:
        return sound(self, list(packed)[::-1], closed)

    monkeypatch.setattr(ShardedParts, "together", together)
    assert payloads(stream, folder, CutBatches(5), last=2) != whole


def test_a_seal_before_what_it_covers_is_stored_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: who seals names that workers only announce has a sealed tick without its blobs after a kill."""
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")

    def killed() -> int:
        with opened(stream, folder, CutBatches(3)) as live, killed_at("seal.after_commit"):
            live.tick(events(live.tick_number + 1))
        return len(list(folder.glob("state.shards/*/*/*")))

    assert killed()
    with opened(stream, folder) as live:
        assert live.tick_number == 1
    monkeypatch.setattr(BlobFolder, "put", lambda *_: None)
    killed()
    monkeypatch.undo()
    with pytest.raises(pp.DamageError):
        opened(stream, folder)


def test_a_bundle_that_is_passed_on_twice_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(16)
    folder, sound = begun(stream, tmp_path / "begun"), ShardedCore._store_tasks
    whole = payloads(stream, folder, last=1)

    def tasks(self: ShardedCore, tick: int, bundles: dict[int, list[bytes]]) -> Any:
        return sound(self, tick, {number: [*pieces, pieces[0]] for number, pieces in bundles.items()})

    monkeypatch.setattr(ShardedCore, "_store_tasks", tasks)
    assert payloads(stream, folder, CutBatches(3), last=1) != whole
