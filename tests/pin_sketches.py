"""What sketches say, merge to, release and refuse, in many settings: `python -m tests.pin_sketches` pins it anew.

Stored sketches are changed in one field at a time, sketches of all kinds are merged in pairs and released by every
mechanism, and columns of all kinds are taken as keys. Read the difference before you commit it: what was refused and is
no longer must still be a promise that is kept.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from tests.pin_releases import SEED, STREAM, digest, plain

from pianissimo import codec
from pianissimo.errors import PianissimoError
from pianissimo.labels import Domain
from pianissimo.noise import KeyedNoise
from pianissimo.sketches import (
    Contents,
    CorrelatedHistogram,
    GaussianMisraGries,
    IntegerRange,
    MisraGries,
    PrivacyAwareMisraGries,
    PrivateMisraGries,
    PureHistogram,
    ReducedMisraGries,
    SparseHistogram,
    StandardMisraGries,
    add_reduced,
    reduce,
)
from pianissimo.sketches.contents import LARGEST_TOTAL
from pianissimo.sketches.key_columns import as_universe, key_column, other_places, sets_of, split_bad
from pianissimo.sketches.merging import MergedSketch, Sketch
from pianissimo.sketches.private_release import release_shards, shard_of
from pianissimo.sketches.published_keys import PublishedKeys, add_published
from pianissimo.sketches.released_keys import LARGEST_COUNT, item_keys, noise_of
from pianissimo.sketches.standard_sketch import sketch_from_bytes
from pianissimo.testing import SeededNoise

PINNED = Path(__file__).parent / "sketches.json"


def tried(make: Callable[[], Any]) -> Any:
    """What is given, or how it is refused."""
    try:
        return plain(make())
    except PianissimoError as error:
        return type(error).__name__
    except (TypeError, AttributeError, ValueError, ArithmeticError, LookupError, AssertionError):
        return "Error"
    except pl.exceptions.PolarsError:
        return "Error"


def said(sketch: Any) -> Any:
    """What a sketch says of itself, without its random names."""
    own = sketch.record()
    numbers = [own.kind, own.sets, own.k, own.key_kind, own.decrements, own.total, own.max_keys_per_user]
    keys = [str(each) for each in sketch.contents().keys.to_list()]
    return [*numbers, keys, own.listing.values(), own.lineage.names, len(own.lineage.sources)]


def fed(sketch: Any, values: Any) -> Any:
    """A sketch that counted some values."""
    sketch.update(values)
    return sketch


def sketches() -> dict[str, Sketch]:
    """One of each kind, of each kind of keys."""
    texts, octets = pl.Series(list("aaaaabbbbccd") * 3), pl.Series([b"x", b"y", b"x", b"zz"] * 5)
    sets = [sorted(set(STREAM[place : place + 3])) for place in range(0, 150, 2)]
    return {
        "numbers": fed(MisraGries(k=4, name="north"), STREAM),
        "others": fed(MisraGries(k=4), [20, 30, 31, 31, 32, 33, 34]),
        "few": fed(MisraGries(k=9), STREAM[:100]),
        "texts": fed(MisraGries(k=3), texts),
        "bytes": fed(MisraGries(k=3), octets),
        "of users": fed(MisraGries(k=4, max_keys_per_user=3), STREAM),
        "standard": StandardMisraGries.from_items({20: 90, 21: 40, 22: 12, 23: 7}, k=4, total=164),
        "sets": fed(PrivacyAwareMisraGries(k=4), sets),
        "other sets": fed(PrivacyAwareMisraGries(k=4), [[1, 2], [2]]),
        "empty": MisraGries(k=4),
        "merged": fed(MisraGries(k=4), STREAM).merge(fed(MisraGries(k=4), STREAM[60:])),
        "merged texts": fed(MisraGries(k=3), texts).merge(fed(MisraGries(k=3), texts[2:])),
    }


NUMBERS: tuple[Any, ...] = (
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    2**22,
    2**22 + 1,
    LARGEST_TOTAL,
    LARGEST_TOTAL + 1,
    None,
    True,
    False,
    "x",
    0.5,
    [],
)
KINDS = ("misra-gries", "standard", "privacy-aware", "merged", "int64", "text", "bytes", "other")


def around(value: Any) -> Iterator[Any]:
    """What may stand in a field's place."""
    yield from NUMBERS
    yield from KINDS
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (value - 1, value + 1)
    if isinstance(value, bytes):
        yield from (value[:-1], value + b"a", b"\xff" + value[1:], value[::-1], b"q" * 300)
    if isinstance(value, np.ndarray):
        yield from (value[:-1], value[::-1], value + 1, value - 1, value * 0, value.astype(np.int32), value[None])
        yield from (np.append(value, value[-1:]), np.append(value, value[-1:] + 1), value[:0], value[:1])
        yield from (np.full_like(value, 256), np.full_like(value, 257))


