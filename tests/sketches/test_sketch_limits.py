"""Sketches and their releases at limits: what is refused, what is taken from delta, what is told beside the counts.

Every draw of a release is paid for from its delta, thresholds and noise are the least that hold, and what is no sketch
of the kind that a release is for is refused.
"""

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from pianissimo import codec
from pianissimo.errors import InputError, ParameterError, PianissimoError, StateError
from pianissimo.loss.losses import Unit
from pianissimo.mechanism import Run
from pianissimo.noise.exact_laws import CONTEXT, shift_divergence, to_decimal
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches import (
    Contents,
    CorrelatedHistogram,
    GaussianMisraGries,
    MisraGries,
    PrivateMisraGries,
    PublishedTree,
    PureHistogram,
    Reduced,
    ReducedMisraGries,
    SetTree,
    SparseHistogram,
    StandardMisraGries,
    key_columns,
    private_release,
    reduce,
    released_keys,
    sparse_histogram,
)
from pianissimo.sketches.contents import LARGEST_TOTAL, MOST_COUNTERS
from pianissimo.sketches.key_columns import _distinct
from pianissimo.sketches.private_release import release_shards
from pianissimo.sketches.reduction import _check_small
from pianissimo.sketches.released_keys import (
    LARGEST_COUNT,
    bounded_counts,
    check_unmerged,
    fresh_noise,
    gaussian_calibration,
    gaussian_threshold,
    group_delta,
    item_keys,
    without_distance,
)
from pianissimo.sketches.sparse_histogram import correlated_calibration, holds_for_all, sparse_calibration
from pianissimo.sketches.standard_sketch import sketch_from_bytes
from pianissimo.sketches.tree_nodes import add_up_keys, checked_keys
from pianissimo.testing import NoNoise, SeededNoise

TENTH = Fraction(1, 10)


def fed(values: Any, k: int = 2, **fields: Any) -> MisraGries:
    sketch = MisraGries(k=k, **fields)
    sketch.update(values)
    return sketch


def taken(draws: int) -> Fraction:
    """What the finite bits of so many draws take of a delta at epsilon 1."""
    return (1 + Fraction(Decimal(1).exp(CONTEXT) * (1 + Decimal("1e-30")))) * draws * DRAW_DISTANCE


DRAWS: dict[str, tuple[Callable[..., Any], int]] = {
    "private": (lambda **own: PrivateMisraGries.calibrated(k=3, **own), 4),
    "gaussian": (lambda **own: GaussianMisraGries.for_one_release(k=3, **own), 4),
    "published tree": (lambda **own: PublishedTree.calibrated(k=3, horizon=6, **own), 12),
    "reduced": (lambda **own: ReducedMisraGries.calibrated(k=3, streams=5, **own), 30),
    "sparse": (lambda **own: SparseHistogram.calibrated(moved=3, **own), 3),
    "correlated": (lambda **own: CorrelatedHistogram.calibrated(k=3, **own), 4),
}


@pytest.mark.parametrize(("make", "draws"), DRAWS.values(), ids=DRAWS)
def test_a_delta_that_the_draws_of_a_release_use_up_is_refused(make: Callable[..., Any], draws: int) -> None:
    with pytest.raises(ParameterError, match="finite bits take"):
        make(epsilon=1, delta=taken(draws))
    assert without_distance(taken(draws + 1), draws, 1) == taken(1)


