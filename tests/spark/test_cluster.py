"""D4: a cluster of two workers on two host names, and twins that Spark starts; `examples/cluster.py` kills one."""

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.io import test_file_ranges as files
from tests.spark.ranges_that_fail import DawdlesOnce
from tests.spark.sessions import ROOT, environment

from pianissimo.durable.start import write_names_key
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


@pytest.fixture
def example() -> Iterator[Any]:
    """`examples/cluster.py`, which starts a cluster."""
    folder = ROOT / "examples"
    sys.path.insert(0, str(folder))
    found = importlib.util.spec_from_file_location("cluster_example", folder / "cluster.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    yield module
    sys.path.remove(str(folder))


def test_twins_that_spark_starts_change_no_byte(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.io.sources.file_ranges.TEXT_BYTES", 5000)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    spec = files.spec_of(files.write(tmp_path, "jsonl"))
    made = files.begun(spec, tmp_path / "made")
    whole = files.ran(spec, made, tmp_path / "inline")
    write_names_key(str(made / "state"), str(made / "state.secret"), tmp_path / "names.key")
    sound, mark = SparkWorkers.gather, tmp_path / "mark"
    with example.Cluster(tmp_path) as cluster:

        def gather(self: SparkWorkers, ranges: Any, rules: Any = None) -> Any:
            asked = list(ranges)
            asked[0] = DawdlesOnce(asked[0], mark, LONG)
            return sound(self, asked, rules)

        monkeypatch.setattr(SparkWorkers, "gather", gather)
        cluster.settings |= TWINS
        workers = cluster.workers(tmp_path / "names.key")
        begin = time.monotonic()
        assert files.ran(spec, made, tmp_path / "twins", workers) == whole
    # The first one had not come to its end when its twin had.
    assert mark.exists()
    assert list(tmp_path.glob("mark ?*"))
    assert time.monotonic() - begin < LONG
