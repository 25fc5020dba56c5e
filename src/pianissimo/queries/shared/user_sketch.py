"""The heavy keys of a stream in bounded memory, where a user is hidden with all her events.

A tree of sketches (`SketchTree`) hides m elements at any ticks: its noise, its threshold and the logarithm in it all
hold m. So it is fed with each user's first m keys and with no others, and hides a user. Which of her keys these are
depends on her own events, in their own order, and on nobody else's; what she gave so far is kept under her keyed name
for as long as the promise lasts. Lebeda and Tetek's card 8, 'm elements at any steps'; docs/privacy.md, 'Heavy keys of
users'.

A cap that follows the stream is not offered: a tree whose m was raised would have to be fed anew, and what a sketch has
forgotten is gone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
import polars as pl

from pianissimo import codec
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import flat_keys
from pianissimo.loss.losses import Booked, Guarantee, Unit
from pianissimo.mechanism import Gathering
from pianissimo.noise import Noise
from pianissimo.sketches import SketchTree
from pianissimo.sketches.contents import plain_keys, series_of
from pianissimo.sketches.released_keys import HeavyKeys
from pianissimo.sketches.sketch_tree import SketchTreeState
from pianissimo.sketches.tree_nodes import checked_keys
from pianissimo.users import CutOff, FixedCap, PeriodCap
from pianissimo.users.heads import batch_column
from pianissimo.users.user_table import UserUnits, by_user, joined_rows

_SLACK = Fraction(10**9 + 1, 10**9)
"""Over what floating-point numbers may round."""

_CERTAIN = 1 - Fraction(1, 2**40)


@dataclass(frozen=True, slots=True, eq=False)
class UserHeavyKeys:
    """The heavy keys of accepted events at a tick, and what is public of the others: all may be published."""

    shown: HeavyKeys
    cut: CutOff
    tree: SketchTree
    tick: int

    def to_dict(self) -> dict[int | str | bytes, float]:
        """The keys and their noisy values, in counts."""
        return self.shown.to_dict()

    def to_frame(self, coverage: float) -> pl.DataFrame:
        """One row a key, with bars that cover what the cap let through."""
        table: pl.DataFrame = self.shown.to_frame(self.tree.reach(self.tick, coverage))
        return table


@dataclass(slots=True, repr=False)
class UserSketchState(SketchTreeState):
    """What each user gave, and the sketches of what was accepted: secret."""

    users: UserUnits


@identified("user-sketch")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserSketch(Gathering):
    """The heavy keys of each user's first keys so far, released at every tick.

    A batch is a table with the columns `user` and `key`: keys, or lists of which each counts by itself.

    Guarantee: that of the tree for its m = `max_keys_per_event` elements, all those of a user; with `PeriodCap`, all
    those of a user within a period.
    Error: as that of the tree, about the accepted keys.
    Cost: the tree's, and about 36 bytes a user.

    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> made = UserSketch.calibrated(FixedCap(units=2), horizon=4, rho=Fraction(8), bad=Fraction(1, 1000), k=8)
    >>> run = Run(made, NoNoise())
    >>> run.update(pl.DataFrame({"user": [n // 9 for n in range(900)], "key": ["home"] * 900}))
    >>> run.release().value.to_dict()  # of 200, as a sketch of 8 counters keeps 8 / 9 at least
    {'home': 177.7...}
    """

    tree: SketchTree
    cap: FixedCap
    """How many keys of one user count, in the whole run or in each period."""

    max_keys_per_event: int = 1
    """How many distinct keys of one event count."""

    def __post_init__(self) -> None:
        if self.tree.max_keys_per_event != self.cap.units:
            raise ParameterError(
                f"the tree must hide as many keys as a user may give, {self.cap.units}, got "
                f"{self.tree.max_keys_per_event}; calibrate it for them"
            )

    @classmethod
    def calibrated(cls, cap: FixedCap, *, max_keys_per_event: int = 1, **fields: Any) -> Self:
        """The one with the least noise within this ledger: `rho` and `bad` of a whole user."""
        tree = SketchTree.calibrated(max_keys_per_event=cap.units, **fields)
        return cls(tree=tree, cap=cap, max_keys_per_event=max_keys_per_event)

    @property
    def horizon(self) -> int:
        """How many releases one run may make."""
        return self.tree.horizon

    @property
    def guarantee(self) -> Guarantee:
        own, unit, within = self.tree.guarantee, Unit.USER, ""
        if isinstance(self.cap, PeriodCap):
            unit, within = Unit.USER_PERIOD, f" within one period of {self.cap.ticks} ticks"
        return replace(own, unit=unit, source=f"{own.source}; fed with the first keys of each user{within}")

    def lost_in(self, periods: int) -> Booked:
        """What a user loses who comes in so many periods of running totals: as many times m elements at any ticks.

        The threshold was made for m: what of the noise's way to it is left decides how soon her keys appear.
        """
        tree, keys = self.tree, periods * self.cap.units
        more = replace(tree, max_keys_per_event=keys)
        worst = 0.0
        for nodes in range(1, tree.levels + 1):
            # The first tick with so many nodes has the threshold of all of them.
            left = max(0, tree.threshold((1 << nodes) - 1) - keys * tree.k)
            worst = max(worst, math.exp(-(left**2) / (2 * nodes * float(tree.variance))))
        bad = Fraction(worst * tree.horizon * (tree.horizon + keys * tree.levels) * tree.k) * _SLACK
        return replace(more.guarantee.loss.as_booked(), bad=min(bad, _CERTAIN))

    def error(self, tick: int, coverage: float) -> float:
        return self.tree.error(tick, coverage)

    def start(self, noise: Noise) -> UserSketchState:
        begun = self.tree.start(noise)
        return UserSketchState(begun.tick, begun.sketches, begun.ended, UserUnits(noise, self.cap.units))

    def gather(self, state: UserSketchState, batch: pl.DataFrame) -> codec.Plain:
        """Users by their names, how many keys each has, and these, user after user, each in her own order."""
        users, events = batch_column(batch, "user"), batch_column(batch, "key")
        if isinstance(events.dtype, pl.List):
            sizes = events.list.unique(maintain_order=True).list.head(self.max_keys_per_event).list.len()
            users = users.gather(np.repeat(np.arange(len(users)), sizes.to_numpy()))
        keys = checked_keys(flat_keys(events, self.max_keys_per_event), self.tree.keys)
        if len(keys) != len(users):
            raise InputError("users and keys must be of the same rows, got others")
        names, counts, _, order = by_user(state.users.names(users))
        return [names, codec.narrow(counts), plain_keys(keys.gather(order))]

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        rows, _ = joined_rows(pieces, [[] for _ in pieces])
        keys = pl.concat(series_of(piece[2]) for piece in pieces)
        names, counts, _, order = by_user(rows)
        return [names, codec.narrow(counts), plain_keys(keys.gather(order))]

    def add(self, state: UserSketchState, gathered: codec.Plain) -> None:
        names, counts, keys = gathered
        before = state.users.add_and_tell_before(np.repeat(names, counts, axis=0))
        accepted = series_of(keys).filter(pl.Series(before < self.cap.units, dtype=pl.Boolean))
        self.tree.add(state, self.tree.gather(state, accepted))

    def release(self, state: UserSketchState, tick: int, noise: Noise) -> UserHeavyKeys:
        shown = self.tree.release(state, tick, noise)
        if isinstance(self.cap, PeriodCap) and tick % self.cap.ticks == 0:
            state.users.clear()
        return UserHeavyKeys(shown, CutOff(self.cap.units, None), self.tree, tick)
