"""A Kafka topic, read from place to place.

Where it was read to is in the seal and nowhere else: no consumer group hands out partitions, the brokers keep no
offsets that are ever read, and an offset that is not in the log is an error. That a topic is the one that was read
before is told by its id (a topic made anew has another), by its partitions, and by the epoch of each partition's
leader: a log that lost its end and grew again has the lost offsets under a higher epoch (KIP-320), and the client asks
the broker for that whenever a read begins. Messages are kept until they are worth handing over.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import polars as pl

from pianissimo.checks import decoded
from pianissimo.errors import ParameterError, SourceAwayError, SourceError
from pianissimo.io.kafka import (
    READING,
    FaultCodes,
    Settings,
    check_topic_name,
    client_settings,
    fault_name,
    kafka_library,
    make_client,
    seconds_of,
)
from pianissimo.io.sources.source_records import Records

LARGEST_PIECE = 65_536
"""Records that are handed over at once, at most."""

PIECE_BYTES = 16 * 1024 * 1024
"""How much is held before it is handed over; one chunk more where records are large."""

CHUNK = 4096
"""Messages that are asked for at once, at most: few enough to stay in the processor's cache."""

CHUNK_BYTES = 4 * 1024 * 1024

Reached = tuple[int, int]
"""The next offset of a partition, and the epoch of the leader that had all before it (-1: nothing was read)."""