def lineages(rows: list[Any]) -> Iterator[Any]:
    """Trees, and what is none."""
    one, two = ["a", ""], ["b", "south"]
    yield from (
        [one],
        [one, two, ["c", "", 0, 1]],
        [one, two],
        [one, one, ["c", "", 0, 1]],
        [one, two, ["a", "", 0, 1]],
    )
    yield from (
        [one, two, ["c", "", 0, 0]],
        [one, two, ["c", "", 0, 2]],
        [one, two, ["c", "", -1, 1]],
        [[1, ""]],
        [["a"]],
    )
    yield from ([one, two, ["c", "", 1, 0]], [one, two, ["c", "", 0, 1], ["d", "", 1, 2]], [["c", "", 0, 1], one, two])
    yield from ([one, two, ["e", ""], ["c", "", 0, 1], ["d", "", 2, 3]], rows + rows)


def stored(name: str) -> Iterator[Any]:
    """A stored sketch, and the same with one field changed."""
    content: Any = codec.decode("sketch", 1, sketches()[name].to_bytes())
    yield said(sketch_from_bytes(codec.encode("sketch", 1, content)))
    given = lambda changed: said(sketch_from_bytes(codec.encode("sketch", 1, changed)))  # noqa: E731
    for field, value in [*sorted(content.items()), ("max_keys_per_user", 1)]:
        for other in lineages(value) if field == "lineage" else around(value):
            yield field, tried(partial(given, content | {field: other}))
        yield field, tried(partial(given, {name: each for name, each in content.items() if name != field}))
    for kind, sets in product(KINDS[:4], (False, True)):
        yield kind, sets, tried(partial(given, content | {"kind": kind, "sets": sets}))
    for decrements, total in product((0, 1, 5), (0, 1, 30, 200)):
        yield decrements, total, tried(partial(given, content | {"decrements": decrements, "total": total}))
    for kind in (MisraGries, PrivacyAwareMisraGries, StandardMisraGries, MergedSketch):
        yield kind.__name__, tried(lambda kind=kind: said(kind.from_bytes(codec.encode("sketch", 1, content))))  # type: ignore[misc]


def merges() -> Iterator[Any]:
    """All pairs, and some of those with a part of both; totals that do not fit."""
    every = sketches()
    for one, other in product(every, every):
        yield one, other, tried(lambda one=one, other=other: said(every[one].merge(every[other])))  # type: ignore[misc]
    both = every["numbers"].merge(every["others"])
    yield tried(lambda: said(both.merge(every["others"])))
    yield tried(lambda: said(both.merge(every["merged"])))
    half = fed(MisraGries(k=4), [1]).merge(fed(MisraGries(k=4), [2]))
    for total in (2**62 - 1, 2**62, LARGEST_TOTAL):
        large = [MergedSketch(replace(each.record(), total=total)) for each in (half, both)]
        yield total, tried(lambda large=large: said(large[0].merge(large[1])))  # type: ignore[misc]


