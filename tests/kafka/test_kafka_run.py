"""A stream from a topic to a topic, killed at random: every message once, and one payload a tick."""

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.faults.report import record, size
from tests.io.running import begin, check_verified, end_all, health, released, sealed_counts, wait_for, write_spec
from tests.kafka.broker import Broker

PARTITIONS = 2


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    end_all()


class Events:
    """Purchases that somebody goes on producing, each once."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.sent = {"a": 0, "b": 0}
        self._producer = Producer({"bootstrap.servers": broker.brokers, "enable.idempotence": True, "log_level": 0})
        self._topic = topic
        self._stop = Event()
        self._thread = Thread(target=self._go_on)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _go_on(self) -> None:
        chance = random.Random(5)
        while not self._stop.wait(0.02):
            for _ in range(chance.randrange(20)):
                drug = chance.choice("aab")
                self._producer.produce(self._topic, json.dumps({"drug": drug}), partition=chance.randrange(PARTITIONS))
                self.sent[drug] += 1
            self._producer.poll(0)


def sink_payloads(broker: Broker, topic: str) -> dict[bytes, set[bytes]]:
    """All that was ever sent, by its key."""
    consumer = Consumer({"bootstrap.servers": broker.brokers, "group.id": "tests", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[bytes, set[bytes]] = defaultdict(set)
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            consumer.close()
            return found
        found[message.key() or b""].add(message.value() or b"")


def test_killed_at_random_it_counts_every_message_once_and_sends_one_payload_a_tick(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    kills = size(4, 60)
    broker.make_topic(topic, PARTITIONS)
    broker.make_topic(f"{topic}-out", 1)
    sink = f'[sinks.out]\nkind = "kafka"\nbrokers = "{broker.brokers}"\ntopic = "{topic}-out"'
    source = f'kafka = {{ brokers = "{broker.brokers}", topic = "{topic}" }}'
    write_spec(tmp_path, source, ticks=5000, more=sink)
    chance = random.Random(7)
    events = Events(broker, topic)
    try:
        for _ in range(kills):
            before = released(tmp_path)
            process = begin(tmp_path)
            wait_for(lambda before=before: released(tmp_path) > before)  # type: ignore[misc]
            time.sleep(chance.random() * 1.5)
            process.kill()
            process.communicate()
    finally:
        events.end()
    before = released(tmp_path)
    process = begin(tmp_path)
    # A whole tick after the last message, whose end was asked for after it.
    wait_for(lambda: health(tmp_path).get("state") == "running" and released(tmp_path) > before + 2)
    process.terminate()
    assert process.wait(30) == 0
    total, labels = sealed_counts(tmp_path)
    sent = [events.sent["a"], events.sent["b"]]
    payloads = sink_payloads(broker, f"{topic}-out")
    doubled = sum(len(each) > 1 for each in payloads.values())
    check_verified(tmp_path)
    record(
        "R5",
        "killed at random between a topic and a topic",
        figure=f"{kills} kills, {sum(sent) - total} lost or doubled, {doubled} ticks with two payloads",
        bar="0 lost, 0 doubled, 0 differing bytes",
        passed=(total, labels) == (sum(sent), sent) and doubled == 0 and len(payloads) == released(tmp_path),
    )
