"""Alarms: at each tick the predicates that unusually many users match, each with the noisy number of them.

A predicate looks at one event. A user counts for an alarm, once, if at least one of her events of the tick matches it;
so each alarm is a test of `race_monitor`, whose weight a user moves by at most one.

**One monitor serves all alarms**, with one count of charges per user. With a monitor each, and k reports per user and
alarm, n alarms would use n k clocks; one monitor with these n k clocks lets a user be charged n k - n + 1 times, for
whichever alarms ring, where n monitors leave her allowance for the silent ones unused. What she can be charged too
often, because all alarms of a tick are tested together, is n - 1: `k + n - 1` clocks in all. Alarms differ by their
thresholds, which the theorem leaves free.
"""

import math
from collections.abc import Sequence
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
from pianissimo.loss.losses import Guarantee, Neighbors, Race, Unit
from pianissimo.monitors.above_threshold import UserCharges, add_holdings, all_holdings, joined_holdings
from pianissimo.monitors.race_monitor import RaceMonitor, margin_of_detection, race_noise
from pianissimo.noise import Noise
from pianissimo.noise.keyed import sealed
from pianissimo.stored_parts import TRANSIENT


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The reported keys in the order of their bytes, and the noisy weight of each.

    An estimate is as often too high as too low before the cut at the threshold; a key that is about the threshold is
    reported when its noise is high, so its estimate leans upward then.
    """

    labels: pl.Series
    estimates: NDArray[np.int64]
    exhausted: tuple[int, int] | None = None
    """How many users had no charge left when they were counted: if the same ones came to all reports, and at most."""

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


EXHAUSTED_FAILURE = Fraction(1, 1000)
"""With what chance more users are exhausted than is told, over a whole run, or a period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """What alarms and trends have in common: a noise, charges of users, and when these begin anew."""

    horizon: int
    """How many releases one run may make."""

    alarms_per_user: int
    """How many reports a user may be charged for, in her life or in a period, before she counts no more: k."""

    scale: Fraction
    """Of the noise: b."""

    replacement: bool = False
    """Whether the promise is for a user's data replaced, or removed in part, and not only for a user removed."""

    period: int | None = None
    """After every so many ticks charges begin anew: the promise is for a user's events of one period."""

    tells_exhausted: bool = False
    """Whether a release tells how many users are exhausted at most."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon, **({} if self.period is None else {"period": self.period}))
        check_fraction(scale=self.scale)
        race_noise(self.scale)

    def race(self, threshold: int, together: int) -> RaceMonitor:
        """The monitor that tests are made with."""
        return RaceMonitor(self.alarms_per_user, self.scale, threshold, together, self.replacement)

    @property
    def ticks_of_a_user(self) -> int:
        """In how many ticks what is hidden may take part."""
        return self.horizon if self.period is None else min(self.horizon, self.period)

    def promise(self, loss: Race) -> Guarantee:
        """The promise of a whole run."""
        return Guarantee(
            loss=loss,
            unit=Unit.USER if self.period is None else Unit.USER_PERIOD,
            neighbors=Neighbors.REPLACE if self.replacement else Neighbors.ADD_OR_REMOVE,
            horizon=self.horizon,
            source="Theorem R; docs/monitors.md",
        )

    def error(self, tick: int, coverage: float) -> float:  # noqa: ARG002
        """The half-width around the median of the noise, before the cut at the threshold."""
        return float(race_noise(self.scale).half_width(coverage))

    def margin(self, ticks: int | None, coverage: float, tests: int = 1) -> int:
        """How far above its threshold a weight is found, with this chance over these ticks of so many tests."""
        check_probability(coverage=coverage)
        last = self.horizon if ticks is None else ticks
        check_at_least(1, ticks=last)
        return margin_of_detection(self.scale, last * tests, 1 - Fraction(coverage))

    def close(
        self, charges: UserCharges, tick: int, reported: NDArray[np.bool_], sizes: NDArray[np.int64]
    ) -> tuple[int, int] | None:
        """Charge the holders of what is reported; how many users were exhausted before: see docs/privacy.md."""
        told = None
        if self.tells_exhausted:
            reports = max(1, charges.sizes.count)
            margin = margin_of_detection(self.scale, math.comb(reports + 1, 2), EXHAUSTED_FAILURE)
            middle = race_noise(self.scale).median
            told = charges.sizes.most_exhausted(-middle), charges.sizes.most_exhausted(margin)
            charges.sizes.add(sizes.tolist())
        charges.close(reported)
        if self.period is not None and tick % self.period == 0:
            charges.renew()
        return told


@identified("alarms")
@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms(Watcher):
    """The predicates that unusually many users match in a tick, released at every tick.

    A batch is a frame with the column `user` and a column of truth values for each alarm, one row an event.

    Guarantee: the loss `Race(charges=alarms_per_user + number of alarms - 1, scale)` per user with all her events, or
    those of one period, over the whole run.
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

    thresholds: tuple[tuple[str, int], ...]
    """The alarms by name, and the noisy number of users from which each rings."""

    def __post_init__(self) -> None:
        Watcher.__post_init__(self)
        if not self.thresholds or len({name for name, _ in self.thresholds}) != len(self.thresholds):
            raise ParameterError("alarms must have different names, got none or one twice")
        if any(name == "user" for name, _ in self.thresholds):
            raise ParameterError("an alarm must not be called 'user', as the column of users is, got 'user'")
        for name, threshold in self.thresholds:
            check_name(name=name)
            self._monitor(threshold)  # refuses what cannot be a monitor

    @property
    def guarantee(self) -> Guarantee:
        tests = self.ticks_of_a_user * len(self.thresholds)
        return self.promise(self._monitor(self.thresholds[0][1]).loss(tests=tests))

    def detectable(self, name: str, *, ticks: int | None = None, coverage: float = 0.95) -> int:
        """The least number of users for whom the alarm rings whenever they come, with this chance over these ticks."""
        return dict(self.thresholds)[name] + self.margin(ticks, coverage)

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

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        return all_holdings(*joined_holdings(pieces))

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
        exhausted = self.close(state.charges, tick, reported, tops.values)
        return Found(self._names.gather(tops.places), tops.values - race_noise(self.scale).median, exhausted)

    @property
    def _names(self) -> pl.Series:
        """In the order of their bytes."""
        return Domain([name for name, _ in self.thresholds]).labels

    def _monitor(self, threshold: int) -> RaceMonitor:
        return self.race(threshold, len(self.thresholds))
