"""What users hold in some events, by user: the users in the order of their names, and each one's keys once.

A user's first keys of a tick count, in the order in which they come, so that her own order is kept. Nothing is told of
the order between users.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.monitors.charges import UserCharges
from pianissimo.monitors.core import group_names
from pianissimo.noise import Keys


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
    """The same of users who may hold all keys: then not even a user's own order matters.

    >>> names = np.array([[9, 0], [1, 0], [9, 0], [9, 0]], dtype=np.uint64)
    >>> all_holdings(names, np.array([5, 5, 5, 4]))[2]
    array([5, 4, 5], dtype=uint8)
    """
    users, counts, _, order = group_names(names)
    rows = pl.DataFrame({"user": np.repeat(np.arange(len(users), dtype=np.uint32), counts), "key": keys[order]})
    rows = rows.unique().sort("user", "key")
    held = np.bincount(rows["user"].to_numpy(), minlength=len(users))
    return [users, codec.narrow(held), codec.narrow(rows["key"].to_numpy())]


def add_holdings(charges: UserCharges, gathered: codec.Plain, slots: NDArray[np.int64] | None = None) -> None:
    """Note what was gathered; with `slots`, keys are places among these."""
    names, counts, keys = gathered
    charges.add_named(np.repeat(names, counts, axis=0), keys.astype(np.int64) if slots is None else slots[keys])
