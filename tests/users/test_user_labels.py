"""Unknown labels of users: the vectors of the card, what is accepted, what is shown. Card: units and windows, U1."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from tests.users.replaying import raised_at

from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan
from pianissimo.noise.laws import gaussian_node
from pianissimo.testing import NoNoise
from pianissimo.users import AdaptiveCap, FixedCap
from pianissimo.users.counters import Law
from pianissimo.users.user_labels import Appearance, UserLabels

DELTA = Fraction(1, 10**6)
LEVELS = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=3)
Row = tuple[str, str]


def labels_of(cap: int | Any = 16, **given_: Any) -> UserLabels:
    rule = FixedCap(units=cap) if isinstance(cap, int) else cap
    fields: dict[str, Any] = {"plan": HaarPlan, "horizon": 8, "rho": Fraction(10**6), "delta": DELTA} | given_
    return UserLabels(cap=rule, **fields)


def frame(rows: Sequence[tuple[Any, Any]]) -> pl.DataFrame:
    users, labels = [row[0] for row in rows], [row[1] for row in rows]
    kind = pl.List(pl.String) if any(isinstance(each, list) for each in labels) else pl.String
    return pl.DataFrame({"user": pl.Series(users, dtype=pl.String), "label": pl.Series(labels, dtype=kind)})


def counts_of(mechanism: UserLabels, ticks: Sequence[Sequence[tuple[Any, Any]]], raises: Any = None) -> Any:
    """Of a run without noise: of each tick the exact counts of all labels, shown or not."""
    with raised_at(raises or {}):
        run: Any = Run(mechanism, NoNoise())
        found = []
        for rows in ticks:
            run.update(frame(rows))
            run.release()
            state = run._state
            pairs = zip(state.index.labels.to_list(), state.counts.tolist(), strict=True)
            found.append({label: count for label, count in pairs if count})
    return found


@pytest.mark.parametrize(
    ("per_label", "spread", "low", "high"), [(1, 151.774, 154, 163), (4, 148.774, 154, 163), (16, 144.282, 161, 170)]
)
def test_thresholds_meet_the_vectors(per_label: int, spread: float, low: int, high: int) -> None:
    rule = Appearance(releases=100, delta=Fraction(5, 10**10))
    assert math.isclose(rule.spread(Fraction(400), 16, per_label), spread, abs_tol=5e-4)
    for min_count, wanted in ((1, low), (10, high)):
        rule = Appearance(releases=100, delta=Fraction(5, 10**10), min_count=min_count)
        whole = Law(None, 0, gaussian_node(Fraction(400)))
        # The vectors are of noise that is rounded.
        assert rule.threshold(whole, 16, per_label) in (wanted, wanted - 1)
        assert math.ceil(min_count - 1 + per_label + 0.5 + rule.spread(Fraction(400), 16, per_label)) == wanted


def test_the_first_units_of_each_user_count_in_her_own_order() -> None:
    events = [("ann", "x"), ("bob", "y"), ("ann", "x"), ("ann", "y"), ("bob", "x"), ("ann", "z")]
    assert counts_of(labels_of(2), [events]) == [{"x": 3, "y": 1}]
    assert counts_of(labels_of(2, per_label=1), [events]) == [{"x": 2, "y": 2}]
    assert counts_of(labels_of(4, per_label=2), [[*events, ("ann", "x")]]) == [{"x": 3, "y": 2, "z": 1}]
