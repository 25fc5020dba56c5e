"""Messages in any order of partitions, with any gaps and in any chunks: every wanted one is handed over once."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pianissimo.errors import SourceAwayError, SourceError
from pianissimo.io.sources.kafka_topics import MessageBuffer, Reached


@dataclass
class Message:
    of: int
    at: int
    epoch: int | None = 0
    content: bytes | None = b"x"

    def partition(self) -> int:
        return self.of

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.content

    def leader_epoch(self) -> int | None:
        return self.epoch


def buffer_of(*ends: int, starts: tuple[Reached, ...] | None = None) -> MessageBuffer:
    begin = starts or tuple((0, -1) for _ in ends)
    return MessageBuffer("events", Message, begin, tuple((end, 0) for end in ends))


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[list[Message]]]:
    """The offsets of each partition, how far each is wanted, and the messages in chunks as they may come."""
    offsets = [sorted(each) for each in draw(st.lists(st.sets(st.integers(0, 30), min_size=1), min_size=1, max_size=3))]
    ends = [draw(st.integers(0, each[-1] + 1)) for each in offsets]
    queues = [[Message(number, at, at // 7, str(at).encode()) for at in each] for number, each in enumerate(offsets)]
    coming: list[Message] = []
    while any(queues):
        coming.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    cuts = sorted(draw(st.sets(st.integers(1, len(coming)))) | {0, len(coming)})
    return offsets, ends, [coming[begin:end] for begin, end in pairwise(cuts)]


@given(logs(), st.integers(1, 4))
def test_what_is_wanted_is_handed_over_once(
    log: tuple[list[list[int]], list[int], list[list[Message]]], every: int
) -> None:
    offsets, ends, chunks = log
    buffer = buffer_of(*ends)
    found: list[list[int]] = [[] for _ in offsets]

    def hand_over() -> Iterator[tuple[int, Reached]]:
        for partition, reached, records in buffer.take():
            assert records.place == f"events/{partition}"
            assert records.texts.to_list() == list(map(str, records.numbers))
            found[partition] += records.numbers.to_list()
            yield partition, reached

    for number, chunk in enumerate(chunks):
        buffer.add(chunk)
        if number % every == 0:
            for partition, (following, epoch) in hand_over():
                assert following == found[partition][-1] + 1
                assert epoch == found[partition][-1] // 7
    list(hand_over())
    assert found == [[at for at in each if at < end] for each, end in zip(offsets, ends, strict=True)]
    assert buffer.left == 0
    assert list(buffer.take()) == []


def test_the_end_of_a_partition_may_hold_no_record() -> None:
    buffer = buffer_of(5, 2)
    buffer.add([Message(0, 1), Message(1, 1)])
    assert buffer.left == 3
    assert not buffer.is_done(0)
    buffer.passed(0, 5)
    buffer.passed(0, 4)
    assert buffer.left == 0


def test_offsets_that_do_not_grow_are_read_again() -> None:
    for before, chunk in (([4], [3]), ([4], [4]), ([], [1, 1]), ([], [2, 1]), ([1], [2, 1])):
        buffer = buffer_of(9)
        if before:
            buffer.add([Message(0, at) for at in before])
        with pytest.raises(SourceAwayError, match=r"partition 0 .* in the order of its offsets"):
            buffer.add([Message(0, at) for at in chunk])
    with pytest.raises(SourceAwayError):
        buffer_of(9, starts=((3, 0),)).add([Message(0, 2)])


def test_leaders_that_go_back_are_refused() -> None:
    buffer = buffer_of(9)
    buffer.add([Message(0, 0, 3), Message(0, 1, 3)])
    with pytest.raises(SourceError, match="epochs that grow"):
        buffer.add([Message(0, 2, 2)])
    with pytest.raises(SourceError, match="epochs that grow"):
        buffer_of(9).add([Message(0, 0, 3), Message(0, 1, 2)])
    buffer_of(9).add([Message(0, 0, None), Message(0, 1, None)])


def test_it_shows_nothing_of_what_it_holds() -> None:
    buffer = buffer_of(9)
    buffer.add([Message(0, 0, 0, b"aspirin")])
    assert repr(buffer) == "MessageBuffer('events')"
    (held,) = buffer.take()
    assert "aspirin" not in repr(held[2])
