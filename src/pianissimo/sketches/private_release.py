"""One release of one Misra-Gries sketch: PMG and PMG-U.

Lebeda and Tetek, Algorithm 2. One element moves one of the stored numbers u(x) = c(x) + D, or D, by one. So each gets
one noise, and a reader has both `over`, an upper estimate with one noise, and `under` = `over` less the noisy D, which
is the estimate that the paper publishes: at the same loss. Keys below the threshold stay hidden (`released_keys`),
and what is shown stands in the order of the keys: the order of a table tells about evicted ones.

**Shards.** Streams cut by a hash of the key have a sketch and a release each, at the price of one: an element has one
key, so it is in one shard, and the others are the same on both neighbors (parallel composition). The hash is public and
fixed before the data. Cutting by the number of elements, or in turn, would let one element move all that come after it.

**Composition.** An (epsilon, delta) pair of laws is what a coin of chance delta that tells all, and otherwise an
epsilon-private answer, can be turned into, on both sides at once (Kairouz, Oh and Viswanath 2015). With "the coin told
nothing" for the good outcomes this is the lemma of the bad mass, so the loss is booked as epsilon beside `bad` = delta.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import shard_hash, shards_of
from pianissimo.ledger import Account, charge_release, is_charged
from pianissimo.loss.losses import Booked, Loss, Mixed, float_down
from pianissimo.noise import Noise
from pianissimo.noise.exact_laws import gaussian_reach, laplace_reach
from pianissimo.noise.keyed import DRAW_DISTANCE, ONE_KEY
from pianissimo.noise.laws import GaussianNode, LaplaceNode, NodeNoise
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.published_keys import PublishedKeys
from pianissimo.sketches.released_keys import (
    Counts,
    bounded_counts,
    check_hidden,
    check_typed,
    check_unmerged,
    estimate_table,
    exposure,
    fresh_noise,
    gaussian_calibration,
    gaussian_exposure,
    gaussian_threshold,
    group_budget,
    group_delta,
    in_key_order,
    item_keys,
    noise_of,
    own,
    threshold,
    without_distance,
)


@dataclass(frozen=True, slots=True, eq=False)
class SketchRelease:
    """Keys in their own order, two estimates for each, and the noisy number of decrements: all may be published."""

    keys: pl.Series
    under: Counts
    """The paper's estimate, at most the true count apart from the noise: two noises."""

    over: Counts
    """At least the true count apart from the noise: one noise."""

    error_level: int
    """The noisy D: how far a sketch count is below the truth at most, apart from the noise."""

    threshold: int
    """Every count of `under` is at least this."""

    reach: int
    """All noises of the release are at most this in size, with the coverage that was asked for."""

    coverage: float
    """The chance that all error bars hold together."""

    loss: Loss
    """What the release costs."""

    @property
    def most_hidden(self) -> int:
        """What the true count of a key that is not shown is at most, with the same chance.

        Its noisy number less the noisy D was below the threshold, and f <= u; or it was not stored, and f <= D.
        """
        return max(0, self.threshold - 1 + self.error_level + self.reach)

    def published(self) -> PublishedKeys:
        """What others may add up with the releases of other streams: `add_published`."""
        return PublishedKeys(table=self.to_frame(), most_hidden=self.most_hidden, coverage=self.coverage)

    def to_dict(self) -> dict[int | str | bytes, int]:
        """The keys and the paper's estimates, `under`."""
        return dict(zip(self.keys.to_list(), self.under.tolist(), strict=True))

    def to_frame(self, reach: int | None = None) -> pl.DataFrame:
        """One row a key: `estimate_table`, at the coverage that was asked for or with another `reach`."""
        size = self.reach if reach is None else reach
        return estimate_table(self.keys, (self.under + self.over) / 2, self.under - 2 * size, self.over + size)


