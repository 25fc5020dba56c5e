"""A Kafka server of the tests' own: one node on loopback, made of the jars that `pom.xml` names.

The jars come from Maven once and stay in `target/kafka/`.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

POM = Path(__file__).parent / "pom.xml"
JARS = Path(__file__).parents[2] / "target" / "kafka"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SECONDS_TO_START = 90
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=200
log.initial.task.delay.ms=100
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=2000
"""


class Broker:
    """A server that can be killed, frozen and started again on the same data."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.port, control = _free_ports(2)
        self.brokers = f"127.0.0.1:{self.port}"
        self._jars = jars
        self._server: subprocess.Popen[bytes] | None = None
        self._settings = folder / "server.properties"
        self._settings.write_text(SETTINGS.format(port=self.port, control=control, logs=self.logs))
        format_storage: list[str | Path] = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            "AAAAAAAAQACAAAAAAAAAAQ",
            "-c",
            self._settings,
        ]
        subprocess.run(self._java(*format_storage), check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        """Start, and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start, and wait for nothing; from the main thread, with whose end the server ends."""
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / "output.txt").open("ab") as output:
            command = [*leash, *self._java("kafka.Kafka", self._settings)]
            self._server = subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=output)

    def wait(self) -> None:
        """Until it answers."""
        assert self._server
        deadline = time.monotonic() + SECONDS_TO_START
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                self.stop()
                pytest.fail(f"no Kafka server: {(self.folder / 'output.txt').read_text()[-4000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order; if that takes long, by force."""
        self._end(signal.SIGTERM)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It keeps its connections and answers nothing."""
        assert self._server
        self._server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._server.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self._server.send_signal(signal.SIGCONT)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})

    def make_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        config = {key.replace("_", "."): value for key, value in settings.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, KafkaException):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return bool(self.admin.list_topics(timeout=5).brokers)
        return False

    def _end(self, how: signal.Signals) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(how)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def _java(self, *arguments: str | Path) -> list[str | Path]:
        # A small heap and a quick start count for more than speed later.
        machine = ["-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN"]
        return ["java", *machine, "-cp", f"{self._jars}/*", *arguments]


@contextlib.contextmanager
def kafka_server() -> Iterator[Broker]:
    """A server in a folder of its own, until the end of the block."""
    jars = kafka_jars()
    folder = Path(tempfile.mkdtemp(prefix="pianissimo-kafka-"))
    broker = None
    try:
        broker = Broker(folder, jars)
        broker.start()
        yield broker
    finally:
        if broker is not None:
            broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def kafka_jars() -> Path:
    """The folder of the jars; where they cannot be had, tests are skipped, and fail in continuous integration."""
    folder = JARS / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    if shutil.which("java") is None:
        _do_without("no java on this machine")
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        _do_without("no mvn on this machine")
    JARS.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="fresh-", dir=JARS))
    options: list[str | Path] = ["-q", "-B", "-f", POM, COPY, "-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
    done = subprocess.run(["mvn", *options], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(fresh)
        _do_without(f"mvn did not get the jars of a Kafka server: {done.stdout[-2000:]}")
    try:
        fresh.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(fresh)
    return folder


def _do_without(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
