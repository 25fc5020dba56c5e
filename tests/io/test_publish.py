"""T4: a sink that breaks keeps nothing from readers and from the other sinks, and what it lacks is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from pianissimo import Budget, Count, Stream
from pianissimo.durable.durable_stream import open_stream
from pianissimo.errors import InputError
from pianissimo.io import folder as folder_sink
from pianissimo.io import read_releases
from pianissimo.io.folder import FolderSink

STREAM = Stream("s", budget=Budget(4, 1e-6), horizon=20, queries=[Count("n")], tick="1m")


class Breaking:
    """A sink that raises whatever it is told to."""

    name = "breaking"

    def __init__(self, fault: Exception | None) -> None:
        self.fault = fault
        self.got: list[int] = []

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.got.append(tick)


@pytest.mark.parametrize("fault", [TypeError("user 7"), KeyError("user 7"), RuntimeError("user 7"), MemoryError()])
def test_what_nobody_foresaw_in_one_sink_stops_neither_the_other_sinks_nor_the_readers(
    tmp_path: Path, fault: Exception
) -> None:
    breaking = Breaking(fault)
    good = FolderSink(tmp_path / "good", plan=STREAM.plan().to_dict())
    with open_stream(STREAM, tmp_path / "state", sinks=[breaking, good]) as live:
        for tick in (1, 2, 3):
            live.tick([{}] * 5)
            assert live.visible_tick == tick
            assert good.last() == tick
            publisher = live._publisher
            assert publisher.undelivered == {"breaking": tick, good.name: 0}
            assert publisher.failures["breaking"] == tick
        assert publisher.faults == {
            "breaking": f"breaking must take the release, got {type(fault).__name__}; it is sent again"
        }
        breaking.fault = None
        live.tick()
        assert breaking.got == [1, 2, 3, 4]
        assert publisher.undelivered["breaking"] == 0
        assert not publisher.faults
    assert read_releases(tmp_path / "good")["n"]["tick"].to_list() == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["plan.json", "columns.json"])
@pytest.mark.parametrize("content", ["[]", "3", "null", '"x"', "{"])
def test_a_folder_whose_own_files_are_no_objects_is_refused_before_anything_is_sent(
    tmp_path: Path, name: str, content: str
) -> None:
    plan: dict[str, Any] = STREAM.plan().to_dict()
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=r"must be a JSON object, got something else|must be JSON, got damaged text"):
        FolderSink(tmp_path, plan=plan)


def test_columns_that_could_not_be_written_are_written_with_the_next_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FolderSink(tmp_path / "out", plan=STREAM.plan().to_dict())
    with open_stream(STREAM, tmp_path / "state", sinks=[sink]) as live:
        with monkeypatch.context() as patch:
            patch.setattr(folder_sink, "write_whole", _full)
            live.tick()
        assert live._publisher.undelivered == {sink.name: 1}
        live.tick()
    assert read_releases(tmp_path / "out")["n"]["tick"].to_list() == [1, 2]


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_folder_behind_links_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match="must be a folder that can be written"):
        FolderSink(tmp_path / "a", plan={"digest": ""})


def test_what_a_killed_process_had_begun_to_write_is_hidden_and_gone_after_the_next_start(tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = STREAM.plan().to_dict()
    with open_stream(STREAM, tmp_path / "state", sinks=[FolderSink(out, plan=plan)]) as live:
        live.tick()
    # As `write_whole` names them; a query's folder may hold nothing else yet.
    (out / "other").mkdir()
    left = [out / ".plan.json.9.tmp", out / "n" / ".ticks-00000002-00000002.parquet.9.tmp", out / "other" / ".x.9.tmp"]
    for path in left:
        path.write_bytes(b"half of it")
    assert [path.name for path in out.glob("**/[!.]*") if path.is_file() and path.parent != out] == [
        "ticks-00000001-00000001.parquet"
    ]
    with open_stream(STREAM, tmp_path / "state", sinks=[FolderSink(out, plan=plan)]) as live:
        live.tick()
    assert not any(path.exists() for path in left)