def test_fresh_noise_is_fresh_even_if_a_secret_came_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarm rate: 2^-128."""
    monkeypatch.setattr(released_keys, "fresh_secret", lambda: bytes(32))
    one, other = (fresh_noise().bits(np.zeros(1, dtype=np.uint64)).tolist() for _ in range(2))
    assert one != other


def test_counts_are_bounded_so_that_noise_can_be_added() -> None:
    most = LARGEST_COUNT
    given = np.array([most + 1, most, most - 1, 0, 1 - most, -most])
    assert bounded_counts(given).tolist() == [most - 1, most - 1, most - 1, 0, 1 - most, 1 - most]


def test_what_is_no_sketch_of_k_counters_is_refused() -> None:
    def given(counts: list[int], total: int) -> Contents:
        return Contents(pl.Series(range(len(counts)), dtype=pl.Int64), np.array(counts), 0, total)

    check_unmerged(given([3, 2], 5), 2)
    for counts, total in (([3, 2, 1], 6), ([3, 2], 6)):
        with pytest.raises(ParameterError, match="unmerged sketch of k = 2"):
            check_unmerged(given(counts, total), 2)
    # Its numbers could be those of two counters, but it has three.
    with pytest.raises(ParameterError, match="of k = 2, got one of k = 3"):
        check_unmerged(fed([1, 1, 2], k=3).contents(), 2)


def test_a_delta_of_several_elements_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released_keys, "short_bound", lambda bound: bound)
    with decimal.localcontext(CONTEXT):
        each = to_decimal(TENTH)
        right = each * ((3 * each).exp() - 1) / (each.exp() - 1)
        assert right < Decimal(str(group_delta(TENTH, epsilon=TENTH, elements=3))) < right * (1 + Decimal("1e-29"))


def test_one_gaussian_release_has_the_least_threshold_of_some_more_noise() -> None:
    """The least variance is 27; a threshold of 24 is reached at 30."""
    assert gaussian_calibration(Fraction(1, 4), Fraction(1, 100), 4) == (30, 24)
    # A divergence that leaves nothing for a threshold is passed over.
    least = Fraction(shift_divergence(50, 1, 0.5))
    assert gaussian_calibration(Fraction(1, 2), least, 4)[0] > 50


@pytest.mark.parametrize(
    ("epsilon", "delta", "found"),
    [
        (1e-3, 1e-9, (17792768, 36734)),  # What sums over all places gave, in 25 seconds.
        (1e-6, 1e-9, (6214350327205, 22111983)),
        (1e-100, 1e-6, (169104015051, 3151836)),
    ],
)
def test_noise_of_a_small_epsilon_is_found_in_a_bounded_time(
    epsilon: float, delta: float, found: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(released_keys, "gaussian_law", lambda _: pytest.fail("a sum over all places"))
    variance, theta = gaussian_calibration(Fraction(epsilon), Fraction(delta), 64)
    assert (variance, theta) == pytest.approx(found, rel=1e-4)
    # By real-valued noise, and the chance that one key of count 1 shows.
    mu = 1 / math.sqrt(variance)
    moved = normal_tail(epsilon / mu - mu / 2) - math.exp(epsilon) * normal_tail(epsilon / mu + mu / 2)
    shown = normal_tail((theta - 1.5) * mu / math.sqrt(2))
    assert 0.97 * delta < moved + shown < delta * (1 + 1e-6)


def normal_tail(least: float) -> float:
    return math.erfc(least / math.sqrt(2)) / 2


def test_noise_that_is_never_drawn_is_refused_at_once() -> None:
    with pytest.raises(ParameterError, match=r"at most 2e\+09, got 2.8e\+11; allow a larger epsilon or delta"):
        gaussian_calibration(Fraction(1, 10**12), Fraction(1, 10**12), 64)


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize(("keys", "bad"), [(1, 1e-9), (2, 1e-3), (2, 1e-14), (64, 1e-6)])
def test_a_threshold_without_a_sum_is_the_same_or_hardly_larger(
    keys: int, bad: float, standard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"variance": Fraction(60_001), "bad": bad, "k": keys, "standard": standard}
    summed = gaussian_threshold(**asked)
    released_keys._gaussian_exposure.cache_clear()
    monkeypatch.setattr(released_keys, "LARGEST_SUMMED", 1)
    bound = gaussian_threshold(**asked)
    released_keys._gaussian_exposure.cache_clear()
    assert summed <= bound <= summed * 1.003


def test_noise_that_leaves_nothing_for_a_threshold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released_keys, "shift_divergence", lambda *_: 0.125)
    with pytest.raises(ParameterError, match="allow a larger delta"):
        gaussian_calibration.__wrapped__(Fraction(1, 2), Fraction(1, 8), 4)


def test_a_bad_mass_of_all_releases_is_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="raise the threshold"):
        _ = GaussianMisraGries(k=2, threshold=1, variance=Fraction(9), releases=20).loss
    monkeypatch.setattr(private_release, "gaussian_exposure", lambda *_, **__: Fraction(1, 4))
    made = {
        releases: GaussianMisraGries(k=2, threshold=1, variance=Fraction(9), releases=releases) for releases in (3, 4)
    }
    assert made[3].loss.bad == Fraction(3, 4)
    with pytest.raises(ParameterError, match="raise the threshold"):
        _ = made[4].loss


def test_shards_tell_the_largest_error_and_share_what_may_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_release, "fresh_noise", NoNoise)
    shards = [fed(values) for values in ([1] * 90, [2] * 80 + [3, 4, 5, 6] * 3, [7] * 70)]
    levels = [shard.contents().decrements for shard in shards]
    assert min(levels) < max(levels)
    fields: dict[str, Any] = {"k": 2, "epsilon": 1, "delta": TENTH}
    release = release_shards([shard.contents() for shard in shards], ledger="not accounted for", coverage=0.4, **fields)
    assert release.error_level == max(levels)
    assert release.reach == PrivateMisraGries.calibrated(**fields).reach(0.8)
    assert release.reach != PrivateMisraGries.calibrated(**fields).reach(0.4)


def reduced(streams: int = 1) -> Reduced:
    return Reduced(pl.Series([1, 2]), np.array([400, 3]), 500, 3, streams)


def test_a_pure_release_is_of_as_many_streams_as_it_was_made_for() -> None:
    one, two = (PureHistogram.of_sketch(k=3, epsilon=9, universe=range(9), streams=streams) for streams in (1, 2))
    assert (one.stored, two.stored) == (3, 6)
    # A sketch has no more than its k keys; of several added up all that pass are shown.
    assert (one.most, two.most) == (3, None)
    assert two.release(reduced(2), NoNoise()).threshold == two.threshold / 4
    with pytest.raises(ParameterError, match="the streams of the release"):
        one.release(reduced(2), NoNoise())


@pytest.mark.parametrize("with_total", [True, False])
def test_a_pure_release_of_reduced_counts_is_of_no_plain_sketch(with_total: bool) -> None:
    made = PureHistogram.of_sketch(k=3, epsilon=9, universe=range(9), with_total=with_total)
    with pytest.raises(ParameterError, match="reduce it first"):
        made.release(fed([1, 1, 2], k=3).contents(), NoNoise())


def test_thresholds_are_told_in_counts() -> None:
    lossy = ReducedMisraGries.calibrated(k=3, epsilon=5, delta=TENTH)
    assert lossy.release(reduced(), NoNoise()).threshold == lossy.threshold / 4
    sparse = SparseHistogram.calibrated(moved=3, epsilon=2, delta=TENTH)
    assert sparse.release(fed([1, 1, 2], k=3).contents(), NoNoise(), epsilon=2).threshold == 1 + sparse.tau


def test_small_values_are_rounded_by_their_own_coin() -> None:
    """A value v below r = 2 k - 1 becomes r if a uniform number is below v / r, and others stay as they are."""
    noise = SeededNoise(5)
    keys, values = pl.Series(range(60)), np.arange(60) % 7
    words = noise.at("rounding").bits(item_keys(keys, noise)).tolist()
    made = ReducedMisraGries.calibrated(k=3, epsilon=5, delta=TENTH, rounded=True)
    right = [
        value if value >= 5 else 5 * (Fraction(low + high * 2**64, 2**128) * 5 < value)
        for value, (low, high) in zip(values.tolist(), words, strict=True)
    ]
    assert made._rounded(keys, values, noise).tolist() == right


@pytest.mark.parametrize("total", [2**60 - 1, 2**60, 2**60 + 1, 2**62 // 5, 2**61, LARGEST_TOTAL])
def test_reduced_counts_are_exact_up_to_their_bound(total: int) -> None:
    found = reduce(Contents(pl.Series([1, 2]), np.array([total - 3, 3]), 0, total, "misra-gries", 4), k=4)
    assert (found.keys.to_list(), found.values.tolist()) == ([1], [min(4 * total - 15, LARGEST_COUNT - 1)])


def test_reduction_has_no_larger_delta_than_its_formula_holds_for() -> None:
    limit = Fraction(1 - float(Decimal(-1).exp()))
    _check_small(limit * (1 - Fraction(2, 10**9)), Fraction(2))
    with pytest.raises(ParameterError, match="allow a larger epsilon"):
        _check_small(limit, Fraction(2))


def test_a_condition_that_fails_for_some_shared_keys_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A divergence that is nothing from epsilon on and large below it."""
    monkeypatch.setattr(sparse_histogram, "shift_divergence", lambda _variance, _shared, at: float(at < 1.0))
    assert not holds_for_all(4, 9, 20, 1.0, 0.01)