@identified("private-misra-gries")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateMisraGries:
    """The heavy keys of a sketch, once, with discrete Laplace noise on each number.

    Guarantee: (m epsilon, delta(threshold) (e^(m epsilon) - 1) / (e^epsilon - 1)) for m = max_keys_per_user elements.
    Error: f in [under - 2 r, over + r] for all shown keys at once, r = `reach`.
    Cost: one draw a stored key, and one.
    """

    k: int
    """How many counters the sketch has."""

    epsilon: Fraction
    """For one element: the noise has the scale 1 / epsilon."""

    threshold: int
    """The least count of `under` that is shown."""

    max_keys_per_user: int = 1
    """How many elements the promise hides together."""

    standard: bool = False
    """For sketches that forget keys of count zero or evict them in another order: these keys are left out here too."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k, threshold=self.threshold, max_keys_per_user=self.max_keys_per_user)
        check_positive(epsilon=self.epsilon)

    @classmethod
    def calibrated(
        cls, *, k: int, epsilon: Real, delta: Real, max_keys_per_user: int = 1, standard: bool = False
    ) -> Self:
        """The one with the least noise and threshold within (epsilon, delta), the finite bits of the noise included."""
        check_at_least(1, k=k)
        left = without_distance(delta, k + 1, epsilon)
        share, part = group_budget(epsilon=epsilon, delta=left, elements=max_keys_per_user)
        least = threshold(epsilon=share, delta=part, k=k, standard=standard)
        return cls(k=k, epsilon=share, threshold=least, max_keys_per_user=max_keys_per_user, standard=standard)

    @property
    def loss(self) -> Mixed:
        each = exposure(self.threshold, epsilon=self.epsilon, k=self.k, standard=self.standard)
        return Mixed(
            pure=self.max_keys_per_user * self.epsilon,
            bad=group_delta(each, epsilon=self.epsilon, elements=self.max_keys_per_user),
            distance=(self.k + 1) * DRAW_DISTANCE,
        )

    def reach(self, coverage: float) -> int:
        """What no noise of a release exceeds in size, with this chance."""
        return laplace_reach(self.epsilon, self.k + 1, coverage)

    def release(self, contents: Contents, noise: Noise, *, coverage: float = 0.95) -> SketchRelease:
        """Publish. The noise is given by tests, and by what draws a fresh one, as `MisraGries.release`."""
        return _published(self, LaplaceNode(1 / self.epsilon), contents, noise, coverage)


@identified("gaussian-misra-gries")
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMisraGries:
    """The heavy keys of a sketch with discrete Gaussian noise on each number, for releases that add up.

    Guarantee: booked as (releases / (2 variance), releases * xi), xi the chance that a key of one neighbor shows.
    Error: f in [under - 2 r, over + r] for all shown keys at once, r = `reach`.
    Cost: one draw a stored key, and one, at each release.
    """

    k: int
    threshold: int
    """As in `PrivateMisraGries`."""

    variance: Fraction
    """Of the noise on each number."""

    releases: int = 1
    """How many times the growing sketch is released, each under a path of its own."""

    standard: bool = False
    """As in `PrivateMisraGries`."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k, threshold=self.threshold, releases=self.releases)
        check_positive(variance=self.variance)

    @classmethod
    def calibrated(cls, *, k: int, rho: Real, bad: Real, releases: int = 1) -> Self:
        """The one with the least noise within this ledger, all releases together; the variance is rounded up."""
        check_positive(rho=rho)
        check_probability(bad=bad)
        check_at_least(1, releases=releases)
        variance = Fraction(math.ceil(releases / (2 * Fraction(rho))))
        least = gaussian_threshold(variance=variance, bad=Fraction(bad) / releases, k=k)
        return cls(k=k, variance=variance, threshold=least, releases=releases)

    @classmethod
    def for_one_release(cls, *, k: int, epsilon: Real, delta: Real, standard: bool = False) -> Self:
        """The one with the least threshold within (epsilon, delta), by the exact divergence of the noise."""
        left = without_distance(delta, k + 1, epsilon)
        exact = Fraction(float_down(Fraction(epsilon)))
        variance, least = gaussian_calibration(exact, left, k, standard=standard)
        return cls(k=k, variance=Fraction(variance), threshold=least, standard=standard)

    @property
    def loss(self) -> Booked:
        each = gaussian_exposure(self.threshold, variance=self.variance, k=self.k, standard=self.standard)
        bad = self.releases * each
        if not bad < 1:
            raise ParameterError("bad mass of all releases must be below 1, got more; raise the threshold")
        distance = self.releases * (self.k + 1) * DRAW_DISTANCE
        return Booked(rho=self.releases / (2 * self.variance), bad=bad, distance=distance)

    def reach(self, coverage: float) -> int:
        return gaussian_reach(self.variance, self.k + 1, coverage)

    def release(self, contents: Contents, noise: Noise, *, coverage: float = 0.95) -> SketchRelease:
        """Publish. The noise is given by tests, and by what draws a fresh one, as `MisraGries.release`."""
        return _published(self, GaussianNode(self.variance), contents, noise, coverage)


HEAVY_KEYS = "heavy keys of a sketch"


def noted(contents: Contents) -> str:
    """What a ledger notes of the release of a sketch."""
    keys = contents.max_keys_per_user
    return f"{HEAVY_KEYS}, hides {'one event' if keys == 1 else f'a user with at most {keys} keys'}"


def charge_contents(ledger: Account, loss: Booked, contents: Contents, *, epsilon: float) -> None:
    """Charge the release of a sketch, where it is charged."""
    charge_release(ledger, loss, epsilon=epsilon, hides=contents.hides, question=noted(contents))


