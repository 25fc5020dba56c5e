"""One set, of any size, moves every count by at most one, all in one direction."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sketches.naive_sketches import (
    State,
    check_one_direction,
    decrementing_for_each_element,
    privacy_aware,
)

from pianissimo.errors import InputError
from pianissimo.sketches import PrivacyAwareMisraGries

Sets = tuple[tuple[int, ...], ...]
SUBSETS = [subset for size in range(1, 5) for subset in combinations(range(1, 5), size)]


def all_sequences(longest: int) -> Iterator[Sets]:
    for length in range(longest + 1):
        yield from product(SUBSETS, repeat=length)


def sketch_of(sets: Iterable[Sequence[Any]], k: int) -> PrivacyAwareMisraGries:
    sketch = PrivacyAwareMisraGries(k)
    sketch.update(pl.Series([list(keys) for keys in sets], dtype=pl.List(pl.Int64)))
    return sketch


def state(sketch: PrivacyAwareMisraGries) -> State:
    return sketch.estimates(), sketch.decrements


@pytest.mark.parametrize("k", [2, 3])
def test_it_is_the_sketch_of_the_definition_on_all_small_streams(k: int) -> None:
    for sets in all_sequences(3):
        assert state(sketch_of(sets, k)) == privacy_aware(sets, k)


def check_all_neighbours(k: int, longest: int, sketch: Callable[[Sets, int], State]) -> None:
    counts = cache(lambda sets: sketch(sets, k)[0])
    for sets in all_sequences(longest):
        for place in range(len(sets)):
            check_one_direction(counts(sets), counts(sets[:place] + sets[place + 1 :]), k)


@pytest.mark.parametrize(("k", "longest"), [(2, 4), (3, 4)])
def test_one_set_moves_all_counts_in_one_direction_on_all_small_streams(k: int, longest: int) -> None:
    check_all_neighbours(k, longest, privacy_aware)


def test_a_decrement_for_each_element_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_all_neighbours(2, 3, decrementing_for_each_element)
    assert any(decrementing_for_each_element(sets, 2) != privacy_aware(sets, 2) for sets in all_sequences(2))


@pytest.mark.parametrize("k", [2, 3])
def test_counts_are_below_the_truth_by_at_most_what_was_taken_off(k: int) -> None:
    for sets in all_sequences(3):
        counts, _ = privacy_aware(sets, k)
        truth = Counter(key for keys in sets for key in keys)
        slack = (sum(map(len, sets)) - sum(counts.values())) // (k + 1)
        assert all(0 <= truth[key] - counts.get(key, 0) <= slack for key in range(1, 5))


def test_the_state_after_each_set_of_an_example() -> None:
    sets = [[1, 2], [1, 3], [1, 4], [2, 3], [1, 2, 5]]
    assert state(sketch_of(sets[:3], 3)) == ({1: 2}, 1)
    assert state(sketch_of(sets[:4], 3)) == ({1: 2, 2: 1, 3: 1}, 1)
    assert state(sketch_of(sets, 3)) == ({1: 2, 2: 1}, 2)
    assert sketch_of(sets[:3] + sets[4:], 3).estimates() == {1: 3, 2: 1, 5: 1}


def test_contents_are_the_counts_and_all_decrements() -> None:
    contents = sketch_of([[1, 2], [1, 3], [1, 4], [2, 3], [1, 2, 5]], 3).contents()
    assert (contents.keys.to_list(), contents.over.tolist()) == ([1, 2], [4, 3])
    assert (contents.decrements, contents.total) == (2, 11)


@given(st.lists(st.lists(st.lists(st.integers(-5, 12), max_size=9), max_size=12), max_size=4), st.integers(1, 8))
def test_batches_of_sets_are_counted_as_one_by_one(batches: list[list[list[int]]], k: int) -> None:
    numbers, texts = PrivacyAwareMisraGries(k, keys="int64"), PrivacyAwareMisraGries(k, keys="text")
    for batch in batches:
        numbers.update(pl.Series(batch, dtype=pl.List(pl.Int64)))
        texts.update(pl.Series([[f"key {key}" * 3 for key in keys] for keys in batch], dtype=pl.List(pl.String)))
    sets = [keys for batch in batches for keys in batch]
    counts, decrements = privacy_aware(sets, k)
    assert state(numbers) == (counts, decrements)
    assert state(texts) == ({f"key {key}" * 3: count for key, count in counts.items()}, decrements)
    assert numbers.total == texts.total == sum(len(set(keys)) for keys in sets)


def test_a_large_set_needs_memory_for_a_moment_only() -> None:
    for column in (pl.Series([list(range(100_000))]), pl.Series([[f"{key:07}" for key in range(100_000)]])):
        sketch = PrivacyAwareMisraGries(k=64)
        sketch.update(column)
        assert (sketch.estimates(), sketch.decrements, sketch.total) == ({}, 1, 100_000)
        assert sketch.memory < 64 * 150


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([["b", "a"], [], ["b"]]),
        pl.concat([pl.Series([["b", "a"]]), pl.Series([[], ["b"]], dtype=pl.List(pl.String))], rechunk=False),
        pl.Series([["x"], ["b", "a"], ["b", "b"], ["y"]])[1:3],
        pa.array([["b", "a"], [], ["b"]]),
        pa.chunked_array([[["b", "a"]], [["b"]]]),
        [["b", "a"], ["b"]],
    ],
)
def test_sets_come_from_any_list_column(column: Any) -> None:
    sketch = PrivacyAwareMisraGries()
    sketch.update(column)
    assert sketch.estimates() == {"a": 1, "b": 2}


def test_sets_come_from_fixed_size_lists() -> None:
    sketch = PrivacyAwareMisraGries()
    sketch.update(np.array([[1, 2], [2, 2]]))
    assert sketch.estimates() == {1: 1, 2: 2}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pl.Series([["secret"], None]), "sets must not be null"),
        (pl.Series([["secret", None]]), "keys must not be null"),
        (pl.Series([["secret" * 50]]), "256 bytes"),
        (pl.Series(["secret"]), "one list"),
        (pl.Series([[0.5]]), "whole numbers, texts or bytes"),
        (pl.Series([[["secret"]]]), "whole numbers, texts or bytes"),
    ],
)
def test_bad_batches_are_refused_whole_and_without_their_values(column: Any, message: str) -> None:
    sketch = PrivacyAwareMisraGries()
    with pytest.raises(InputError, match=message) as caught:
        sketch.update(column)
    assert "secret" not in str(caught.value)
    assert (sketch.total, sketch.key_kind) == (0, None)


def test_batches_without_keys_change_nothing() -> None:
    sketch = PrivacyAwareMisraGries()
    sketch.update([])
    sketch.update(pl.Series([[], []], dtype=pl.List(pl.Int64)))
    sketch.update(pl.Series([], dtype=pl.List(pl.Int64)))
    assert (sketch.total, sketch.estimates()) == (0, {})
