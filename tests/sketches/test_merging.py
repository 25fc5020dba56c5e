"""Merged sketches keep the error bound, and one element moves them in one direction, for every fixed tree."""

from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sketches.naive_sketches import all_states, check_one_direction, merge, misra_gries, positive, privacy_aware

from pianissimo.errors import MergeError
from pianissimo.sketches import MergedSketch, MisraGries, PrivacyAwareMisraGries, merge_in_order, merge_in_pairs

Counts = dict[Any, int]
Frozen = tuple[tuple[int, int], ...]


def sketch_of(stream: Iterable[int], k: int) -> MisraGries:
    sketch = MisraGries(k, keys="int64")
    sketch.update(np.array(list(stream), dtype=np.int64))
    return sketch


def frozen(counts: Counts) -> Frozen:
    return tuple(sorted(counts.items()))


def small_sketches(universe: int, longest: int, k: int) -> tuple[set[Frozen], set[tuple[Frozen, Frozen]]]:
    """The positive counts of all small streams, and of all pairs of neighbours."""
    states = {stream: frozen(positive(state)) for stream, state in all_states(universe, longest, k).items()}
    pairs = {
        (state, states[stream[:place] + stream[place + 1 :]])
        for stream, state in states.items()
        for place in range(len(stream))
    }
    return set(states.values()), pairs


@pytest.mark.parametrize("k", [2, 3])
def test_one_element_moves_a_merged_sketch_in_one_direction(k: int) -> None:
    sketches, pairs = small_sketches(4, 5, k)
    for (longer, shorter), frozen_other in product(pairs, sketches):
        part, neighbour, other = dict(longer), dict(shorter), dict(frozen_other)
        check_one_direction(merge(part, other, k), merge(neighbour, other, k), k)
        check_one_direction(merge(other, part, k), merge(other, neighbour, k), k)


def test_one_element_moves_trees_of_three_in_one_direction() -> None:
    k = 2
    sketches, pairs = small_sketches(3, 4, k)
    for (longer, shorter), second, third in product(pairs, sketches, sketches):
        part, neighbour, others = dict(longer), dict(shorter), (dict(second), dict(third))
        check_one_direction(
            merge(merge(part, others[0], k), others[1], k), merge(merge(neighbour, others[0], k), others[1], k), k
        )
        other = merge(*others, k)
        check_one_direction(merge(other, part, k), merge(other, neighbour, k), k)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_it_is_the_merge_of_the_definition(k: int) -> None:
    streams: dict[Frozen, tuple[int, ...]] = {}
    for stream, state in all_states(4, 4, k).items():
        streams.setdefault(frozen(positive(state)), stream)
    for left, right in product(streams, repeat=2):
        merged = sketch_of(streams[left], k).merge(sketch_of(streams[right], k))
        assert merged.estimates() == merge(dict(left), dict(right), k)


def test_a_merge_takes_the_next_largest_sum_from_all() -> None:
    merged = sketch_of([1] * 3 + [2] * 2, 2).merge(sketch_of([2] + [3] * 4, 2))
    assert (merged.estimates(), merged.total) == ({3: 1}, 10)


def test_merging_by_size_is_caught() -> None:
    streams = [(0, 1, 2, 2, 2, 0), (0,) * 6, (1, 1, 0, 1)]
    shorter = [streams[0], streams[1][1:], streams[2]]

    def merged(parts: list[tuple[int, ...]]) -> Counts:
        return merge_in_order([sketch_of(stream, 1) for stream in parts]).estimates()

    by_size, neighbour_by_size = merged(sorted(streams, key=len)), merged(sorted(shorter, key=len))
    assert (by_size, neighbour_by_size) == ({0: 6}, {0: 1})
    with pytest.raises(AssertionError):
        check_one_direction(by_size, neighbour_by_size, 1)
    for order in ((0, 1, 2), (2, 0, 1), (2, 1, 0)):
        whole, neighbour = (merged([parts[place] for place in order]) for parts in (streams, shorter))
        check_one_direction(whole, neighbour, 1)


@given(st.lists(st.lists(st.integers(0, 9), max_size=40), min_size=2, max_size=6), st.integers(1, 6))
def test_any_tree_keeps_the_error_below_its_bound(streams: list[list[int]], k: int) -> None:
    truth = Counter(key for stream in streams for key in stream)
    for tree in (merge_in_order, merge_in_pairs):
        sketch = tree([sketch_of(stream, k) for stream in streams])
        counts = sketch.estimates()
        slack = (truth.total() - sum(counts.values())) // (k + 1)
        assert sketch.total == truth.total()
        assert all(0 <= truth[key] - counts.get(key, 0) <= slack for key in range(10))


