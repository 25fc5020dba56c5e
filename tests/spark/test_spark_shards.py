"""D2, D3, D8, D9, D11 on Spark over shards: executors have state and noise, and the bytes are those of one process."""

import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.shards.sharded_streams import SECRET, TICKS, USERS, begun, payloads, stream_of
from tests.spark.tasks_that_fail import FailsOnce

from pianissimo.durable.start import write_names_key, write_shards_key
from pianissimo.errors import ParameterError
from pianissimo.shards.shard_task import StoreTask
from pianissimo.spark import SparkWorkers

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore:PySpark does not yet:FutureWarning"
)


def key_of(folder: Path) -> str:
    path = folder.parent / f"{folder.name}.shards-key"
    write_shards_key(str(folder / "state"), SECRET, path)
    return str(path)


@pytest.mark.parametrize("unit", ["event", USERS], ids=["events", "users"])
def test_executors_that_have_shards_give_the_bytes_of_one_process(
    unit: Any, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 1, 2, 7 and 40 tasks, another number at each tick; the first task of two ticks kills its Python worker.

    Users are gathered on executors too, from rows in no order.
    """
    stream = stream_of(16, unit)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    key, names = key_of(folder), tmp_path / "names.key"
    write_names_key(str(folder / "state"), SECRET, names)
    sound, sent = SparkWorkers.ask, list[Any]()

    def ask(self: SparkWorkers, tasks: Any) -> Any:
        mark = tmp_path / f"mark {len(sent)}"
        sent.append(tasks)
        if len(sent) in (2, 7):
            tasks = [FailsOnce.of(tasks[0], mark), *tasks[1:]]
        return sound(self, tasks)

    monkeypatch.setattr(SparkWorkers, "ask", ask)
    own: dict[str, Any] = {"session": session, "names": str(names), "shards": key, "order": ("place",)}
    several = [SparkWorkers(tasks=tasks, **own) for tasks in (1, 2, 7, 40)]

    def spread(rows: pl.DataFrame) -> Any:
        placed = rows.with_columns(place=pl.int_range(pl.len())).sample(fraction=1, shuffle=True, seed=4)
        return session.createDataFrame(placed.to_arrow()).repartition(3)

    assert payloads(stream, folder, *several, table=None if unit == "event" else spread) == whole
    assert len(sent) > TICKS
    assert (tmp_path / "mark 1").exists()
    assert (tmp_path / "mark 6").exists()
    assert any(isinstance(task, StoreTask) for tasks in sent for task in tasks) == (unit != "event")
    for tasks in sent:
        packed = pickle.dumps(list(tasks))
        assert bytes(SECRET) not in packed
        for path in (key, names):
            assert bytes.fromhex(Path(path).read_text()) not in packed
        # What a tick adds goes to those who have the shards, as it came from those who gathered it.
        assert b"rare" not in packed or isinstance(tasks[0], StoreTask)


def test_executors_must_be_told_where_the_shards_key_is(session: Any, tmp_path: Path) -> None:
    stream = stream_of(4)
    folder = begun(stream, tmp_path / "begun")
    with pytest.raises(ParameterError, match="where executors find the shards key"):
        payloads(stream, folder, SparkWorkers(session=session))
