"""The fast sketch is the sketch of the definition, and neighbours differ as the release allows for."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sketches.naive_sketches import (
    PRIVATE_PATTERNS,
    State,
    all_states,
    all_streams,
    misra_gries,
    neighbour_pattern,
    oldest,
    step,
)

from pianissimo.errors import InputError, ParameterError
from pianissimo.sketches import Contents, MisraGries, split_bad

SMALL = [(4, 7, 2), (4, 7, 3)]


def sketch_of(stream: Any, k: int) -> MisraGries:
    sketch = MisraGries(k)
    sketch.update(np.asarray(stream, dtype=np.int64) if isinstance(stream, tuple | list) else stream)
    return sketch


def state(sketch: MisraGries) -> State:
    return sketch.estimates(), sketch.decrements


@pytest.mark.parametrize(("universe", "longest", "k"), SMALL)
def test_it_is_the_sketch_of_the_definition_on_all_small_streams(universe: int, longest: int, k: int) -> None:
    for stream, expected in all_states(universe, longest, k).items():
        assert state(sketch_of(stream, k)) == expected


@pytest.mark.parametrize(("universe", "longest", "k"), SMALL)
def test_one_element_moves_one_number_on_all_small_streams(universe: int, longest: int, k: int) -> None:
    states = all_states(universe, longest, k)
    seen = set()
    for stream in all_streams(universe, longest):
        for place in range(len(stream)):
            seen.add(neighbour_pattern(states[stream], states[stream[:place] + stream[place + 1 :]], k))
    assert seen <= PRIVATE_PATTERNS
    # With four keys and three counters two private keys a side cannot be seen together with a shared one.
    assert seen >= PRIVATE_PATTERNS - {((0, 1), (0, 0))}


def test_two_private_keys_a_side_are_all_there_can_be() -> None:
    stream, k = (7, 5, 2, 3, 8, 4, 7, 3, 2, 6, 1, 5), 4
    longer, shorter = sketch_of(stream, k), sketch_of(stream[:1] + stream[2:], k)
    assert longer.estimates() == {1: 1, 4: 0, 5: 1, 7: 0}
    assert shorter.estimates() == {3: 0, 5: 1, 6: 0, 7: 0}
    assert neighbour_pattern(state(longer), state(shorter), k) == ((0, 1), (0, 0))


def test_eviction_in_the_order_of_insertion_is_caught() -> None:
    stream, k = (7, 5, 2, 3, 8, 4, 7, 3, 2, 6, 1, 5), 4
    longer, shorter = (misra_gries(part, k, oldest) for part in (stream, stream[:1] + stream[2:]))
    assert set(longer[0]) == {4, 7, 1, 5}
    assert set(shorter[0]) == {2, 3, 6, 5}
    assert neighbour_pattern(longer, shorter, k) not in PRIVATE_PATTERNS
    assert state(sketch_of(stream[:1] + stream[2:], k)) != shorter
    # The small streams tell it apart too.
    assert all_states(4, 7, 3, oldest) != all_states(4, 7, 3)


class Listed(Protocol):
    def contents(self) -> Contents: ...


def check_key_order(sketch: Listed) -> None:
    keys = sketch.contents().keys.to_list()
    if keys and isinstance(keys[0], str):
        keys = [key.encode() for key in keys]
    assert all(left < right for left, right in pairwise(keys))


@dataclass
class InTableOrder:
    """A mutant: keys as they lie in a table."""

    stream: list[int]

    def contents(self) -> Contents:
        counts, down = misra_gries(self.stream, 16)
        ordered = sorted(counts, key=lambda key: key * 0x9E3779B97F4A7C15 % 2**64)
        return Contents(pl.Series(ordered), np.array([counts[key] + down for key in ordered]), down, len(self.stream))


def test_keys_come_in_their_own_order_whatever_the_table() -> None:
    numbers = list(range(-8, 8))
    for start in range(16):
        stream = numbers[start:] + numbers[:start]
        check_key_order(sketch_of(stream, 16))
        check_key_order(sketch_of(pl.Series([f"é{key}" if key % 3 else "z" * (key + 9) for key in stream]), 16))
    with pytest.raises(AssertionError):
        check_key_order(InTableOrder(list(range(100, 116))))


def test_the_state_after_each_step_of_an_example() -> None:
    stream = [5, 3, 7, 3, 9, 1, 7, 2, 2, 8, 4]
    assert state(sketch_of(stream[:5], 3)) == ({3: 1, 5: 0, 7: 0}, 1)
    assert state(sketch_of(stream[:6], 3)) == ({1: 1, 3: 1, 7: 0}, 1)
    assert state(sketch_of(stream[:7], 3)) == ({1: 1, 3: 1, 7: 1}, 1)
    assert state(sketch_of(stream[:8], 3)) == ({1: 0, 3: 0, 7: 0}, 2)
    assert state(sketch_of(stream, 3)) == ({2: 1, 4: 1, 8: 1}, 2)


def test_contents_are_the_counts_and_all_decrements() -> None:
    sketch = sketch_of([1] * 9 + [2] * 5 + [3] + [4] * 2 + [1], 2)
    contents = sketch.contents()
    assert dict(zip(contents.keys, contents.over.tolist(), strict=True)) == {1: 10, 2: 5}
    assert (contents.decrements, contents.total) == (3, 18)
    assert "10" not in repr(contents) + repr(sketch)


@pytest.mark.parametrize("k", [2, 3])
def test_counts_are_below_the_truth_by_at_most_the_decrements(k: int) -> None:
    for stream, (counts, down) in all_states(4, 7, k).items():
        truth = Counter(stream)
        assert (k + 1) * down == len(stream) - sum(counts.values())
        for key in range(1, 5):
            count = counts.get(key, 0)
            assert truth[key] - down <= count <= truth[key] <= count + down


def runs_of(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.tuples(keys, st.integers(1, 5)), max_size=60).map(
        lambda runs: [key for key, length in runs for _ in range(length)]
    )


WHOLE = st.integers(-4, 9) | st.sampled_from([-(2**63), 2**63 - 1])
TEXTS = st.text(alphabet="abé\0", max_size=3) | st.sampled_from(["x" * 12, "x" * 13, "x" * 12 + "y", "x" * 256])


@given(st.lists(runs_of(WHOLE), max_size=4), st.integers(1, 8))
def test_batches_of_numbers_are_counted_as_one_by_one(batches: list[list[int]], k: int) -> None:
    sketch = MisraGries(k, keys="int64")
    expected: State = ({}, 0)
    for batch in batches:
        sketch.update(np.array(batch, dtype=np.int64))
        for key in batch:
            expected = step(expected, key, k)
        # Reading changes nothing.
        assert state(sketch) == expected
    assert sketch.total == sum(map(len, batches))


@given(st.lists(runs_of(TEXTS), max_size=4), st.integers(1, 8))
def test_batches_of_texts_and_bytes_are_counted_as_one_by_one(batches: list[list[str]], k: int) -> None:
    texts, octets = MisraGries(k, keys="text"), MisraGries(k, keys="bytes")
    expected: State = ({}, 0)
    for batch in batches:
        texts.update(pl.Series(batch, dtype=pl.String))
        octets.update(pl.Series([text.encode() for text in batch], dtype=pl.Binary))
        for key in batch:
            expected = step(expected, key.encode(), k)
        assert state(octets) == expected
        assert state(texts) == ({key.decode(): count for key, count in expected[0].items()}, expected[1])
        check_key_order(texts)


@pytest.mark.parametrize("keys", ["int64", "text"])
def test_long_streams_agree_at_every_look(keys: str) -> None:
    random = np.random.default_rng(5)
    k = 24
    expected: State = ({}, 0)
    drift = np.arange(300_000) // 60_000
    stream = random.zipf(1.2, 300_000) % 97 + drift * 7
    stream[random.random(len(stream)) < 0.2] = 3
    sketch = MisraGries(k)
    for batch in np.split(stream, np.sort(random.integers(0, len(stream), 40))):
        column = pl.Series(batch).cast(pl.String) if keys == "text" else batch.astype(np.int64)
        sketch.update(column)
        for key in column.to_list() if isinstance(column, pl.Series) else column.tolist():
            expected = step(expected, key, k)
        assert state(sketch) == expected


@pytest.mark.parametrize("k", [63, 64, 300])
def test_sketches_of_many_counters_agree_with_the_definition(k: int) -> None:
    """Large enough that some keys find no room where they belong, with blocks of keys cut at any place."""
    random = np.random.default_rng(k)
    stream = random.integers(0, 20 * k, 15_000)
    stream[::3] = random.zipf(1.3, 5000) % (4 * k)
    stream[random.integers(0, len(stream), 50)] = [-(2**63), 2**63 - 1] * 25
    sketch = MisraGries(k)
    expected: State = ({}, 0)
    for batch in np.split(stream, np.sort(random.integers(0, len(stream), 30))):
        sketch.update(batch)
        for key in batch.tolist():
            expected = step(expected, key, k)
        assert state(sketch) == expected


def test_memory_is_bounded_whatever_the_stream() -> None:
    k = 4096
    for stream in (np.random.default_rng(1).integers(0, 2**40, 200_000), np.random.default_rng(2).zipf(1.1, 200_000)):
        for column in (stream.astype(np.int64), pl.Series(stream.astype(np.int64)).cast(pl.String)):
            sketch = MisraGries(k)
            sketch.update(column)
            keys = sketch.contents().keys
            stored_bytes = 0 if keys.dtype == pl.Int64 else sum(map(len, keys.to_list()))
            assert sketch.memory < 64 * k + 2 * stored_bytes
            before = sketch.memory
            sketch.update(column)
            assert sketch.memory <= 1.3 * before


COLUMNS: list[Any] = [
    pl.Series(["b", "a", "b"]),
    pl.Series(["b", "a", "b"], dtype=pl.Categorical),
    pl.Series(["b", "a", "b"], dtype=pl.Enum(["a", "b"])),
    pl.concat([pl.Series(["b"]), pl.Series(["a", "b"])], rechunk=False),
    pl.Series(["x", "b", "a", "b", "y"])[1:4],
    pa.array(["b", "a", "b"]),
    pa.array(["b", "a", "b"], type=pa.large_string()),
    pa.array(["x", "b", "a", "b"])[1:],
    pa.array(["b", "a", "b"]).dictionary_encode(),
    pa.chunked_array([["b"], ["a", "b"]]),
    np.array(["b", "a", "b"]),
    ["b", "a", "b"],
]


@pytest.mark.parametrize("column", COLUMNS)
def test_texts_come_from_any_column(column: Any) -> None:
    sketch = MisraGries()
    sketch.update(column)
    assert sketch.estimates() == {"a": 1, "b": 2}
    assert (sketch.key_kind, sketch.total) == ("text", 3)


@pytest.mark.parametrize(
    "column",
    [
        np.array([2, 1, 2]),
        np.array([2, 1, 2], dtype=np.uint8),
        np.array([[2, 2], [1, 1], [2, 2]], dtype=np.int64)[:, 0],
        pl.Series([2, 1, 2], dtype=pl.UInt64),
        pa.array([2, 1, 2], type=pa.int16()),
        [2, 1, 2],
    ],
)
def test_whole_numbers_come_from_any_column(column: Any) -> None:
    sketch = MisraGries()
    sketch.update(column)
    assert sketch.estimates() == {1: 1, 2: 2}
    assert sketch.key_kind == "int64"


def test_bytes_are_keys_of_their_own() -> None:
    sketch = MisraGries()
    sketch.update(pa.array([b"\xff", b"a", b"\xff"]))
    assert sketch.estimates() == {b"a": 1, b"\xff": 2}
    texts = MisraGries(keys="text")
    texts.update(pa.array([b"a", "é".encode()]))
    assert texts.estimates() == {"a": 1, "é": 1}


def test_long_keys_lie_in_any_of_their_buffers() -> None:
    keys = [f"{place:05}" * 40 for place in range(50)]
    column = pl.concat([pl.Series(keys[:20]), pl.Series(keys[20:]), pl.Series(keys[:5])], rechunk=False)
    sketch = MisraGries(64)
    sketch.update(column)
    assert sketch.estimates() == Counter(keys + keys[:5])


INVALID_TEXT = pa.Array.from_buffers(
    pa.utf8(), 2, [None, pa.py_buffer(np.array([0, 1, 3], np.int32).tobytes()), pa.py_buffer(b"a\xff\xfe")]
)

BAD: list[tuple[Any, str]] = [
    (pl.Series(["secret", None]), "null"),
    (pl.Series([1, None]), "null"),
    (pl.Series(["secret" * 50]), "256 bytes"),
    (pl.concat([pl.Series(["secret"]), pl.Series(["x" * 257])], rechunk=False), "256 bytes"),
    (INVALID_TEXT, "UTF-8"),
    (pl.Series([2**63], dtype=pl.UInt64), "2\\^63"),
    (pl.Series([0.5]), "whole numbers, texts or bytes"),
    (pl.Series([True]), "whole numbers, texts or bytes"),
    (object(), "column"),
    ([1, "secret"], "column"),
    (np.zeros((2, 2), dtype=np.int64), "whole numbers"),
]


@pytest.mark.parametrize(("column", "message"), BAD)
def test_bad_batches_are_refused_whole_and_without_their_values(column: Any, message: str) -> None:
    sketch = MisraGries()
    with pytest.raises(InputError, match=message) as caught:
        sketch.update(column)
    assert "secret" not in str(caught.value)
    assert (sketch.total, sketch.key_kind, sketch.estimates()) == (0, None, {})


def test_one_sketch_counts_keys_of_one_type() -> None:
    sketch = sketch_of([1, 2], 4)
    with pytest.raises(InputError, match="int64, got text"):
        sketch.update(pl.Series(["a"]))
    with pytest.raises(InputError, match="bytes, got text"):
        MisraGries(keys="bytes").update(pl.Series(["a"]))
    with pytest.raises(ParameterError, match="keys must be"):
        MisraGries(keys="float")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="k must be"):
        MisraGries(0)
    with pytest.raises(ParameterError, match="k must be at most"):
        MisraGries(2**30)


def test_an_empty_batch_is_a_batch() -> None:
    sketch = MisraGries()
    sketch.update([])
    assert (sketch.key_kind, sketch.estimates()) == (None, {})
    sketch.update(pl.Series([], dtype=pl.String))
    assert (sketch.key_kind, sketch.total) == ("text", 0)


def test_bad_rows_are_set_aside_with_their_reasons() -> None:
    good, faults = split_bad(pl.Series(["a", None, "x" * 257, "b"]))
    assert (good.to_list(), faults.rows()) == (["a", "b"], [(1, "null"), (2, "more than 256 bytes")])
    good, faults = split_bad(pl.Series([b"a", b"\xff", None, b"\xff" * 300]), "text")
    assert good.to_list() == ["a"]
    assert faults.rows() == [(1, "not valid UTF-8"), (2, "null"), (3, "more than 256 bytes")]
    good, faults = split_bad(INVALID_TEXT)
    assert (good.to_list(), faults.rows()) == (["a"], [(1, "not valid UTF-8")])
    good, faults = split_bad(pl.Series([1, 2**63, None], dtype=pl.UInt64))
    assert (good.to_list(), faults.rows()) == ([1], [(1, "beyond 64 bits"), (2, "null")])
    good, faults = split_bad(pl.Series([None, None]))
    assert (len(good), faults["fault"].to_list()) == (0, ["null", "null"])


def test_chosen_keys_do_not_slow_it_down_and_hashing_shows_nowhere() -> None:
    # Multiples of a power of two crowd a table that takes the low bits of a key for its place.
    stream = (np.arange(40_000) * 2**40).astype(np.int64)
    first, second = sketch_of(stream, 512), sketch_of(stream, 512)
    assert state(first) == state(second)
    assert first.contents().keys.equals(second.contents().keys)
