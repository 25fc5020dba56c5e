"""Kafka: what its source and its sink share (the client library, its settings, its faults' names), and the sink.

The sink sends every release as it is published: the stored bytes, one message a tick. All go to the topic's first
partition, so that they lie there in the order of ticks. After a crash a tick may lie there twice; key, headers and
bytes are the same both times.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any

from pianissimo.errors import InputError, ParameterError
from pianissimo.stream.source_spec import KafkaTopic

Settings = Mapping[str, Any]
"""Settings of librdkafka by their names there. Values may be secret: no message and no repr contains one."""

BROKERS_PATIENCE = timedelta(seconds=5)
"""So long one question to brokers may take; then the loop says that it waits, and asks again."""

_ALWAYS = {
    "bootstrap.servers",
    "error_cb",
    "logger",
    "transactional.id",
    # Other names of what is set.
    "auto.commit.enable",
    "delivery.timeout.ms",
    "metadata.broker.list",
    "request.required.acks",
}
_OURS: dict[str, Any] = {
    # A broker that comes back is found within a second.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    # What goes wrong is told by our errors; the library's own lines name hosts.
    "log_level": 0,
}

READING: dict[str, Any] = {
    "group.id": "pianissimo",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # The last offsets may hold no record (markers of transactions, compaction): only this tells that they were passed.
    "enable.partition.eof": True,
}
"""What every reader of a topic sets."""


def from_environment(text: str) -> str:
    """A text, or, where it is `env:NAME`, what the variable holds."""
    if not text.startswith("env:"):
        return text
    name = text.removeprefix("env:")
    found = os.environ.get(name)
    if not found:
        raise ParameterError(f"the variable {name} must hold what {text} stands for, got nothing")
    return found


def kafka_settings(topic: KafkaTopic) -> Mapping[str, str]:
    """The settings of a topic's client, with what the environment holds."""
    return {name: from_environment(text) for name, text in topic.settings.items()}


def kafka_library() -> ModuleType:
    """The client library with its `admin` part, which is an extra."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise InputError("Kafka must have its client library; pip install pianissimo[kafka]") from None
    return confluent_kafka


def client_settings(brokers: str, settings: Settings | None, fixed: Settings, defaults: Settings) -> dict[str, Any]:
    """All settings of a client: `fixed` may not be given by others, `defaults` may."""
    if not brokers.strip():
        raise ParameterError("brokers must be addresses as in host:9092,other:9092, got none")
    if "@" in brokers:
        # They are shown, in the names of sinks.
        raise ParameterError("brokers must be addresses as in host:9092, got a user in them; give that in settings")
    given = dict(settings or {})
    taken = sorted(given.keys() & (fixed.keys() | _ALWAYS))
    if taken:
        names = ", ".join(map(repr, taken))
        raise ParameterError(f"settings must leave {names} to Pianissimo, which sets it; take it out")
    return {**_OURS, **defaults, **given, **fixed, "bootstrap.servers": brokers}


def make_client(make: Callable[[dict[str, Any]], Any], every: dict[str, Any], settings: Settings | None) -> Any:
    """A client, or an error that names settings and shows no value: the library's own text quotes them."""
    library = kafka_library()
    try:
        return make(every)
    except (library.KafkaException, TypeError, ValueError):
        names = ", ".join(map(repr, settings or {})) or "none"
        raise ParameterError(
            f"brokers and settings must be such as librdkafka takes, got one that it refuses; settings given: {names}"
        ) from None


def check_topic_name(topic: str) -> None:
    """Refuse what cannot be the name of a topic, without showing it: it may be an address with a password."""
    plain = topic.replace(".", "").replace("_", "").replace("-", "")
    if topic in ("", ".", "..") or len(topic) > 249 or not (plain + "a").isalnum() or not topic.isascii():
        raise ParameterError("topic must be of 1 to 249 letters, digits, '.', '_' and '-', got another text")


def seconds_of(wait: timedelta) -> float:
    """How long brokers are waited for."""
    if not wait > timedelta():
        raise ParameterError(f"wait must be positive, got {wait}")
    return wait.total_seconds()


def fault_name(fault: Any) -> str:
    """The name of a fault, as `_TRANSPORT`; its text may quote addresses or settings."""
    return str(fault.name())


class FaultCodes:
    """Which faults mean what. What is in none of them, and is not to be tried again, stops the stream."""

    def __init__(self, code: Any) -> None:
        self.end_of_partition = code._PARTITION_EOF
        self.lacking = {code._AUTO_OFFSET_RESET, code.OFFSET_OUT_OF_RANGE, code._LOG_TRUNCATION, code._NO_OFFSET}
        self.unknown = {
            code.UNKNOWN_TOPIC_OR_PART,
            code.UNKNOWN_TOPIC_ID,
            code.INCONSISTENT_TOPIC_ID,
            code._UNKNOWN_TOPIC,
            code._UNKNOWN_PARTITION,
        }
        self.passing = {
            code._TRANSPORT,
            code._ALL_BROKERS_DOWN,
            code._RESOLVE,
            code._TIMED_OUT,
            code._TIMED_OUT_QUEUE,
            code._NOENT,  # no leader is known
            code._WAIT_CACHE,
            code._WAIT_COORD,
            code._RETRY,
            code._DESTROY_BROKER,
            code.BROKER_NOT_AVAILABLE,
            code.REPLICA_NOT_AVAILABLE,
            code.LEADER_NOT_AVAILABLE,
            code.NOT_LEADER_FOR_PARTITION,
            code.FENCED_LEADER_EPOCH,
            code.UNKNOWN_LEADER_EPOCH,
            code.OFFSET_NOT_AVAILABLE,
            code.KAFKA_STORAGE_ERROR,
            code.NETWORK_EXCEPTION,
            code.REQUEST_TIMED_OUT,
            code.REBOOTSTRAP_REQUIRED,
            # Groups are for display alone.
            code.GROUP_AUTHORIZATION_FAILED,
            code.COORDINATOR_NOT_AVAILABLE,
            code.COORDINATOR_LOAD_IN_PROGRESS,
            code.NOT_COORDINATOR,
        }


