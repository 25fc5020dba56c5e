"""D4: a cluster of two workers on two host names, and twins that Spark starts; `examples/cluster.py` kills one."""

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.io import test_file_ranges as files
from tests.shards.sharded_streams import SECRET, begun, events, opened, payloads, stream_of
from tests.spark.ranges_that_fail import DawdlesOnce
from tests.spark.sessions import ROOT, environment
from tests.spark.tasks_that_fail import FailsOnce

from pianissimo.durable.start import write_names_key, write_shards_key
from pianissimo.spark import SparkWorkers

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

TWINS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
}
LONG = 600.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all tests: that of `examples/cluster.py`."""
    before = dict(os.environ)
    os.environ |= environment()
    folder = ROOT / "examples"
    sys.path.insert(0, str(folder))
    found = importlib.util.spec_from_file_location("cluster_example", folder / "cluster.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    with module.Cluster(tmp_path_factory.mktemp("cluster")) as made:
        made.settings |= TWINS
        yield made
    sys.path.remove(str(folder))
    os.environ.clear()
    os.environ |= before


def test_twins_that_spark_starts_change_no_byte(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.io.sources.file_ranges.TEXT_BYTES", 5000)
    spec = files.spec_of(files.write(tmp_path, "jsonl"))
    made = files.begun(spec, tmp_path / "made")
    whole = files.ran(spec, made, tmp_path / "inline")
    write_names_key(str(made / "state"), str(made / "state.secret"), tmp_path / "names.key")
    sound, mark = SparkWorkers.gather, tmp_path / "mark"

    def gather(self: SparkWorkers, ranges: Any, rules: Any = None) -> Any:
        asked = list(ranges)
        asked[0] = DawdlesOnce(asked[0], mark, LONG)
        return sound(self, asked, rules)

    monkeypatch.setattr(SparkWorkers, "gather", gather)
    workers = cluster.workers(tmp_path / "names.key")
    begin = time.monotonic()
    assert files.ran(spec, made, tmp_path / "twins", workers) == whole
    # The first one had not come to its end when its twin had.
    assert mark.exists()
    assert list(tmp_path.glob("mark ?*"))
    assert time.monotonic() - begin < LONG


def test_shards_survive_twins_and_a_lost_worker(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3, D4 over shards; the last test of the cluster, since it kills a worker with the executor that it had."""
    stream = stream_of(16)
    folder = begun(stream, tmp_path / "begun")
    whole = payloads(stream, folder, last=4)
    write_shards_key(str(folder / "state"), SECRET, tmp_path / "shards.key")
    sound, mark, asked = SparkWorkers.ask, tmp_path / "mark", []

    def ask(self: SparkWorkers, tasks: Any) -> Any:
        asked.append(len(tasks))
        first = FailsOnce.of(tasks[0], mark, LONG) if len(asked) == 2 else tasks[0]
        return sound(self, [first, *tasks[1:]])

    monkeypatch.setattr(SparkWorkers, "ask", ask)
    workers = cluster.workers(tmp_path / "shards.key", shards=tmp_path / "shards.key")
    begin = time.monotonic()
    with opened(stream, folder, workers) as live:
        for tick in range(1, 5):
            if tick == 3:
                cluster.kill_a_worker()
            live.tick(events(tick))
        assert [live.payload(tick) for tick in range(1, 5)] == whole
    assert mark.exists()
    assert time.monotonic() - begin < LONG
