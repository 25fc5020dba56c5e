"""A Kafka topic on several brokers that are slow or vanish: librdkafka's own mock cluster, which lives in a client.

It has no controller, which is what knows the ids of topics; here the id is given.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from pianissimo.errors import SourceAwayError
from pianissimo.io.sources import kafka_topics as messages_code
from pianissimo.io.sources.kafka_topics import KafkaFeed

PARTITIONS = 4  # what the mock gives a topic


class Cluster:
    """Brokers that vanish with `drop`."""

    def __init__(self, brokers: int, round_trip: timedelta = timedelta()) -> None:
        milliseconds = int(round_trip / timedelta(milliseconds=1))
        mock = {"test.mock.num.brokers": brokers, "test.mock.broker.rtt": milliseconds}
        self._producer: Producer | None = Producer({"bootstrap.servers": "none", "log_level": 0, **mock})
        found = self._producer.list_topics(timeout=10).brokers.values()
        self.brokers = ",".join(f"{each.host}:{each.port}" for each in found)
        assert len(found) == brokers

    def produce(self, topic: str, count: int) -> None:
        assert self._producer
        for number in range(count):
            self._producer.produce(topic, str(number), partition=number % PARTITIONS)
        assert self._producer.flush(30) == 0

    def drop(self) -> None:
        self._producer = None


@pytest.fixture(autouse=True)
def _an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaFeed, "_topic_now", lambda self: ("an id", PARTITIONS))


@contextmanager
def feed_of(cluster: Cluster, wait: timedelta) -> Iterator[KafkaFeed]:
    feed = KafkaFeed("events", brokers=cluster.brokers, wait=wait)
    try:
        yield feed
    finally:
        feed.close()


def test_leaders_on_several_slow_brokers_are_all_read() -> None:
    cluster = Cluster(brokers=3, round_trip=timedelta(milliseconds=200))
    cluster.produce("events", 4000)
    with feed_of(cluster, timedelta(seconds=20)) as feed:
        feed.seek(None)
        end = feed.end()
        found = sorted(int(text) for piece in feed.read(end) for text in piece.texts)
        assert found == list(range(4000))
        assert feed.position == end


def test_brokers_that_vanish_are_told_and_what_was_read_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_code, "CHUNK", 50)
    monkeypatch.setattr(messages_code, "LARGEST_PIECE", 100)
    cluster = Cluster(brokers=2)
    cluster.produce("events", 400)
    with feed_of(cluster, timedelta(seconds=30)) as feed:
        feed.seek(None)
        end = feed.end()
        assert sum(len(piece.texts) for piece in feed.read(end)) == 400
        assert feed.position == end
        cluster.produce("events", 400)
        later = feed.end()
        cluster.drop()
        monkeypatch.setattr(feed, "_wait", 3.0)
        begin = time.monotonic()
        with pytest.raises(SourceAwayError, match="must answer within 3 s"):
            list(feed.read(later))
        with pytest.raises(SourceAwayError, match="must answer within 3 s"):
            feed.end()
        assert time.monotonic() - begin < 20
        assert feed.position == end
