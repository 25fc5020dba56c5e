"""A Kafka topic that gets every release as it is published: the stored bytes, one message a tick.

All go to the topic's first partition, so that they lie there in the order of ticks. After a crash a tick may lie there
twice; key, headers and bytes are the same both times.
"""

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pianissimo.errors import InputError
from pianissimo.io import kafka_client

PARTITION = 0
FIRST_LOOK, LONGEST_LOOK = 16, 4096
"""How many messages from the end are looked at for the last of this stream; more if others use the topic too."""

_FIXED: dict[str, Any] = {"enable.idempotence": True, "acks": "all"}
_DEFAULTS: dict[str, Any] = {"compression.type": "lz4", "linger.ms": 0, "message.max.bytes": 1_000_000_000}
_READING: dict[str, Any] = {
    "group.id": "pianissimo",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
}


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
        settings: kafka_client.Settings | None = None,
        wait: timedelta = timedelta(seconds=30),
    ) -> None:
        kafka_client.check_topic_name(topic)
        self._wait = kafka_client.seconds_of(wait)
        self.topic = topic
        self.stream = stream
        self.name = f"kafka {topic} at {brokers}"
        self._kafka = kafka_client.kafka_library()
        self._settings = settings
        fixed = {**_FIXED, "message.timeout.ms": max(1, int(1000 * self._wait))}
        self._sending = kafka_client.client_settings(brokers, settings, fixed, _DEFAULTS)
        self._reading = kafka_client.client_settings(brokers, settings, _READING, {})
        self._producer: Any = kafka_client.make_client(self._kafka.Producer, self._sending, settings)

    def last(self) -> int | None:
        """The last tick of this stream that is there; None if there is none, or none among the last messages."""
        consumer = kafka_client.make_client(self._kafka.Consumer, self._reading, self._settings)
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
            self._producer = kafka_client.make_client(self._kafka.Producer, self._sending, self._settings)
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
            answers.append(kafka_client.fault_of(error))
        except BufferError:
            answers.clear()
        # By identity: a fault that is compared with None breaks.
        if not answers or answers[-1] is not None:
            self._give_up()
            fault = kafka_client.fault_name(answers[-1]) if answers else "no answer"
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
