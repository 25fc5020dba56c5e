"""D3, D5, D6 over shards: killed at every write, overtaken while it hangs, and owners that outlive a lost seal."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from tests.shards.sharded_streams import SECRET, Killed, begun, events, killed_at, opened, stream_of
from tests.workers.cut_batches import CutBatches

import pianissimo as pp
from pianissimo.durable import failpoints
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.recover import accept_rollback
from pianissimo.durable.start import Request, names_key, shards_root
from pianissimo.durable.stored_ticks import Options
from pianissimo.errors import DamageError, LeaseError, RollbackError
from pianissimo.noise import Secret
from pianissimo.shards.shard_owner import ShardOwner
from pianissimo.shards.shard_task import ShardPlan
from pianissimo.storage import blobs, files
from pianissimo.storage.purpose_keys import Keys

FOUND = [pp.Histogram("found", key="label")]


def small() -> pp.Stream:
    return stream_of(4, queries=FOUND)


def copied(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder, folder.with_name(name)))


def ran(stream: pp.Stream, folder: Path, last: int, **options: Any) -> list[bytes]:
    """From wherever it stands."""
    with opened(stream, folder, **options) as live:
        for tick in range(live.tick_number + 1, last + 1):
            live.tick(events(tick))
        return [live.payload(tick) for tick in range(1, last + 1)]


@contextmanager
def killed_at_write(monkeypatch: pytest.MonkeyPatch, place: int) -> Iterator[list[int]]:
    """The driver ends at the write of a blob, a folder or a name of this number; tells how many there were."""
    passed = [0]
    with monkeypatch.context() as patch:
        for module, name in ((files, "_linked"), (files, "sync_folder"), (blobs, "make_folder")):
            sound = getattr(module, name)

            def write(*given: Any, sound: Any = sound) -> Any:
                passed[0] += 1
                if passed[0] == place:
                    raise Killed
                return sound(*given)

            patch.setattr(module, name, write)
        yield passed


def test_killed_at_any_write_of_a_blob_it_goes_on_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: what ticks add, and the states that are stored at every second one."""
    stream = small()
    folder = begun(stream, tmp_path / "begun")
    whole = ran(stream, copied(folder, "whole"), 3)
    for place in range(1, 100):
        copy = copied(folder, f"copy {place}")
        try:
            with killed_at_write(monkeypatch, place) as passed:
                ran(stream, copy, 3)
        except Killed:
            assert ran(stream, copy, 3) == whole, place
            shutil.rmtree(copy)
        else:
            assert passed[0] == place - 1 > 15
            return
    pytest.fail("a run of three ticks must end")


