"""Alarms: at each tick the predicates that unusually many users match, each with the noisy number of them.

A predicate looks at one event. A user counts for an alarm, once, if at least one of her events of the tick matches it;
so each alarm is a test of `race_monitor`, whose weight a user moves by at most one.

**One monitor serves all alarms**, with one count of charges per user. With a monitor each, and k reports per user and
alarm, n alarms would use n k clocks; one monitor with these n k clocks lets a user be charged n k - n + 1 times, for
whichever alarms ring, where n monitors leave her allowance for the silent ones unused. What she can be charged too
often, because all alarms of a tick are tested together, is n - 1: `k + n - 1` clocks in all. Alarms differ by their
thresholds, which the theorem leaves free.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least, check_fraction, check_name, check_probability
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain, LabelIndex
from pianissimo.loss.losses import Guarantee, Neighbors, Unit
from pianissimo.mechanism import TRANSIENT
from pianissimo.monitors.above_threshold import UserCharges, add_holdings, all_holdings
from pianissimo.monitors.race_monitor import (
    RaceMonitor,
    margin_of_detection,
    race_noise,
)
from pianissimo.noise import Noise
from pianissimo.noise.keyed import sealed


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The reported keys in the order of their bytes, and the noisy weight of each.

    An estimate is as often too high as too low before the cut at the threshold; a key that is about the threshold is
    reported when its noise is high, so its estimate leans upward then.
    """

    labels: pl.Series
    estimates: NDArray[np.int64]

    def to_dict(self) -> dict[str, int]:
        """The keys and estimates as a dict."""
        return dict(zip(self.labels.to_list(), self.estimates.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(slots=True, repr=False)
class AlarmState:
    """Who matches what in the open tick, and how often each user was charged: secret."""

    charges: UserCharges
    index: LabelIndex = field(metadata=TRANSIENT)


@identified("alarms")
@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """The predicates that unusually many users match in a tick, released at every tick.

    A batch is a frame with the column `user` and a column of truth values for each alarm, one row an event.

    Guarantee: the loss `Race(charges=alarms_per_user + number of alarms - 1, scale)` per user with all her events, over
    the whole run.
    Error: the quantile of the noise around its median, before the cut at the threshold.
    Cost: 24 to 30 bytes for each user that was ever charged; one block of bits an alarm and tick.

    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> alarms = Alarms(horizon=100, thresholds=(("fever", 150),), alarms_per_user=1, scale=Fraction(11))
    >>> alarms.detectable("fever")
    174
    >>> run = Run(alarms, NoNoise())
    >>> run.update(pl.DataFrame({"user": range(200), "fever": [True] * 180 + [False] * 20}))
    >>> run.release().value.to_dict()
    {'fever': 180}
    """

    horizon: int
    """How many releases one run may make."""

    thresholds: tuple[tuple[str, int], ...]
    """The alarms by name, and the noisy number of users from which each rings."""

    alarms_per_user: int
    """How many alarms a user may be charged for in her life, before she counts no more: k."""

    scale: Fraction
    """Of the noise: b."""

    replacement: bool = False
    """Whether the promise is for a user's data replaced, or removed in part, and not only for a user removed."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon)
        if not self.thresholds or len({name for name, _ in self.thresholds}) != len(self.thresholds):
            raise ParameterError("alarms must have different names, got none or one twice")
        if any(name == "user" for name, _ in self.thresholds):
            raise ParameterError("an alarm must not be called 'user', as the column of users is, got 'user'")
        check_fraction(scale=self.scale)
        for name, threshold in self.thresholds:
            check_name(name=name)
            self._monitor(threshold)  # refuses what cannot be a monitor
        race_noise(self.scale)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            loss=self._monitor(self.thresholds[0][1]).loss(tests=self.horizon * len(self.thresholds)),
            unit=Unit.USER,
            neighbors=Neighbors.REPLACE if self.replacement else Neighbors.ADD_OR_REMOVE,
            horizon=self.horizon,
            source="Theorem R; docs/monitors.md",
        )

    def detectable(self, name: str, *, ticks: int | None = None, coverage: float = 0.95) -> int:
        """The least number of users for whom the alarm rings whenever they come, with this chance over these ticks."""
        check_probability(coverage=coverage)
        last = self.horizon if ticks is None else ticks
        check_at_least(1, ticks=last)
        return dict(self.thresholds)[name] + margin_of_detection(self.scale, last, 1 - Fraction(coverage))

    def error(self, tick: int, coverage: float) -> float:  # noqa: ARG002
        return float(race_noise(self.scale).half_width(coverage))

    def start(self, noise: Noise) -> AlarmState:
        index = LabelIndex(noise)
        index.slots_or_new(self._names)
        return AlarmState(charges=self._monitor(self.thresholds[0][1]).start(noise), index=index)

    def update(self, state: AlarmState, batch: pl.DataFrame) -> None:
        self.add(state, self.gather(state, batch))

    def gather(self, state: AlarmState, batch: pl.DataFrame) -> codec.Plain:
        """Which user, by her name, matches which alarms."""
        names = self._names.to_list()
        missing = [name for name in ("user", *names) if name not in batch.columns]
        if missing:
            raise InputError(f"a batch must have a column for the users and each alarm, got none called '{missing[0]}'")
        for name in names:
            if batch[name].dtype != pl.Boolean or batch[name].null_count():
                raise InputError(f"column '{name}' must be truth values without nulls, got {batch[name].dtype}")
        rows, slots = np.nonzero(batch.select(names).to_numpy())
        users = state.charges.names(batch["user"])
        return all_holdings(users[rows], slots)

    def add(self, state: AlarmState, gathered: codec.Plain) -> None:
        add_holdings(state.charges, gathered)

    def release(self, state: AlarmState, tick: int, noise: Noise) -> Found:
        count = len(self.thresholds)
        weights = state.charges.weights(count)
        by_name = dict(self.thresholds)
        limits = np.array([by_name[name] for name in self._names.to_list()], dtype=np.int64)
        bits = sealed(noise, tick).at("test", tick).bits(state.index.keys(0, count))
        tops = self._monitor(0).decide(weights, bits, limits)
        reported = np.zeros(count, dtype=np.bool_)
        reported[tops.places] = True
        state.charges.close(reported)
        return Found(self._names.gather(tops.places), tops.values - race_noise(self.scale).median)

    @property
    def _names(self) -> pl.Series:
        """In the order of their bytes."""
        return Domain([name for name, _ in self.thresholds]).labels

    def _monitor(self, threshold: int) -> RaceMonitor:
        return RaceMonitor(
            k=self.alarms_per_user,
            b=self.scale,
            threshold=threshold,
            together=len(self.thresholds),
            replacement=self.replacement,
        )
