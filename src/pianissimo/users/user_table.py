"""What each user has given so far, by keyed name, and rows whose acceptance is not decided yet.

A user's id is a whole number or a text. It is never stored: the table holds a 128-bit name that only the holder of the
secret can make. The counters are for life. If they are lost, a returning user gets a fresh allowance and the promise
is void, so they are part of every snapshot. No other file of this folder knows the compiled core.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.errors import InputError
from pianissimo.labels import by_shard
from pianissimo.names import as_numbers, checked_ids, names_of
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys, secret_key

Column = NDArray[Any]
Units = NDArray[np.uint64]
Slots = NDArray[np.uint32]
Places = NDArray[np.int64]

NO_UNIT = 2**64 - 1
"""What is told of a row that is no unit: above every cap."""

NEW_USER, SPENT_USER = 2**32 - 1, 2**32 - 2
"""What stands in the place of a slot: of a user who has none, and of one who has no units left."""

LARGEST_LIMIT = 2**32 - 1
"""So many units of one user and one label can be told apart."""


class UserRows(NamedTuple):
    """Rows of users, brought together user after user or one by one, but a user's in her own order."""

    slots: Slots
    """Users by their slots."""

    names: Keys
    """Further users by their names, those who have no slot among them."""

    counts: NDArray[np.uint32]
    """How many rows each has, those with slots first."""

    labels: Slots
    """Of each row."""


class OpenRows(NamedTuple):
    """The rows of a batch whose users have units left, as they came."""

    places: NDArray[np.int64] | None
    """Which; None for all."""

    slots: Slots
    """Those of their users, `NEW_USER` where one has none."""

    names: Keys
    """Of those who have none."""

    def of(self, column: pl.Series) -> pl.Series:
        """A column of the batch in these rows."""
        return column if self.places is None else column.gather(self.places)

    def one_by_one(self, labels: Slots) -> UserRows:
        """They with the slots of their labels, those of users without a slot last."""
        is_new = self.slots == NEW_USER
        ordered = np.concatenate([labels[~is_new], labels[is_new]])
        return UserRows(self.slots[~is_new], self.names, np.ones(len(labels), dtype=np.uint32), ordered)


class UserUnits:
    """The units of every user under one cap."""

    def __init__(self, noise: Noise, cap: int) -> None:
        key = secret_key(noise.naming("users"))
        self.table = _core.UserTable(key, cap)
        self._namer = _core.Namer(key)
        self._cap = cap

    def __len__(self) -> int:
        return len(self.table)

    @property
    def cap(self) -> int:
        """The cap that holds."""
        return self._cap

    @property
    def kept(self) -> int:
        """The sum over users of the smaller of their units and the cap."""
        return self.table.kept()

    @property
    def over(self) -> int:
        """How many users have given more units than the cap."""
        return self.table.over()

    @property
    def units(self) -> Units:
        """How many units each user has given, in no order."""
        return self.table.content()[1]

    def names(self, users: pl.Series) -> Keys:
        """The names of users, by which they are counted."""
        return names_of(self._namer, users)

    def open_rows(self, users: pl.Series, most: int) -> OpenRows:
        """The rows of users who have fewer than `most` units, whoever else has rows and how many."""
        ids = checked_ids(users)
        if ids.dtype == pl.String:
            slots, names = self.table.standing_texts(*codec.join_texts(ids), most)
        else:
            slots, names = self.table.standing_numbers(as_numbers(ids), most)
        return _open_rows(slots, names)

    def open_names(self, names: Keys, most: int) -> OpenRows:
        """The same of rows that come with the names of their users."""
        return _open_rows(*self.table.standing_names(names, most))

    def rows_by_name(self, users: pl.Series) -> OpenRows:
        """All rows, whoever has units left and whoever has a slot."""
        return rows_by_name(self.names(users))

    def add(self, names: Keys, units: Units | None = None) -> None:
        """Count rows of one unit each, or of so many units."""
        self._add(names, units, "nothing")

    def add_and_tell_before(self, names: Keys) -> Units:
        """Count rows of one unit each, and tell for each how many units its user had given before it."""
        told = self._add(names, None, "before")
        return np.empty(0, dtype=np.uint64) if told is None else told

    def set_cap(self, cap: int) -> None:
        """Take another cap: one pass over all users."""
        self.table.set_cap(cap)
        self._cap = cap

    def clear(self) -> None:
        """Forget all users, as a new period does."""
        self.table.clear()

    def to_plain(self) -> codec.Plain:
        names, units, accepted = self.table.content()
        return {"cap": self._cap, "names": names, "units": codec.narrow(units), "accepted": codec.narrow(accepted)}

    def take_plain(self, content: codec.Plain) -> None:
        units, accepted = (content[name].astype(np.uint64) for name in ("units", "accepted"))
        self.table.restore(content["names"], units, accepted)
        self.set_cap(content["cap"])

    def _add(self, names: Keys, units: Units | None, wanted: str) -> Units | None:
        try:
            return self.table.add_names(names, units, wanted)
        except ValueError as error:
            raise InputError(str(error)) from None

    def __repr__(self) -> str:
        return "UserUnits(hidden)"


