"""Slots of labels: by their texts where these were seen before, by their names where not; nobody can tell which."""

import random

import numpy as np
import polars as pl
import pytest

from pianissimo import codec
from pianissimo.labels import LabelIndex, visible_labels
from pianissimo.noise import KeyedNoise
from pianissimo.text_views import count_texts, longest_text, number_texts, view_chunks

SECRET = bytes(range(32))


def words(chance: random.Random, count: int) -> list[str]:
    """Short ones, long ones, ones that begin alike, and ones that stand more than once."""
    stems = ["", "a", "é", "twelve bytes", "thirteen byte", "x" * 256, "the same beginning "]
    return [chance.choice(stems)[:250] + str(chance.randrange(40)) for _ in range(count)]


def test_slots_are_those_of_a_dictionary_whatever_was_asked_before() -> None:
    chance, index, expected = random.Random(1), LabelIndex(KeyedNoise(SECRET)), dict[str, int]()
    for _ in range(60):
        some = words(chance, chance.randrange(30))
        if chance.random() < 0.5:
            for each in some:
                expected.setdefault(each, len(expected))
            found = index.slots_or_new(pl.Series(some, dtype=pl.String))
        else:
            found = index.slots(pl.Series(some, dtype=pl.String))
        assert found.tolist() == [expected.get(each, -1) for each in some]
    assert index.labels.to_list() == list(expected)


def test_a_new_label_does_not_keep_the_texts_of_its_batch() -> None:
    index = LabelIndex(KeyedNoise(bytes(32)))
    for tick in range(40):
        index.slots_or_new(
            pl.Series("key", [f"a label that is known {number}" for number in range(2000)] + [f"{tick}"])
        )
    with view_chunks(index.to_plain()) as chunks:
        held = {data.ctypes.data: len(data) for _, buffers in chunks for data in buffers}
        assert sum(held.values()) < 2 * 2000 * 30


def test_keys_of_slots_are_the_names_of_their_labels() -> None:
    noise, index = KeyedNoise(SECRET), LabelIndex(KeyedNoise(SECRET))
    labels = pl.Series(["one", "two", "a label of more than twelve bytes"])
    for _ in range(2):
        slots = index.slots_or_new(labels)
        own = noise.at("labels").label_keys(*codec.join_texts(labels))
        assert np.array_equal(index.keys_at(slots), own)


def test_more_labels_than_are_remembered_keep_their_slots() -> None:
    index = LabelIndex(KeyedNoise(SECRET))
    labels = pl.select(pl.format("label-{}", pl.int_range(140_000))).to_series()
    assert np.array_equal(index.slots_or_new(labels), np.arange(len(labels)))
    assert np.array_equal(index.slots(labels.reverse()), np.arange(len(labels))[::-1])
    assert np.array_equal(index.slots_or_new(labels.sample(1000, seed=1)), index.slots(labels.sample(1000, seed=1)))


@pytest.mark.parametrize("pieces", [1, 3])
def test_texts_are_counted_as_they_are_numbered(pieces: int) -> None:
    chance = random.Random(pieces)
    column = pl.concat([pl.Series(words(chance, 700)) for _ in range(pieces)], rechunk=False)
    labels, numbers = number_texts(column)
    counted, counts = count_texts(column)
    assert counted.to_list() == labels.to_list()
    assert counts.tolist() == np.bincount(numbers).tolist()
    assert labels.gather(numbers).to_list() == column.to_list()


@pytest.mark.parametrize("texts", [[], [None], ["a", None, "é" * 7], ["", "b" * 300], ["x" * 12, "y" * 13]])
def test_the_longest_text_is_measured_in_bytes(texts: list[str | None]) -> None:
    sizes = [len(each.encode()) for each in texts if each is not None]
    assert longest_text(pl.Series(texts, dtype=pl.String)) == max(sizes, default=0)


def test_what_is_shown_is_put_in_order_anew_only_where_it_changed() -> None:
    index = LabelIndex(KeyedNoise(SECRET))
    index.slots_or_new(pl.Series(["c", "a", "b"]))
    first = visible_labels(index, np.array([0, 1]), None)
    assert first.labels.to_list() == ["a", "c"]
    assert first.slots.tolist() == [1, 0]
    assert visible_labels(index, np.array([0, 1]), first) is first
    assert visible_labels(index, np.array([1, 2]), first).labels.to_list() == ["a", "b"]