def test_the_names_of_all_folders_are_on_the_disk_before_the_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the seal must not take a folder with it, nor where somebody was killed who had made it."""
    synced: list[Path] = []
    sound = files.sync_folder

    def noted(folder: Path) -> None:
        synced.append(folder)
        sound(folder)

    monkeypatch.setattr(files, "sync_folder", noted)
    top = tmp_path / "shards"
    name = blobs.BlobName(1, 2, bytes(32))
    for made in (False, True):
        if made:
            (top / bytes(16).hex() / "1").mkdir(parents=True, exist_ok=True)
        blobs.BlobFolder(top, bytes(16)).put(1, {name: b"content"})
        levels = [tmp_path, top, top / bytes(16).hex(), top / bytes(16).hex() / "1"]
        assert [folder for folder in synced if folder in levels] == levels
        synced.clear()


def overtaking(stream: pp.Stream, folder: Path, **options: Any) -> Any:
    return opened(stream, folder, take_over=True, **options)


@pytest.mark.parametrize("shared", [False, True], ids=["own executors", "the same executors"])
def test_a_driver_that_was_overtaken_writes_nothing_that_counts(shared: bool, tmp_path: Path) -> None:
    """D6: a second driver while the first has a tick open, and other events for it."""
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    whole = ran(stream, copied(folder, "whole"), 4)
    Lasting.made.clear()
    first = opened(stream, folder, Lasting() if shared else CutBatches(2))
    first.tick(events(1))
    first.add(events(9)[:7])
    with overtaking(stream, folder, workers=Lasting() if shared else CutBatches(3)) as second:
        second.tick(events(2))
        with pytest.raises(LeaseError):
            first.tick(events(9)[7:])
        for tick in (3, 4):
            second.tick(events(tick))
        assert [second.payload(tick) for tick in range(1, 5)] == whole
    first.close()
    assert ran(stream, folder, 4) == whole


@pytest.mark.parametrize("point", ["seal.after_commit", "release.computed", "release.after_commit"])
def test_a_driver_that_hangs_and_wakes_up_changes_nothing(point: str, tmp_path: Path) -> None:
    """D6: it hangs within a tick, another does that tick and two more, and it wakes up."""
    stream = small()
    folder = begun(stream, tmp_path / "begun")
    whole = ran(stream, copied(folder, "whole"), 5)
    ran(stream, folder, 1)
    first = opened(stream, folder)
    found: list[bytes] = []

    def overtaken(_: str) -> None:
        if not found:
            found.append(b"")
            with overtaking(stream, folder) as second:
                for tick in range(second.tick_number + 1, 5):
                    second.tick(events(tick))
                found[:] = [second.payload(tick) for tick in range(1, 5)]

    before, failpoints._armed = failpoints._armed, {point: overtaken}
    try:
        # Blobs that it would look at may be gone by then: as good a reason to stop.
        with pytest.raises((LeaseError, RollbackError, DamageError)):
            first.tick(events(2))
    finally:
        failpoints._armed = before
        first.close()
    assert found == whole[:4]
    assert ran(stream, folder, 5) == whole


def test_a_driver_that_hangs_while_it_tidies_takes_no_sealed_blob_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6: blobs of a try are left over; who is about to remove them hangs, another seals that tick, and it wakes up."""
    stream = small()
    folder = begun(stream, tmp_path / "begun")
    whole = ran(stream, copied(folder, "whole"), 4)
    ran(stream, folder, 2)
    with opened(stream, folder) as live, killed_at("seal.begin"):
        live.tick(events(3))
    sound, found = blobs.BlobFolder.ticks, list[bytes]()

    def hanging(self: blobs.BlobFolder) -> list[int]:
        listed = sound(self)
        if not found:
            found.append(b"")
            with overtaking(stream, folder) as second:
                second.tick(events(3))
        return listed

    with monkeypatch.context() as patch:
        patch.setattr(blobs.BlobFolder, "ticks", hanging)
        opened(stream, folder).close()
    assert ran(stream, folder, 4) == whole


class Lasting(CutBatches):
    """Two executors that outlive drivers, as those of a cluster do; a test says which of them is asked."""

    made: ClassVar[dict[bytes, list[ShardOwner]]] = {}
    asked = 0

    def __init__(self) -> None:
        super().__init__(1)

    def own(self, plan: ShardPlan, key: Secret) -> None:
        self.owners = self.made.setdefault(plan.incarnation, [plan.worker(key) for _ in range(2)])

    def ask(self, tasks: Sequence[Any]) -> list[Any]:
        return [self.owners[Lasting.asked].of(task) for task in tasks]


@pytest.mark.parametrize("every", [1, 2, 100])
def test_owners_that_outlive_a_lost_seal_draw_anew(every: int, tmp_path: Path) -> None:
    """A failover loses a sealed tick before its witness; then it is sealed with other events, in another shard.

    What an owner remembers of a shard that got the same in both has noise that is bound to the lost seal.
    """
    stream = small()
    folder = begun(stream, tmp_path / "begun")
    Lasting.made.clear()
    Lasting.asked = 0

    def at_place() -> DurableStream:
        options = Options(snapshot_every=every, workers=Lasting())
        return DurableStream(Request(stream), wire(folder / "state", secret=SECRET), options)

    with at_place() as live:
        for tick in (1, 2, 3):
            live.tick(events(tick))
    kept = copied(folder, "kept")
    with at_place() as live, killed_at("witness.before_append"):
        # More of one label: the other shards get what they get below.
        live.tick(events(4).vstack(events(4).filter(pl.col("label") == "b")))
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    Lasting.asked = 1
    with at_place() as live:
        live.tick(events(4))
        Lasting.asked = 0
        for tick in (5, 6):
            live.tick(events(tick))
        found = [live.payload(tick) for tick in range(1, 7)]
    assert found == ran(stream, kept, 6, snapshot_every=every)


