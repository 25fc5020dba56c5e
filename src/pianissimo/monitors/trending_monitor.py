"""Shifting heavy hitters: at each tick the keys that unusually many users hold, for years, under one promise per user.

Every key is a test of one race monitor (`race_monitor`): its weight is how many active users hold it in the tick. All
tests of a tick are made together, with the users who are active at its start; then every holder of every reported key
is charged. A user who holds s keys may so be charged s - 1 times too often, and there are k + s - 1 clocks.

**Which keys are tested** must not tell who holds them. *Known domain:* all of its keys. *Huge domain:* all of its keys,
those of weight 0 by lot (`draw_empty`). *Unknown domain:* only keys that an active user holds. Then a key held by one
user alone can be reported with her and cannot without her, so the threshold is so high that this happens in her whole
life, or period, with probability at most delta_skip, which is booked as bad mass:

*Proof.* In the lemma of docs/privacy.md, 'Composition and conversion', let A be the monitor that also tests the keys
which the user, if she were there and active, would hold alone; and let G be: none of these is reported while she would
be its only active holder. With her, A is our monitor. Without her, ours reports none of them and A hardly ever, so A
gives each outcome of G at most the chance that ours gives it. Outside G is delta_skip by the threshold, and A on both
streams is a race monitor. So delta_skip is added to delta, without a factor. Where a user's data are replaced, A tests
the lone keys of both versions: 2 delta_skip.

Kaplan, Mansour and Stemmer, "The sparse vector technique, revisited", COLT 2021, section 4, has the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least, check_fraction, check_probability
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import LONGEST_LABEL, Domain, LabelIndex, any_too_long, detached, numbered_labels
from pianissimo.loss.losses import Guarantee, Race
from pianissimo.monitors.above_threshold import UserCharges, add_holdings, first_holdings, joined_holdings
from pianissimo.monitors.alarms import Found, Watcher
from pianissimo.monitors.race_monitor import (
    LARGEST_DOMAIN,
    MOST_EMPTY,
    NumberedDomain,
    RaceMonitor,
    draw_empty,
    lone_threshold,
    quiet_threshold,
    race_noise,
)
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, Keys, sealed
from pianissimo.stored_parts import TRANSIENT
from pianissimo.text_views import number_texts


@identified("fixed-length")
@dataclass(frozen=True)
class FixedLength:
    """All texts of one length over an alphabet, as codes of drugs, diseases or machines are."""

    alphabet: str
    """Which characters."""

    length: int
    """How many of them a text has."""

    def __post_init__(self) -> None:
        if not (self.alphabet and len(set(self.alphabet)) == len(self.alphabet)):
            raise ParameterError("alphabet must have different characters, got none or one twice")
        if not (isinstance(self.length, int) and self.length >= 1 and self.size <= LARGEST_DOMAIN):
            raise ParameterError(f"length must be at least 1 with at most 2^128 texts, got {self.length}")
        if max(len(each.encode()) for each in self.alphabet) * self.length > LONGEST_LABEL:
            raise ParameterError(f"texts must have at most {LONGEST_LABEL} bytes, got longer ones")

    @property
    def size(self) -> int:
        """How many texts there are."""
        return int(len(self.alphabet) ** self.length)

    def label(self, number: int) -> str:
        """The text of a number, written in this alphabet."""
        characters = []
        for _ in range(self.length):
            number, digit = divmod(number, len(self.alphabet))
            characters.append(self.alphabet[digit])
        return "".join(reversed(characters))

    def contains(self, labels: pl.Series) -> pl.Series:
        """Whether each text has the length and no other character."""
        return labels.str.contains(self._pattern)

    @cached_property
    def _pattern(self) -> str:
        # Characters by number: none of them means anything else to a regular expression.
        characters = "".join(f"\\x{{{ord(character):x}}}" for character in self.alphabet)
        return rf"\A[{characters}]{{{self.length}}}\z"


# The number of lots that decide keys of weight 0 at a tick: how many, which, and their values.
_EMPTY_DRAWS = 3


@dataclass(slots=True, repr=False)
class TrendingState:
    """Who holds what in the open tick, and how often each user was charged: secret."""

    charges: UserCharges
    index: LabelIndex
    """Keys of the open tick; in a known domain there are none."""

    known: LabelIndex | None = field(metadata=TRANSIENT)
    """Keys of the domain."""


@identified("trending-monitor")
@dataclass(frozen=True, slots=True, kw_only=True)
class TrendingMonitor(Watcher):
    """The keys that unusually many users hold in a tick, each with its noisy weight, released at every tick.

    A batch is a frame with the columns `user` and `key`. A user counts for her first `max_keys_per_user` distinct keys
    of a tick, once each, in the order in which they come.

    Guarantee: the loss `Race(charges=alarms_per_user + max_keys_per_user - 1, scale)` per user with all her events,
    or those of one period, over the whole run, with `delta_skip` as bad mass in an unknown domain.
    Error: the quantile of the noise around its median, before the cut at the threshold.
    Cost: 24 to 30 bytes for each user that was ever charged; one block of bits a tested key and tick.

    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> trending = TrendingMonitor(
    ...     horizon=100, alarms_per_user=1, scale=Fraction(12), threshold=230, delta_skip=Fraction(1, 10**6)
    ... )
    >>> trending.detectable(candidates=10**4)
    265
    >>> run = Run(trending, NoNoise())
    >>> crowd = pl.DataFrame({"user": range(300), "key": ["fever"] * 280 + ["cough"] * 20})
    >>> run.update(crowd)
    >>> run.release().value.to_dict()
    {'fever': 280}
    >>> run.update(crowd)
    >>> run.release().value.to_dict()
    {}
    """

    max_keys_per_user: int = 1
    """How many keys of a user count at a tick: s."""

    threshold: int
    """A key is reported from this noisy weight on."""

    domain: Domain | NumberedDomain | None = None
    """The keys that can be reported, if they are known."""

    delta_skip: Fraction = Fraction(0)
    """The chance that a key which one user alone holds is ever reported; above 0 in an unknown domain only."""

    def __post_init__(self) -> None:
        Watcher.__post_init__(self)
        check_fraction(delta_skip=self.delta_skip)
        _ = self._monitor  # refuses what cannot be a monitor
        law = race_noise(self.scale)
        if self.domain is None:
            check_probability(delta_skip=self.delta_skip)
            self._check_lone_keys()
            return
        if self.delta_skip != 0:
            raise ParameterError(f"delta_skip must be 0 where the domain is known, got {float(self.delta_skip)}")
        if not isinstance(self.domain, Domain):
            if not 1 <= self.domain.size <= LARGEST_DOMAIN:
                raise ParameterError("a huge domain must have 1 to 2^128 texts, got another number")
            if not self.domain.size * law.chance(self.threshold) <= MOST_EMPTY:
                least = quiet_threshold(self.scale, self.domain.size, Fraction(1, 2))
                raise ParameterError(f"threshold must be at least about {least} here, got {self.threshold}")

    @property
    def guarantee(self) -> Guarantee:
        versions = 2 if self.replacement else 1
        # Only draws in which the user takes part count: the others are the same on both neighbors, whatever their law.
        lots = _EMPTY_DRAWS if self.domain is not None and not isinstance(self.domain, Domain) else 0
        draws = self.ticks_of_a_user * (self.max_keys_per_user * versions + lots)
        return self.promise(
            Race(
                charges=self.alarms_per_user + self.max_keys_per_user - 1,
                scale=self.scale,
                bad=versions * self.delta_skip,
                distance=draws * DRAW_DISTANCE,
                replacement=self.replacement,
            )
        )

    def detectable(self, *, ticks: int | None = None, candidates: int | None = None, coverage: float = 0.95) -> int:
        """The smallest weight that is found whenever it comes, with a chance of `coverage` over these ticks and keys.

        Unless its holders are exhausted: nobody is who held fewer than `alarms_per_user` reported keys.
        """
        if candidates is None:
            if self.domain is None:
                raise ParameterError("candidates must be given where the domain is unknown, got None")
            candidates = domain_size(self.domain)
        check_at_least(1, candidates=candidates)
        return self.threshold + self.margin(ticks, coverage, candidates)

    def start(self, noise: Noise) -> TrendingState:
        known = None
        if isinstance(self.domain, Domain):
            known = LabelIndex(noise)
            known.slots_or_new(self.domain.labels)
        return TrendingState(charges=self._monitor.start(noise), index=LabelIndex(noise), known=known)

    def update(self, state: TrendingState, batch: pl.DataFrame) -> None:
        # The same as `add` of what is gathered, without putting it in order: three times as fast.
        users, keys = self._inside(batch)
        # Whatever can be refused is, before anything is noted.
        names, rows = state.charges.numbered(users)
        distinct, numbers = number_texts(keys)
        slots = state.index.slots_or_new(distinct) if state.known is None else state.known.slots(distinct)
        state.charges.add_named(names, rows, slots[numbers])

    def _inside(self, batch: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """The users and the keys of a batch, of keys that can be reported."""
        users, keys = columns_of(batch)
        if self.domain is not None and not isinstance(self.domain, Domain):
            inside = self.domain.contains(keys)
            return users.filter(inside), keys.filter(inside)
        return users, keys

    def gather(self, state: TrendingState, batch: pl.DataFrame) -> codec.Plain:
        """Which user, by her name, holds which of her first keys; and the keys, where they are not those of a domain.

        Each user's keys are in her own order, as her first ones of a tick count.
        """
        users, keys = self._inside(batch)
        names = state.charges.names(users)
        distinct, numbers = number_texts(keys)
        if state.known is not None:
            slots = state.known.slots(distinct)[numbers]
            listed = slots >= 0
            return [None, first_holdings(names[listed], slots[listed], self.max_keys_per_user)]
        labels = keys.unique().sort()
        places = keys.cast(pl.Enum(labels)).to_physical().cast(pl.Int64).to_numpy()
        return self._held(labels, names, places)

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        if pieces[0][0] is None:
            return [None, first_holdings(*joined_holdings([held for _, held in pieces]), self.max_keys_per_user)]
        labels, places = numbered_labels([labels for labels, _ in pieces])
        placed = [[*held[:2], place[held[2]]] for place, (_, held) in zip(places, pieces, strict=True)]
        return self._held(labels, *joined_holdings(placed))

    def _held(self, labels: pl.Series, names: Keys, places: NDArray[np.int64]) -> codec.Plain:
        """The labels that are held, in the order of their bytes, and which of them each user's first keys are."""
        named, counts, held = first_holdings(names, places, self.max_keys_per_user)
        is_held = np.bincount(held, minlength=len(labels)) > 0
        held = (np.cumsum(is_held) - 1)[held]
        return [detached(labels.filter(pl.Series(is_held))), [named, counts, codec.narrow(held)]]

    def add(self, state: TrendingState, gathered: codec.Plain) -> None:
        labels, held = gathered
        add_holdings(state.charges, held, None if labels is None else state.index.slots_or_new(labels))

    def release(self, state: TrendingState, tick: int, noise: Noise) -> Found:
        index = state.index if state.known is None else state.known
        weights = state.charges.weights(len(index))
        tested = np.arange(len(index)) if state.known is not None else np.flatnonzero(weights > 0)
        keys = index.keys(0, len(index))[tested]
        lots = sealed(noise, tick).at("test", tick)
        tops = self._monitor.test_weights(weights[tested], keys, lots)
        places = tested[tops.places]
        labels, values = index.labels.gather(places), tops.values
        if self.domain is not None and not isinstance(self.domain, Domain):
            law = race_noise(self.scale)
            held = _Labels(index, tested)
            more, their_values = draw_empty(self.domain, held, len(tested), self.threshold, law, lots)
            labels = labels.append(pl.Series("key", more, dtype=pl.String))
            values = np.concatenate([values, their_values])
        reported = np.zeros(len(index), dtype=np.bool_)
        reported[places] = True
        # Of all that is reported: who is to know which keys nobody holds?
        exhausted = self.close(state.charges, tick, reported, values)
        if state.known is None:
            state.index = LabelIndex(noise)
        # The order of the reports must tell nothing about who came when.
        order = labels.arg_sort().to_numpy()
        return Found(detached(labels.gather(order)), values[order] - race_noise(self.scale).median, exhausted)

    @property
    def _monitor(self) -> RaceMonitor:
        return self.race(self.threshold, self.max_keys_per_user)

    def _check_lone_keys(self) -> None:
        chance = race_noise(self.scale).chance(self.threshold - 1) + Fraction(1, 2**128)
        ticks = self.ticks_of_a_user
        if not ticks * self.max_keys_per_user * chance <= self.delta_skip:
            least = lone_threshold(self.scale, ticks, self.max_keys_per_user, self.delta_skip)
            raise ParameterError(
                f"threshold must be at least {least} where the domain is unknown, got {self.threshold}: a lower one "
                f"shows that a user is there by keys that she alone holds; give a domain, or allow a larger delta_skip"
            )


