"""Who is active: how often each user was charged in her life, and what the users hold in the open tick.

Users are kept under keyed 128-bit names, and only those that were ever charged: a user without an entry is a new one.
What users hold is gathered by user, in the order of their names, and each one's keys once. A user's first keys of a
tick count, in the order in which they come, so that her own order is kept. Nothing is told of the order between users.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.errors import InputError, StateError
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys

ChargeBook = _core.ChargeBook
RaceTable = _core.RaceTable
group_names = _core.group_names

MOST_CHARGES = 2**15
"""No monitor charges a user more often, nor for more keys in a tick: charges are 16 bits."""


class UserCharges:
    """Lifetime charges of users, and the holdings of the open tick: secret.

    >>> from pianissimo.testing import NoNoise
    >>> charges = UserCharges(NoNoise(), limit=1, per_tick=1)
    >>> charges.add(pl.Series(["ann", "bob", "ann"]), np.array([0, 0, 1]))
    >>> charges.weights(2)
    array([2, 0])
    >>> charges.close(np.array([True, False]))
    >>> charges.add(pl.Series(["ann", "eve"]), np.array([0, 0]))
    >>> charges.weights(1)
    array([1])
    >>> charges
    UserCharges(limit=1, per_tick=1)
    """

    def __init__(self, noise: Noise, *, limit: int, per_tick: int) -> None:
        self.limit, self.per_tick = limit, per_tick
        self.tests = 0
        """How many times a monitor has tested with these charges: a part of the path of each test's noise."""
        self._noise = noise.at("users")
        self._book = ChargeBook(limit, per_tick)

    def add(self, users: pl.Series, slots: NDArray[np.int64]) -> None:
        """Note which user holds which key; keys with slot -1 are nobody's.

        A user counts once for a key, with her first `per_tick` distinct keys of the tick, and not at all once she is
        exhausted. All this looks at her own data and the transcript alone.
        """
        self.add_named(self.names(users), slots)

    def add_named(self, names: Keys, slots: NDArray[np.int64]) -> None:
        """The same for users whose names are known."""
        self._book.add(names, np.ascontiguousarray(slots, dtype=np.int64))

    def weights(self, keys: int) -> NDArray[np.int64]:
        """How many active users hold each key."""
        return self._book.weights(keys)

    def close(self, reported: NDArray[np.bool_]) -> None:
        """Charge every holder of every reported key, once for each, and open the next tick."""
        self._book.close(np.ascontiguousarray(reported))

    def names(self, users: pl.Series) -> Keys:
        """A keyed name for each user.

        >>> from pianissimo.testing import NoNoise
        >>> UserCharges(NoNoise(), limit=1, per_tick=1).names(pl.Series([1.5]))
        Traceback (most recent call last):
        pianissimo.errors.InputError: users must be whole numbers or texts, got Float64
        """
        if users.null_count():
            raise InputError("users must not be null, got nulls; drop or fill them")
        if not (users.dtype.is_integer() or users.dtype in (pl.String, pl.Categorical, pl.Enum)):
            raise InputError(f"users must be whole numbers or texts, got {users.dtype}")
        # A number is named by its digits: the same user may come as a number in one batch and as a text in the next.
        return self._noise.label_keys(*codec.join_texts(users.cast(pl.String)))

    def to_plain(self) -> codec.Plain:
        """Names and charges, and the open tick."""
        return [self.tests, *self._book.content()]

    def take_plain(self, content: codec.Plain) -> None:
        """Take over stored charges; without them returning users would be charged anew, and the promise void."""
        tests, charged, counts, users, holders, keys = content
        if not (isinstance(tests, int) and tests >= 0):
            raise StateError("a number of tests must not be negative, got something else")
        try:
            self._book.restore(charged, counts, users, holders, keys)
        except ValueError as error:
            raise StateError(f"{error}, got something else") from None
        self.tests = tests

    def __len__(self) -> int:
        return len(self._book)

    def __repr__(self) -> str:
        return f"UserCharges(limit={self.limit}, per_tick={self.per_tick})"


def check_charges(charges: UserCharges, *, limit: int, per_tick: int) -> None:
    """Refuse charges that another monitor keeps: it would let a user be charged more often than is promised."""
    if (charges.limit, charges.per_tick) != (limit, per_tick):
        raise StateError("charges must be those of this monitor, got those of another; start makes them")


def first_holdings(names: Keys, keys: NDArray[np.int64], most: int) -> codec.Plain:
    """Each user's first so many distinct keys: names, how many keys each has, and the keys.

    With the first ones of every batch the first ones of the tick are known: of what a batch leaves out, a user holds
    `most` others that came before.

    >>> names = np.array([[9, 0], [1, 0], [9, 0], [9, 0]], dtype=np.uint64)
    >>> users, counts, keys = first_holdings(names, np.array([5, 5, 5, 4]), 2)
    >>> users[:, 0], counts, keys
    (array([1, 9], dtype=uint64), array([1, 2], dtype=uint8), array([5, 5, 4], dtype=uint8))
    """
    users, counts, _, order = group_names(names)
    starts = np.cumsum(counts, dtype=np.int64) - counts
    ordered = keys[order]
    if most == 1:
        return [users, np.ones(len(users), dtype=np.uint8), codec.narrow(ordered[starts])]
    user = np.repeat(np.arange(len(users), dtype=np.int64), counts)
    pairs = user << 32 | ordered
    by_pair = np.argsort(pairs, kind="stable")
    is_first = np.ones(len(pairs), dtype=np.bool_)
    is_first[by_pair[1:]] = np.diff(pairs[by_pair]) != 0
    user, ordered = user[is_first], ordered[is_first]
    distinct = np.bincount(user, minlength=len(users))
    before = np.arange(len(user)) - np.repeat(np.cumsum(distinct) - distinct, distinct)
    return [users, codec.narrow(np.minimum(distinct, most)), codec.narrow(ordered[before < most])]


def all_holdings(names: Keys, keys: NDArray[np.int64]) -> codec.Plain:
    """The same of users who may hold all keys: then not even a user's own order matters."""
    users, counts, _, order = group_names(names)
    rows = pl.DataFrame({"user": np.repeat(np.arange(len(users), dtype=np.uint32), counts), "key": keys[order]})
    rows = rows.unique().sort("user", "key")
    held = np.bincount(rows["user"].to_numpy(), minlength=len(users))
    return [users, codec.narrow(held), codec.narrow(rows["key"].to_numpy())]


def add_holdings(charges: UserCharges, gathered: codec.Plain, slots: NDArray[np.int64] | None = None) -> None:
    """Note what was gathered; with `slots`, keys are places among these."""
    names, counts, keys = gathered
    charges.add_named(np.repeat(names, counts, axis=0), keys.astype(np.int64) if slots is None else slots[keys])
