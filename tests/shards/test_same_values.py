"""D2, D3, D8 over shards: whoever has which shards, however often they are lost, what is published is one."""

import os
import pickle
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.shards.sharded_streams import TICKS, USERS, begun, events, opened, payloads, stream_of
from tests.workers.cut_batches import CutBatches

import pianissimo as pp
from pianissimo import codec
from pianissimo.durable.key_ring import ring_of
from pianissimo.errors import DamageError, InputError, ParameterError, StateError
from pianissimo.labels import MOST_LABELS
from pianissimo.mechanism import in_shards
from pianissimo.noise import Secret
from pianissimo.shards.shard_owner import ShardOwner
from pianissimo.shards.shard_task import ShardTask
from pianissimo.storage.purpose_keys import Keys
from pianissimo.stream.release import release_of
from pianissimo.testing import NoNoise
from pianissimo.workers import ProcessWorkers


@pytest.mark.parametrize("unit", ["event", USERS], ids=["events", "users"])
def test_any_number_of_tasks_lost_owners_twins_and_restarts_change_no_byte(unit: Any, tmp_path: Path) -> None:
    stream = stream_of(16, unit)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    assert len(set(whole)) == TICKS
    assert payloads(stream, folder, CutBatches(7)) == whole
    # Rescaled at each tick, and started anew: nothing but what is stored goes from one to the next.
    assert payloads(stream, folder, CutBatches(1), CutBatches(40), CutBatches(2)) == whole
    assert payloads(stream, folder, reopened=True) == whole


def test_the_cap_of_users_follows_all_of_them_wherever_they_are(tmp_path: Path) -> None:
    stream = stream_of(16, USERS)
    whole = payloads(stream, begun(stream, tmp_path / "begun"))
    caps = [release_of(each)["n"]["cap"].item() for each in whole]
    # Users have about 3 events at each tick: the second question is asked at the first tick, and by the last again.
    assert caps[0] >= 8
    assert caps[-1] >= 32


@pytest.mark.parametrize("unit", ["event", USERS], ids=["events", "users"])
def test_without_noise_shards_count_what_one_process_counts(unit: Any, tmp_path: Path) -> None:
    def found(shards: int) -> list[dict[str, Any]]:
        stream = stream_of(shards, unit)
        options: dict[str, Any] = {"make_noise": lambda _: NoNoise(), "last": 3}
        releases = map(release_of, payloads(stream, begun(stream, tmp_path / str(shards)), **options))
        return [{name: table.to_dict(as_series=False) for name, table in each.items()} for each in releases]

    whole = found(1)
    assert found(64) == whole
    assert found(4096) == whole


