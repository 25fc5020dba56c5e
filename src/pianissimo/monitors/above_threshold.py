"""The sparse vector technique, once or with charges per user: answer tests until one says TOP, and pay once for all.

Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Algorithm 1, in the form of Lyu, Su and Li,
"Understanding the sparse vector technique for differential privacy", VLDB 2017: noise of scale 1 / e1 on the threshold,
once, and of scale 2 / e2 on each query, or 1 / e2 if the queries are monotone, that is if one more user never lowers
one. The whole output is (e1 + e2)-DP, however long and however the queries adapt. Here e1 = e2 = epsilon / 2.

*Monotone.* From the stream without the user to that with her, shift the threshold noise by one: every BOTTOM stays as
likely, and the last query, not lower, loses e^e2 at most. The other way keep the threshold noise: every BOTTOM gets
likelier. Queries that may move either way need twice the scale; with that of monotone ones they cost 1.5 epsilon.

Noise is whole-numbered, as are queries and threshold: the proof uses only that one step changes a chance by
e^(1 / scale).

**Who is active** (`UserCharges`, for every monitor): how often each user was charged, in her life or in a period, and
what the users hold in the open tick. They are kept under keyed 128-bit names, and only those that were ever charged: a
user without an entry is a new one. What users hold is gathered by user, in the order of their names, and each one's
keys once. A user's first keys of a tick count, in the order in which they come, so that her own order is kept. Nothing
is told of the order between users.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.checks import Real, check_at_least, check_probability
from pianissimo.errors import HorizonError, InputError, StateError
from pianissimo.labels import any_too_long
from pianissimo.loss.losses import Pure
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, Keys, exact_scale
from pianissimo.text_views import number_texts

MOST_CHARGES = 2**15
"""No monitor charges a user more often, nor for more keys in a tick: charges are 16 bits."""


class ReportSizes:
    """The sizes of all reports since charges began, as far as they bound how many users are exhausted: public.

    Of N exhausted users each was in k reports, and no report held more than all of them: with sizes s_1 >= s_2 >= ..,
    k N <= j N + s_(j+1) + s_(j+2) + .. for each j < k. The least of these bounds is reached where the same users come.

    >>> sizes = ReportSizes(2)
    >>> sizes.add([300, 200])
    >>> sizes.most_exhausted(), sizes.most_exhausted(margin=20)
    (200, 220)
    """

    def __init__(self, limit: int) -> None:
        self.count = self.total = 0
        self.largest: list[int] = []
        self._limit = limit

    def add(self, sizes: Iterable[int]) -> None:
        """Reports of one tick."""
        more = [max(0, size) for size in sizes]
        self.count, self.total = self.count + len(more), self.total + sum(more)
        self.largest = sorted([*self.largest, *more], reverse=True)[: self._limit]

    def most_exhausted(self, margin: int = 0) -> int:
        """How many users are exhausted at most, if each size may be too small by a margin."""
        if self.count < self._limit:
            return 0
        rests = accumulate((-size - margin for size in self.largest), initial=self.total + self.count * margin)
        return max(
            0, min(rest // (self._limit - place) for place, rest in zip(range(self._limit), rests, strict=False))
        )


class UserCharges:
    """Charges of users, and the holdings of the open tick: secret."""

    def __init__(self, noise: Noise, *, limit: int, per_tick: int) -> None:
        self.limit, self.per_tick = limit, per_tick
        self.tests = 0
        """How many times a monitor has tested with these charges: a part of the path of each test's noise."""
        self._noise = noise.naming("users")
        self.renew()

    def renew(self) -> None:
        """Begin anew with every user, between two ticks."""
        self._book = _core.ChargeBook(self.limit, self.per_tick)
        self.sizes = ReportSizes(self.limit)

    def add(self, users: pl.Series, slots: NDArray[np.int64]) -> None:
        """Note which user holds which key; keys with slot -1 are nobody's.

        A user counts once for a key, with her first `per_tick` distinct keys of the tick, and not at all once she is
        exhausted. All this looks at her own data and the transcript alone.
        """
        self.add_named(*self.numbered(users), slots)

    def add_named(self, names: Keys, numbers: NDArray[np.uint32], slots: NDArray[np.int64]) -> None:
        """The same for users whose names are known, and of each row the number of its user among them."""
        self._book.add(names, numbers, np.ascontiguousarray(slots, dtype=np.int64))

    def weights(self, keys: int) -> NDArray[np.int64]:
        """How many active users hold each key."""
        return self._book.weights(keys)

    def close(self, reported: NDArray[np.bool_]) -> None:
        """Charge every holder of every reported key, once for each, and open the next tick."""
        self._book.close(np.ascontiguousarray(reported))

    def names(self, users: pl.Series) -> Keys:
        """A keyed name for each user."""
        names, numbers = self.numbered(users)
        return names[numbers]

    def numbered(self, users: pl.Series) -> tuple[Keys, NDArray[np.uint32]]:
        """Keyed names of the users, and the number of each row's user among them."""
        if users.null_count():
            raise InputError("users must not be null, got nulls; drop or fill them")
        if not (users.dtype.is_integer() or users.dtype in (pl.String, pl.Categorical, pl.Enum)):
            raise InputError(f"users must be whole numbers or texts, got {users.dtype}")
        # A number is named by its digits: the same user may come as a number in one batch and as a text in the next.
        texts = users.cast(pl.String)
        if any_too_long(texts):
            return self._noise.label_keys(*codec.join_texts(texts)), np.arange(len(texts), dtype=np.uint32)
        distinct, numbers = number_texts(texts)
        return self._noise.label_keys(*codec.join_texts(distinct)), numbers

    def to_plain(self) -> codec.Plain:
        """Names and charges, and the open tick."""
        sizes = self.sizes
        return [self.tests, *self._book.content(), *([sizes.total, sizes.count, *sizes.largest] if sizes.count else [])]

    def take_plain(self, content: codec.Plain) -> None:
        """Take over stored charges; without them returning users would be charged anew, and the promise void."""
        tests, charged, counts, users, holders, keys, *sizes = content
        if not (isinstance(tests, int) and tests >= 0):
            raise StateError("a number of tests must not be negative, got something else")
        try:
            self._book.restore(charged, counts, users, holders, keys)
        except ValueError as error:
            raise StateError(f"{error}, got something else") from None
        self.tests = tests
        if sizes:
            self.sizes.total, self.sizes.count, *self.sizes.largest = sizes

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
    """
    users, counts, _, order = _core.group_names(names)
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
    users, counts, _, order = _core.group_names(names)
    rows = pl.DataFrame({"user": np.repeat(np.arange(len(users), dtype=np.uint32), counts), "key": keys[order]})
    rows = rows.unique().sort("user", "key")
    held = np.bincount(rows["user"].to_numpy(), minlength=len(users))
    return [users, codec.narrow(held), codec.narrow(rows["key"].to_numpy())]


def joined_holdings(pieces: Sequence[codec.Plain]) -> tuple[Keys, NDArray[np.int64]]:
    """Whose key each is, and the keys, of all pieces in their order."""
    users = [np.repeat(names, counts, axis=0) for names, counts, _ in pieces]
    return np.concatenate(users), np.concatenate([keys.astype(np.int64) for _, _, keys in pieces])


def add_holdings(charges: UserCharges, gathered: codec.Plain, slots: NDArray[np.int64] | None = None) -> None:
    """Note what was gathered; with `slots`, keys are places among these."""
    names, counts, keys = gathered
    numbers = np.repeat(np.arange(len(names), dtype=np.uint32), counts)
    charges.add_named(names, numbers, keys.astype(np.int64) if slots is None else slots[keys])


@dataclass(slots=True, repr=False)
class AboveThresholdState:
    """How many tests were made and whether the last said TOP; public, as the answers are."""

    tests: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveThreshold:
    """Whether a query is above a threshold, test after test, up to the first TOP.

    Guarantee: epsilon-DP for all answers together; each query moves by at most one per user.
    Error: a query that is above the threshold by `margin_of_detection` stops it.
    Cost: two integers; one draw a test.

    >>> from pianissimo.testing import NoNoise
    >>> svt, noise = AboveThreshold(threshold=10, epsilon=1), NoNoise()
    >>> state = svt.start()
    >>> [svt.test(state, query, noise) for query in (8, 10, 12)]
    [False, False, True]
    >>> svt.test(state, 1, noise)
    Traceback (most recent call last):
    pianissimo.errors.HorizonError: the test has said TOP and is over; start a new one with a budget of its own
    """

    threshold: int
    """TOP is said above it."""

    epsilon: Real
    """What the whole costs."""

    monotone: bool = True
    """Whether one more user never lowers a query."""

    def __post_init__(self) -> None:
        exact_scale(epsilon=self.epsilon)

    @property
    def threshold_scale(self) -> Fraction:
        """Of the noise on the threshold."""
        return 2 / exact_scale(epsilon=self.epsilon)

    @property
    def query_scale(self) -> Fraction:
        """Of the noise on each query."""
        return (2 if self.monotone else 4) / exact_scale(epsilon=self.epsilon)

    def loss(self, tests: int) -> Pure:
        """What is lost per user over so many tests; only the noise distance depends on them."""
        check_at_least(0, tests=tests)
        return Pure(exact_scale(epsilon=self.epsilon), distance=(tests + 1) * DRAW_DISTANCE)

    def margin_of_detection(self, failure_probability: float) -> float:
        """How far above the threshold a query must be to have stopped the test, but for this probability."""
        check_probability(failure_probability=failure_probability)
        scales = self.threshold_scale + self.query_scale
        return float(scales) * math.log(1 / failure_probability)

    def start(self) -> AboveThresholdState:
        """Before the first test."""
        return AboveThresholdState()

    def test(self, state: AboveThresholdState, query: int, noise: Noise) -> bool:
        """Test one query; True is TOP. `noise` is the same for all tests of one run, and another for the next run."""
        if state.stopped:
            raise HorizonError("the test has said TOP and is over; start a new one with a budget of its own")
        try:
            exact = operator.index(query)  # no fixed width, in which a sum could wrap
        except TypeError:
            raise InputError(f"a query must be a whole number, got {type(query).__name__}") from None
        state.tests += 1
        raised = self.threshold + int(noise.at("threshold").laplace(self.threshold_scale))
        state.stopped = exact + int(noise.at("query", state.tests).laplace(self.query_scale)) > raised
        return state.stopped