def releases() -> Iterator[Any]:
    """Every mechanism of every sketch: what it shows, or that it refuses."""
    delta = Fraction(1, 20)
    universes: list[Any] = [range(20, 60), IntegerRange(), Domain(list("abcdxyz")), IntegerRange(20, 21)]
    makers: dict[str, Callable[[], Any]] = {
        "private": partial(PrivateMisraGries.calibrated, k=4, epsilon=2, delta=delta),
        "private of users": partial(PrivateMisraGries.calibrated, k=4, epsilon=6, delta=delta, max_keys_per_user=3),
        "private, k = 3": partial(PrivateMisraGries.calibrated, k=3, epsilon=2, delta=delta),
        "standard": partial(PrivateMisraGries.calibrated, k=4, epsilon=2, delta=delta, standard=True),
        "Gaussian": partial(GaussianMisraGries.calibrated, k=4, rho=1, bad=delta),
        "Gaussian, k = 3": partial(GaussianMisraGries.for_one_release, k=3, epsilon=2, delta=delta),
        "Gaussian, standard": partial(GaussianMisraGries.for_one_release, k=4, epsilon=2, delta=delta, standard=True),
    }
    every = {name: sketch.contents() for name, sketch in sketches().items()}
    for (name, make), (kind, contents) in product(makers.items(), every.items()):
        yield name, kind, tried(lambda make=make, contents=contents: make().release(contents, SeededNoise(SEED)))  # type: ignore[misc]
    once = [
        SparseHistogram.calibrated(moved=4, epsilon=2, delta=delta),
        CorrelatedHistogram.calibrated(k=4, epsilon=2, delta=delta),
    ]
    for mechanism, contents in product(once, every.values()):
        yield tried(lambda of=mechanism, contents=contents: of.release(contents, SeededNoise(SEED), epsilon=2))  # type: ignore[misc]
    halves = {name: tried_reduced(contents) for name, contents in every.items()}
    for rounded, streams, k in product((False, True), (1, 2), (3, 4)):
        reducing = ReducedMisraGries.calibrated(k=k, epsilon=5, delta=delta, rounded=rounded, streams=streams)
        for half in halves.values():
            yield tried(lambda of=reducing, half=half: of.release(half, SeededNoise(SEED)))  # type: ignore[misc]
        pair = [halves["numbers"], halves["others"]]
        yield tried(lambda of=reducing, pair=pair: of.release(add_reduced(pair), SeededNoise(SEED)))  # type: ignore[misc]
    for universe, k in product(universes, (3, 4)):
        pure: list[Any] = [
            partial(PureHistogram.of_sketch, k=k, epsilon=20, universe=universe),
            partial(PureHistogram.of_sketch, k=k, epsilon=20, universe=universe, spurious=Fraction(1, 10**9)),
            partial(PureHistogram.of_sketch, k=k, epsilon=60, universe=universe, max_keys_per_user=3),
            partial(PureHistogram.of_merged, k=k, epsilon=20, universe=universe),
        ]
        for make, (name, half) in product(pure, [*halves.items(), *every.items()]):
            yield name, tried(lambda make=make, half=half: make().release(half, SeededNoise(SEED)))  # type: ignore[misc]


def tried_reduced(contents: Contents) -> Any:
    """Reduced counts, or None where there are none."""
    try:
        return reduce(contents, k=contents.k or 4)
    except PianissimoError:
        return None


