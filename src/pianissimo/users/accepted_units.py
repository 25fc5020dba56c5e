"""Units of users by label, and which of them the cap has let in: what all statistics by label of users begin with.

A unit of a user on a label is an event of hers that holds it, of which there are fewer than `per_label` before: her
first one, where users are counted. Of her units the first so many count, as many as the cap says; what it leaves out is
kept, up to the last cap, and let in when the cap is raised. All of this looks at her own rows in her own order, and at
the caps, which are public. What others do, how popular a label is, and how full a table is, make no difference: an
acceptance that looked at any of these would let one user move the counts of others. Card: units and windows, U1.

A batch is gathered into each user once, her rows that can be units, and the labels they hold. That is the same however
the rows of different users are mixed, so it can be stored before it is counted.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL
from pianissimo.mechanism import Storable
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.text_views import number_texts
from pianissimo.users.caps import AdaptiveCap, Cap, Course
from pianissimo.users.user_table import Column, PairUnits, Rows, Units, UserRows, UserUnits, joined_rows


class AcceptedRows(NamedTuple):
    """What a tick let in: of each unit the slot of its label, and the columns beside it."""

    columns: list[Column]
    """No columns at all where there is nothing."""

    in_tick: NDArray[np.bool_]
    """Whether each is of the tick itself and within the cap that held when it began, so that a window counts it."""


class AcceptedUnits:
    """The units of all users under a cap, some of them waiting for it to be raised: secret."""

    def __init__(self, noise: Noise, cap: Cap, horizon: int, per_label: int | None) -> None:
        self.users = UserUnits(noise, cap.caps[0])
        self.course = Course(cap, horizon)
        self.pairs = PairUnits(noise, per_label, horizon)
        """Part of the state by itself, since it is stored tick by tick."""
        self._last = cap.caps[-1]
        self._told = self._last if isinstance(cap, AdaptiveCap) else max(self._last, cap.told or 0)
        self._pending, self._left_out = Rows(), Rows()

    def add(self, rows: UserRows, columns: Callable[[Units], Sequence[Column]] = lambda _: ()) -> None:
        """Take the rows of users by the slots of their labels, user after user.

        `columns` gives what stands beside them, of how many units each row's user had before it.
        """
        before = self.pairs.add(self.users, rows, self._told)
        # What is beyond the last cap is never accepted, and what is no unit is beyond all.
        within = before < np.uint64(self._last)
        order = before[within]
        beside = [column[within] for column in columns(before)]
        self._pending.append([order.astype(np.uint32) if self._last < 2**32 else order, rows[2][within], *beside])

    def close(self, tick: int, noise: Noise) -> AcceptedRows:
        """Test the cap at the end of a tick, and let in what is within it now."""
        begun = self.course.cap
        self.pairs.close()
        raised = self.course.close(self.users, tick, noise)
        cap, since = self.course.cap, begun if tick > 1 else self.course.cap
        found, in_tick = [], []
        for rows in (self._left_out, self._pending) if raised else (self._pending,):
            columns = rows.take(lambda before: before < cap)
            if columns:
                found.append(columns[1:])
                in_tick.append((columns[0] < since) & (rows is self._pending))
        rest = self._pending.take_all()
        if rest:
            self._left_out.append(rest)
        if self.course.ends_period(tick):
            self.users.clear()
            self.pairs.clear()
        whole = [np.concatenate(pieces) for pieces in zip(*found, strict=True)]
        return AcceptedRows(whole, np.concatenate(in_tick) if in_tick else np.zeros(0, dtype=np.bool_))

    def to_plain(self) -> codec.Plain:
        return [part.to_plain() for part in self._parts]

    def take_plain(self, content: codec.Plain) -> None:
        for part, stored in zip(self._parts, content, strict=True):
            part.take_plain(stored)

    @property
    def _parts(self) -> tuple[Storable, ...]:
        return self.users, self.course, self._pending, self._left_out

    def __repr__(self) -> str:
        return "AcceptedUnits(hidden)"


def pairs_of(events: pl.DataFrame, most: int | None) -> pl.DataFrame:
    """One row for each event and label of it, in their order; an event holds a text, or a list of which `most` count.

    Each label of an event counts once. How many count is a question of what is asked, and not of what it costs: every
    one of them is a unit of its user.
    """
    labels = events["label"]
    if isinstance(labels.dtype, pl.List):
        distinct = pl.col("label").list.unique(maintain_order=True)
        cut = distinct if most is None else distinct.list.head(most)
        events = events.with_columns(cut).filter(pl.col("label").list.len() > 0).explode("label")
        labels = events["label"]
    if labels.dtype in (pl.Categorical, pl.Enum):
        events = events.with_columns(pl.col("label").cast(pl.String))
    elif labels.dtype != pl.String:
        raise InputError(f"labels must be texts or lists of texts, got {labels.dtype}")
    if labels.null_count():
        raise InputError("labels must not be null, got nulls; drop these rows")
    return events


def joined_labels(pieces: Sequence[codec.Plain]) -> tuple[pl.Series | None, Keys, list[Column]]:
    """The rows of several pieces one after the other: the labels they hold, whose each is, and the columns beside them.

    A piece is each user once, how many rows she has, the labels, the number of each row's label and further columns.
    Where labels are numbers of a domain there are none to tell, and the first column has these numbers.
    """
    labels = None
    held = [piece[2] for piece in pieces]
    if isinstance(held[0], pl.Series):
        starts = np.cumsum([0, *map(len, held)])
        labels, places = numbered(pl.concat(held))
        held = np.split(places, starts[1:-1])
    rows = [[own[numbers], *beside] for own, (_, _, _, numbers, *beside) in zip(held, pieces, strict=True)]
    return labels, *joined_rows(pieces, rows)


def numbered(labels: pl.Series) -> tuple[pl.Series, NDArray[np.uint32]]:
    """The different labels of some rows, as they appear, and the number of each row's label among them."""
    try:
        return number_texts(labels)
    except ValueError:
        raise InputError(f"labels must have at most {LONGEST_LABEL} bytes, got a longer one") from None
