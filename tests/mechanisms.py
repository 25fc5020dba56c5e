"""The one list of all mechanisms. A new mechanism adds one line and passes every shared check."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.cells import EvenCells
from pianissimo.counting import Counter, EventQuantiles, KnownHistogram, LabelSums, MetaHistogram, UnknownHistogram
from pianissimo.counting.distinct_values import DistinctValues
from pianissimo.labels import Domain
from pianissimo.mechanism import Mechanism
from pianissimo.monitors import TickCounts
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.queries.shared.user_sketch import UserSketch
from pianissimo.selection import KnownGauss, KnownGumb, SparseGumbel, UnkGauss, UnkGumb
from pianissimo.unit import EvenPeriods
from pianissimo.users import (
    AdaptiveCap,
    CountHead,
    EachPeriod,
    FixedCap,
    HistogramHead,
    LabelSumsHead,
    OctaveCap,
    QuantilesHead,
    UserDistinct,
    UserStatistics,
    UserSum,
)
from pianissimo.users.user_label_sums import UserLabelSums
from pianissimo.users.user_labels import UserLabels

HAAR = HaarPlan.calibrated(horizon=6, rho=2.0)
TREE = TreePlan.calibrated(horizon=6, rho=2.0)
DOMAIN = Domain(["a", "b", "c", "d"])
FEW = Fraction(1, 10)
QUARTER = Fraction(1, 4)


@dataclass(frozen=True)
class Case:
    """A mechanism, how a list of events becomes its batch, and whether all its labels are shown whatever the data.

    One that `selects` lets noisy counts decide which labels it publishes, or where one threshold for all stands. With
    one tape of noise an event may then rightly move labels that it does not hold, so replaying the tape says nothing
    about it. Its privacy is in the law of what it publishes; tests/selection works with that.
    """

    mechanism: Mechanism[Any, Any, Any]
    as_batch: Callable[[list[list[str]]], Any]
    always_shown: bool
    selects: bool = False


def as_events(events: list[list[str]]) -> list[list[str]]:
    """For counters: how many there are."""
    return events


def as_labels(events: list[list[str]]) -> pl.Series:
    """For histograms: lists of labels."""
    return pl.Series(events, dtype=pl.List(pl.String))


def as_lengths(events: list[list[str]]) -> pl.Series:
    """For quantiles: how many labels each event has."""
    return pl.Series([len(event) for event in events], dtype=pl.Int64)


def as_values(events: list[list[str]]) -> pl.Series:
    """For sums by label: lists of labels, and their number as a value."""
    return pl.DataFrame(
        {"key": as_labels(events), "value": pl.Series([len(event) for event in events], dtype=pl.Int64)}
    ).to_struct()


def as_users(events: list[list[str]]) -> pl.DataFrame:
    """For user-level mechanisms: the first label of an event is its user; its length is a value."""
    users = [event[0] if event else "nobody" for event in events]
    lengths = [len(event) for event in events]
    table = pl.DataFrame(
        {"user": users, "label": users, "length": lengths, "value": lengths},
        schema={"user": pl.String, "label": pl.String, "length": pl.Int64, "value": pl.Int64},
    )
    return table.with_columns(both=pl.struct(key="label", value="value"))


def as_keys_of_users(events: list[list[str]]) -> pl.DataFrame:
    """For sketches of users: the first label of an event is its user, and the last one its key."""
    pairs = [(event[0], event[-1]) for event in events if event]
    return pl.DataFrame(pairs, schema={"user": pl.String, "key": pl.String}, orient="row")


def as_sums(events: list[list[str]]) -> pl.DataFrame:
    """For sums and means by label of users."""
    return as_users(events).with_columns(label=pl.col("both"))


SMALL_CAP = AdaptiveCap(epsilon=Fraction(8), first=2, fourfold=0, levels=3)

CASES = {
    "counter over haar": Case(Counter(plan=HAAR), as_events, always_shown=True),
    "counter over tree": Case(Counter(plan=TREE), as_events, always_shown=True),
    "known histogram over haar": Case(
        KnownHistogram(plan=HAAR, domain=DOMAIN, max_keys_per_event=2), as_labels, always_shown=True
    ),
    "known histogram over tree": Case(KnownHistogram(plan=TREE, domain=DOMAIN), as_labels, always_shown=True),
    "unknown histogram over haar": Case(
        UnknownHistogram(plan=HAAR, delta=FEW, max_keys_per_event=2), as_labels, always_shown=False
    ),
    "unknown histogram over tree": Case(
        UnknownHistogram(plan=TREE, delta=FEW, remember=False), as_labels, always_shown=False
    ),
    "sums of known labels over haar": Case(
        LabelSums(plan=HAAR, low=-1, high=2, domain=DOMAIN, max_keys_per_event=2), as_values, always_shown=True
    ),
    "sums of unknown labels over haar and tree": Case(
        LabelSums(plan=HAAR, sum_plan=TREE, low=0, high=3, delta=FEW, max_keys_per_event=2, history=3),
        as_values,
        always_shown=False,
    ),
    "meta histogram of known gauss": Case(
        MetaHistogram(base=2, horizon=6, answer=KnownGauss(domain=DOMAIN, variance=QUARTER, max_keys_per_event=2)),
        as_labels,
        always_shown=True,
    ),
    "meta histogram of known gumb": Case(
        MetaHistogram(base=2, horizon=6, answer=KnownGumb(domain=DOMAIN, k=2, scale=QUARTER, variance=QUARTER)),
        as_labels,
        always_shown=False,
        selects=True,
    ),
    "meta histogram of unknown gauss": Case(
        MetaHistogram(
            base=3, horizon=6, answer=UnkGauss(candidates=3, variance=QUARTER, delta=FEW / 2, max_keys_per_event=2)
        ),
        as_labels,
        always_shown=False,
        selects=True,
    ),
    "meta histogram of unknown gumb": Case(
        MetaHistogram(
            base=3, horizon=6, answer=UnkGumb(k=2, candidates=3, scale=QUARTER, variance=QUARTER, delta=FEW / 3)
        ),
        as_labels,
        always_shown=False,
        selects=True,
    ),
    "sparse gumbel over tree": Case(
        SparseGumbel(
            domain=DOMAIN,
            k=2,
            switches=2,
            eta=1,
            plan=TREE,
            race_scale=QUARTER,
            threshold_scale=QUARTER,
            test_scale=QUARTER,
        ),
        as_labels,
        always_shown=False,
        selects=True,
    ),
}

REPLAYED = {name: case for name, case in CASES.items() if not (case.selects or isinstance(case.mechanism, LabelSums))}
"""Those of which one tape of noise tells whether neighbors differ by the event alone, which moves counts by one.