@given(st.lists(st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=8), min_size=2, max_size=4))
def test_sketches_of_sets_merge_alike(streams: list[list[list[int]]]) -> None:
    k, sketches = 3, []
    expected: Counts = {}
    for place, stream in enumerate(streams):
        sketch = PrivacyAwareMisraGries(k, keys="int64")
        sketch.update(pl.Series(stream, dtype=pl.List(pl.Int64)))
        sketches.append(sketch)
        counts = privacy_aware(stream, k)[0]
        expected = merge(expected, counts, k) if place else counts
    merged = merge_in_order(sketches)
    assert (merged.estimates(), merged.sets) == (expected, True)


@given(st.lists(st.lists(st.text("ab", max_size=15), max_size=20), min_size=2, max_size=5))
def test_texts_merge_as_numbers_do(streams: list[list[str]]) -> None:
    k, sketches = 3, []
    for stream in streams:
        sketches.append(MisraGries(k, keys="text"))
        sketches[-1].update(pl.Series(stream, dtype=pl.String))
    expected = positive(misra_gries(streams[0], k))
    for stream in streams[1:]:
        expected = merge(expected, positive(misra_gries(stream, k)), k)
    merged = merge_in_order(sketches)
    assert merged.estimates() == expected
    assert merged.contents().keys.to_list() == sorted(expected)


def test_a_tree_of_pairs_merges_neighbours_first() -> None:
    sketches = [sketch_of([place] * (place + 1), 2) for place in range(5)]
    pairs = merge_in_pairs(sketches)
    by_hand = sketches[0].merge(sketches[1]).merge(sketches[2].merge(sketches[3])).merge(sketches[4])
    assert pairs.estimates() == by_hand.estimates()


def test_an_empty_shard_is_an_empty_sketch() -> None:
    some = sketch_of([1, 1, 2], 4)
    merged = MisraGries(4).merge(some)
    assert (merged.estimates(), merged.key_kind) == ({1: 2, 2: 1}, "int64")
    nothing = MisraGries(4).merge(MisraGries(4))
    assert (nothing.estimates(), nothing.key_kind) == ({}, None)
    texts = MisraGries(4, keys="text")
    assert nothing.merge(texts).key_kind == "text"


def test_merging_leaves_the_parts_as_they_are() -> None:
    left, right = sketch_of([1, 1, 2], 2), sketch_of([3, 3], 2)
    left.merge(right)
    assert (left.estimates(), right.estimates()) == ({1: 2, 2: 1}, {3: 2})
    left.update([1])
    assert left.estimates() == {1: 3, 2: 1}


def texts(k: int = 4) -> MisraGries:
    sketch = MisraGries(k)
    sketch.update(["secret"])
    return sketch


def sets(k: int = 4) -> PrivacyAwareMisraGries:
    sketch = PrivacyAwareMisraGries(k)
    sketch.update([[1]])
    return sketch


def test_only_sketches_of_one_kind_merge() -> None:
    for left, right, message in (
        (sketch_of([1], 4), sketch_of([1], 5), "the same k, got 4 and 5"),
        (sketch_of([1], 4), texts(), "keys of one type, got int64 and text"),
        (sketch_of([1], 4), sets(), "both count keys or both count sets"),
        (sets().merge(sets()), sketch_of([1], 4), "both count keys or both count sets"),
        (texts().merge(texts()), sketch_of([1], 4), "keys of one type, got text and int64"),
    ):
        with pytest.raises(MergeError, match=message) as caught:
            left.merge(right)
        assert "secret" not in str(caught.value)


def test_a_stream_may_be_in_a_merge_once_only() -> None:
    sketch = sketch_of([1], 4)
    again = MisraGries.from_bytes(sketch.to_bytes())
    merged = sketch.merge(sketch_of([2], 4))
    for left, right in ((sketch, sketch), (sketch, again), (merged, again), (merged, merged)):
        with pytest.raises(MergeError, match="different streams"):
            left.merge(right)


def test_a_merge_is_of_two_at_least() -> None:
    for tree in (merge_in_order, merge_in_pairs):
        with pytest.raises(MergeError, match="at least two"):
            tree([sketch_of([1], 4)])


def test_a_merged_sketch_shows_no_data() -> None:
    merged = texts().merge(texts())
    assert repr(merged) == "MergedSketch(k=4, keys, 2 streams)"
    assert isinstance(merged, MergedSketch)
    assert not hasattr(merged, "update")
