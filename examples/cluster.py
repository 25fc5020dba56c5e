"""A pharmacy's customers on two Spark workers, one of which is killed in the middle of the day: the bytes are the same.

Two streams begin alike: the second is a copy of the first, which only a demonstration may do. One counts in this
process, the other on a cluster of two workers on this machine, at 127.0.0.1 and 127.0.0.2. In the middle of the day a
worker is killed with kill -9, with the executor and the shuffle files that it had. In the end releases are compared.

    pip install pianissimo[spark]
    python examples/cluster.py
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyspark

import pianissimo as pp
from pianissimo.spark import SparkWorkers

HOURS = range(9, 14)
KILLED_AT = 11
MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)


class Cluster:
    """A stand-alone Spark of two workers, which ends with the `with` that it is used in."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._begun = folder, list[subprocess.Popen[bytes]]()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.master = f"spark://127.0.0.1:{free.getsockname()[1]}"
        # Everybody proves to know this, and files and messages are encrypted.
        self.settings = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(32),
            "spark.network.crypto.enabled": "true",
            "spark.io.encryption.enabled": "true",
        }

    def __enter__(self) -> "Cluster":
        file = self._folder / "spark.conf"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name} {value}\n" for name, value in self.settings.items()))
        self._daemon("master.Master", "--host", "127.0.0.1", "--port", self.master.rpartition(":")[2])
        for number in (1, 2):
            words = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work {number}"), self.master)
            self._daemon("worker.Worker", "--host", f"127.0.0.{number}", *words)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._begun):
            self._end(process)

    def kill_a_worker(self) -> None:
        """With its executor, and all that these had on their disk."""
        self._end(self._begun[-1])

    def _daemon(self, name: str, *words: str) -> None:
        home = Path(pyspark.__file__).parent
        common = ("--webui-port", "0", "--properties-file", str(self._folder / "spark.conf"))
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *common, *words]
        with (self._folder / "daemons.log").open("ab") as log:
            environment = os.environ | {
                "SPARK_HOME": str(home),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
            begun = subprocess.Popen(  # noqa: S603
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._begun.append(begun)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def workers(self, names: Path, shards: Path | None = None) -> SparkWorkers:
        """Those who gather here, and have shards where a stream has them."""
        root = Path(pp.__file__).parents[1]
        own = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
            "spark.sql.session.timeZone": "UTC",
        }
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        key = None if shards is None else str(shards)
        settings = {**own, **self.settings}
        return SparkWorkers(self.master, names=str(names), shards=key, tasks=4, order=("time",), settings=settings)


def stream() -> pp.Stream:
    return pp.Stream(
        "pharmacy",
        budget=pp.Budget(epsilon=2.0, delta=1e-6),
        unit=pp.user("customer", max_events_per_user=4),
        horizon=24,
        queries=[pp.Count("purchases"), pp.Histogram("drugs", key="drug"), pp.Users("customers")],
        tick="1h",
    )


def write_day(folder: Path) -> list[Path]:
    """Made up: a file for each hour, few drugs bought often."""
    random = np.random.default_rng(5)
    files = []
    for hour in HOURS:
        count = int(random.integers(1500, 2500))
        seconds = np.sort(random.integers(0, 3600, count))
        table = pl.DataFrame(
            {
                "customer": random.integers(0, 900, count),
                "drug": [f"drug {place % 40}" for place in random.zipf(1.4, count)],
                "time": [MIDNIGHT + timedelta(hours=hour, seconds=int(second)) for second in seconds],
            }
        )
        files.append(folder / f"{hour}.parquet")
        table.write_parquet(files[-1], row_group_size=500)
    return files


def copied(folder: Path, name: str) -> str:
    for path in folder.glob("begun*"):
        target = folder / path.name.replace("begun", name)
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            shutil.copy2(path, target)
    return str(folder / name)


def run(state: str, batches: list[Any], workers: SparkWorkers | None = None) -> list[bytes]:
    with stream().open(state, workers=workers) as live:
        for number, batch in enumerate(batches, 1):
            live.tick(batch() if callable(batch) else batch)
            print(f"  hour {HOURS[number - 1]} is released", flush=True)
        return [live.payload(tick) for tick in range(1, len(batches) + 1)]


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)  # of Spark, about pandas
    folder = Path(tempfile.mkdtemp())
    files = write_day(folder)
    stream().open(folder / "begun").close()
    words = ["names-key", str(folder / "begun"), "--out", str(folder / "names.key")]
    subprocess.run(  # noqa: S603
        [sys.executable, "-c", "from pianissimo.cli.main import main; main()", *words], check=True
    )
    print("in one process:")
    plain = run(copied(folder, "plain"), [pl.read_parquet(file).sort("customer", "time", "drug") for file in files])
    print("on two Spark workers:")
    with Cluster(folder) as cluster:
        workers = cluster.workers(folder / "names.key")

        def table(file: Path) -> Any:
            if file.stem == str(KILLED_AT):
                # While the hour is being counted.
                threading.Timer(0.2, cluster.kill_a_worker).start()
            return workers.session.read.parquet(str(file)).repartition(4)

        begin = time.monotonic()
        spread = run(copied(folder, "spread"), [lambda file=file: table(file) for file in files], workers)
        print(f"a worker was killed in hour {KILLED_AT}; {time.monotonic() - begin:.0f} s in all")
    shutil.rmtree(folder)
    if spread != plain:
        sys.exit("the releases differ")
    print(f"{len(plain)} releases, all bytes equal")


if __name__ == "__main__":
    main()
