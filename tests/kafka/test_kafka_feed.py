"""A Kafka topic against a real server: every record once, and whatever is not the topic that was read is refused."""

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.cimpl import NewPartitions
from tests.faults.report import record, size
from tests.kafka.broker import Broker

from pianissimo.errors import InputError, ParameterError, SourceAwayError, SourceError
from pianissimo.io.sources import kafka_topics as kafka_code
from pianissimo.io.sources import kafka_topics as messages_code
from pianissimo.io.sources.kafka_topics import KafkaFeed
from pianissimo.io.sources.source_records import Records

Found = list[tuple[str, int, str | None]]


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_code, "GRACE", 1.0)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_code, "CHUNK", 50)
    monkeypatch.setattr(messages_code, "LARGEST_PIECE", 100)


@contextmanager
def feed_of(broker: Broker, topic: str, **options: Any) -> Iterator[KafkaFeed]:
    feed = KafkaFeed(topic, brokers=broker.brokers, **options)
    try:
        yield feed
    finally:
        feed.close()


def produce(broker: Broker, topic: str, values: Iterable[str | bytes | None], partitions: int = 1) -> None:
    batches = {"linger.ms": 20, "batch.num.messages": 200}
    producer = Producer({"bootstrap.servers": broker.brokers, "log_level": 0, **batches})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0


def flat(pieces: Iterable[Records]) -> Found:
    return [
        (piece.place, number, text)
        for piece in pieces
        for number, text in zip(piece.numbers.to_list(), piece.texts.to_list(), strict=True)
    ]


def texts(pieces: Iterable[Records]) -> list[str | None]:
    return [text for _, _, text in flat(pieces)]


def all_of(feed: KafkaFeed) -> Found:
    return flat(feed.read(feed.end()))


def refused(what: str, call: Callable[[], Any], match: str) -> None:
    with pytest.raises(SourceError, match=match) as caught:
        call()
    passed = not isinstance(caught.value, SourceAwayError)
    record("R16", f"Kafka, {what}", figure="refused, 0 silent skips", bar="0 silent skips", passed=passed)


def made_anew(broker: Broker, topic: str, partitions: int = 1) -> None:
    broker.admin.delete_topics([topic])[topic].result()
    for _ in range(100):
        try:
            broker.make_topic(topic, partitions)
        except KafkaException:  # it is still being deleted
            time.sleep(0.1)
        else:
            return
    pytest.fail("the topic could not be made anew")


def test_it_reads_what_lies_between_two_places_and_no_more(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 2)
    produce(broker, topic, ["a", "b", "c", "d"], partitions=2)
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        start = feed.position
        end = feed.end()
        produce(broker, topic, ["e", "f"], partitions=2)
        assert sorted(flat(feed.read(end))) == [
            (f"{topic}/0", 0, "a"),
            (f"{topic}/0", 1, "c"),
            (f"{topic}/1", 0, "b"),
            (f"{topic}/1", 1, "d"),
        ]
        assert [offset for offset, _ in start["partitions"]] == [0, 0]
        assert feed.position == end
        assert [offset for offset, _ in end["partitions"]] == [2, 2]
        assert flat(feed.read(end)) == []
        assert sorted(map(str, texts(feed.read(feed.end())))) == ["e", "f"]
        assert flat(feed.read(end)) == []
        assert [offset for offset, _ in feed.position["partitions"]] == [3, 3]


def test_an_empty_topic_has_an_end(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 3)
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        assert all_of(feed) == []
        feed.seek(feed.position)
        produce(broker, topic, ["a"])
        assert all_of(feed) == [(f"{topic}/0", 0, "a")]


