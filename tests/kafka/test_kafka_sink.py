"""Releases in a Kafka topic of a real server: the stored bytes, in order, and how far they go."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.faults.report import record
from tests.kafka.broker import Broker

from pianissimo.errors import InputError, ParameterError
from pianissimo.io.kafka import FIRST_LOOK, KafkaSink

INCARNATION = bytes(range(16))
OTHER = bytes(range(16, 32))


@contextmanager
def sink_of(broker: Broker, topic: str, stream: str = "pharmacy", **options: Any) -> Iterator[KafkaSink]:
    sink = KafkaSink(topic, brokers=broker.brokers, stream=stream, **options)
    try:
        yield sink
    finally:
        sink.close()


def messages_of(broker: Broker, topic: str) -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.brokers, "group.id": "test", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(20)
        assert message
        fault = message.error()
        if fault:
            assert fault.code() == KafkaError._PARTITION_EOF
            break
        found.append((message.key(), message.value(), message.headers()))
    consumer.close()
    return found  # type: ignore[return-value]


def test_a_tick_that_is_sent_twice_has_the_same_bytes(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    with sink_of(broker, topic) as sink:
        assert sink.last() is None
        sink.send(INCARNATION, 1, b"\x00first")
        assert sink.last() == 1
        sink.send(INCARNATION, 2, b"second")
        sink.send(INCARNATION, 1, b"\x00first")
        # It was sent again after a crash: the second tick is there all the same.
        assert sink.last() == 2
    one, two, again = messages_of(broker, topic)
    assert one == again
    headers = [("stream", b"pharmacy"), ("incarnation", INCARNATION.hex().encode()), ("tick", b"1")]
    assert one == (f"{INCARNATION.hex()}/1".encode(), b"\x00first", headers)
    assert two[1] == b"second"


def test_the_last_tick_is_of_the_newest_incarnation_of_this_stream(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    with sink_of(broker, topic) as sink, sink_of(broker, topic, stream="newsroom") as neighbor:
        for tick in range(1, 8):
            sink.send(INCARNATION, tick, b"x")
        assert neighbor.last() is None
        neighbor.send(OTHER, 40, b"y")
        assert (sink.last(), neighbor.last()) == (7, 40)
        for tick in range(41, 41 + 3 * FIRST_LOOK):
            neighbor.send(OTHER, tick, b"y")
        assert sink.last() == 7
        sink.send(OTHER, 5, b"x")
        assert sink.last() == 5


def test_what_others_write_into_the_topic_is_no_release(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    producer = Producer({"bootstrap.servers": broker.brokers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    with sink_of(broker, topic) as sink:
        sink.send(INCARNATION, 3, b"x")
        producer.begin_transaction()
        producer.produce(topic, "no headers")
        producer.produce(topic, "no tick", headers={"stream": "pharmacy", "incarnation": "00", "tick": "many"})
        producer.flush(30)
        assert sink.last() == 3
        producer.abort_transaction(30)
        assert sink.last() == 3


def test_a_release_that_is_too_large_is_told_and_the_next_one_is_taken(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, max_message_bytes="2000")
    with sink_of(broker, topic, settings={"compression.type": "none"}) as sink:
        with pytest.raises(InputError, match=r"release of tick 1, got MSG_SIZE_TOO_LARGE; raise its max.message.bytes"):
            sink.send(INCARNATION, 1, b"x" * 5000)
        sink.send(INCARNATION, 1, b"x")
        assert sink.last() == 1


def test_brokers_that_are_away_take_nothing_and_take_it_later(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    with sink_of(broker, topic, wait=timedelta(seconds=1)) as sink:
        with broker.frozen():
            begin = time.monotonic()
            with pytest.raises(InputError, match=r"must take the release of tick 1, got _MSG_TIMED_OUT"):
                sink.send(INCARNATION, 1, b"x")
            assert sink.last() is None
            assert time.monotonic() - begin < 20
        deadline = time.monotonic() + 20
        while True:
            try:
                sink.send(INCARNATION, 1, b"x")
            except InputError:
                assert time.monotonic() < deadline
            else:
                break
        assert sink.last() == 1
    with sink_of(broker, "nowhere", wait=timedelta(seconds=1)) as sink:
        with pytest.raises(InputError, match=r"'nowhere' must take the release of tick 1, got "):
            sink.send(INCARNATION, 1, b"x")
        assert sink.last() is None


def test_a_request_that_was_not_answered_and_is_sent_again_doubles_nothing(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    with sink_of(broker, topic, settings={"socket.timeout.ms": 500}) as sink:
        sink.send(INCARNATION, 1, b"x")
        for tick in (2, 3, 4):
            sending = threading.Thread(target=sink.send, args=(INCARNATION, tick, b"x"))
            with broker.frozen():
                sending.start()
                time.sleep(2)  # the request lies there, and is given up and made again
                assert sending.is_alive()
            sending.join(30)
            assert not sending.is_alive()
    ticks = [dict(headers)["tick"] for _, _, headers in messages_of(broker, topic)]
    passed = ticks == [b"1", b"2", b"3", b"4"]
    record("R15", "Kafka sink, requests sent again", figure="3 requests, 0 doubled", bar="0 doubled", passed=passed)


def test_a_server_that_is_killed_gets_the_release_when_it_is_back(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    with sink_of(broker, topic, wait=timedelta(seconds=60)) as sink:
        sink.send(INCARNATION, 1, b"one")
        broker.kill()
        broker.launch()
        sink.send(INCARNATION, 2, b"two")
        broker.wait()
        assert sink.last() == 2
    assert [value for _, value, _ in messages_of(broker, topic)] == [b"one", b"two"]


def test_no_setting_weakens_the_sink_and_none_is_shown() -> None:
    for name in ("acks", "enable.idempotence", "request.required.acks", "transactional.id"):
        with pytest.raises(ParameterError, match=f"must leave '{name}' to Pianissimo"):
            KafkaSink("counts", brokers="127.0.0.1:1", stream="pharmacy", settings={name: "hunter2"})
    with pytest.raises(ParameterError) as caught:
        KafkaSink("counts", brokers="127.0.0.1:1", stream="pharmacy", settings={"security.protocol": "hunter2"})
    assert "hunter" not in str(caught.value)
    with pytest.raises(ParameterError, match="brokers must be addresses"):
        KafkaSink("counts", brokers=" ", stream="pharmacy")