@pytest.mark.parametrize(("every", "lost"), [(2, 2), (2, 4), (3, 3)])
def test_owners_that_outlive_a_lost_seal_draw_anew_where_ticks_without_a_release_are_stored(
    every: int, lost: int, tmp_path: Path
) -> None:
    """What an owner stores at a tick without a release has the noise of the release before, and no seal of that one."""
    stream = stream_of(4, queries=[pp.Histogram("found", key="label", every=every)])
    folder = begun(stream, tmp_path / "begun")
    Lasting.made.clear()
    Lasting.asked = 0

    def at_place() -> DurableStream:
        options = Options(snapshot_every=1, workers=Lasting())
        return DurableStream(Request(stream), wire(folder / "state", secret=SECRET), options)

    with at_place() as live:
        for tick in range(1, lost):
            live.tick(events(tick))
    kept = copied(folder, "kept")
    with at_place() as live, killed_at("witness.before_append"):
        live.tick(events(lost).vstack(events(lost).filter(pl.col("label") == "b")))
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    Lasting.asked = 1
    with at_place() as live:
        live.tick(events(lost))
        Lasting.asked = 0
        for tick in range(lost + 1, 10):
            live.tick(events(tick))
        found = [live.payload(tick) for tick in range(1, 10)]
    assert found == ran(stream, kept, 9, snapshot_every=1)


def test_a_recovered_life_over_shards_has_noise_and_blobs_of_its_own(tmp_path: Path) -> None:
    """D7: a store that was set back is refused, recovered for free, and goes on; old blobs count nowhere."""
    stream = small()
    folder = begun(stream, tmp_path / "begun")
    ran(stream, folder, 2)
    before = copied(folder, "before")
    ran(stream, folder, 3)
    shutil.rmtree(folder / "state")
    shutil.copytree(before / "state", folder / "state")
    with pytest.raises(RollbackError):
        opened(stream, folder)
    old = {path.name for path in folder.glob("state.shards/*/*/*")}
    accept_rollback(Request(stream), wire(folder / "state", secret=SECRET))
    with opened(stream, folder, CutBatches(3)) as live:
        assert live.tick_number == 3
        for tick in (4, 5, 6):
            live.tick(events(tick))
        found = [live.payload(tick) for tick in (4, 5, 6)]
        life = folder / "state.shards" / live.incarnation
    with opened(stream, folder) as live:
        assert [live.payload(tick) for tick in (4, 5, 6)] == found
    # Blobs of the life before, under the names of this one's: other bytes.
    for own in life.glob("*/*"):
        for other in folder.glob(f"state.shards/*/*/{own.name.split('-')[0]}-*"):
            if other.name in old:
                shutil.copy(other, own)
    with pytest.raises(DamageError), opened(stream, folder) as live:
        live.tick(events(7))


def test_a_life_recovered_with_a_new_secret_has_shards_and_names_of_that_one(tmp_path: Path) -> None:
    """Whoever has the old secret, which may be why there is a new one, draws no noise of the new life."""
    stream, new = small(), Secret(bytes(range(1, 33)))
    ran(stream, tmp_path, 2)
    before = copied(tmp_path / "state", "before")
    ran(stream, tmp_path, 3)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(before, tmp_path / "state")
    wiring = wire(tmp_path / "state", secret=new)
    accept_rollback(Request(stream), wiring, old_secret=SECRET)
    with DurableStream(Request(stream), wiring, Options(snapshot_every=2)) as live:
        live.tick(events(4))
        record, ring = live._record, live._ring
        assert shards_root(record, ring) == Keys(new).shards != Keys(SECRET).shards
        assert names_key(record, ring) == Keys(new).user
        found = live.payload(4)
    with DurableStream(Request(stream), wiring, Options(snapshot_every=2, workers=CutBatches(3))) as live:
        live.tick(events(5))
        assert live.payload(4) == found
