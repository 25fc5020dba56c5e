"""What is stored comes back as it was, and nothing else does."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pianissimo import codec
from pianissimo.errors import InputError, MergeError, StateError
from pianissimo.sketches import MergedSketch, MisraGries, PrivacyAwareMisraGries, merge_in_order, sketch_from_bytes

LARGEST = 2**63 - 1


def sketch_of(column: Any, k: int = 3, name: str = "") -> MisraGries:
    sketch = MisraGries(k, name=name)
    sketch.update(column)
    return sketch


def sets_of(column: Any, k: int = 3) -> PrivacyAwareMisraGries:
    sketch = PrivacyAwareMisraGries(k)
    sketch.update(column)
    return sketch


SKETCHES: list[MisraGries | PrivacyAwareMisraGries | MergedSketch] = [
    MisraGries(),
    MisraGries(5, keys="bytes"),
    sketch_of([5, 3, 7, 3, 9, -1, 7]),
    sketch_of(["é", "b", "x" * 200, "b", "c"], name="north"),
    sketch_of(pl.Series([b"\xff", b"", b"\0" * 13, b"", b"a"])),
    sets_of([[1, 2], [1, 3], [1, 4], [2, 3]]),
    sets_of([["a", "b"], ["a"]]),
    sketch_of([1, 1, 2], name="north").merge(sketch_of([2, 3], name="south")),
    sets_of([["a"]]).merge(sets_of([["b", "a"]])),
    MisraGries().merge(MisraGries()),
]


@pytest.mark.parametrize("sketch", SKETCHES)
def test_every_kind_comes_back_as_it_was(sketch: MisraGries | PrivacyAwareMisraGries | MergedSketch) -> None:
    stored = sketch.to_bytes()
    for again in (sketch_from_bytes(stored), type(sketch).from_bytes(stored)):
        assert type(again) is type(sketch)
        assert (again.k, again.key_kind, again.total) == (sketch.k, sketch.key_kind, sketch.total)
        assert again.estimates() == sketch.estimates()
        assert again.contents().decrements == sketch.contents().decrements
        assert again.lineage.to_plain() == sketch.lineage.to_plain()
        assert again.to_bytes() == stored


@given(st.lists(st.integers(0, 12), max_size=60), st.lists(st.integers(0, 12), max_size=60), st.integers(1, 6))
def test_a_stored_sketch_goes_on_where_it_was(first: list[int], second: list[int], k: int) -> None:
    sketch = MisraGries(k, keys="int64")
    sketch.update(np.array(first, dtype=np.int64))
    again = MisraGries.from_bytes(sketch.to_bytes())
    for one in (sketch, again):
        one.update(np.array(second, dtype=np.int64))
    assert again.to_bytes() == sketch.to_bytes()


def test_a_stored_sketch_of_sets_goes_on_where_it_was() -> None:
    sketch = sets_of([[1, 2], [1, 3], [1, 4], [2, 3]])
    again = PrivacyAwareMisraGries.from_bytes(sketch.to_bytes())
    again.update([[1, 2, 5]])
    assert (again.estimates(), again.decrements) == ({1: 2, 2: 1}, 2)


@pytest.mark.parametrize("sketch", SKETCHES[2:8])
def test_damaged_and_truncated_bytes_are_refused(sketch: MisraGries | PrivacyAwareMisraGries | MergedSketch) -> None:
    stored = sketch.to_bytes()
    for place in range(len(stored)):
        with pytest.raises(StateError):
            sketch_from_bytes(stored[:place])
        damaged = bytearray(stored)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(StateError):
            sketch_from_bytes(bytes(damaged))
    with pytest.raises(StateError):
        sketch_from_bytes(stored + b"\0")


def test_one_kind_is_not_taken_for_another() -> None:
    single, merged = sketch_of([1]), sketch_of([1]).merge(sketch_of([2]))
    with pytest.raises(StateError, match="kind misra-gries, got kind merged"):
        MisraGries.from_bytes(merged.to_bytes())
    with pytest.raises(StateError, match="kind merged, got kind misra-gries"):
        MergedSketch.from_bytes(single.to_bytes())
    with pytest.raises(StateError, match="kind privacy-aware, got kind misra-gries"):
        PrivacyAwareMisraGries.from_bytes(single.to_bytes())


def content_of(sketch: MisraGries | PrivacyAwareMisraGries | MergedSketch) -> dict[str, Any]:
    content: dict[str, Any] = codec.decode("sketch", 1, sketch.to_bytes())
    return content


FULL = content_of(sketch_of([5, 3, 7, 3, 9]))
TEXTS = content_of(sketch_of(["a", "b", "b"]))
SETS = content_of(sets_of([[1, 2]]))
MERGED = content_of(sketch_of([1]).merge(sketch_of([2])))

IMPOSSIBLE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (FULL, {"kind": "count-min"}),
    (FULL, {"kind": None}),
    (FULL, {"kind": "privacy-aware"}),
    (FULL, {"sets": True}),
    (FULL, {"sets": 0}),
    (FULL, {"k": 0}),
    (FULL, {"k": 2}),
    (FULL, {"k": 4}),
    (FULL, {"k": 2**40}),
    (FULL, {"k": True}),
    (FULL, {"keys": "float"}),
    (FULL, {"keys": "text"}),
    (FULL, {"keys": None}),
    (FULL, {"decrements": -1}),
    (FULL, {"decrements": 0}),
    (FULL, {"decrements": 2}),
    (FULL, {"total": 4}),
    (FULL, {"total": 2**63}),
    (FULL, {"integers": np.array([3, 7, 5])}),
    (FULL, {"integers": np.array([3, 3, 5])}),
    (FULL, {"integers": np.array([3, 5])}),
    (FULL, {"integers": np.array([3, 5, 7], dtype=np.int32)}),
    (FULL, {"integers": [3, 5, 7]}),
    (FULL, {"values": np.array([2, 0, 2])}),
    (FULL, {"integers": np.array([3, 5]), "values": np.array([3, 1]), "total": 6}),
    (FULL, {"lineage": []}),
    (FULL, {"lineage": [["a", "", 0, 0]]}),
    (FULL, {"lineage": [["a", ""], ["b", ""]]}),
    (FULL, {"lineage": [["a", ""], ["a", ""], ["c", "", 0, 1]]}),
    (FULL, {"lineage": [["a", ""], ["b", ""], ["c", "", 0, 1]]}),
    (FULL, {"lineage": [["a", ""], ["b", ""], ["c", "", 0, 2]]}),
    (FULL, {"lineage": [[1, 2]]}),
    (TEXTS, {"text": b"\xffb"}),
    (TEXTS, {"text": b"abc"}),
    (TEXTS, {"text": "ab"}),
    (TEXTS, {"text": b"a" * 257 + b"b", "lengths": np.array([257, 1], np.uint32)}),
    (SETS, {"values": np.array([0, 2])}),
    (SETS, {"decrements": 1, "values": np.array([1, 3]), "total": 6}),
    (MERGED, {"values": np.array([0, 2])}),
    (MERGED, {"decrements": 1, "values": np.array([1, 1]), "total": 9}),
]


@pytest.mark.parametrize(("content", "change"), IMPOSSIBLE)
def test_states_that_cannot_be_are_refused(content: dict[str, Any], change: dict[str, Any]) -> None:
    assert sketch_from_bytes(codec.encode("sketch", 1, content)).total >= 2
    with pytest.raises(StateError):
        sketch_from_bytes(codec.encode("sketch", 1, content | change))


def test_missing_fields_other_versions_and_other_states_are_refused() -> None:
    for name in FULL:
        with pytest.raises(StateError):
            sketch_from_bytes(codec.encode("sketch", 1, {key: value for key, value in FULL.items() if key != name}))
    for kind, version in (("sketch", 2), ("counter", 1)):
        with pytest.raises(StateError, match="version"):
            sketch_from_bytes(codec.encode(kind, version, FULL))
    nothing: list[object] = [None, [], 7]
    for content in nothing:
        with pytest.raises(StateError):
            sketch_from_bytes(codec.encode("sketch", 1, content))


def heavy(total: int) -> MisraGries:
    content = content_of(sketch_of([1], k=1)) | {"values": np.array([total]), "total": total}
    return MisraGries.from_bytes(codec.encode("sketch", 1, content))


def test_a_total_beyond_63_bits_is_refused_before_it_wraps() -> None:
    sketch = heavy(LARGEST - 1)
    with pytest.raises(InputError, match=r"at most 2\^63 - 1 keys"):
        sketch.update([1, 1])
    assert sketch.estimates() == {1: LARGEST - 1}
    sketch.update([1])
    assert sketch.estimates() == {1: LARGEST}
    with pytest.raises(InputError, match=r"at most 2\^63 - 1 keys"):
        sketch.update([2])


def test_a_merged_total_beyond_63_bits_is_refused() -> None:
    left = heavy(LARGEST)
    with pytest.raises(MergeError, match=r"at most 2\^63 - 1 keys"):
        left.merge(sketch_of([1], k=1))
    assert left.merge(MisraGries(1)).total == LARGEST


def test_the_lineage_tells_the_streams_in_the_order_of_merging() -> None:
    sketches = [sketch_of([place], name=f"shard-{place}") for place in range(4)]
    merged = sketches[2].merge(sketches[0]).merge(sketches[3].merge(sketches[1]))
    assert merged.lineage.names == ("shard-2", "shard-0", "shard-3", "shard-1")
    assert merged.lineage.sources == {sketch.lineage.id for sketch in sketches}
    again = MergedSketch.from_bytes(merged.to_bytes())
    assert again.lineage.names == merged.lineage.names
    assert [len(part.parents) for part in again.lineage.parents] == [2, 2]


def test_a_long_chain_of_merges_is_stored() -> None:
    merged = merge_in_order([MisraGries(2, keys="int64") for _ in range(1500)])
    assert len(MergedSketch.from_bytes(merged.to_bytes()).lineage.sources) == 1500


def test_a_lineage_has_no_data() -> None:
    stored = sketch_of(["secret"]).lineage.to_plain()
    assert "secret" not in str(stored)
    assert all(len(str(row[0])) == 32 for row in stored)
