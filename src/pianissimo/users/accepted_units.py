"""Units of users by label, and which of them the cap has let in: what all statistics by label of users begin with.

A unit of a user on a label is an event of hers that holds it, of which there are fewer than `per_label` before: her
first one, where users are counted. Of her units the first so many count, as many as the cap says; what it leaves out is
kept, up to the last cap, and let in when the cap is raised. All of this looks at her own rows in her own order, and at
the caps, which are public. What others do, how popular a label is, and how full a table is, make no difference: an
acceptance that looked at any of these would let one user move the counts of others. Card: units and windows, U1.

A batch is gathered into each user once, her rows that can be units, and the labels they hold. That is the same however
the rows of different users are mixed, so it can be stored before it is counted. Where that is by slot, users and
labels that the ticks before have given slots are in it by these, and a user who has no units left is not in it at all.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL, LabelIndex, any_too_long
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.stored_parts import Storable
from pianissimo.text_views import number_texts
from pianissimo.users.caps import AdaptiveCap, Cap, Course
from pianissimo.users.user_table import (
    NEW_USER,
    Column,
    OpenRows,
    PairUnits,
    Rows,
    UnitRows,
    Units,
    UserRows,
    UserUnits,
    joined_rows,
    rows_by_name,
)


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

    def open_rows(self, users: pl.Series) -> OpenRows:
        """The rows of users who have units left: others change nothing."""
        return self.users.open_rows(users, self._told)

    def open_names(self, names: Keys) -> OpenRows:
        """The same of rows that come with the names of their users."""
        return self.users.open_names(names, self._told)

    def add(self, rows: UserRows, columns: Callable[[Units], Sequence[Column]] = lambda _: ()) -> None:
        """Take the rows of users by the slots of their labels, user after user.

        `columns` gives what stands beside them, of how many units each row's user had before it.
        """
        before = self.pairs.add(self.users, rows, self._told)
        # What is beyond the last cap is never accepted, and what is no unit is beyond all.
        within = before < np.uint64(self._last)
        order = before[within]
        beside = [column[within] for column in columns(before)]
        labels = rows.labels[within]
        self._pending.append([order.astype(np.uint32) if self._last < 2**32 else order, labels, *beside])

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


def joined_labels(pieces: Sequence[codec.Plain]) -> tuple[pl.Series | None, OpenRows, list[Column]]:
    """The rows of several pieces one after the other: the labels they hold, whose each is, and the columns beside them.

    A piece is each user once, how many rows she has, the labels, the number of each row's label and further columns.
    Where labels are numbers of a domain there are none to tell, and the first column has these numbers.
    """
    labels = None
    held = [piece[2] for piece in pieces]
    if isinstance(held[0], pl.Series):
        starts = np.cumsum([0, *map(len, held)])
        labels, places = number_texts(pl.concat(held))
        held = np.split(places, starts[1:-1])
    rows = [[own[numbers], *beside] for own, (_, _, _, numbers, *beside) in zip(held, pieces, strict=True)]
    names, columns = joined_rows(pieces, rows)
    return labels, rows_by_name(names), columns


class LabelSlots(NamedTuple):
    """Labels that rows hold by their numbers, and their slots."""

    slots: NDArray[np.int64]
    """Of each label, -1 where it has none."""

    texts: pl.Series
    """Of each label; where all have slots, none."""


def joined_by_slot(pieces: Sequence[codec.Plain]) -> tuple[LabelSlots, OpenRows, NDArray[np.uint32]]:
    """The rows of several pieces one after the other: the labels, whose each row is, and the number of its label."""
    slots = np.unique(np.concatenate([piece[3] for piece in pieces]))
    texts, places = number_texts(pl.concat([piece[4] for piece in pieces]))
    starts = np.cumsum([0, *(len(piece[4]) for piece in pieces)])
    users, names, numbers = [], [], []
    for (known, new, counts, held, _, own), start, end in zip(pieces, starts[:-1], starts[1:], strict=True):
        ids = np.concatenate([np.searchsorted(slots, held), len(slots) + places[start:end].astype(np.int64)])
        all_users = np.concatenate([known, np.full(len(new), NEW_USER, dtype=np.uint32)])
        users.append(np.repeat(all_users, counts))
        names.append(np.repeat(new, counts[len(known) :], axis=0))
        numbers.append(ids[own].astype(np.uint32))
    none = pl.repeat(None, len(slots), dtype=pl.String, eager=True).alias(texts.name)
    labels = LabelSlots(np.append(slots.astype(np.int64), np.full(len(texts), -1)), pl.concat([none, texts]))
    return labels, OpenRows(None, np.concatenate(users), np.concatenate(names)), np.concatenate(numbers)


def checked_labels(labels: pl.Series) -> pl.Series:
    """The labels of all rows of a batch, whoever has units left: what is refused depends on no state."""
    if any_too_long(labels):
        raise InputError(f"labels must have at most {LONGEST_LABEL} bytes, got a longer one")
    return labels


def stored_by_name(rows: UnitRows, labels: pl.Series | None) -> list[codec.Plain]:
    """What is stored of rows: users, how many rows each has, labels, and the number of each row's label among these.

    Without `labels` the numbers of labels are their slots.
    """
    used = rows.labels if labels is None else labels.gather(rows.labels)
    return [rows.names, codec.narrow(rows.counts), used, codec.narrow(rows.numbers)]


def stored_by_slot(rows: UnitRows, labels: LabelSlots) -> list[codec.Plain]:
    """The same by the slots of users and labels, and before what has none what has one."""
    slots = labels.slots[rows.labels]
    known = slots >= 0
    place = np.where(known, np.cumsum(known), known.sum() + np.cumsum(~known)) - 1
    new = labels.texts.gather(rows.labels[~known]).alias("key")
    users = [rows.slots, rows.names, codec.narrow(rows.counts)]
    return [*users, slots[known].astype(np.uint32), new, codec.narrow(place.astype(np.uint32)[rows.numbers])]


def restored_rows(gathered: Sequence[codec.Plain], index: LabelIndex) -> UserRows:
    """The rows that were stored, new labels with the next slots."""
    if len(gathered) == _BY_NAME:
        names, counts, labels, numbers = gathered
        none = np.empty(0, dtype=np.uint32)
        known, new = (none, labels) if isinstance(labels, pl.Series) else (labels, NO_LABELS)
        gathered = [none, names, counts, known, new, numbers]
    slots, names, counts, known, new, numbers = gathered
    labels = np.concatenate([known, index.slots_or_new(new).astype(np.uint32)])
    return UserRows(slots, names, counts.astype(np.uint32), labels[numbers])


NO_LABELS = pl.Series("key", [], dtype=pl.String)
_BY_NAME = 4
"""So many parts have rows that are stored by name."""
