"""Attacks on labels of users, and on their sums: users who give all that the cap lets them, each in labels of her own.

The series are those of the first start of the counters, over labels that are listed: whether a label is shown takes
nothing from its noise. How often labels that one user alone holds are shown is attacked by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.pairs import texts
from pianissimo.audit.plan_attacks import MEASURABLE, SIDE_SHARE, TWIN_DELTA, PlanAttack, ever_shown, lone_attempt
from pianissimo.audit.report import Attempt
from pianissimo.counting import LabelCounts
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked, Loss, Pure
from pianissimo.noise import Noise
from pianissimo.noise.plan import is_pure
from pianissimo.users.user_label_sums import UserLabelSums
from pianissimo.users.user_labels import UserLabels

_BEYOND = 1000
"""Values of an audit lie so many steps outside of the range, into which the mechanism moves them."""


@dataclass(slots=True)
class _OwnersState:
    inner: Any
    counts: NDArray[np.int64]
    """Steps that wait for the next release, of each label."""

    ticks: int = 0


@dataclass(frozen=True, kw_only=True)
class LabelOwners:
    """Labels of users as a histogram: some labels in a row belong to one user, and a unit moves a series by `span`."""

    mechanism: UserLabels | UserLabelSums
    labels: pl.Series
    each: int
    """How many units of a user lie on one label."""

    row: int
    """How many labels in a row have the same users: those of a run, and its bystander."""

    value: int = 0
    span: int = 1
    shown: Callable[[Any], NDArray[np.int64]] = field(default=lambda found: found.estimates)
    """Of a release, the series that is attacked."""

    def start(self, noise: Noise) -> _OwnersState:
        return _OwnersState(self.mechanism.start(noise), np.zeros(len(self.labels), dtype=np.int64))

    def update(self, state: _OwnersState, events: pl.Series) -> None:
        """One more step for each of these labels."""
        np.add.at(state.counts, events.list.explode().cast(pl.Int64).to_numpy(), 1)

    def merge(self, left: _OwnersState, right: _OwnersState) -> _OwnersState:
        left.counts += right.counts
        return left

    def release(self, state: _OwnersState, tick: int, noise: Noise) -> LabelCounts:
        """What waits comes from as few users as limits allow, at the first tick that is asked for."""
        units = state.counts // self.span
        places = np.repeat(np.arange(len(units)), units)
        within = np.arange(len(places)) - np.repeat(np.cumsum(units) - units, units)
        state.counts[:] = 0
        while state.ticks < tick - 1:
            state.ticks += 1
            self.mechanism.release(state.inner, state.ticks, noise)
        owner = zip((places // self.row).tolist(), (within // self.each).tolist(), strict=True)
        users = [f"{place} {number}" for place, number in owner]
        self.mechanism.update(state.inner, _events(users, self.labels.gather(places), self.value))
        state.ticks = tick
        found = self.mechanism.release(state.inner, tick, noise)
        return LabelCounts(found.labels, self.shown(found))


def _events(users: list[str], labels: pl.Series, value: int) -> pl.DataFrame:
    values = np.full(len(users), value, dtype=np.int64)
    return pl.DataFrame({"user": pl.Series(users, dtype=pl.String), "label": labels, "value": values})


def user_label_attempts(mechanism: UserLabels) -> list[Attempt]:
    """The counts, on one user with as many full labels as her cap has units for; and labels that she alone holds."""
    cap = mechanism.cap.caps[0]
    each = cap if mechanism.per_label is None else min(mechanism.per_label, cap)
    # The total behind the rest has a share and a noise of its own, and the law of any total.
    rho = None if mechanism.rho is None else mechanism.rho * (1 - mechanism.other)
    listed = replace(mechanism, domain=Domain(["a"]), delta=None, min_count=1, other=Fraction(0), rho=rho)
    owners = LabelOwners(mechanism=listed, labels=texts(0), each=each, row=cap // each + 1)
    attempts = [_series_attempt(owners, prefix="")]
    return attempts if mechanism.delta is None else [*attempts, _own_labels_attempt(mechanism, each)]


def user_label_sum_attempts(mechanism: UserLabelSums) -> list[Attempt]:
    """Either series, on one user with all units on one label at one end of the range; and a label of hers alone."""
    cap = mechanism.cap.caps[0]
    listed = replace(mechanism, domain=Domain(["a"]), delta=None, min_count=1)
    owners = LabelOwners(mechanism=listed, labels=texts(0), each=cap, row=2, span=mechanism.span)
    above = replace(owners, value=mechanism.high + _BEYOND, shown=lambda found: found.above_low)
    below = replace(owners, value=mechanism.low - _BEYOND, shown=lambda found: found.below_high)
    attempts = [
        _series_attempt(above, prefix="above the low end: "),
        _series_attempt(below, prefix="below the high end: "),
    ]
    return attempts if mechanism.delta is None else [*attempts, _own_labels_attempt(mechanism, cap)]


def _series_attempt(owners: LabelOwners, *, prefix: str) -> Attempt:
    counters, cap = owners.mechanism.counters[0], owners.mechanism.cap.caps[0]
    plan = counters.plan(1, cap, 0)
    assert plan is not None  # noqa: S101
    own = counters.weights[0] * counters.loss
    loss: Loss = Pure(own) if is_pure(plan) else Booked(rho=own)

    def histogram_of(labels: pl.Series) -> LabelOwners:
        mechanism: Any = owners.mechanism
        return replace(owners, mechanism=replace(mechanism, domain=Domain(labels)), labels=labels)

    (tight, *_) = PlanAttack(
        histogram_of=histogram_of,
        plan=plan,
        loss=loss,
        series=cap // owners.each,
        units=owners.each * owners.span,
        history=0,
        prefix=prefix,
        unit="user",
    ).attempts()
    return tight


def _own_labels_attempt(mechanism: UserLabels | UserLabelSums, each: int) -> Attempt:
    """How often a label that one user alone holds is ever shown; where delta is tiny, by a twin with a larger one."""
    assert mechanism.delta is not None  # noqa: S101
    twin: Any = mechanism if mechanism.delta >= MEASURABLE else replace(mechanism, delta=TWIN_DELTA)
    row, ticks = mechanism.cap.caps[0] // each, range(1, mechanism.horizon + 1)

    def count(runs: int, noise: Noise) -> int:
        labels = texts(runs * row)
        places = np.repeat(np.arange(len(labels)), each)
        batch = _events([str(place) for place in (places // row).tolist()], labels.gather(places), 0)
        return int(ever_shown(twin, batch, len(labels), ticks, noise).reshape(runs, row).any(axis=1).sum())

    name, is_twin = "labels that one user alone holds", twin is not mechanism
    return lone_attempt(name, float(twin.delta), count, len(ticks), is_twin=is_twin, share=SIDE_SHARE)