def test_a_missing_value_and_one_that_is_no_text_are_null(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    produce(broker, topic, ["a", None, b"\xff\xfe", "", "ä"])
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        assert texts(feed.read(feed.end())) == ["a", None, None, "", "ä"]


def test_every_record_comes_once_wherever_readers_stop_and_others_go_on(
    broker: Broker, topic: str, small_pieces: None
) -> None:
    broker.make_topic(topic, 3)
    chance = random.Random(8)
    found: Found = []
    position = None
    sent = 0
    for _ in range(6):
        count = chance.randrange(200, 2000)
        produce(broker, topic, map(str, range(sent, sent + count)), partitions=3)
        sent += count
        with feed_of(broker, topic) as feed:
            feed.seek(position)
            end = feed.end()
            for _ in range(chance.randrange(3)):
                stop_after = chance.randrange(1, 6)
                pieces = feed.read(end)
                for _, piece in zip(range(stop_after), pieces, strict=False):
                    assert len(piece.texts) <= 100
                    found += flat([piece])
                pieces.close()  # type: ignore[attr-defined]
                if chance.random() < 0.5:
                    feed.seek(feed.position)
            if chance.random() < 0.5:
                found += flat(feed.read(end))
                assert feed.position == end
            position = feed.position
    with feed_of(broker, topic) as feed:
        feed.seek(position)
        found += all_of(feed)
    assert sorted(int(text or "") for _, _, text in found) == list(range(sent))
    for partition in range(3):
        numbers = [number for place, number, _ in found if place == f"{topic}/{partition}"]
        assert numbers == list(range(len(numbers)))


def test_large_records_come_in_small_pieces(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_code, "PIECE_BYTES", 1_000_000)
    monkeypatch.setattr(messages_code, "CHUNK_BYTES", 500_000)
    broker.make_topic(topic)
    produce(broker, topic, ["x" * 100_000] * 200)
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        sizes = [int(piece.texts.str.len_bytes().sum()) for piece in feed.read(feed.end())]
    assert sum(sizes) == 200 * 100_000
    # The first messages are asked for before their size is known.
    assert max(sizes[1:]) <= 1_500_000


def test_what_a_transaction_took_back_is_not_read(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    producer = Producer({"bootstrap.servers": broker.brokers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)

    def transaction(*values: str) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(30)

    with feed_of(broker, topic) as feed:
        feed.seek(None)
        transaction("a", "b")
        producer.commit_transaction(30)
        transaction("taken back")
        producer.abort_transaction(30)
        # Markers and what was taken back hold offsets too; markers come a little later than the answer.
        end = once_it_ends_at(feed, 5)
        assert texts(feed.read(end)) == ["a", "b"]
        assert feed.position == end
        transaction("c")
        before = feed.end()
        assert before["partitions"][0][0] == 5
        assert texts(feed.read(before)) == []
        producer.commit_transaction(30)
        assert texts(feed.read(once_it_ends_at(feed, 7))) == ["c"]
        feed.seek(before)
        assert texts(feed.read(feed.end())) == ["c"]
        feed.seek(feed.position)
        transaction("taken back too")
        producer.abort_transaction(30)
        assert texts(feed.read(once_it_ends_at(feed, 9))) == []
        assert feed.position["partitions"][0][0] == 9


def once_it_ends_at(feed: KafkaFeed, offset: int) -> Any:
    deadline = time.monotonic() + 20
    while (end := feed.end())["partitions"][0][0] < offset:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return end


def test_gaps_of_a_compacted_log_are_passed(broker: Broker, topic: str) -> None:
    broker.make_topic(
        topic,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms="0",
        max_compaction_lag_ms="200",
    )
    producer = Producer({"bootstrap.servers": broker.brokers, "log_level": 0})
    with feed_of(broker, topic) as feed:
        found: Found = []
        for again in range(60):
            for number in range(100):
                producer.produce(topic, f"{again}-{number}", key=str(number % 10))
            assert producer.flush(30) == 0
            feed.seek(None)
            end = feed.end()
            found = flat(feed.read(end))
            assert feed.position == end
            if len(found) < end["partitions"][0][0]:
                break
            time.sleep(0.3)
        else:
            pytest.fail("the server compacted nothing")
    numbers = [number for _, number, _ in found]
    assert numbers == sorted(set(numbers))
    # The last record of every key stays.
    last = {int((text or "").split("-")[1]) for _, _, text in found[-10:]}
    assert last == set(range(90, 100))


def test_an_added_partition_is_read_from_its_first_record(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 1)
    produce(broker, topic, ["a"])
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        assert texts(feed.read(feed.end())) == ["a"]
        before = feed.position
        broker.admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
        while len(feed.end()["partitions"]) < 3:
            time.sleep(0.05)
        produce(broker, topic, ["b", "c", "d"], partitions=3)
        end = feed.end()
        assert sorted(flat(feed.read(end))) == [(f"{topic}/0", 1, "b"), (f"{topic}/1", 0, "c"), (f"{topic}/2", 0, "d")]
        assert feed.position == end
        feed.seek(before)
        assert sorted(map(str, texts(feed.read(feed.end())))) == ["b", "c", "d"]
        broker.delete_records(topic, 2, before=1)
        refused(
            "the first records of an added partition deleted", lambda: feed.seek(before), "partition 2 .* must hold"
        )


def test_a_topic_made_anew_is_refused(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    produce(broker, topic, ["a", "b"])
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        sealed = feed.position
        assert texts(feed.read(feed.end())) == ["a", "b"]
        at_end = feed.position
        produce(broker, topic, ["c", "d"])
        end = feed.end()
        made_anew(broker, topic)
        produce(broker, topic, ["A", "B", "C", "D", "E"])
        refused("a topic made anew, while it is read", lambda: flat(feed.read(end)), "made anew")
        refused("a topic made anew, asked for its end", feed.end, "made anew")
        refused("a topic made anew, at a sealed place", lambda: feed.seek(sealed), "made anew")
        refused("a topic made anew, at its end", lambda: feed.seek(at_end), "made anew")
        feed.seek(None)
        refused("an end of the topic before", lambda: flat(feed.read(end)), "made anew")
        assert len(all_of(feed)) == 5


def test_a_missing_topic_is_refused(broker: Broker, topic: str) -> None:
    with feed_of(broker, topic) as feed:
        refused("a missing topic", lambda: feed.seek(None), "must be there, got none")
        broker.make_topic(topic)
        feed.seek(None)
        produce(broker, topic, ["a"])
        end = feed.end()
        broker.admin.delete_topics([topic])[topic].result()
        refused("a deleted topic, while it is read", lambda: flat(feed.read(end)), "must be there, got none|must hold")
        refused("a deleted topic, asked for its end", feed.end, "must be there, got none")


def test_a_log_that_lost_what_comes_next_is_refused(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    produce(broker, topic, map(str, range(100)))
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        start, end = feed.position, feed.end()
        position = {**end, "partitions": [[10, end["partitions"][0][1]]]}
        feed.seek(position)
        broker.delete_records(topic, 0, before=50)
        refused("records deleted before they were read", lambda: flat(feed.read(end)), "must hold what comes after")
        assert feed.position == position
        refused("records deleted before a sealed place", lambda: feed.seek(position), "must hold what comes after")
        refused("records deleted from the start", lambda: feed.seek(start), "must hold what comes after")
        feed.seek({**end, "partitions": [[50, 0]]})
        assert texts(feed.read(end)) == list(map(str, range(50, 100)))
        feed.seek(None)
        assert len(flat(feed.read(end))) == 50


def test_a_place_that_the_topic_does_not_have_is_refused(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 2)
    produce(broker, topic, ["a", "b"], partitions=2)
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        end = feed.end()
        (first, epoch), second = end["partitions"]
        beyond = {**end, "partitions": [[first + 1, epoch], second]}
        refused("an offset beyond the end", lambda: feed.seek(beyond), "partition 0 .* must still have all")
        later = {**end, "partitions": [[first, epoch + 1], second]}
        refused("a leader older than before", lambda: feed.seek(later), "partition 0 .* must still have all")
        lost = {**end, "partitions": [*end["partitions"], [0, -1]]}
        refused("a partition less", lambda: feed.seek(lost), "must have the 3 partitions that were read, got 2")
        for other in ({"file": "a"}, {**end, "topic": "another"}, 7, {**end, "partitions": [1]}):
            refused("a place of another source", lambda other=other: feed.seek(other), "position must be of")  # type: ignore[misc]


def test_a_log_that_lost_its_end_is_refused_even_when_it_has_grown_again(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    for number in range(10):  # a batch each
        produce(broker, topic, [str(number)])
    with feed_of(broker, topic) as feed:
        feed.seek(None)
        assert len(all_of(feed)) == 10
        sealed = feed.position
    broker.kill()
    log: Path = broker.logs / f"{topic}-0" / "00000000000000000000.log"
    content = log.read_bytes()
    log.write_bytes(content[: len(content) * 6 // 10])  # six of ten equal batches
    for each in (*log.parent.glob("*.index"), *log.parent.glob("*.timeindex"), *log.parent.glob("*.snapshot")):
        each.unlink()
    broker.start()
    with feed_of(broker, topic) as feed:
        refused("a log without its end", lambda: feed.seek(sealed), "must still have all that was read")
        produce(broker, topic, map(str, range(20, 40)))
        feed.seek(None)
        assert feed.end()["partitions"][0][0] == 26
        feed.seek(sealed)

        def read() -> None:
            assert all_of(feed) == []

        refused("a log that lost its end and grew again", read, "must hold what comes after")


def test_a_server_that_is_killed_loses_and_doubles_nothing(broker: Broker, topic: str, small_pieces: None) -> None:
    broker.make_topic(topic, 2)
    produce(broker, topic, map(str, range(30_000)), partitions=2)
    kills = size(2, 20)
    found: Found = []
    waited = 0
    # Little is fetched ahead, so that what comes next must come from the server that was started again.
    little = {"queued.min.messages": 100, "queued.max.messages.kbytes": 16, "fetch.message.max.bytes": 4096}
    with feed_of(broker, topic, wait=timedelta(seconds=60), settings=little) as feed:
        feed.seek(None)
        end = feed.end()
        chance = random.Random(5)
        # Apart, so that what had been fetched before one of them is read before the next.
        kill_at = set(chance.sample(range(1, 200, 8), kills))
        killed = None
        for number, piece in enumerate(feed.read(end)):
            found += flat([piece])
            if killed and time.monotonic() - killed > 1:
                waited += 1
                killed = None
            if number in kill_at:
                broker.wait()
                broker.kill()
                broker.launch()
                killed = time.monotonic()
        assert waited == kills
        assert feed.position == end
        broker.wait()
        produce(broker, topic, ["after"])
        found += all_of(feed)
    counted = sorted(text or "" for _, _, text in found)
    passed = counted == sorted([*map(str, range(30_000)), "after"])
    figure = f"{kills} kills: 0 lost, 0 doubled" if passed else "records lost or doubled"
    record("R5", "Kafka server killed while it is read", figure=figure, bar="0 lost, 0 doubled", passed=passed)


def test_brokers_that_do_not_answer_are_waited_for_and_then_told(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    produce(broker, topic, map(str, range(1000)))
    with feed_of(broker, topic, wait=timedelta(seconds=1)) as feed:
        feed.seek(None)
        end = feed.end()
        with broker.frozen():
            for call in (feed.end, lambda: flat(feed.read(end)), lambda: feed.seek(None)):
                begin = time.monotonic()
                with pytest.raises(SourceAwayError, match="must answer within 1 s, got no answer"):
                    call()
                assert time.monotonic() - begin < 20
        deadline = time.monotonic() + 20
        while True:
            try:
                assert len(flat(feed.read(end))) == 1000
            except SourceAwayError:
                assert time.monotonic() < deadline
            else:
                break


def test_brokers_that_are_not_there_are_told() -> None:
    feed = KafkaFeed("events", brokers="127.0.0.1:1", wait=timedelta(seconds=0.5))
    with pytest.raises(SourceAwayError, match="last fault: _T"):
        feed.seek(None)
    feed.close()


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InputError, match=r"pip install pianissimo\[kafka\]"):
        KafkaFeed("events", brokers="127.0.0.1:1")


def test_no_setting_weakens_it_and_none_is_shown() -> None:
    for name in ("auto.offset.reset", "enable.auto.commit", "isolation.level", "group.id", "bootstrap.servers"):
        with pytest.raises(ParameterError, match=f"must leave '{name}' to Pianissimo"):
            KafkaFeed("events", brokers="127.0.0.1:1", settings={name: "hunter2"})
    with pytest.raises(ParameterError) as caught:
        KafkaFeed(
            "events", brokers="127.0.0.1:1", settings={"security.protocol": "hunter2", "sasl.password": "hunter3"}
        )
    assert "'sasl.password'" in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None
    feed = KafkaFeed("events", brokers="127.0.0.1:1", settings={"sasl.password": "hunter2"})
    assert "hunter" not in repr(feed)
    feed.close()
    for topic in ("", "a b", "..", "x" * 250, "ä"):
        with pytest.raises(ParameterError, match="topic must be of"):
            KafkaFeed(topic, brokers="127.0.0.1:1")
    with pytest.raises(ParameterError, match="wait must be positive"):
        KafkaFeed("events", brokers="127.0.0.1:1", wait=timedelta())