class PairUnits:
    """Which rows of users are units, where at most so many of one user's rows hold the same label; None: all are.

    It is stored tick by tick: of each the pairs of its units, by the slots of users and labels.
    """

    def __init__(self, noise: Noise, limit: int | None, log_length: int) -> None:
        self._table = None if limit is None else _core.PairTable(secret_key(noise.at("pairs")), limit)
        self._log_length = 0 if limit is None else log_length
        self._ticks = 0
        self._open = np.empty(0, dtype=np.uint64)
        self._last = np.empty(0, dtype=np.uint64)

    def add(self, users: UserUnits, rows: UserRows, most: int) -> Units:
        """For each row how many units its user had before it, `NO_UNIT` where it is none.

        A row is a unit while its user has fewer than `most` and her pair with its label fewer than the limit. So which
        rows are units depends on her own rows, in her own order, alone.
        """
        try:
            return _core.add_user_rows(users.table, self._table, rows, most)
        except ValueError as error:
            raise InputError(str(error)) from None

    def close(self) -> None:
        """End a tick."""
        if self._table is not None:
            self._ticks += 1
            self._last, self._open = self._taken(), self._open[:0]

    def clear(self) -> None:
        """Forget all pairs, as a new period does."""
        if self._table is not None:
            self._ticks, self._open = 0, self._open[:0]
            self._table.clear()

    @property
    def log_length(self) -> int:
        return self._log_length

    def to_plain(self) -> codec.Plain:
        return [self._ticks, self._taken()]

    def log(self) -> codec.Plain:
        return self._last

    def whole_log(self) -> codec.Plain:
        """All pairs, those of the open tick as well."""
        return None if self._table is None else {"pairs": self._table.units()}

    def take_logged(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        self._ticks, self._open = content
        if logs and isinstance(logs[-1], dict):
            pieces = [logs[-1]["pairs"]]
        elif 0 <= self._ticks <= len(logs):
            self._last = logs[-1] if logs else self._last
            pieces = [*logs[len(logs) - self._ticks :], self._open]
        else:
            raise ValueError("pairs must have the logs of all their ticks")
        for pairs in pieces:
            if self._table is not None:
                self._table.restore(pairs)

    def _taken(self) -> Units:
        """Those of the open tick."""
        if self._table is not None:
            self._open = np.concatenate([self._open, self._table.take_fresh()])
        return self._open

    def __repr__(self) -> str:
        return "PairUnits(hidden)"


class UnitRows(NamedTuple):
    """Rows by user, without those that can be no units."""

    slots: Slots
    """Users who have slots, each once, in the order of these."""

    names: Keys
    """Those who have none, each once, in the order of the names, which tells nothing."""

    counts: NDArray[np.uint32]
    """How many rows each has left, those with slots first."""

    order: NDArray[np.uint32]
    """Which: those of the first user as they came, then those of the next."""

    labels: NDArray[np.uint32]
    """The different labels of these rows, as they appear in them."""

    numbers: NDArray[np.uint32]
    """For each row the place of its label among these."""


def _open_rows(slots: Slots, names: Keys) -> OpenRows:
    places = np.flatnonzero(slots != SPENT_USER)
    if len(places) == len(slots):
        return OpenRows(None, slots, names)
    return OpenRows(places, slots[places], names)


def rows_by_name(names: Keys) -> OpenRows:
    """Rows as if nobody had a slot."""
    return OpenRows(None, np.full(len(names), NEW_USER, dtype=np.uint32), names)


def unit_rows(rows: OpenRows, labels: Slots, limit: int | None, most: int) -> UnitRows:
    """Rows by user, at most so many of each, and of one label; labels are small numbers."""
    return UnitRows(*_core.group_units(rows.slots, rows.names, labels, LARGEST_LIMIT if limit is None else limit, most))


def joined_rows(pieces: Sequence[Sequence[Any]], columns: Sequence[Sequence[Column]]) -> tuple[Keys, list[Column]]:
    """The rows of several pieces one after the other: whose each is, and the columns beside them.

    A piece begins with each user once and how many rows she has.
    """
    users = [np.repeat(names, counts, axis=0) for names, counts, *_ in pieces]
    return np.concatenate(users), [np.concatenate(parts) for parts in zip(*columns, strict=True)]


def by_user(names: Keys, units: Units | None = None) -> tuple[Keys, NDArray[np.uint32], Units, NDArray[np.uint32]]:
    """Rows brought together by the names of their users; each has one unit, or so many.

    Each user once, in the order of the names, which tells nothing; how many rows and how many units each has, where
    units stop growing at 2^64 - 1; and the rows of the first user as they came, then those of the next.
    """
    return _core.group_names(names, units)


def users_by_shard(names: Keys, counts: NDArray[Any], shards: int) -> list[tuple[int, Places, Places]]:
    """Users by the shard of their names, each in their order: which users, and which rows of the users' rows."""
    starts = np.cumsum(counts, dtype=np.int64) - counts
    found = []
    for shard, users in by_shard(names, shards):
        own = counts[users].astype(np.int64)
        first = np.repeat(starts[users] - (np.cumsum(own) - own), own)
        found.append((shard, users, first + np.arange(len(first), dtype=np.int64)))
    return found


def first_of_each(names: Keys) -> NDArray[np.bool_]:
    """Whether each name is the first of its kind among these."""
    return _core.NameSet().add_first(names)


def row_coins(names: Keys, before: Units) -> Units:
    """64 bits for each row from its user's keyed name and a number of her own, as of the units she gave before."""
    bits: Units = names[:, 0] ^ ((before + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


class Rows:
    """Columns of equal length that grow at the end."""

    def __init__(self) -> None:
        self._chunks: list[list[Column]] = []

    def __len__(self) -> int:
        return sum(len(chunk[0]) for chunk in self._chunks)

    def append(self, columns: list[Column]) -> None:
        """Add rows at the end."""
        if len(columns[0]):
            self._chunks.append(columns)

    def take(self, chosen: Callable[[Column], NDArray[np.bool_]]) -> list[Column]:
        """Remove and give the rows that are chosen by their first column; no columns at all if there are no rows."""
        columns = self._whole()
        if not columns:
            return []
        some = chosen(columns[0])
        rest = [column[~some] for column in columns]
        self._chunks = [rest] if len(rest[0]) else []
        return [column[some] for column in columns]

    def take_all(self) -> list[Column]:
        """Remove and give all rows; no columns at all if there are no rows."""
        columns = self._whole()
        self._chunks = []
        return columns

    def _whole(self) -> list[Column]:
        return [np.concatenate(pieces) for pieces in zip(*self._chunks, strict=True)]

    def to_plain(self) -> codec.Plain:
        return self._whole()

    def take_plain(self, content: codec.Plain) -> None:
        self._chunks = [list(content)] if content else []