def one_shot(
    *, k: int, epsilon: Real, delta: Real, charged: bool, standard: bool = False, max_keys_per_user: int = 1
) -> PrivateMisraGries | GaussianMisraGries:
    """How one sketch is released once: a ledger adds up rho, of which Laplace noise takes far more than Gaussian.

    Several keys of a user are hidden by a chain of neighbors at a fixed epsilon, so with Laplace noise either way.
    """
    if charged and max_keys_per_user == 1:
        return GaussianMisraGries.for_one_release(k=k, epsilon=epsilon, delta=delta, standard=standard)
    return PrivateMisraGries.calibrated(
        k=k, epsilon=epsilon, delta=delta, standard=standard, max_keys_per_user=max_keys_per_user
    )


def release_alone(
    contents: Contents, *, k: int, epsilon: Real, delta: Real, ledger: Account, coverage: float
) -> SketchRelease:
    """Charge and publish one sketch of k counters: the method of the sketches that have it."""
    check_typed(contents)
    mechanism = one_shot(
        k=k,
        epsilon=epsilon,
        delta=delta,
        charged=is_charged(ledger),
        standard=contents.kind == "standard",
        max_keys_per_user=contents.max_keys_per_user,
    )
    check_probability(coverage=coverage)
    charge_contents(ledger, mechanism.loss.as_booked(), contents, epsilon=float(epsilon))
    return mechanism.release(contents, fresh_noise(), coverage=coverage)


def shard_of(keys: pl.Series, shards: int, *, hash_seed: bytes = bytes(32)) -> NDArray[np.int64]:
    """The shard of each key, a number from 0 on."""
    check_at_least(1, shards=shards)
    hashing = shard_hash(hash_seed)
    return shards_of(item_keys(keys, hashing), shards, hashing)


def release_shards(
    contents: Sequence[Contents],
    *,
    k: int,
    epsilon: Real,
    delta: Real,
    ledger: Account,
    coverage: float = 0.95,
) -> SketchRelease:
    """Publish the heavy keys of all shards, each a sketch of k counters that was never merged, at (epsilon, delta).

    The error level is the largest of all shards'. Error bars hold for all keys of all shards at once. It is charged to
    the ledger, with Gaussian noise then, or said to be accounted for nowhere: see `MisraGries.release`.
    """
    if not contents:
        raise ParameterError("at least one shard must be released, got none")
    check_probability(coverage=coverage)
    for each in contents:
        check_unmerged(each, k)
        check_hidden(each, 1)
    mechanism = one_shot(k=k, epsilon=epsilon, delta=delta, charged=is_charged(ledger))
    charge_release(
        ledger,
        mechanism.loss.as_booked(),
        epsilon=float(epsilon),
        hides=contents[0].hides,
        question=f"{len(contents)} shards: {noted(contents[0])}",
    )
    source = fresh_noise()
    share = 1 - (1 - coverage) / len(contents)
    parts = [
        mechanism.release(each, source.at("shard", number), coverage=share) for number, each in enumerate(contents)
    ]
    keys = pl.concat([part.keys for part in parts])
    if keys.n_unique() != len(keys):
        raise ParameterError("a key must be in one shard alone, got one in two; cut by a hash of the key")
    order = in_key_order(keys)
    return SketchRelease(
        own(keys.gather(order)),
        np.concatenate([part.under for part in parts])[order],
        np.concatenate([part.over for part in parts])[order],
        max(part.error_level for part in parts),
        mechanism.threshold,
        mechanism.reach(share),
        coverage,
        mechanism.loss,
    )


def _published(
    of: PrivateMisraGries | GaussianMisraGries, law: NodeNoise, contents: Contents, noise: Noise, coverage: float
) -> SketchRelease:
    check_unmerged(contents, of.k, standard=of.standard)
    check_hidden(contents, of.max_keys_per_user if isinstance(of, PrivateMisraGries) else 1)
    places = in_key_order(contents.keys)
    noise = noise_of(noise, contents.keys.gather(places), contents.over[places], contents.decrements)
    if of.standard:
        places = places[contents.over[places] > contents.decrements]
    keys, stored = contents.keys.gather(places), bounded_counts(contents.over[places])
    over = law.added(stored, item_keys(keys, noise), noise.at("counts"))
    level = int(law.added(np.array([contents.decrements]), ONE_KEY, noise.at("error level"))[0])
    under = over - level
    passing = np.flatnonzero(under >= of.threshold)
    shown = own(keys.gather(passing)), under[passing], over[passing]
    return SketchRelease(*shown, level, of.threshold, of.reach(coverage), coverage, of.loss)
