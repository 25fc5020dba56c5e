"""Who is active: how often each user was charged in her life, and what the users hold in the open tick.

Users are kept under keyed 128-bit names, and only those that were ever charged: a user without an entry is a new one.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError, StateError
from pianissimo.monitors.core import ChargeBook
from pianissimo.noise import Keys, Noise

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
    """Refuse charges that another monitor keeps: it would let a user be charged more often than is promised.

    >>> from pianissimo.testing import NoNoise
    >>> check_charges(UserCharges(NoNoise(), limit=50, per_tick=1), limit=1, per_tick=1)
    Traceback (most recent call last):
    pianissimo.errors.StateError: charges must be those of this monitor, got those of another; start makes them
    """
    if (charges.limit, charges.per_tick) != (limit, per_tick):
        raise StateError("charges must be those of this monitor, got those of another; start makes them")
