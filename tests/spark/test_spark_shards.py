"""D2, D3, D8, D11 on Spark over shards: executors have state and noise, and the bytes are those of one process."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.shards.sharded_streams import SECRET, TICKS, USERS, begun, payloads, stream_of
from tests.spark.tasks_that_fail import FailsOnce

from pianissimo.durable.start import write_shards_key
from pianissimo.errors import ParameterError
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
    """In 1, 2, 7 and 40 tasks, another number at each tick; the first task of two ticks kills its Python worker."""
    stream = stream_of(16, unit)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder)
    key = key_of(folder)
    sound, sent = SparkWorkers.ask, list[bytes]()

    def ask(self: SparkWorkers, tasks: Any) -> Any:
        mark = tmp_path / f"mark {len(sent)}"
        sent.append(pickle.dumps(list(tasks)))
        if len(sent) in (2, 7):
            tasks = [FailsOnce.of(tasks[0], mark), *tasks[1:]]
        return sound(self, tasks)

    monkeypatch.setattr(SparkWorkers, "ask", ask)
    several = [SparkWorkers(session=session, names=key, shards=key, tasks=tasks) for tasks in (1, 2, 7, 40)]
    # Names of users are made by the driver: here it gathers.
    monkeypatch.setattr(SparkWorkers, "begin", lambda *_: None)
    assert payloads(stream, folder, *several) == whole
    assert len(sent) > TICKS
    assert (tmp_path / "mark 1").exists()
    assert (tmp_path / "mark 6").exists()
    for each in sent:
        assert bytes(SECRET) not in each
        assert bytes.fromhex(Path(key).read_text()) not in each
        assert b"rare" not in each


def test_executors_must_be_told_where_the_shards_key_is(session: Any, tmp_path: Path) -> None:
    stream = stream_of(4)
    folder = begun(stream, tmp_path / "begun")
    with pytest.raises(ParameterError, match="where executors find the shards key"):
        payloads(stream, folder, SparkWorkers(session=session))