@pytest.mark.parametrize(
    ("moved", "epsilon", "delta"), [(1, 0.5, 1e-2), (10, 2.0, 1e-5), (40, 8.0, 0.1), (40, 15.0, 1e-5)]
)
def test_a_sparse_histogram_has_the_least_variance(moved: int, epsilon: float, delta: float) -> None:
    variance, _ = sparse_calibration(moved, epsilon, delta)
    assert shift_divergence(variance, moved, epsilon) <= delta < shift_divergence(variance - 1, moved, epsilon)


@pytest.mark.parametrize(("least", "second"), [(7, 8), (5001, 5003)])
def test_noise_grows_by_little_until_all_conditions_hold(
    least: int, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def holds(_moved: int, variance: int, *_: float) -> bool:
        asked.append(variance)
        return len(asked) == 2

    monkeypatch.setattr(sparse_histogram, "shift_divergence", lambda each, *_: float(each < least))
    monkeypatch.setattr(sparse_histogram, "holds_for_all", holds)
    assert sparse_calibration.__wrapped__(1, 40.0, 1e-3)[0] == second
    assert asked == [least, second]


def test_half_of_delta_is_for_the_noise_of_a_shared_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    divergences = iter([0.075, 0.051, 0.049])
    asked: list[int] = []

    def divergence(_k: int, variance: int, *_: float) -> float:
        asked.append(variance)
        return next(divergences)

    monkeypatch.setattr(sparse_histogram, "noise_delta", divergence)
    assert correlated_calibration.__wrapped__(4, 0.01, 0.1)[0] == asked[-1]
    assert len(asked) == 3


def test_noise_of_many_keys_beyond_its_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_histogram, "noise_delta", lambda *_: 0.0)
    monkeypatch.setattr(sparse_histogram, "threshold_delta", lambda *_: 0.0)
    assert correlated_calibration.__wrapped__(2**7, 0.001, 1e-6)[2] == 3
    with pytest.raises(ParameterError, match="allow a larger epsilon or delta, or take a smaller k"):
        correlated_calibration.__wrapped__(2**8, 0.001, 1e-6)