PARTITION = 0
FIRST_LOOK, LONGEST_LOOK = 16, 4096
"""How many messages from the end are looked at for the last of this stream; more if others use the topic too."""

_FIXED: dict[str, Any] = {"enable.idempotence": True, "acks": "all"}
_DEFAULTS: dict[str, Any] = {"compression.type": "lz4", "linger.ms": 0, "message.max.bytes": 1_000_000_000}


class KafkaSink:
    """Releases of one stream, by the stream's name, in a topic that others may use too.

    A message's key is the incarnation in hexadecimal, a slash and the tick; its headers are `stream`, `incarnation` and
    `tick`.

    >>> sink = KafkaSink("counts", brokers="localhost:9092", stream="pharmacy", settings={"sasl.password": "secret"})
    >>> sink
    KafkaSink('counts', stream='pharmacy')
    >>> sink.name
    'kafka counts at localhost:9092'
    """

    def __init__(
        self,
        topic: str,
        *,
        brokers: str,
        stream: str,
        settings: Settings | None = None,
        wait: timedelta = timedelta(seconds=30),
    ) -> None:
        check_topic_name(topic)
        self._wait = seconds_of(wait)
        self.topic = topic
        self.stream = stream
        self.name = f"kafka {topic} at {brokers}"
        self._kafka = kafka_library()
        self._settings = settings
        fixed = {**_FIXED, "message.timeout.ms": max(1, int(1000 * self._wait))}
        self._sending = client_settings(brokers, settings, fixed, _DEFAULTS)
        self._reading = client_settings(brokers, settings, READING, {})
        self._producer: Any = make_client(self._kafka.Producer, self._sending, settings)

    def last(self) -> int | None:
        """The last tick of this stream that is there; None if there is none, or none among the last messages."""
        consumer = make_client(self._kafka.Consumer, self._reading, self._settings)
        deadline = time.monotonic() + self._wait
        try:
            place = self._kafka.TopicPartition(self.topic, PARTITION)
            low, high = consumer.get_watermark_offsets(place, timeout=self._wait)
            look = FIRST_LOOK
            while True:
                ticks = list(self._ticks(consumer, max(low, high - look), high, deadline))
                if ticks:
                    # A tick that was sent again lies after later ones.
                    newest = ticks[-1][0]
                    return max(tick for incarnation, tick in ticks if incarnation == newest)
                if look >= min(LONGEST_LOOK, high - low):
                    return None
                look *= 4
        except (self._kafka.KafkaException, TimeoutError):
            return None
        finally:
            with contextlib.suppress(RuntimeError, self._kafka.KafkaException):
                consumer.close()

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        """Send a release, and wait until all replicas have it."""
        answers: list[Any] = []

        def delivered(fault: Any, _: Any) -> None:
            answers.append(fault)

        if self._producer is None:
            self._producer = make_client(self._kafka.Producer, self._sending, self._settings)
        try:
            self._producer.produce(
                self.topic,
                value=payload,
                key=f"{incarnation.hex()}/{tick}",
                partition=PARTITION,
                headers=[("stream", self.stream.encode()), ("incarnation", incarnation.hex()), ("tick", str(tick))],
                on_delivery=delivered,
            )
            # A message that is not delivered has timed out by then; a little more for the answer to reach us.
            self._producer.flush(self._wait + 5)
        except self._kafka.KafkaException as error:
            answers.append(error.args[0])
        except BufferError:
            answers.clear()
        # By identity: a fault that is compared with None breaks.
        if not answers or answers[-1] is not None:
            self._give_up()
            fault = fault_name(answers[-1]) if answers else "no answer"
            way_out = "; raise its max.message.bytes" if fault == "MSG_SIZE_TOO_LARGE" else ""
            raise InputError(f"topic {self.topic!r} must take the release of tick {tick}, got {fault}{way_out}")

    def close(self) -> None:
        """Let go of the brokers. Nothing waits: `send` returns when a release is there."""
        self._give_up()

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r}, stream={self.stream!r})"

    def _give_up(self) -> None:
        # A producer that failed may be fenced or out of step; the next release gets a new one.
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(RuntimeError, self._kafka.KafkaException):
                producer.purge()
                producer.flush(1)

    def _ticks(self, consumer: Any, start: int, end: int, deadline: float) -> Iterator[tuple[str, int]]:
        """The incarnation and tick of every message of this stream in a range of offsets."""
        if start >= end:
            return
        consumer.assign([self._kafka.TopicPartition(self.topic, PARTITION, start)])
        reached = start
        while reached < end:
            for message in consumer.consume(min(FIRST_LOOK, end - reached), 0.2):
                fault = message.error()
                if fault is None:
                    reached = message.offset() + 1
                    yield from self._tick_of(message)
                elif fault.code() == self._kafka.KafkaError._PARTITION_EOF:
                    # The last offsets may be of a transaction that is open or has left its mark.
                    return
                elif not fault.retriable():
                    raise self._kafka.KafkaException(fault)
            if time.monotonic() > deadline:
                raise TimeoutError

    def _tick_of(self, message: Any) -> Iterator[tuple[str, int]]:
        headers = dict(message.headers() or [])
        try:
            if headers["stream"].decode() == self.stream:
                yield headers["incarnation"].decode(), int(headers["tick"])
        except (KeyError, ValueError, AttributeError):  # not one of ours
            return
