"""A topic cut into ranges of offsets: the same payloads, seals and refused records as one process reads of it."""

import json
import pickle
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.kafka.broker import Broker
from tests.workers.cut_batches import CutBatches

import pianissimo as pp
from pianissimo.errors import SourceError
from pianissimo.io.runs import run_durably
from pianissimo.io.sources import topic_ranges
from pianissimo.io.sources.kafka_topics import KafkaFeed
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.io.sources.topic_ranges import TopicRange, TopicRules, WorkedTopic
from pianissimo.stream.source_spec import KafkaTopic, LiveSource
from pianissimo.stream.spec import StreamSpec
from pianissimo.workers import GatheredRange, ProcessWorkers

TICKS, PARTITIONS, MESSAGES = 2, 3, 90


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_ranges, "LEAST_RECORDS", 1)
    monkeypatch.setattr(topic_ranges, "RECORDS_A_RANGE", 7)


def spec_of(broker: Broker, topic: str) -> StreamSpec:
    """All ticks are over when it runs, so that the first has all records."""
    stream = pp.Stream(
        "s",
        budget=pp.Budget(8, 1e-6),
        unit=pp.user("who", max_events_per_user=2),
        horizon=TICKS,
        queries=[pp.Count("n"), pp.Histogram("found", key="drug")],
        tick="1m",
        origin=datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1),
    )
    source = LiveSource(kafka=KafkaTopic(brokers=broker.brokers, topic=topic, settings={"client.id": "env:WHO"}))
    return StreamSpec(stream=stream, source=source)


def produce(broker: Broker, topic: str) -> None:
    """Users whose first records are in other partitions than their last; some records cannot be counted."""
    broker.make_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.brokers, "enable.idempotence": True, "log_level": 0})
    for number in range(MESSAGES):
        row = json.dumps({"who": f"u{number % 13}", "drug": "abcdefgh"[number % 8]})
        producer.produce(topic, "no row" if number % 11 == 0 else row, partition=number * 5 % PARTITIONS)
    assert producer.flush(30) == 0


def ran(spec: StreamSpec, made: Path, copy: Path, workers: Any) -> list[Any]:
    """What a copy of a stream has released, sealed and refused."""
    shutil.copytree(made, copy)
    run_durably(spec, str(copy / "state"), workers=workers, longest_leap=1000)
    with spec.stream.open(copy / "state") as live:
        payloads = [live.payload(tick) for tick in range(1, TICKS + 1)]
        seals = [*live._store.seals(live._record.incarnation, live._ring)]
    side = RefusedFile.beside(copy / "state", copy / "state.witness")
    return [payloads, seals, sorted(side.read_text().splitlines())]


def test_a_topic_read_by_others_gives_the_same_bytes(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO", "tests")
    produce(broker, topic)
    spec = spec_of(broker, topic)
    (tmp_path / "made").mkdir()
    with spec.stream.open(tmp_path / "made" / "state"):
        pass
    whole = ran(spec, tmp_path / "made", tmp_path / "inline", None)
    assert len(whole[2]) == 9
    assert ran(spec, tmp_path / "made", tmp_path / "cut", CutBatches(1)) == whole
    assert ran(spec, tmp_path / "made", tmp_path / "processes", ProcessWorkers(2)) == whole


def test_a_range_is_told_by_places_and_holds_no_password(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO", "canary")
    produce(broker, topic)
    rules = TopicRules(spec_of(broker, topic))
    assert b"canary" not in pickle.dumps(rules)
    feed = KafkaFeed(topic, brokers=broker.brokers)
    feed.seek(None)
    end = feed.end()
    assert feed.left(end) == MESSAGES
    pieces = feed.pieces(end, 7)
    assert [partition for partition, *_ in pieces] == sorted([*range(PARTITIONS)] * 5)
    ranges = [TopicRange(partition=each, start=start, end=stop, tick=1) for each, start, stop in pieces]
    read = [pickle.loads(pickle.dumps(each)).read(rules) for each in ranges]
    assert sum(each.report.counted + each.report.refused.height for each in read) == MESSAGES
    # Read once more, it is the same.
    again = ranges[1].read(rules)
    assert [rows.equals(other) for (_, rows), (_, other) in zip(again.rows, read[1].rows, strict=True)] == [True]
    feed.close()
    rules.feed.close()


def test_leaders_whose_epochs_go_back_stop_the_stream(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO", "tests")
    produce(broker, topic)
    feed = KafkaFeed(topic, brokers=broker.brokers)
    feed.seek(None)
    end = feed.end()
    sound = TopicRange.read
    epochs = iter([5, 4, *[0] * 20])

    def read(self: TopicRange, rules: TopicRules) -> Any:
        found = sound(self, rules)
        object.__setattr__(found.report, "epoch", next(epochs))
        return found

    class ByHand(CutBatches):
        def gather(self, ranges: Iterable[Any], rules: Any = None) -> Iterator[GatheredRange]:
            return (GatheredRange([], each.read(rules).report) for each in ranges)

    monkeypatch.setattr(TopicRange, "read", read)
    worked = WorkedTopic(feed, spec_of(broker, topic), ByHand(1))
    before = feed.position
    with pytest.raises(SourceError, match="epochs that grow"):
        worked.gathered(end, 1, None)
    assert feed.position == before
    feed.close()
