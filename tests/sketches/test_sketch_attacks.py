"""What fresh eyes broke of the sketches, and must not break again."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cli.test_sketch_command import PRICE, built, done, refused
from tests.sketches.naive_sketches import misra_gries
from tests.sketches.small_sketches import release_sketch

from pianissimo.errors import MergeError, ParameterError
from pianissimo.sketches import (
    MisraGries,
    PrivacyAwareMisraGries,
    add_reduced,
    reduce,
    release_shards,
)
from pianissimo.testing import NoNoise

ALLOWED: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


def cycles(random_source: random.Random, k: int) -> list[int]:
    """Keys that are replaced and come again: rounds over a little more than k keys."""
    universe = list(range(int(k * random_source.choice([1.2, 1.5, 2, 3])) + 1))
    stream: list[int] = []
    while len(stream) < random_source.choice([3, 10, 40]) * k:
        random_source.shuffle(universe)
        stream += universe[: random_source.randrange(1, len(universe) + 1)]
    return stream


@pytest.mark.parametrize("kind", ["int64", "text"])
def test_keys_that_come_again_after_they_were_replaced_are_counted_as_on_paper(kind: Any) -> None:
    """A replaced key that came back was once taken for one that had left, and a zero key too many was dropped."""
    source = random.Random(7)
    for _ in range(400):
        k = source.choice([3, 4, 5, 6, 8, 12, 20, 50])
        numbers = cycles(source, k)
        stream = numbers if kind == "int64" else [f"key {key:03}" * (1 + key % 3) for key in numbers]
        sketch = MisraGries(k=k, keys=kind)
        start = 0
        while start < len(stream):
            size = source.choice([1, 5, 50, 1000])
            part = stream[start : start + size]
            sketch.update(np.array(part, dtype=np.int64) if kind == "int64" else pl.Series(part))
            start += size
            if source.random() < 0.2:
                sketch = MisraGries.from_bytes(sketch.to_bytes())
        assert (sketch.estimates(), sketch.decrements) == misra_gries(stream, k)


def test_the_type_of_what_is_released_does_not_tell_whether_anything_came() -> None:
    empty = MisraGries(k=4)
    for make in (empty.release, PrivacyAwareMisraGries(k=4).release, empty.merge(MisraGries(k=4)).release):
        with pytest.raises(ParameterError, match="the type of keys must be known before a release"):
            make(**ALLOWED, ledger="not accounted for")
    typed, full = MisraGries(k=4), MisraGries(k=4)
    typed.update(pl.Series([], dtype=pl.String))
    full.update(pl.Series(["x"]))
    types = {sketch.release(**ALLOWED, ledger="not accounted for").to_frame()["key"].dtype for sketch in (typed, full)}
    assert types == {pl.String}
    with pytest.raises(ParameterError, match="the type of keys must be known"):
        release_shards([full.contents(), empty.contents()], k=4, **ALLOWED, ledger="not accounted for")
    with pytest.raises(ParameterError, match="the type of keys must be known"):
        reduce(empty.contents(), k=4)
    assert add_reduced([reduce(typed.contents(), k=4), reduce(full.contents(), k=4)]).keys.dtype == pl.String
    numbers = MisraGries(k=4, keys="int64")
    with pytest.raises(MergeError, match="one type of keys"):
        add_reduced([reduce(typed.contents(), k=4), reduce(numbers.contents(), k=4)])


def test_sets_and_merged_sketches_are_not_released_as_single_ones() -> None:
    """Whatever their counts: a merged sketch that lost nothing, and sets of one key, once passed."""
    single, other, sets = MisraGries(k=4), MisraGries(k=4), PrivacyAwareMisraGries(k=4)
    single.update(np.array([1, 2]))
    other.update(np.array([3]))
    sets.update([[1], [2]])
    for contents in (single.merge(other).contents(), sets.contents()):
        with pytest.raises(ParameterError, match="must be of one unmerged sketch of single keys"):
            release_sketch(contents, k=4, **ALLOWED, noise=NoNoise())
        with pytest.raises(ParameterError, match="must be of one unmerged sketch of single keys"):
            reduce(contents, k=4)


def test_a_link_from_another_folder_is_the_same_file(tmp_path: Path) -> None:
    file = built(tmp_path, "a", ["/home"] * 50)
    done("release", file, *PRICE)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "x.pps"
    link.symlink_to(file)
    assert "earlier release of its streams" in refused("release", link, *PRICE, code=1)