def test_distinct_places_are_drawn_until_bits_are_surely_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 64 * 2 + 2**16
    noise: Any = SimpleNamespace(at=lambda attempt: attempt)
    for other in (most - 1, most):
        monkeypatch.setattr(key_columns, "uniform_below", lambda _, attempt, other=other: int(attempt == other))
        if other < most:
            assert _distinct(9, 2, noise) == [0, 1]
        else:
            with pytest.raises(ParameterError, match="all alike"):
                _distinct(9, 2, noise)


def test_a_sketch_takes_over_a_content_only_if_it_knows_its_keys() -> None:
    content = fed(["a", "b", "a"]).to_plain()
    other = MisraGries(k=2, keys="text")
    other.take_plain(content)
    assert other.to_plain()[2:] == content[2:]
    with pytest.raises(StateError, match="must know its type of keys"):
        MisraGries(k=2).take_plain(content)


def test_every_stored_text_is_looked_at() -> None:
    content: Any = codec.decode("sketch", 1, fed(["a", "b"]).to_bytes())
    assert content["text"] == b"ab"
    for text in (b"\xfeb", b"a\xff"):
        with pytest.raises(PianissimoError):
            sketch_from_bytes(codec.encode("sketch", 1, content | {"text": text}))


def test_how_often_a_key_came_in_a_tick_is_added_up_beyond_32_bits() -> None:
    pieces = [[np.array([3, 7]), np.array(counts, dtype=np.uint32)] for counts in ([2**32 - 1, 1], [5, 2])]
    keys, counts = add_up_keys(pieces)
    assert (keys.tolist(), counts.tolist()) == ([3, 7], [2**32 + 4, 3])


