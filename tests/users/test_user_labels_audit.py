"""Unknown labels of users, audited exactly: bad mass, prices, and all outcomes of tiny worlds; broken ones are caught.

Card: units and windows, U1. The tiny worlds have two releases, also with a raise of the cap in between, and an
adversary who chooses what happens in the second tick after seeing the first.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.users.replaying import lost, without

from pianissimo.labels import Domain
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.users import AdaptiveCap, Counters, FixedCap, Law, Sensitivity
from pianissimo.users.user_labels import Appearance, UserLabels
from pianissimo.users.user_table import PairUnits

LEVELS = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=3)


def labels_of(cap: Any, *, kind: type[UserLabels] = UserLabels, **given_: Any) -> UserLabels:
    rule = FixedCap(units=cap) if isinstance(cap, int) else cap
    fields: dict[str, Any] = {"plan": HaarPlan, "horizon": 6, "rho": Fraction(2), "delta": Fraction(1, 10**6)} | given_
    return kind(cap=rule, **fields)


# Mutants


class OneUnit(Appearance):
    """Mutant: the threshold for k = 1, whatever k is."""

    def threshold(self, law: Law, cap: int, per_label: int | None) -> int:
        return Appearance.threshold(self, law, cap, 1)


class WholeDelta(Appearance):
    """Mutant: delta is not divided by tau."""

    def threshold(self, law: Law, cap: int, per_label: int | None) -> int:
        return Appearance.threshold(replace(self, delta=min(Fraction(1, 2), self.delta * cap)), law, cap, per_label)


class FewReleases(Appearance):
    """Mutant: R is that of one start."""

    def threshold(self, law: Law, cap: int, per_label: int | None) -> int:
        return Appearance.threshold(replace(self, releases=max(1, self.releases // 3)), law, cap, per_label)


class NoMinimum(Appearance):
    """Mutant: h0 decides who is eligible, and is not in the threshold."""

    def threshold(self, law: Law, cap: int, per_label: int | None) -> int:
        return Appearance.threshold(replace(self, min_count=1), law, cap, per_label)


class FirstCap(Appearance):
    """Mutant: tau of the first start."""

    def threshold(self, law: Law, cap: int, per_label: int | None) -> int:
        return Appearance.threshold(self, law, LEVELS.caps[0], per_label)


class NoPrefix(Appearance):
    """Mutant: V of the plan alone, also behind a prefix."""

    def threshold(self, law: Law, cap: int, per_label: int | None) -> int:
        return Appearance.threshold(self, replace(law, prefix=None), cap, per_label)


def broken(rule: type[Appearance]) -> type[UserLabels]:
    class Broken(UserLabels):
        @property
        def appearance(self) -> Appearance | None:
            own = UserLabels.appearance.__get__(self)
            return rule(releases=own.releases, delta=own.delta, min_count=own.min_count)

    return Broken


# Bad mass


def bad_mass(mechanism: UserLabels, raises: dict[int, int]) -> float:
    """The chance that some label of hers is shown too early, by the moments of the noise, for the worst n at each tick.

    Worked out from the laws of the releases and the thresholds that are compared with, and not from the formula.
    """
    total, start, since = 0.0, 1, 0
    for tick in range(1, mechanism.horizon + 1):
        if raises.get(tick):
            start, since = start + raises[tick], tick
        cap = mechanism.cap.caps[start - 1]
        law = mechanism.counters[0].law(start, cap, since, tick)
        threshold = mechanism.threshold(tick, start=start, since=since)
        assert threshold is not None
        most = cap if mechanism.per_label is None else min(cap, mechanism.per_label)
        rounding = 0.5 if law.is_rounded else 0.0
        worst = 0.0
        for own in range(1, most + 1):
            gap = max(0.0, threshold - rounding - (mechanism.min_count - 1) - own)
            worst = max(worst, cap / own * math.exp(-(gap**2) / (2 * float(law.variance))))
        total += worst
    return total


CASES: list[dict[str, Any]] = [
    {"per_label": per_label, "min_count": min_count, "plan": plan}
    for per_label, min_count, plan in product((1, 2, None), (1, 4), (HaarPlan, TreePlan))
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("raises", [{}, {2: 1}, {3: 1, 5: 1}])
def test_the_bad_mass_is_at_most_delta(case: dict[str, Any], raises: dict[int, int]) -> None:
    mechanism = labels_of(LEVELS, **case)
    assert mechanism.delta is not None
    assert bad_mass(mechanism, raises) <= mechanism.delta


@pytest.mark.parametrize("rule", [OneUnit, WholeDelta, FewReleases, NoMinimum, FirstCap, NoPrefix])
def test_a_threshold_that_is_too_low_is_caught(rule: type[Appearance]) -> None:
    """The worst case of all must break the bound, be it of large noise or of so small that one count is much."""
    found = max(
        bad_mass(labels_of(LEVELS, kind=broken(rule), rho=rho, **case), raises) / 1e-6
        for rho in (Fraction(1, 100), Fraction(400))
        for case in CASES
        for raises in ({}, {3: 1, 5: 1})
    )
    assert found > 1.05


# Prices

KNOWN: dict[str, Any] = {"domain": Domain(["a", "b", "c"]), "delta": None}
EVENTS = st.lists(st.tuples(st.sampled_from("uvw"), st.sampled_from("abc")), max_size=9)


def frames(ticks: list[list[tuple[str, str]]]) -> list[pl.DataFrame]:
    kinds = {"user": pl.String, "label": pl.String}
    return [pl.DataFrame(rows, schema=kinds, orient="row") for rows in ticks]


@settings(max_examples=25)
@given(
    ticks=st.lists(EVENTS, min_size=6, max_size=6),
    per_label=st.sampled_from([1, 2, None]),
    raises=st.sampled_from([{}, {2: 1}, {2: 1, 4: 1}]),
)
def test_a_user_costs_at_most_the_budget(
    ticks: list[list[tuple[str, str]]], per_label: int | None, raises: dict[int, int]
) -> None:
    mechanism = labels_of(LEVELS, per_label=per_label, **KNOWN)
    assert lost(mechanism, frames(ticks), without(frames(ticks), "u"), raises) <= mechanism.amount


FULL = [[("u", label) for label in "abc" * 4], [("v", "a")], [("v", "b")], [], [], []]


class CheapUnits(UserLabels):
    """Mutant: S2 = m while k = m."""

    @property
    def counters(self) -> tuple[Counters, ...]:
        return (self.counters_of(Sensitivity(total=1, squared=1, most_per_series=1), series=3),)


class QuietPrefix(Counters):
    """Mutant: a prefix of half the variance."""

    def prefix(self, start: int, cap: int, since: int) -> Any:
        node: Any = Counters.prefix(self, start, cap, since)
        return None if node is None else replace(node, variance=node.variance / 2)


class WithQuietPrefix(UserLabels):
    @property
    def counters(self) -> tuple[Counters, ...]:
        own = UserLabels.counters.__get__(self)[0]
        return (QuietPrefix(**{name: getattr(own, name) for name in own.__dataclass_fields__}),)


def test_who_fills_the_cap_costs_all_of_it_and_broken_prices_are_caught() -> None:
    fixed = labels_of(3, per_label=1, **KNOWN)
    price = lost(fixed, frames(FULL), without(frames(FULL), "u"), {})
    assert 0.98 * fixed.amount <= price <= fixed.amount
    crowd = [[("u", "a")] * 12, *FULL[1:]]
    for kind, within in ((UserLabels, True), (CheapUnits, False)):
        events = labels_of(3, kind=kind, **KNOWN)
        assert (lost(events, frames(crowd), without(frames(crowd), "u"), {}) <= events.amount) is within
    for kind, within in ((UserLabels, True), (WithQuietPrefix, False)):
        # All of a start's share lies in its prefix.
        raised = labels_of(LEVELS, kind=kind, **KNOWN)
        weights = raised.counters[0].weights
        spent = lost(raised, frames(crowd), without(frames(crowd), "u"), {2: 1})
        assert (spent <= (weights[0] + weights[1]) * raised.amount) is within


class UnitsOfEvents(PairUnits):
    """Mutant 10: an event is one unit although it holds two labels, so that twice as many are accepted."""

    def add(self, users: Any, rows: Any, most: int) -> Any:
        return PairUnits.add(self, users, rows, 2 * most) // np.uint64(2)


class PricedAgain(UserLabels):
    """Mutant 10, the other way: units that are labels already are priced as if each held so many."""

    @property
    def counters(self) -> tuple[Counters, ...]:
        keys = self.max_keys_per_event or 1
        return (self.counters_of(Sensitivity(total=keys, squared=keys**2, most_per_series=self.per_label), series=3),)


def test_units_that_are_multiplied_by_the_labels_of_an_event_again_are_caught() -> None:
    """Who fills her cap with lists costs her units on each label squared, of the cap squared."""
    lists = pl.DataFrame({"user": ["u"] * 4, "label": [["a", "b"]] * 4})
    ticks = [lists, *(lists.clear() for _ in range(5))]

    def share(kind: type[UserLabels]) -> float:
        mechanism = labels_of(3, kind=kind, max_keys_per_event=2, **KNOWN)
        return float(lost(mechanism, ticks, without(ticks, "u"), {}) / mechanism.amount)

    # Two units on one label and one on another, of 3 units that might all be on one.
    assert 0.98 * 5 / 9 <= share(UserLabels) <= 5 / 9
    assert share(PricedAgain) < 0.98 * 5 / 9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pianissimo.users.accepted_units.PairUnits", UnitsOfEvents)
        assert share(UserLabels) > 1


def test_the_total_behind_the_rest_costs_the_square_of_the_cap() -> None:
    mechanism = labels_of(4, per_label=1, other=Fraction(1, 4))
    unit, total = (each.law(1, 4, 0, 1) for each in mechanism.counters)
    # Three quarters of rho over 4 units, and one quarter over 4 squared: the total has twelve times the variance.
    assert math.isclose(float(total.variance / unit.variance), 12, rel_tol=1e-2)

    class Cheap(UserLabels):
        """Mutant: the total costs the cap, as users of a label do."""

        @property
        def counters(self) -> tuple[Counters, ...]:
            labels, _ = UserLabels.counters.__get__(self)
            return labels, self.counters_of(Sensitivity(total=1, squared=1, most_per_series=1), share=self.other)

    unit, total = (
        each.law(1, 4, 0, 1) for each in labels_of(4, kind=Cheap, per_label=1, other=Fraction(1, 4)).counters
    )
    assert not math.isclose(float(total.variance / unit.variance), 12, rel_tol=1e-2)


# All outcomes of tiny worlds

Masses = NDArray[np.float64]
REACH = 30


def noise_of(law: Law) -> Masses:
    """The chances of -REACH .. REACH of one whole discrete Gaussian."""
    assert not law.is_rounded
    points = np.arange(-REACH, REACH + 1)
    masses = np.exp(-(points**2) / (2 * float(law.variance)))
    return np.asarray(masses / masses.sum())


def shown_at(noise: Masses, count: int, threshold: int, *, eligible: bool, before: bool) -> Masses:
    """The chances of what one label shows: hidden, then each estimate from -REACH on."""
    values = np.zeros(2 * REACH + 20)
    values[count : count + len(noise)] = noise
    estimates = np.arange(len(values)) - REACH
    seen = np.ones(len(values), dtype=bool) if before else (estimates >= threshold) & eligible
    return np.concatenate([[values[~seen].sum()], np.where(seen, values, 0)])


def hockey(left: Masses, right: Masses, epsilon: float) -> float:
    return float(np.maximum(left - math.exp(epsilon) * right, 0).sum())


class World:
    """Two releases of some labels, each with noise of its own; hers are there or not."""

    def __init__(self, mechanism: UserLabels, *, raised: bool) -> None:
        cap = mechanism.cap.caps
        places = [(1, cap[0], 0), (2, cap[1], 2) if raised else (1, cap[0], 0)]
        self.caps = [place[1] for place in places]
        laws = [mechanism.counters[0].law(*place, tick) for tick, place in enumerate(places, 1)]
        self.noises = [noise_of(law) for law in laws]
        found = [mechanism.threshold(tick, start=place[0], since=place[2]) for tick, place in enumerate(places, 1)]
        self.thresholds = [each or 0 for each in found]
        self.mechanism = mechanism

    def label(self, tick: int, count: int, *, before: bool) -> Masses:
        eligible = count >= self.mechanism.min_count
        noise, threshold = self.noises[tick - 1], self.thresholds[tick - 1]
        return shown_at(noise, count, threshold, eligible=eligible, before=before)

    def shift(self, hers: list[tuple[int, int]], epsilon: float) -> float:
        """What the comparison mechanism loses: all is shown, and her units shift the noise of both ticks."""
        left = right = np.ones(1)
        for own in hers:
            for tick, units in enumerate(own, 1):
                one = shown_at(self.noises[tick - 1], units, 0, eligible=True, before=True)
                other = shown_at(self.noises[tick - 1], 0, 0, eligible=True, before=True)
                keep = (one > 1e-9) | (other > 1e-9)
                left, right = np.outer(left, one[keep]).ravel(), np.outer(right, other[keep]).ravel()
                rare = (left > 1e-12) | (right > 1e-12)
                left, right = left[rare], right[rare]
        return max(hockey(left, right, epsilon), hockey(right, left, epsilon))

    def lost(self, hers: list[tuple[int, int]], others: tuple[int, ...], epsilon: float) -> tuple[float, float]:
        """With her against without, and the other way, if whoever sees the first tick chooses the second.

        Of each label hers are her units at the two ticks; at the second, others may bring one more, or as many as it
        takes for the label to be eligible without her.
        """
        first = [
            [self.label(1, base + own[0] * sign, before=False) for base, own in zip(others, hers, strict=True)]
            for sign in (1, 0)
        ]
        choices = [(0, max(0, self.mechanism.min_count - 1 - base), self.mechanism.min_count) for base in others]
        one, other = 0.0, 0.0
        for flags in product((False, True), repeat=len(hers)):
            chances = [self._where(world, flags) for world in first]
            best_one = best_other = np.zeros(len(chances[0]))
            for more in product(*(sorted(set(each)) for each in choices)):
                second = [
                    self._all(
                        [
                            self.label(2, base + extra + own[1] * sign, before=flag)
                            for base, extra, own, flag in zip(others, more, hers, flags, strict=True)
                        ]
                    )
                    for sign in (1, 0)
                ]
                best_one = np.maximum(best_one, self._gap(chances[0], chances[1], second[0], second[1], epsilon))
                best_other = np.maximum(best_other, self._gap(chances[1], chances[0], second[1], second[0], epsilon))
            one, other = one + float(best_one.sum()), other + float(best_other.sum())
        return one, other

    @staticmethod
    def _all(labels: list[Masses]) -> Masses:
        found = np.ones(1)
        for each in labels:
            found = np.outer(found, each).ravel()
        return found

    def _where(self, labels: list[Masses], flags: tuple[bool, ...]) -> Masses:
        return self._all([each[1:] if flag else each[:1] for each, flag in zip(labels, flags, strict=True)])

    @staticmethod
    def _gap(p: Masses, q: Masses, one: Masses, other: Masses, epsilon: float) -> Masses:
        # What is rarer than this adds less than the digits that are looked at.
        keep, seen = (one > 1e-9) | (other > 1e-9), (p > 1e-9) | (q > 1e-9)
        found = np.zeros(len(p))
        gaps = np.outer(p[seen], one[keep]) - math.exp(epsilon) * np.outer(q[seen], other[keep])
        found[seen] = np.maximum(gaps, 0).sum(axis=1)
        return found


def worlds(mechanism: UserLabels, *, raised: bool) -> Iterator[tuple[World, list[tuple[int, int]], tuple[int, ...]]]:
    """What she may hold of one or two labels, at which ticks, and what others hold of them at the first."""
    world = World(mechanism, raised=raised)
    first, last = world.caps
    most = [cap if mechanism.per_label is None else min(cap, mechanism.per_label) for cap in world.caps]
    own = [(now, later) for now in range(most[0] + 1) for later in range(now, most[1] + 1) if later]
    for hers in own:
        if hers[0] <= first and hers[1] <= last:
            for base in range(mechanism.min_count):
                yield world, [hers], (base,)
    pair = [(one, other) for one in own for other in own if one[0] + other[0] <= first and one[1] + other[1] <= last]
    for one, other in pair:
        yield world, [one, other], (mechanism.min_count - 1,) * 2


def worst_ratio(kind: type[UserLabels], *, raised: bool = False, epsilon: float = 12.0, **fields: Any) -> float:
    """What is really lost over what is claimed, at the worst of all tiny worlds."""
    cap = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=2) if raised else 4
    rho = Fraction(8) if raised else Fraction(4)
    given_: dict[str, Any] = {"plan": TreePlan, "horizon": 2, "rho": rho, "delta": Fraction(1, 10)} | fields
    mechanism = labels_of(cap, kind=kind, **given_)
    cases = list(worlds(mechanism, raised=raised))
    claimed = max(world.shift(hers, epsilon) for world, hers, _ in cases) + float(mechanism.delta or 0)
    return max(max(world.lost(hers, others, epsilon)) for world, hers, others in cases) / claimed


@pytest.mark.parametrize("raised", [False, True])
@pytest.mark.parametrize(("per_label", "min_count"), [(1, 1), (None, 1), (1, 3), (None, 3)])
def test_no_tiny_world_loses_more_than_is_claimed(
    per_label: int | None,
    min_count: int,
    raised: bool,
    tell_worst: Any,
) -> None:
    ratio = worst_ratio(UserLabels, per_label=per_label, min_count=min_count, raised=raised)
    counted = "users" if per_label == 1 else "events"
    tell_worst(f"unknown labels of users: {counted}, at least {min_count}{', over a raise' if raised else ''}", ratio)
    assert ratio <= 1
    # It is no empty bound: thresholds stand by moments, which real tails are some times below.
    assert ratio >= 0.02


@pytest.mark.parametrize(("rule", "min_count"), [(OneUnit, 1), (NoMinimum, 3)])
def test_tiny_worlds_catch_thresholds_that_are_too_low(rule: type[Appearance], min_count: int) -> None:
    assert worst_ratio(broken(rule), per_label=None, min_count=min_count) > 1