def sums() -> Iterator[Any]:
    """Reduced counts and published tables that are added up, and large counts."""
    every = {name: tried_reduced(each.contents()) for name, each in sketches().items()}
    some = {name: each for name, each in every.items() if each is not None}
    yield list(some.items()), tried(lambda: add_reduced([]))
    for one, other in product(some, some):
        yield one, other, tried(lambda one=one, other=other: add_reduced([some[one], some[other]]))  # type: ignore[misc]
    for total in (LARGEST_COUNT // 5 - 1, LARGEST_COUNT // 5, LARGEST_COUNT // 5 + 1, LARGEST_COUNT // 2):
        large = Contents(pl.Series([1, 2]), np.array([total, 0]), 0, total, "misra-gries", 4)
        yield total, tried(lambda large=large: reduce(large, k=4))  # type: ignore[misc]
        yield total, tried(lambda large=large: add_reduced([reduce(large, k=4)] * 2))  # type: ignore[misc]
    tables = [
        pl.DataFrame({"key": ["a", "b"], "estimate": [60.0, 5.5], "low": [55.0, 0.0], "high": [70.0, None]}),
        pl.DataFrame({"key": ["b", "c"], "estimate": [20.0, 7.0], "low": [18.0, 1.0], "high": [25.0, 9.0]}),
        pl.DataFrame({"key": [1], "estimate": [60.0], "low": [55.0], "high": [70.0]}),
    ]
    parts = [PublishedKeys(table=each, most_hidden=most, coverage=0.9) for each in tables for most in (30.0, None)]
    yield tried(lambda: add_published([]))
    for first, second in product(parts, parts):
        yield tried(lambda first=first, second=second: add_published([first, second]))  # type: ignore[misc]
        yield tried(lambda first=first, second=second: add_published([first, second, first]))  # type: ignore[misc]


def columns() -> Iterator[Any]:
    """Columns of all kinds as keys, as sets, and what is set aside of them; universes."""
    long = ["x" * 256, "y" * 257, ""]
    given: list[Any] = [
        np.array([3, 1, 2]),
        np.array([[3, 1]]),
        np.array([1, 2], dtype=np.uint8),
        np.array([2**63], dtype=np.uint64),
        np.array([1.5]),
        *([1, 2, None], ["a", "ü", None], [b"a", b"\xff", None], [b"a"], [], [None], [1, "a"], "text", 5),
        *(pl.Series(long), pl.Series([each.encode() for each in long]), pl.Series(["a", "b"], dtype=pl.Categorical)),
        *(
            [[1, 2], [], [3]],
            [["a"], None],
            pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)),
            [[1, None]],
            [[]],
        ),
    ]
    for values, kind, trusted in product(given, (None, "int64", "text", "bytes"), (True, False)):
        yield tried(lambda values=values, kind=kind, trusted=trusted: told(key_column(values, kind, trusted=trusted)))  # type: ignore[misc]
        yield tried(lambda values=values, kind=kind: [str(each) for each in split_bad(values, kind)])  # type: ignore[misc]
    for values in given:
        yield tried(lambda values=values: [str(each) for each in sets_of(values)])  # type: ignore[misc]
        for make in (MisraGries, PrivacyAwareMisraGries):
            yield tried(lambda values=values, make=make: said(fed(make(k=2), values)))  # type: ignore[misc]
    for keys in (range(3), range(0, 6, 2), range(3, 3), range(-5, 9), Domain(["a", "b"]), IntegerRange(3, 3)):
        universe = as_universe(keys) if not isinstance(keys, range) else None
        yield tried(lambda keys=keys: [as_universe(keys).size, as_universe(keys).keys_at([0, 1])])  # type: ignore[misc]
        yield universe and tried(lambda of=universe: of.places_of(pl.Series(["a", "q"])))  # type: ignore[misc]
        yield universe and tried(lambda of=universe: of.places_of(pl.Series([2, 3, 4])))  # type: ignore[misc]
    for first, last in ((0, -1), (0, 0), (-(2**63), 2**63 - 1), (-(2**63) - 1, 0), (0, 2**63)):
        yield tried(lambda first=first, last=last: IntegerRange(first, last).size)  # type: ignore[misc]
    for size, taken, count in product((5, 9, 2**70), ([], [0, 3], [1, 2, 4]), (0, 1, 2)):
        yield sorted(other_places(size, taken, count, SeededNoise(SEED)))


def told(column: Any) -> Any:
    """A column of keys."""
    return [column.kind, str(np.asarray(column.column).tolist()), column.check_texts]


def paths() -> Iterator[Any]:
    """Item keys, the noise of states, and shards, from one secret."""
    secret, one = KeyedNoise(bytes(32)), np.arange(3, dtype=np.uint64)
    series = [pl.Series([5, 6, 7]), pl.Series(["a", "b", "ü"]), pl.Series([b"a", b"b", b"\xff"]), pl.Series([0.5])]
    for keys in series:
        yield tried(lambda keys=keys: str(item_keys(keys, secret).tolist()))  # type: ignore[misc]
        for numbers in ((), (1,), (np.array([1]),), (np.array([1]), 1), (np.array([2]),)):
            yield tried(lambda keys=keys, of=numbers: noise_of(secret, keys, *of).bits(one))  # type: ignore[misc]
        yield tried(lambda keys=keys: shard_of(keys, 3))  # type: ignore[misc]
    shards = [fed(MisraGries(k=4), STREAM).contents(), fed(MisraGries(k=4), [30] * 70).contents()]
    wrong = fed(MisraGries(k=4, max_keys_per_user=2), [50] * 90).contents()
    with patch("pianissimo.sketches.private_release.fresh_noise", lambda: SeededNoise(SEED)):
        for some in (shards, shards[:1], shards[::-1], shards * 2, [], [*shards, wrong]):
            release = partial(release_shards, some, k=4, epsilon=2, delta=Fraction(1, 20), ledger="not accounted for")
            yield tried(release)
            yield tried(lambda release=release: release().to_frame())  # type: ignore[misc]
            yield tried(partial(release, coverage=0.5))


WAYS: dict[str, Callable[[], Any]] = {
    **{f"stored {name}": partial(stored, name) for name in ("numbers", "few", "texts", "bytes", "of users")},
    **{f"stored {name}": partial(stored, name) for name in ("standard", "sets", "empty", "merged", "merged texts")},
    "merges": merges,
    "releases": releases,
    "sums": sums,
    "columns": columns,
    "paths": paths,
}


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(make) for name, make in WAYS.items()}, indent=1) + "\n")
