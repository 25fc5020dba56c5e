"""One release of one sketch: the card's vector, order, error bars, and what it costs."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.sketches.naive_sketches import all_states
from tests.sketches.small_sketches import Naive, WrittenNoise, release_merged, release_sketch

from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.losses import Booked, Mixed
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.sketches import (
    Contents,
    GaussianMisraGries,
    MisraGries,
    PrivateMisraGries,
    SketchRelease,
    SparseHistogram,
    private_release,
    release_shards,
    shard_of,
    threshold,
)
from pianissimo.sketches.released_keys import group_budget, group_delta
from pianissimo.testing import NoNoise, SeededNoise

RUNS = [1] * 9 + [2] * 5 + [3] + [4] * 2 + [1]


def test_the_vector_of_the_card() -> None:
    sketch = MisraGries(k=2)
    sketch.update(RUNS)
    contents = sketch.contents()
    assert contents.keys.to_list() == [1, 2]
    assert (contents.over.tolist(), contents.decrements, contents.total) == ([10, 5], 3, 18)
    noise = WrittenNoise({("error level",): -1, ("counts", 1): 2, ("counts", 2): -1})
    mechanism = PrivateMisraGries(k=2, epsilon=Fraction(1), threshold=4)
    shown = mechanism.release(contents, noise)
    assert shown.error_level == 2
    assert (shown.keys.to_list(), shown.under.tolist(), shown.over.tolist()) == ([1], [10], [12])
    assert GaussianMisraGries(k=2, variance=Fraction(1), threshold=4).release(contents, noise).to_dict() == {1: 10}


def test_without_noise_it_is_the_sketch_from_the_threshold_on() -> None:
    sketch = MisraGries(k=64)
    sketch.update(pl.Series(["a"] * 50 + ["b"] * 30 + ["c"] * 3))
    shown = release_sketch(sketch.contents(), k=64, epsilon=1, delta=1e-8, noise=NoNoise())
    assert shown.threshold == 22
    assert shown.to_dict() == {"a": 50, "b": 30}
    assert shown.to_frame().columns == ["key", "estimate", "low", "high"]


def test_every_release_has_a_noise_of_its_own() -> None:
    sketch = MisraGries(k=64)
    sketch.update(np.repeat(np.arange(40), 200))
    first, second = (sketch.release(epsilon=0.5, delta=1e-6, ledger="not accounted for") for _ in range(2))
    assert first.over.tolist() != second.over.tolist()


def test_keys_come_in_their_own_order_whatever_the_table_does() -> None:
    """The order of a table tells about evicted keys; the mutant that keeps it is caught."""
    sketch = Naive(6).update([9, 9, 9, 4, 4, 4, 1, 1, 1, 5, 5, 5, 3, 2, 7, 8])
    straight = sketch.contents()
    mechanism = PrivateMisraGries(k=6, epsilon=Fraction(3), threshold=1)
    shown = mechanism.release(straight, SeededNoise(1))
    assert shown.keys.to_list() == sorted(shown.keys.to_list())
    assert len(shown.keys) > 2

    def all_alike() -> bool:
        releases = [
            mechanism.release(
                Contents(straight.keys.gather(order), straight.over[order], straight.decrements, straight.total),
                SeededNoise(1),
            )
            for order in map(list, itertools.permutations(range(len(straight.keys))))
        ]
        return all(each.to_frame().equals(shown.to_frame()) for each in releases)

    assert all_alike()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_release, "in_key_order", lambda keys: np.arange(len(keys)))
        assert not all_alike()


@pytest.mark.parametrize(
    "mechanism",
    [
        PrivateMisraGries.calibrated(k=50, epsilon=0.7, delta=1e-6),
        GaussianMisraGries.for_one_release(k=50, epsilon=0.7, delta=1e-6),
    ],
    ids=["laplace", "gaussian"],
)
def test_error_bars_hold_for_all_keys_at_once(mechanism: PrivateMisraGries | GaussianMisraGries) -> None:
    """False alarms: bars of coverage 1 - 1e-10, a hundred releases."""
    stream = np.concatenate([np.repeat(np.arange(20), 300), np.arange(1000, 3000)])
    order = np.random.default_rng(5).permutation(len(stream))
    sketch = MisraGries(k=50)
    sketch.update(stream[order])
    truth = dict(zip(*np.unique(stream, return_counts=True), strict=True))
    widths = []
    for seed in range(100):
        shown = mechanism.release(sketch.contents(), SeededNoise(seed), coverage=1 - 1e-10)
        assert len(shown.keys) == 20
        for key, estimate, low, high in shown.to_frame().iter_rows():
            assert low <= truth[key] <= high
            assert low <= estimate <= high
        widths.append(shown.reach)
    assert len(set(widths)) == 1


def test_error_bars_are_not_wider_than_needed() -> None:
    """A reach for coverage 1/2 is exceeded in about half of all releases: between 20 and 180 of 200."""
    mechanism = PrivateMisraGries(k=8, epsilon=Fraction(1, 20), threshold=1)
    contents = Naive(8).update([key for key in range(8) for _ in range(10**4)]).contents()
    exceeded = 0
    for seed in range(200):
        shown = mechanism.release(contents, SeededNoise(seed), coverage=0.5)
        noises = [*(shown.over - contents.over).tolist(), shown.error_level - contents.decrements]
        exceeded += max(map(abs, noises)) > shown.reach
    assert 20 < exceeded < 180


def test_what_a_release_costs() -> None:
    mechanism = PrivateMisraGries.calibrated(k=1024, epsilon=1, delta=1e-8)
    loss = mechanism.loss
    assert isinstance(loss, Mixed)
    assert loss.pure == 1
    assert Fraction(1, 10**9) < loss.bad <= Fraction(1, 10**8)
    assert 0 < loss.distance < Fraction(1, 2**95)
    gaussian = GaussianMisraGries.calibrated(k=1024, rho=0.1, bad=1e-8, releases=5).loss
    assert isinstance(gaussian, Booked)
    assert gaussian.rho <= Fraction(0.1)
    assert gaussian.bad <= Fraction(1e-8)


def test_the_distance_of_the_noise_is_within_delta() -> None:
    """At a delta of the size of the distance, nothing is left for a threshold."""
    with pytest.raises(ParameterError, match="finite bits"):
        PrivateMisraGries.calibrated(k=1024, epsilon=1, delta=1e-31)


def group_threshold(*, epsilon: float, delta: float, k: int, elements: int) -> int:
    share, part = group_budget(epsilon=epsilon, delta=delta, elements=elements)
    return threshold(epsilon=share, delta=part, k=k)


def test_group_thresholds_of_the_card() -> None:
    assert [group_threshold(epsilon=1, delta=1e-8, k=1024, elements=2**power) for power in range(7)] == [
        22, 45, 92, 189, 389, 801, 1647,
    ]  # fmt: skip
    each = group_budget(epsilon=1, delta=1e-8, elements=16)
    whole = group_delta(each[1], epsilon=each[0], elements=16)
    assert whole == pytest.approx(1e-8, rel=1e-9)
    paper = 16 * np.exp(1.0) * float(each[1])
    assert paper / float(whole) == pytest.approx(1.6, abs=0.05)


def test_a_group_release_hides_its_elements_in_the_loss() -> None:
    mechanism = PrivateMisraGries.calibrated(k=1024, epsilon=1, delta=1e-8, max_keys_per_user=16)
    assert (mechanism.threshold, mechanism.epsilon) == (389, Fraction(1, 16))
    assert mechanism.loss.pure == 1
    assert mechanism.loss.bad <= Fraction(1, 10**8)


def test_several_elements_move_one_count_by_as_many() -> None:
    """So no smaller noise is possible for a plain sketch of m elements a user."""
    start, end = [1, 2, 3, 1, 2, 3], [9] * 5
    assert Naive(3).update([*start, 4, 5, *end]).counts[9] == 5
    assert Naive(3).update([*start, *end]).counts[9] == 3


def test_a_merged_sketch_is_not_released_as_one() -> None:
    left, right = MisraGries(k=2), MisraGries(k=2)
    left.update([1, 1, 1, 2, 2])
    right.update([2, 3, 3, 3, 3])
    merged = left.merge(right).contents()
    with pytest.raises(ParameterError, match="unmerged sketch"):
        release_sketch(merged, k=2, epsilon=1, delta=1e-6, noise=NoNoise())
    assert len(release_merged(merged, k=2, epsilon=1, delta=1e-6, noise=NoNoise()).keys) == 0
    independent = SparseHistogram.calibrated(moved=2, epsilon=1, delta=1e-6)
    assert len(independent.release(merged, NoNoise(), epsilon=1).keys) == 0


def test_a_merged_release_without_noise_is_the_merged_counts() -> None:
    left, right = MisraGries(k=8), MisraGries(k=8)
    left.update(pl.Series(["a"] * 90 + ["b"] * 2))
    right.update(pl.Series(["a"] * 50 + ["c"] * 70))
    merged = left.merge(right).contents()
    independent = SparseHistogram.calibrated(moved=8, epsilon=1, delta=1e-6)
    for shown in (
        release_merged(merged, k=8, epsilon=1, delta=1e-6, noise=NoNoise()),
        independent.release(merged, NoNoise(), epsilon=1),
    ):
        assert shown.to_dict() == {"a": 140, "c": 70}
        assert shown.to_frame().columns == ["key", "estimate", "low", "high"]
        assert shown.to_frame()["high"].null_count() == 2
        assert all(low <= shown.to_dict()[key] for key, _, low, _ in shown.to_frame().iter_rows())
        assert shown.loss.as_booked().bad <= Fraction(1e-6)


def test_shards_are_released_together_at_the_price_of_one() -> None:
    stream = pl.Series([f"page {number % 97}" for number in range(97 * 60)])
    shards = shard_of(stream, 3)
    sketches = []
    for shard in range(3):
        sketch = MisraGries(k=64)
        sketch.update(stream.filter(pl.Series(shards == shard)))
        sketches.append(sketch.contents())
    price: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "ledger": "not accounted for", "coverage": 1 - 1e-10}
    shown = release_shards(sketches, k=64, **price)
    assert shown.keys.to_list() == sorted(shown.keys.to_list())
    assert len(shown.keys) == 97
    assert shown.loss == PrivateMisraGries.calibrated(k=64, epsilon=1, delta=1e-6).loss
    assert all(low <= 60 <= high for low, high in shown.to_frame().select("low", "high").iter_rows())
    with pytest.raises(ParameterError, match="in one shard alone"):
        release_shards([sketches[0], sketches[0]], k=64, epsilon=1, delta=1e-6, ledger="not accounted for")
    with pytest.raises(ParameterError, match="at least one shard"):
        release_shards([], k=64, epsilon=1, delta=1e-6, ledger="not accounted for")


def test_a_shard_is_a_function_of_the_key() -> None:
    assert shard_of(pl.Series(["a", "b", "a"]), 4).tolist() == [1, 0, 1]
    keys = pl.Series([5, -5, 5, 2**62])
    assert shard_of(keys, 10)[0] == shard_of(keys, 10)[2] == shard_of(keys.head(1), 10)[0]
    assert sorted(np.unique(shard_of(pl.Series(np.arange(1000)), 7))) == list(range(7))
    with pytest.raises(InputError, match="keys must be"):
        shard_of(pl.Series([1.5]), 2)


def test_bytes_are_keys_too() -> None:
    sketch = MisraGries(k=4)
    sketch.update(pl.Series([b"\xff"] * 80 + [b""] * 60))
    shown = release_sketch(sketch.contents(), k=4, epsilon=2, delta=1e-6, noise=KeyedNoise(fresh_secret()))
    assert shown.keys.to_list() == [b"", b"\xff"]


def test_an_empty_sketch_shows_nothing() -> None:
    shown = release_sketch(MisraGries(k=4, keys="text").contents(), k=4, epsilon=1, delta=1e-6, noise=SeededNoise(3))
    assert isinstance(shown, SketchRelease)
    assert len(shown.to_frame()) == 0


def test_a_standard_sketch_hides_keys_of_count_zero() -> None:
    contents = Naive(3).update([1, 1, 2, 3, 4]).contents()
    assert (contents.over - contents.decrements).tolist() == [1, 0, 0]
    mechanism = PrivateMisraGries(k=3, epsilon=Fraction(1), threshold=1, standard=True)
    noise = WrittenNoise({("counts", 2): 50, ("counts", 1): 50})
    assert mechanism.release(contents, noise).keys.to_list() == [1]
    assert PrivateMisraGries.calibrated(k=1024, epsilon=1, delta=1e-8, standard=True).threshold == 29


def test_calibrations_are_pinned() -> None:
    laplace = PrivateMisraGries.calibrated(k=1024, epsilon=1, delta=1e-8)
    assert laplace == PrivateMisraGries(k=1024, epsilon=Fraction(1), threshold=22)
    gaussian = GaussianMisraGries.calibrated(k=1024, rho=0.05, bad=1e-8, releases=5)
    assert gaussian == GaussianMisraGries(k=1024, variance=Fraction(50), threshold=62, releases=5)


@pytest.mark.parametrize(("k", "universe", "longest"), [(1, 3, 5), (2, 4, 5), (3, 4, 5)])
def test_without_one_element_exactly_one_number_moves_by_one(k: int, universe: int, longest: int) -> None:
    """Keys of one side alone pair up with those of the other by the order of their numbers."""
    states = all_states(universe, longest, k)
    kinds = set()
    for stream, (counts, level) in states.items():
        for place in range(len(stream)):
            others, lower = states[stream[:place] + stream[place + 1 :]]
            shared = [counts[key] + level - others[key] - lower for key in counts.keys() & others.keys()]
            own, theirs = (
                [each[key] + down for key in each.keys() - rest.keys()]
                for each, down, rest in ((counts, level, others), (others, lower, counts))
            )
            size = max(len(own), len(theirs))
            left = sorted(own + [level] * (size - len(own)))
            right = sorted(theirs + [lower] * (size - len(theirs)))
            moved = [level - lower, *shared, *(one - other for one, other in zip(left, right, strict=True))]
            assert sorted(moved) == [0] * (len(moved) - 1) + [1]
            kinds.add((level - lower, sum(shared)))
    assert kinds == {(0, 0), (0, 1), (1, 0)}
