"""Messages of a topic as they come, kept until they are worth handing over, with how far each partition was read."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from pianissimo.engine.sources.feed import Records
from pianissimo.errors import SourceAwayError, SourceError

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
                self._next[partition] = (int(numbers[kept[-1]]) + 1, _epoch(last))
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
        if not self._epochs[partition] <= _epoch(first) <= _epoch(last):
            raise SourceError(
                f"the leaders of partition {partition} of topic {self._topic!r} must have epochs that grow with its "
                "offsets, got a lower one: the log was changed; start a new stream on it"
            )
        self._epochs[partition] = _epoch(last)

    def __repr__(self) -> str:
        return f"MessageBuffer({self._topic!r})"


def _texts(values: pl.Series) -> pl.Series:
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:  # at least one is no UTF-8
        return pl.Series([_text(value) for value in values], dtype=pl.String)


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _epoch(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else int(epoch)