@pytest.mark.parametrize("trusted", [True, False])
def test_keys_of_a_tick_are_texts_or_any_bytes(trusted: bool) -> None:
    for given in (["a", "ü"], [b"a", b"\xff"]):
        keys = checked_keys(pl.Series(given), "text" if "a" in given else "bytes", trusted=trusted)
        assert keys.to_list() == given


@pytest.mark.parametrize("keys", [["a", "b" * 257], [b"b" * 257, b"a"]])
def test_one_key_of_a_tick_that_is_too_long_is_refused(keys: list[Any]) -> None:
    with pytest.raises(InputError, match="at most 256 bytes"):
        checked_keys(pl.Series(keys), "text" if "a" in keys else "bytes")


def test_bytes_that_are_counted_as_texts_are_looked_at() -> None:
    sketch = MisraGries(k=2, keys="text")
    sketch.update(pl.Series([b"a"]))
    with pytest.raises(InputError, match="valid UTF-8"):
        sketch.update(pl.Series([b"b", b"\xff"]))
    assert sketch.estimates() == {"a": 1}
    assert not key_columns.key_column(pl.Series(["a"])).check_texts


def test_a_release_says_whom_it_hides() -> None:
    hidden = {keys: fed([1], max_keys_per_user=keys).contents().hides for keys in (1, 2)}
    assert hidden == {1: Unit.EVENT, 2: Unit.USER}


def test_sets_without_keys_are_events_without_keys() -> None:
    keys, ends, _ = key_columns.sets_of(pl.Series([[], [1, 2], [], [3], []], dtype=pl.List(pl.Int64)))
    assert (keys.to_list(), ends.tolist()) == ([1, 2, 3], [2, 3])


def test_a_column_of_other_bytes_is_no_column_of_texts() -> None:
    octets = np.array([b"a", b"\xff"], dtype=object)
    with pytest.raises(InputError, match="valid UTF-8"):
        checked_keys(pl.Series(octets.tolist()), "text", trusted=False)


def test_a_total_of_sets_needs_a_bound_on_their_keys() -> None:
    fields: dict[str, Any] = {"horizon": 2, "k": 2, "variance": Fraction(1, 100), "bad": Fraction(9, 10)}
    with pytest.raises(ParameterError, match="max_keys_per_event must be given"):
        SetTree(**fields, with_total=True)
    run: Any = Run(SetTree(**fields, with_total=True, max_keys_per_event=2, keys="int64"), NoNoise())
    run.update(pl.Series([[1], [1, 2], [1], [1], [1], [1], [1]]))
    value = run.release().value
    assert value.total == 8
    # Eight keys in sketches of two counters: a count is too low by at most 8 / 3.
    assert value.slack.tolist() == [3] * len(value.keys)
    assert len(value.keys)


@pytest.mark.parametrize(("k", "total"), [(MOST_COUNTERS + 1, 0), (2, LARGEST_TOTAL + 1)])
def test_a_sketch_of_another_program_is_within_the_limits_of_ours(k: int, total: int) -> None:
    with pytest.raises(ParameterError, match=r"(k|total) must be at most"):
        StandardMisraGries.from_items({}, k=k, total=total, keys="text")


@pytest.mark.parametrize("count", [True, 2.0, "2", -1, None])
def test_a_count_of_another_program_is_a_whole_number(count: Any) -> None:
    with pytest.raises(InputError, match="whole numbers of at least 0"):
        StandardMisraGries.from_items({"a": 1, "b": count}, k=4, total=3)


def test_a_key_of_another_program_is_no_longer_than_ours() -> None:
    assert StandardMisraGries.from_items({"x" * 256: 1}, k=4, total=1).total == 1
    with pytest.raises(InputError, match="at most 256 bytes"):
        StandardMisraGries.from_items({"x" * 257: 1}, k=4, total=1)


def test_large_reduced_counts_below_their_bound_are_exact() -> None:
    total = 2**61
    counts = np.array([total // 4 + 1, total // 4, total // 8, total * 3 // 8 - 1])
    found = reduce(Contents(pl.Series(range(4)), counts, 0, total, "misra-gries", 4), k=4)
    assert found.keys.to_list() == [0, 1, 3]
    assert found.values.tolist() == [5 * int(count) - total for count in counts[[0, 1, 3]].tolist()]
