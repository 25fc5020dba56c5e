"""Sketches that another program built: by exhaustion, what one element moves, what is released, and what is refused."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from tests.sketches.small_sketches import (
    Change,
    Evict,
    Naive,
    State,
    change,
    gaussian,
    laplace,
    neighbors,
    release_divergence,
)

from pianissimo import codec
from pianissimo.errors import InputError, MergeError, ParameterError, StateError
from pianissimo.labels import Domain
from pianissimo.noise.exact_laws import shift_divergence
from pianissimo.sketches import (
    GaussianMisraGries,
    MisraGries,
    PrivateMisraGries,
    PureHistogram,
    StandardMisraGries,
    merge_in_order,
    reduce,
    sketch_from_bytes,
    threshold,
)
from pianissimo.sketches.private_release import noted, one_shot
from pianissimo.sketches.released_keys import exposure, gaussian_calibration, gaussian_exposure
from pianissimo.testing import NoNoise, SeededNoise

SMALL = [(1, 3, 6), (2, 4, 6), (3, 5, 5)]
NOT_CHARGED: dict[str, Any] = {"ledger": "not accounted for"}


def without_zeros(state: State) -> State:
    """What a program keeps that forgets keys of count zero."""
    return tuple((key, count) for key, count in state[0] if count), state[1], state[2]


def changes(k: int, universe: int, length: int) -> Iterator[Change]:
    """Each way in which two neighbors of all small streams differ, in both directions."""
    pairs = {(without_zeros(one), without_zeros(other)) for one, other in neighbors(k, universe, length)}
    yield from sorted({change(*pair) for pair in pairs} | {change(*pair[::-1]) for pair in pairs})


@pytest.mark.parametrize(("k", "universe", "length"), SMALL)
def test_keys_of_one_neighbor_are_k_of_count_one_or_a_single_one(k: int, universe: int, length: int) -> None:
    found = list(changes(k, universe, length))
    assert max(max(len(ours), len(theirs)) for _, ours, theirs, _ in found) == k
    for down, ours, theirs, moved in found:
        assert not (ours and theirs)
        assert set(ours + theirs) <= {1}
        assert abs(down) + len(moved) + (not down and bool(ours or theirs)) == 1


@pytest.mark.parametrize(("k", "universe", "length"), SMALL)
def test_its_delta_is_attained_and_the_threshold_of_ours_would_not_do(k: int, universe: int, length: int) -> None:
    epsilon, theta = Fraction(1, 2), 5
    law, factor = laplace(math.exp(-0.5)), math.exp(0.5)
    worst = max(release_divergence(each, law, theta, factor) for each in changes(k, universe, length))
    assert worst == pytest.approx(float(exposure(theta, epsilon=epsilon, k=k, standard=True)), rel=1e-6)
    if k == 3:
        assert worst > 1.2 * float(exposure(theta, epsilon=epsilon, k=k))


@pytest.mark.parametrize(("k", "universe", "length"), SMALL)
def test_with_gaussian_noise_it_is_within_its_delta_too(k: int, universe: int, length: int) -> None:
    """The chance of k keys beside the divergence of D."""
    delta, epsilon = Fraction(1, 50), Fraction(1, 2)
    variance, theta = gaussian_calibration(epsilon, delta, k, standard=True)
    law, factor = gaussian(variance), math.exp(0.5)
    worst = max(release_divergence(each, law, theta, factor) for each in changes(k, universe, length))
    assert worst <= delta
    private = float(gaussian_exposure(theta, variance=Fraction(variance), k=k, standard=True))
    assert worst <= shift_divergence(variance, 1, 0.5) + private <= delta


def test_the_gaussian_threshold_of_ours_would_not_do() -> None:
    """All of 64 keys of count 1 are on one side: the calibration of a sketch that keeps zeros exceeds its delta."""
    delta, epsilon = Fraction(1, 1000), Fraction(1, 2)
    for standard in (True, False):
        variance, theta = gaussian_calibration(epsilon, delta, 64, standard=standard)
        worst = release_divergence((-1, (1,) * 64, (), ()), gaussian(variance), theta, math.exp(0.5))
        assert (worst <= delta) is standard


@pytest.mark.parametrize("evict", [min, max, lambda keys: keys[-1]], ids=["smallest", "largest", "last"])
def test_what_another_program_evicts_makes_no_difference(evict: Evict) -> None:
    for stream in product(range(4), repeat=5):
        sketch = Naive(2, evict).update(stream)
        taken = StandardMisraGries.from_items(sketch.counts, k=2, total=5, keys="int64")
        ours = MisraGries(k=2, keys="int64")
        ours.update(list(stream))
        assert taken.estimates() == {key: count for key, count in ours.estimates().items() if count}
        assert taken.contents().decrements == ours.decrements
        reduced = [reduce(each.contents(), k=2) for each in (taken, ours)]
        assert reduced[0].keys.equals(reduced[1].keys)
        assert reduced[0].values.tolist() == reduced[1].values.tolist()


def test_its_release_has_the_larger_threshold() -> None:
    taken = StandardMisraGries.from_items({"a": 900, "b": 5}, k=1024, total=905)
    shown = taken.release(epsilon=1, delta=1e-8, **NOT_CHARGED)
    assert shown.threshold == threshold(epsilon=1, delta=1e-8, k=1024, standard=True) == 29
    assert shown.keys.to_list() == ["a"]
    ours = PrivateMisraGries.calibrated(k=1024, epsilon=1, delta=1e-8)
    with pytest.raises(ParameterError, match="unmerged sketch of single keys, got one of kind 'standard'"):
        ours.release(taken.contents(), NoNoise())
    for charged in (False, True):
        mechanism = one_shot(k=8, epsilon=1, delta=1e-6, charged=charged, standard=True)
        assert mechanism.standard
        assert mechanism.loss.as_booked().bad <= Fraction(1, 10**6)
        assert mechanism.release(
            StandardMisraGries.from_items({5: 90, 7: 1}, k=8, total=91).contents(), NoNoise()
        ).to_dict() == {5: 90}
    assert GaussianMisraGries.for_one_release(k=1024, epsilon=1, delta=1e-8, standard=True).threshold == 52


def test_it_is_stored_and_merged_as_others_are() -> None:
    taken = StandardMisraGries.from_items({"a": 3, "b": 1, "gone": 0}, k=2, total=7, name="theirs")
    again = sketch_from_bytes(taken.to_bytes())
    assert isinstance(again, StandardMisraGries)
    assert (again.estimates(), again.total, again.k) == ({"a": 3, "b": 1}, 7, 2)
    assert again.to_bytes() == taken.to_bytes()
    ours = MisraGries(k=2)
    ours.update(["b", "c", "c"])
    assert merge_in_order([taken, ours]).estimates() == {"a": 1}
    assert repr(taken) == "StandardMisraGries(k=2, keys='text')"


@pytest.mark.parametrize("values", [[5, 1], [6, 0]])
def test_a_stored_one_has_no_key_of_count_zero_or_less(values: list[int]) -> None:
    """With a D of 1 and as many elements as before."""
    taken = StandardMisraGries.from_items({"a": 3, "b": 1}, k=2, total=7)
    content: dict[str, Any] = codec.decode("sketch", 1, taken.to_bytes())
    assert content["values"].tolist() == [4, 2]
    with pytest.raises(StateError):
        sketch_from_bytes(codec.encode("sketch", 1, content | {"values": np.array(values)}))


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ({"a": 3}, {"k": 2, "total": 5}),
        ({"a": 3}, {"k": 2, "total": 2}),
        ({"a": 1, "b": 1, "c": 1}, {"k": 2, "total": 3}),
        ({"a": -1}, {"k": 2, "total": 2}),
        ({"a": 1.5}, {"k": 2, "total": 3}),
        ({"a" * 300: 3}, {"k": 2, "total": 3}),
        ({"a": 3, 5: 1}, {"k": 2, "total": 4}),
    ],
    ids=["no multiple", "too small a total", "too many keys", "negative", "no whole", "long", "mixed"],
)
def test_what_is_no_such_sketch_is_refused_without_its_keys(items: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        StandardMisraGries.from_items(items, **fields)
    assert "aaa" not in str(refused.value)


def test_a_sketch_of_users_is_released_as_one() -> None:
    sketch = MisraGries(k=1024, keys="text", max_keys_per_user=16)
    sketch.update(["a"] * 1000)
    shown = sketch.release(epsilon=1, delta=1e-8, **NOT_CHARGED)
    assert shown.threshold == 389
    assert "hides a user with at most 16 keys" in noted(sketch.contents())
    again = sketch_from_bytes(sketch.to_bytes())
    assert isinstance(again, MisraGries)
    assert again.max_keys_per_user == 16
    # A ledger is charged for a chain of neighbors at one epsilon, so with Laplace noise.
    charged = one_shot(k=1024, epsilon=1, delta=1e-8, charged=True, max_keys_per_user=16)
    assert isinstance(charged, PrivateMisraGries)
    assert charged.loss.as_booked().rho == Fraction(1, 2)


def test_what_hides_one_key_refuses_a_sketch_of_users() -> None:
    contents = MisraGries(k=8, keys="text", max_keys_per_user=2).contents()
    for mechanism in (
        PrivateMisraGries.calibrated(k=8, epsilon=1, delta=1e-6),
        GaussianMisraGries.for_one_release(k=8, epsilon=1, delta=1e-6),
    ):
        with pytest.raises(ParameterError, match="hide as many keys as a user may have given, 2, got one that hides 1"):
            mechanism.release(contents, NoNoise())
    pure = PureHistogram.of_sketch(k=8, epsilon=1, universe=Domain(["a"]))
    with pytest.raises(ParameterError, match="hide as many keys"):
        pure.release(reduce(contents, k=8), NoNoise())
    with pytest.raises(MergeError, match="users, who may be in both"):
        merge_in_order([MisraGries(k=8), MisraGries(k=8, max_keys_per_user=2)])


def test_two_elements_move_a_pure_release_by_twice_as_much_and_no_more() -> None:
    """By exhaustion over all streams of six keys: 4 k with the total, and more than the 2 k of one element."""
    k, most = 2, 0

    def vector(stream: tuple[int, ...]) -> dict[int, int]:
        reduced = reduce(Naive(k).update(stream).contents(), k=k)
        return dict(zip(reduced.keys.to_list(), reduced.values.tolist(), strict=True)) | {-1: reduced.total}

    vectors = {stream: vector(stream) for length in range(7) for stream in product(range(3), repeat=length)}
    for stream, ours in vectors.items():
        for left_out in combinations(range(len(stream)), 2):
            theirs = vectors[tuple(key for place, key in enumerate(stream) if place not in left_out)]
            most = max(most, sum(abs(ours.get(key, 0) - theirs.get(key, 0)) for key in ours.keys() | theirs.keys()))
    mechanism = PureHistogram.of_sketch(k=k, epsilon=1, universe=range(3), max_keys_per_user=2)
    assert 2 * k < most <= 1 / mechanism.rate == 4 * k
    assert most * mechanism.rate <= mechanism.epsilon
    assert PureHistogram.of_sketch(k=k, epsilon=1, universe=range(3)).rate * most > 1


@pytest.mark.parametrize(
    "sketch",
    [
        MisraGries(k=4, keys="int64"),
        MisraGries(k=4, keys="int64", max_keys_per_user=3),
        StandardMisraGries.from_items({}, k=4, total=0, keys="int64"),
        MisraGries(k=4, keys="int64").merge(MisraGries(k=4, keys="int64")),
    ],
    ids=["ours", "users", "standard", "merged"],
)
def test_every_kind_has_a_pure_release(sketch: Any) -> None:
    shown = sketch.release_pure(epsilon=1, universe=range(100), **NOT_CHARGED)
    assert (shown.loss.epsilon, shown.loss.as_booked().bad) == (1, 0)
    with pytest.raises(ParameterError, match="keys that are texts"):
        sketch.release_pure(epsilon=1, universe=Domain(["a"]), **NOT_CHARGED)
    with pytest.raises(ParameterError, match="ledger must be"):
        sketch.release_pure(epsilon=1, universe=range(100), ledger=None)


def test_pure_noise_grows_with_the_keys_of_a_user() -> None:
    one, eight = (
        PureHistogram.of_sketch(k=16, epsilon=1, universe=range(1000), max_keys_per_user=keys) for keys in (1, 8)
    )
    assert one.rate == 8 * eight.rate
    assert abs(eight.threshold - 8 * one.threshold) <= 8 * 16
    assert len(eight.release(reduce(Naive(16).update([]).contents(), k=16), SeededNoise(1)).keys) < 10