Sums are replayed in tests/counting/test_label_sums.py.
"""

USER_CASES = {
    "user count over haar": Case(
        UserStatistics(cap=SMALL_CAP, plan=HaarPlan, horizon=6, rho=Fraction(2), history=6),
        as_users,
        always_shown=True,
    ),
    "user histogram and quantiles over tree": Case(
        UserStatistics(
            heads=(
                CountHead(),
                HistogramHead(name="label", domain=DOMAIN),
                QuantilesHead(name="length", low=0.0, high=4.0, depth=2),
            ),
            cap=SMALL_CAP,
            plan=TreePlan,
            horizon=6,
            epsilon=Fraction(4),
            history=2,
        ),
        as_users,
        always_shown=True,
    ),
    "user sums and means by label over haar": Case(
        UserStatistics(
            heads=(
                LabelSumsHead(name="label", domain=DOMAIN, low=0, high=4, coarse=2),
                LabelSumsHead(name="both", domain=DOMAIN, low=0, high=3, means=True),
            ),
            cap=SMALL_CAP,
            plan=HaarPlan,
            horizon=6,
            rho=Fraction(2),
        ),
        as_sums,
        always_shown=True,
    ),
    "user sums of unknown labels over haar": Case(
        UserLabelSums(
            low=0, high=4, coarse=2, cap=SMALL_CAP, plan=HaarPlan, horizon=6, rho=Fraction(2), delta=FEW, history=3
        ),
        as_users,
        always_shown=False,
    ),
    "user sum over haar": Case(
        UserSum(cap=SMALL_CAP, plan=HaarPlan, horizon=6, rho=Fraction(2)),
        as_users,
        always_shown=True,
    ),
    "user labels over haar": Case(
        UserLabels(cap=SMALL_CAP, plan=HaarPlan, horizon=6, rho=Fraction(2), delta=FEW),
        as_users,
        always_shown=False,
    ),
    "users per label over tree": Case(
        UserLabels(
            cap=FixedCap(units=2), per_label=1, plan=TreePlan, horizon=6, rho=Fraction(2), delta=FEW, by_slot=True
        ),
        as_users,
        always_shown=False,
    ),
    "user sketch": Case(
        UserSketch.calibrated(FixedCap(units=2), horizon=6, rho=Fraction(2), bad=FEW, k=3),
        as_keys_of_users,
        always_shown=False,
    ),
    "user distinct over tree": Case(
        UserDistinct(cap=FixedCap(units=2), plan=TreePlan, horizon=6, epsilon=Fraction(4), history=6),
        as_users,
        always_shown=True,
    ),
    "each period of a user count over haar": Case(
        EachPeriod(
            inner=UserStatistics(cap=FixedCap(units=4), plan=HaarPlan, horizon=2, rho=Fraction(2), history=2),
            periods=EvenPeriods(2, starts=2),
            horizon=6,
            follow=OctaveCap(epsilon=Fraction(4), first=2, levels=3),
        ),
        as_users,
        always_shown=True,
    ),
    "unknown labels of users over haar": Case(
        UserLabels(cap=SMALL_CAP, plan=HaarPlan, horizon=6, rho=Fraction(2), delta=FEW, history=6, by_slot=True),
        as_users,
        always_shown=False,
    ),
    "users of unknown labels over tree": Case(
        UserLabels(cap=SMALL_CAP, plan=TreePlan, horizon=6, rho=Fraction(2), delta=FEW, per_label=1, min_count=2),
        as_users,
        always_shown=False,
    ),
}
"""Those whose unit is a user: the audits of tests/users replay them with a user left out."""

EVENT_CASES = {
    "distinct values over haar": Case(DistinctValues(plan=HAAR, max_keys_per_event=2), as_labels, always_shown=True),
    "quantiles of events over haar": Case(
        EventQuantiles(plan=HAAR, cells=EvenCells(low=0.0, high=4.0, depth=2)), as_lengths, always_shown=True
    ),
    "counts of a tick": Case(
        TickCounts(horizon=6, scale=2 * QUARTER, threshold=3, domain=DOMAIN, max_keys_per_event=2),
        as_labels,
        always_shown=False,
    ),
    "counts of a tick, unknown keys": Case(
        TickCounts(horizon=6, scale=2 * QUARTER, threshold=3, delta=FEW, max_keys_per_event=2),
        as_labels,
        always_shown=False,
    ),
}
"""Those of single events that are audited by enumerations of their own: tests/counting and tests/monitors."""