def test_processes_that_are_killed_change_no_byte(tmp_path: Path) -> None:
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    workers = ProcessWorkers(2)
    with opened(stream, folder, workers) as live:
        for tick in range(1, TICKS + 1):
            if tick in (2, 4):
                os.kill(workers.owners[tick // 2 - 1], signal.SIGKILL)
            live.tick(events(tick))
        assert [live.payload(tick) for tick in range(1, TICKS + 1)] == whole


def test_one_shard_is_the_stream_of_today() -> None:
    one, none = stream_of(1), pp.Stream("s", budget=pp.Budget(8, 1e-6), horizon=16, queries=stream_of(1).queries)
    assert one.plan().digest == none.plan().digest
    assert one.to_plain() == none.to_plain()
    assert one.plan().to_plain() == none.plan().to_plain()
    assert stream_of(2).plan().digest != stream_of(3).plan().digest


@pytest.mark.parametrize("unit", ["event", USERS], ids=["events", "users"])
def test_what_is_cut_by_shard_is_what_was_gathered(unit: Any, tmp_path: Path) -> None:
    with opened(stream_of(16, unit), tmp_path) as live:
        core = live._core
        pieces = core.gather(core.inputs(events(1), 1, drop_bad_rows=False))
        sharded = 0
        for part, whole in zip(core.parts, pieces, strict=True):
            mechanism: Any = part.run.mechanism
            if in_shards(mechanism):
                cut = mechanism.split(whole, 16)
                assert len(cut) > 3
                assert codec.pack("x", 1, mechanism.combine(list(cut.values()))) == codec.pack("x", 1, whole)
                sharded += 1
        assert sharded


def test_an_owner_holds_the_keys_of_the_shards_it_is_asked_about_alone(tmp_path: Path) -> None:
    """The shards key opens those that come with a task, and nothing follows from it; no task has one in the open."""
    keys = ring_of(Secret(bytes(32))).newest
    roots = [keys.shards, Keys(keys.shards).opener, *(Keys(keys.shards).shard(number) for number in range(3))]
    assert len({bytes(each) for root in roots for each in (root, Keys(root).noise)}) == 10
    sent: list[Any] = []

    class Watched(CutBatches):
        def ask(self, tasks: Any) -> Any:
            sent.extend(tasks)
            return super().ask(tasks)

    with opened(stream_of(16), tmp_path, Watched(2)) as live:
        live.tick(events(1))
        core: Any = live._core
        root, told = Keys(core._holding.root), core._holding.told
    asked = [task for task in sent if isinstance(task, ShardTask)]
    one = asked[0]
    other = next(task for task in asked if task.shards.keys() != one.shards.keys())
    assert one.keys.keys() == one.shards.keys() != other.shards.keys()
    packed = pickle.dumps(sent)
    assert not any(bytes(root.shard(shard)) in packed for shard in range(16))
    owner = told.worker(root.opener)
    owner.of(one)
    with pytest.raises(StateError, match="must come with what is asked"):
        owner.of(replace(other, keys={}))
    wrong = dict(zip(other.keys, reversed(other.keys.values()), strict=True))
    with pytest.raises(DamageError, match="shard key"):
        told.worker(root.opener).of(replace(other, keys=wrong))
    assert owner._shard_keys.keys() == one.shards.keys()
    # What fails leaves no state behind, and its keys go with the next that does not.
    lost = {shard: replace(own, deltas=dict.fromkeys(own.deltas, bytes(32))) for shard, own in other.shards.items()}
    with pytest.raises(DamageError, match="must be there"):
        owner.of(replace(other, shards=lost))
    owner.of(one)
    assert owner._shard_keys.keys() == one.shards.keys() == owner._states.keys()


def test_the_labels_of_all_shards_together_are_bounded() -> None:
    plan = stream_of(4).plan()
    for name in ("found", "top", "mean"):
        mechanism = next(each.mechanism for each in plan.queries if each.query.name == name)
        none = pl.Series("key", [], dtype=pl.String)
        empty = np.zeros(0, dtype=np.int64)
        full = [none, [empty, empty], 0, MOST_LABELS] if name != "mean" else [none, [empty, empty], MOST_LABELS]
        few = [*full[:-1], 1]
        talk = mechanism.converse(mechanism.start(NoNoise()), 1, NoNoise())
        next(talk)
        with pytest.raises(InputError, match="at most 2\\^32"):
            talk.send([full, few])


def test_what_is_not_there_over_shards_is_refused_with_a_reason() -> None:
    refused: list[tuple[Any, dict[str, Any]]] = [
        ("shards = 1", {"queries": [pp.Quantiles("q", value="amount", range=(0, 10))], "unit": pp.user("user")}),
        ("shards = 1", {"queries": [pp.Distinct("d", key="label")], "unit": pp.user("user")}),
        ("shards = 1", {"queries": [pp.Count("n")], "unit": pp.user("user", within="4h"), "tick": "1h"}),
        ("windows over shards", {"queries": [pp.Count("n", per=2)]}),
        ("windows over shards", {"history": 3}),
    ]
    for words, changed in refused:
        with pytest.raises(ParameterError, match=words):
            stream_of(4, **changed).plan()
    with pytest.raises(ParameterError, match="at most 65536"):
        stream_of(2**20)
    with pytest.raises(ParameterError, match="run in memory"):
        stream_of(4).start()


def test_a_broken_owner_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: noise by the order in which a task has its shards, and not by the shard."""
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder, last=2)
    sound = ShardOwner._keys_of

    def by_place(self: ShardOwner, shard: int) -> Any:
        self.__dict__.setdefault("order", []).append(shard)
        return sound(self, self.__dict__["order"].index(shard) // 3)

    monkeypatch.setattr(ShardOwner, "_keys_of", by_place)
    with pytest.raises((AssertionError, pp.PianissimoError)):
        assert payloads(stream, folder, CutBatches(7), last=2) == whole