class MessageBuffer:
    """What was read and not handed over: secret."""

    def __init__(self, topic: str, message: Any, starts: Sequence[Reached], ends: Sequence[Reached]) -> None:
        self._topic = topic
        self._offset: Callable[[Any], int] = message.offset
        self._partition: Callable[[Any], int] = message.partition
        self._value: Callable[[Any], bytes | None] = message.value
        self._reached = np.array([offset for offset, _ in starts], dtype=np.int64)
        self._ends = np.array([offset for offset, _ in ends], dtype=np.int64)
        self._epochs = [-1] * len(starts)
        self._next: dict[int, Reached] = {}
        self._held: list[pl.DataFrame] = []
        self._rows = self._bytes = 0
        self.chunk = 64
        """How many messages to ask for: few if they are large."""

    @property
    def left(self) -> int:
        """How many offsets lie before the end; there may be fewer records."""
        return int(np.maximum(self._ends - self._reached, 0).sum())

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand over."""
        return self._rows > LARGEST_PIECE - CHUNK or self._bytes >= PIECE_BYTES

    def is_done(self, partition: int) -> bool:
        """Whether nothing more of a partition is wanted."""
        return bool(self._reached[partition] >= self._ends[partition])

    def passed(self, partition: int, offset: int) -> None:
        """There is no further record before this offset."""
        self._reached[partition] = max(self._reached[partition], offset)

    def add(self, messages: Sequence[Any]) -> None:
        """Take messages; those past the end are left for the next time."""
        count = len(messages)
        numbers = np.fromiter(map(self._offset, messages), np.int64, count)
        partitions = np.fromiter(map(self._partition, messages), np.int64, count)
        values = pl.Series(list(map(self._value, messages)), dtype=pl.Binary)
        self.chunk = max(1, min(CHUNK, CHUNK_BYTES // (1 + int(values.estimated_size()) // count)))
        wanted = numbers < self._ends[partitions]
        for partition in map(int, np.unique(partitions)):
            rows = np.flatnonzero(partitions == partition)
            self._check(partition, numbers[rows], messages[rows[0]], messages[rows[-1]])
            self._reached[partition] = numbers[rows[-1]] + 1
            kept = rows[wanted[rows]]
            if len(kept):
                last = messages[kept[-1]]
                self._next[partition] = (int(numbers[kept[-1]]) + 1, _epoch(last.leader_epoch()))
        texts = _texts(values)
        table = pl.DataFrame({"partition": partitions, "number": numbers, "text": texts})
        if not wanted.all():
            table = table.filter(wanted)
        if table.height:
            self._held.append(table)
            self._rows += table.height
            self._bytes += int(table["text"].estimated_size())

    def take(self) -> Iterator[tuple[int, Reached, Records]]:
        """All that is held, a partition at a time, with the place after it."""
        if not self._held:
            return
        table = pl.concat(self._held)
        following = self._next
        self._held, self._next, self._rows, self._bytes = [], {}, 0, 0
        for partition in sorted(following):
            part = table if len(following) == 1 else table.filter(pl.col("partition") == partition)
            place = f"{self._topic}/{partition}"
            records = Records(place=place, rank=(partition,), numbers=part["number"], texts=part["text"])
            yield partition, following[partition], records

    def _check(self, partition: int, numbers: Any, first: Any, last: Any) -> None:
        if numbers[0] < self._reached[partition] or (np.diff(numbers) <= 0).any():
            # Whoever reads again from what was handed over has every record once.
            raise SourceAwayError(
                f"partition {partition} of topic {self._topic!r} must come in the order of its offsets, got another; "
                "read on from the last place"
            )
        if not self._epochs[partition] <= _epoch(first.leader_epoch()) <= _epoch(last.leader_epoch()):
            raise SourceError(
                f"the leaders of partition {partition} of topic {self._topic!r} must have epochs that grow with its "
                "offsets, got a lower one: the log was changed; start a new stream on it"
            )
        self._epochs[partition] = _epoch(last.leader_epoch())

    def __repr__(self) -> str:
        return f"MessageBuffer({self._topic!r})"


def _texts(values: pl.Series) -> pl.Series:
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:  # at least one is no UTF-8
        return pl.Series([None if value is None else decoded(value) for value in values], dtype=pl.String)


def _epoch(found: int | None) -> int:
    return -1 if found is None else int(found)


GRACE = 5.0
"""Seconds for which a topic may seem missing or shorter, as while a leader changes, before it is believed."""

_ATTEMPT = 10.0
_LONGEST_PAUSE = 1.0
_LONGEST_CALL = 0.1
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"

_FIXED: dict[str, Any] = {
    **READING,
    "enable.auto.offset.store": False,
    # A damaged batch is an error, and not some records less.
    "check.crcs": True,
    # No group watches whether its members are alive.
    "max.poll.interval.ms": 86_400_000,
}
_DEFAULTS: dict[str, Any] = {
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 10,
    "fetch.error.backoff.ms": 50,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Place:
    topic_id: str
    partitions: tuple[Reached, ...]


def _joined(here: _Place, target: _Place) -> _Place:
    pairs = zip(here.partitions, target.partitions, strict=True)
    return _Place(here.topic_id, tuple(now if now[0] > then[0] else then for now, then in pairs))


class KafkaFeed:
    """The records of a topic.

    `settings` are those of librdkafka, as for encryption and log-in. Brokers that do not answer are waited for; then
    comes a `SourceAwayError`, and what was asked for may be asked for again.

    >>> KafkaFeed("purchases", brokers="localhost:9092", settings={"sasl.password": "secret"})
    KafkaFeed('purchases')
    """

    def __init__(
        self,
        topic: str,
        *,
        brokers: str,
        settings: Settings | None = None,
        wait: timedelta = timedelta(seconds=30),
    ) -> None:
        check_topic_name(topic)
        self._wait = seconds_of(wait)
        self.topic = topic
        self._kafka = kafka_library()
        self._codes = FaultCodes(self._kafka.KafkaError)
        self._here: _Place | None = None
        self._last_end: _Place | None = None
        self._last_fault = "none"
        every = client_settings(brokers, settings, _FIXED, _DEFAULTS)
        self._admin: Any = make_client(self._kafka.admin.AdminClient, every, settings)
        self._consumer: Any = make_client(self._kafka.Consumer, {**every, "error_cb": self._note}, settings)

    def seek(self, position: Any) -> None:
        """Go to a sealed place, or, with None, to the oldest record of every partition."""
        if position is None:
            topic_id, count = self._topic_now()
            self._here = _Place(topic_id, tuple((offset, -1) for offset, _ in self._offsets(count, "earliest")))
            self._last_end = None
            return
        place = self._place_of(position)
        end = self._end_after(place)
        for partition, (oldest, _) in enumerate(self._offsets(len(end.partitions), "earliest")):
            # A partition that was added begins at 0; if it has lost its first records since, they are missing too.
            if oldest > (place.partitions[partition][0] if partition < len(place.partitions) else 0):
                raise self._lacking(partition)
        self._here, self._last_end = place, end

    def end(self) -> Any:
        """Where the committed records of every partition end now."""
        before = self._last_end or self._here
        self._last_end = self._end_now() if before is None else self._end_after(before)
        return self._plain(self._last_end)

    def read(self, end: Any) -> Iterator[Records]:
        """The records up to a place that `end` gave. After a `SourceAwayError` another call goes on where it stands."""
        here, target = self._both(end)
        self._here = here
        if any(now[0] < then[0] for now, then in zip(here.partitions, target.partitions, strict=True)):
            yield from self._pieces(here, target)
            # The id is the same before and after: it was this topic all the time.
            self._check_still_there(target)
        self._here = _joined(here, target)

    def pieces(self, end: Any, size: int) -> list[tuple[int, Any, Any]]:
        """What is to be read up to `end`, as pieces of one partition: its number, and the places before and after.

        Each is at most `size` offsets long; they are in the order of partitions, and there of offsets.
        """
        here, target = self._both(end)
        found = []
        for partition, (now, then) in enumerate(zip(here.partitions, target.partitions, strict=True)):
            edges = [now, *((offset, -1) for offset in range(now[0] + size, then[0], size)), then]
            for start, stop in pairwise(edges):
                if start[0] < then[0]:
                    places = [
                        (*target.partitions[:partition], place, *target.partitions[partition + 1 :])
                        for place in (start, stop)
                    ]
                    before, after = (self._plain(_Place(here.topic_id, place)) for place in places)
                    found.append((partition, before, after))
        return found

    def left(self, end: Any) -> int:
        """How many offsets lie before `end`: at least as many as records."""
        here, target = self._both(end)
        pairs = zip(here.partitions, target.partitions, strict=True)
        return sum(max(0, then[0] - now[0]) for now, then in pairs)

    def pass_to(self, end: Any) -> None:
        """Stand at `end`: others have read all before it."""
        here, target = self._both(end)
        self._check_still_there(target)
        self._here = _joined(here, target)

    @property
    def position(self) -> Any:
        """Where the feed stands; None before `seek`."""
        return None if self._here is None else self._plain(self._here)

    def _both(self, end: Any) -> tuple[_Place, _Place]:
        """Where the feed stands, with partitions that were added since, and a place to be reached."""
        if self._here is None:
            raise ParameterError("seek must come before read, got read")
        here, target = self._here, self._place_of(end)
        self._check_same(here, target.topic_id, len(target.partitions))
        added = len(target.partitions) - len(here.partitions)
        return _Place(here.topic_id, here.partitions + ((0, -1),) * added), target

    def close(self) -> None:
        """Let go of the brokers."""
        with contextlib.suppress(RuntimeError, self._kafka.KafkaException):
            self._consumer.close()

    def __repr__(self) -> str:
        return f"KafkaFeed({self.topic!r})"

    def _pieces(self, here: _Place, target: _Place) -> Iterator[Records]:
        buffer = MessageBuffer(self.topic, self._kafka.Message, here.partitions, target.partitions)
        places = enumerate(here.partitions)
        heard = checked = time.monotonic()
        # Each read begins afresh at its place: nothing depends on what the client had fetched ahead.
        self._consumer.assign([self._partition(number, *at) for number, at in places if not buffer.is_done(number)])
        try:
            while left := buffer.left:
                messages = self._consumer.consume(min(buffer.chunk, left), _LONGEST_CALL)
                if messages:
                    heard = time.monotonic()
                    if any(map(self._kafka.Message.error, messages)):
                        messages = self._without_faults(messages, buffer, target)
                    if messages:
                        buffer.add(messages)
                elif (now := time.monotonic()) - max(heard, checked) > min(GRACE, self._wait):
                    # A client whose topic is gone may wait for it in silence.
                    self._check_still_there(target)
                    if now - heard > self._wait:
                        raise self._away()
                    checked = now
                if buffer.is_full or not messages:
                    before = time.monotonic()
                    yield from self._handed_over(buffer)
                    heard += time.monotonic() - before  # the brokers did not keep us waiting meanwhile
            yield from self._handed_over(buffer)
        finally:
            with contextlib.suppress(RuntimeError, self._kafka.KafkaException):
                self._consumer.unassign()

    def _handed_over(self, buffer: MessageBuffer) -> Iterator[Records]:
        for partition, reached, records in buffer.take():
            assert self._here is not None  # noqa: S101
            before = self._here.partitions
            self._here = _Place(self._here.topic_id, (*before[:partition], reached, *before[partition + 1 :]))
            yield records

    def _without_faults(self, messages: Sequence[Any], buffer: MessageBuffer, target: _Place) -> list[Any]:
        """The messages that are records; what is no record is looked at, and nothing is passed over."""
        records = []
        for message in messages:
            fault = message.error()
            if fault is None:
                records.append(message)
            elif fault.code() == self._codes.end_of_partition:
                if records:
                    buffer.add(records)
                    records = []
                buffer.passed(message.partition(), message.offset())
            elif fault.code() in self._codes.lacking:
                raise self._lacking(message.partition())
            elif fault.code() in self._codes.unknown:
                self._check_still_there(target)
            elif fault.code() in self._codes.passing or fault.retriable():
                self._note(fault)
            else:
                raise self._refused(fault)
        return records

    def _topic_now(self) -> tuple[str, int]:
        """The topic's id and how many partitions it has."""
        topics = self._kafka.TopicCollection([self.topic])

        def ask(timeout: float) -> Any:
            return self._admin.describe_topics(topics, request_timeout=timeout)[self.topic].result()

        found = self._asked(ask)
        if str(found.topic_id) == _NO_ID:
            raise SourceError("Kafka brokers must give topics an id, as they do from 2.8 on, got none; upgrade them")
        return str(found.topic_id), len(found.partitions)

    def _offsets(self, count: int, which: str) -> list[Reached]:
        spec = getattr(self._kafka.admin.OffsetSpec, which)()
        wanted = {self._partition(number): spec for number in range(count)}
        committed = self._kafka.IsolationLevel.READ_COMMITTED

        def ask(timeout: float) -> list[Reached]:
            answers = self._admin.list_offsets(wanted, isolation_level=committed, request_timeout=timeout)
            found = {each.partition: answer.result() for each, answer in answers.items()}
            return [(found[number].offset, _epoch(found[number].leader_epoch)) for number in range(count)]

        return self._asked(ask)

    def _end_now(self) -> _Place:
        topic_id, count = self._topic_now()
        return _Place(topic_id, tuple(self._offsets(count, "latest")))

    def _end_after(self, place: _Place) -> _Place:
        """Where the topic ends; it must be the same topic, with what was read before."""
        deadline = time.monotonic() + min(GRACE, self._wait)
        while True:
            end = self._end_now()
            self._check_same(place, end.topic_id, len(end.partitions))
            pairs = enumerate(zip(place.partitions, end.partitions, strict=False))
            shorter = [number for number, (before, now) in pairs if now[0] < before[0] or now[1] < before[1]]
            if not shorter:
                return end
            if time.monotonic() > deadline:
                raise SourceError(
                    f"partition {shorter[0]} of topic {self.topic!r} must still have all that was read of it, got an "
                    "earlier end or an older leader: its log was cut off or brought back; start a new stream on it"
                )
            time.sleep(_LONGEST_CALL)

    def _check_still_there(self, place: _Place) -> None:
        self._check_same(place, *self._topic_now())

    def _check_same(self, before: _Place, topic_id: str, count: int) -> None:
        """The topic is the one that was read before, with all its partitions."""
        if topic_id != before.topic_id:
            raise SourceError(
                f"topic {self.topic!r} must be the one that was read before, got another under its name: it was "
                "deleted and made anew; start a new stream on it"
            )
        if count < len(before.partitions):
            raise SourceError(
                f"topic {self.topic!r} must have the {len(before.partitions)} partitions that were read, got {count}"
            )

    def _asked(self, ask: Callable[[float], T]) -> T:
        """What the brokers answer, asked again while they may only be away."""
        begin = time.monotonic()
        pause = 0.05
        while True:
            try:
                return ask(max(0.1, min(_ATTEMPT, begin + self._wait - time.monotonic())))
            except self._kafka.KafkaException as error:
                fault = error.args[0]
            unknown = fault.code() in self._codes.unknown
            if not unknown and not fault.retriable() and fault.code() not in self._codes.passing:
                raise self._refused(fault)
            self._note(fault)
            if time.monotonic() + pause > begin + (min(GRACE, self._wait) if unknown else self._wait):
                if unknown:
                    raise SourceError(f"topic {self.topic!r} must be there, got none; make it, or bring it back")
                raise self._away()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _partition(self, number: int, offset: int = 0, epoch: int = -1) -> Any:
        known = {} if epoch < 0 else {"leader_epoch": epoch}
        return self._kafka.TopicPartition(self.topic, number, offset, **known)

    def _note(self, fault: Any) -> None:
        self._last_fault = fault_name(fault)

    def _plain(self, place: _Place) -> dict[str, Any]:
        return {"topic": self.topic, "id": place.topic_id, "partitions": [list(each) for each in place.partitions]}

    def _place_of(self, position: Any) -> _Place:
        try:
            topic, topic_id, partitions = position["topic"], position["id"], position["partitions"]
            place = _Place(str(topic_id), tuple((int(offset), int(epoch)) for offset, epoch in partitions))
        except (KeyError, TypeError, ValueError):
            raise SourceError("a position must be of a Kafka topic, got one of another source") from None
        if topic != self.topic:
            raise SourceError(f"a position must be of topic {self.topic!r}, got one of {topic!r}")
        return place

    def _lacking(self, partition: int) -> SourceError:
        return SourceError(
            f"partition {partition} of topic {self.topic!r} must hold what comes after the last place, got a log "
            "without it: it was deleted, by retention or by hand, or cut off; start a new stream on it"
        )

    def _refused(self, fault: Any) -> SourceError:
        return SourceError(f"topic {self.topic!r} must be readable, got {fault_name(fault)}")

    def _away(self) -> SourceAwayError:
        return SourceAwayError(
            f"the brokers of topic {self.topic!r} must answer within {self._wait:g} s, got no answer; last fault: "
            f"{self._last_fault}"
        )