class _Labels:
    """Some labels of an index as a set, made when it is first asked."""

    def __init__(self, index: LabelIndex, places: NDArray[np.intp]) -> None:
        self._index, self._places = index, places
        self._labels: frozenset[str] | None = None

    def __contains__(self, label: object) -> bool:
        if self._labels is None:
            self._labels = frozenset(self._index.labels.gather(self._places).to_list())
        return label in self._labels


def domain_size(domain: Domain | NumberedDomain) -> int:
    """How many keys a domain has."""
    return len(domain) if isinstance(domain, Domain) else domain.size


def columns_of(batch: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """The users and the keys of a batch, refused unless they can be counted."""
    if not {"user", "key"} <= set(batch.columns):
        got = ", ".join(f"'{name}'" for name in batch.columns) or "none"
        raise InputError(f"a batch must have the columns 'user' and 'key', got {got}")
    users, keys = batch["user"], batch["key"]
    if keys.dtype in (pl.Categorical, pl.Enum):
        keys = keys.cast(pl.String)
    if keys.dtype != pl.String:
        raise InputError(f"keys must be texts, got {keys.dtype}")
    if keys.null_count():
        raise InputError("keys must not be null, got nulls; drop or fill them")
    if any_too_long(keys):
        raise InputError(f"keys must have at most {LONGEST_LABEL} bytes, got a longer one")
    return users, keys
