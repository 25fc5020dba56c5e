"""Whether something is refused is a function of public parameters, never of what was counted."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.mechanisms import CASES, EVENT_CASES, USER_CASES, Case

from pianissimo.counting import LabelSums
from pianissimo.counting.counter import Summer
from pianissimo.errors import InputError, ParameterError, PianissimoError
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan
from pianissimo.selection import (
    FixedThresholdLaplace,
    LimitedDomain,
    LimitedLaplace,
    OptimalThreshold,
    StrictDomain,
)
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
    add_reduced,
    reduce,
)
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import FixedCap, LabelSumsHead, UserStatistics

ALL_CASES = CASES | USER_CASES | EVENT_CASES
STREAMS: list[list[list[str]]] = [[], [["a"]], [["a", "b"]], [["a"], ["b"], ["nowhere"]]]
"""Each is a neighbor of another, or nearly: what is asked for is that none is refused."""


@pytest.mark.parametrize("case", ALL_CASES.values(), ids=ALL_CASES.keys())
def test_no_stream_of_a_mechanism_is_refused(case: Case) -> None:
    for seed, stream in enumerate(STREAMS):
        run = Run(case.mechanism, SeededNoise(seed))
        for batch in (stream, [], stream):
            run.update(case.as_batch(batch))
            run.release()


def keys_of(keys: list[int], k: int) -> MisraGries:
    sketch = MisraGries(k=k, keys="int64")
    sketch.update(keys)
    return sketch


def sets_of(keys: list[int], k: int) -> PrivacyAwareMisraGries:
    sketch = PrivacyAwareMisraGries(k=k, keys="int64")
    sketch.update(pl.Series([[key] for key in keys], dtype=pl.List(pl.Int64)))
    return sketch


ALLOWED: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}
Release = Callable[[list[int], int], object]
SKETCHES: dict[str, Release] = {
    "private": lambda keys, k: PrivateMisraGries.calibrated(k=2, **ALLOWED).release(
        keys_of(keys, k).contents(), SeededNoise(1)
    ),
    "gaussian": lambda keys, k: GaussianMisraGries.for_one_release(k=2, **ALLOWED).release(
        keys_of(keys, k).contents(), SeededNoise(1)
    ),
    "sparse": lambda keys, k: SparseHistogram.calibrated(moved=2, **ALLOWED).release(
        sets_of(keys, k).contents(), SeededNoise(1), epsilon=1
    ),
    "correlated": lambda keys, k: CorrelatedHistogram.calibrated(k=2, **ALLOWED).release(
        sets_of(keys, k).contents(), SeededNoise(1), epsilon=1
    ),
    "reduced": lambda keys, k: ReducedMisraGries.calibrated(k=2, **ALLOWED).release(
        reduce(keys_of(keys, k).contents(), k=2), SeededNoise(1)
    ),
    "pure": lambda keys, k: PureHistogram.of_sketch(k=2, epsilon=1, universe=range(50)).release(
        reduce(keys_of(keys, k).contents(), k=k), SeededNoise(1)
    ),
    "pure of sets": lambda keys, k: PureHistogram.of_merged(k=2, epsilon=1, universe=range(50)).release(
        sets_of(keys, k).contents(), SeededNoise(1)
    ),
}


def is_refused(release: Release, keys: list[int], k: int) -> bool:
    try:
        release(keys, k)
    except PianissimoError:
        return True
    return False


@pytest.mark.parametrize("release", SKETCHES.values(), ids=SKETCHES.keys())
def test_a_release_of_a_sketch_is_refused_by_its_k_alone(release: Release) -> None:
    """Once, that of a larger k was refused as soon as it held more keys than the release allows for."""
    states: list[list[int]] = [[], [3], [3, 3], [3, 4], [3, 3, 4, 4, 5, 5], [60], list(range(40))]
    for k in (2, 5):
        assert {is_refused(release, keys, k) for keys in states} == {k == 5}


def test_how_many_keys_come_by_chance_is_judged_before_the_data() -> None:
    """Once, [3] was answered and [] refused: the keys that are left were counted."""
    fields: dict[str, Any] = {"sensitivity": 1, "unit": 1, "epsilon": Fraction(1), "threshold": 1, "stored": 1}
    with pytest.raises(ParameterError, match="at most 4096 on average"):
        PureHistogram(universe=IntegerRange(0, 15230), **fields)
    few = PureHistogram(universe=IntegerRange(0, 200), **fields)
    assert len({few.release(keys_of(keys, 1).contents(), SeededNoise(1)).unit for keys in ([], [3], [3, 3])}) == 1


LIMITED: dict[str, Any] = {"k": 2, "candidates": 3, "epsilon": Fraction(1), "delta": Fraction(1, 10)}
ANSWERS: dict[str, Any] = {
    "limited": LimitedDomain(**LIMITED),
    "strict": StrictDomain(**LIMITED),
    "laplace": LimitedLaplace(**LIMITED),
    "optimal": OptimalThreshold(k=2, d_bar=4, epsilon=Fraction(1), delta=Fraction(1, 10)),
    "fixed": FixedThresholdLaplace(k=2, epsilon=Fraction(1), delta=Fraction(1, 10)),
}
HISTOGRAMS: list[Mapping[str, int]] = [{}, {"a": 1}, {"a": 0}, {"a": 2, "b": 2}, dict.fromkeys("abcdefgh", 9)]


@pytest.mark.parametrize("mechanism", ANSWERS.values(), ids=ANSWERS.keys())
def test_no_histogram_is_refused_by_its_counts(mechanism: Any) -> None:
    for seed, counts in enumerate(HISTOGRAMS):
        assert len(mechanism.answer(counts, SeededNoise(seed)).labels) <= len(counts)


def test_counts_beyond_all_bounds_are_cut_and_not_refused() -> None:
    """Once, 2^62 was refused and one less was answered."""
    largest = 2**62 - 1
    for count in (largest - 1, largest, largest + 1, 2**63 - 1):
        contents = Contents(pl.Series([1]), np.array([count]), 0, count, k=4)
        shown = PrivateMisraGries.calibrated(k=4, **ALLOWED).release(contents, NoNoise())
        assert shown.to_dict() == {1: min(count, largest)}
        reduced = reduce(contents, k=4)
        assert reduced.values.tolist() == [min(4 * count, largest)]
        assert add_reduced([reduced] * 3).values.tolist() == [largest]


HUGE = 2**50
"""A value; 2^10 of them are 2^60."""


def summer() -> tuple[Any, Callable[[int], Any]]:
    plan = HaarPlan.calibrated(horizon=4, rho=2.0)
    return Summer(plan=plan, low=0, high=HUGE), lambda rows: pl.Series([HUGE] * rows, dtype=pl.Int64)


def label_summer() -> tuple[Any, Callable[[int], Any]]:
    plan = HaarPlan.calibrated(horizon=4, rho=2.0)
    mechanism = LabelSums(plan=plan, low=0, high=HUGE, domain=Domain(["a"]))
    return mechanism, lambda rows: pl.DataFrame({"key": ["a"] * rows, "value": [HUGE] * rows}).to_struct()


def user_summer() -> tuple[Any, Callable[[int], Any]]:
    heads = (LabelSumsHead(name="both", domain=Domain(["a"]), low=0, high=HUGE),)
    mechanism = UserStatistics(cap=FixedCap(units=1), plan=HaarPlan, horizon=4, rho=Fraction(10) ** 28, heads=heads)

    def batch(rows: int) -> pl.DataFrame:
        both = pl.DataFrame({"key": ["a"] * rows, "value": [HUGE] * rows}).to_struct()
        return pl.DataFrame({"user": ["ann"] * rows, "both": both})

    return mechanism, batch


def test_a_total_near_its_bound_is_counted() -> None:
    """Once, a batch was refused when it would have brought the exact total to 2^61."""
    for make in (summer, label_summer):
        mechanism, batch = make()
        run = Run(mechanism, NoNoise())
        for _ in range(3):
            run.update(batch(2**10))
        value = run.release().value
        assert (value if isinstance(value, int) else value.series[0][0]) == 3 * 2**60
        run.update(batch(2**10))
        with pytest.raises(InputError, match=r"below 2\^62 steps"):
            run.release()


def test_rows_beyond_the_cap_refuse_nothing() -> None:
    """Once, a head's largest value times all rows of a user, those that never count included, had to be below 2^61."""
    mechanism, batch = user_summer()
    run = Run(mechanism, NoNoise())
    for _ in range(3):
        run.update(batch(2**10))
    assert run.release().value["both"].estimates.tolist() == [HUGE]
