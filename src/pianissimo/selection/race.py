"""The exact race: the order of count + Gumbel(scale) over items, as a function of 128 bits for each item.

Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get composition", NeurIPS 2019,
Lemma 4.2: the k largest of count + Gumbel(scale), in order, have the law of k peeled steps of the exponential
mechanism with epsilon = 1 / scale. With E = -ln(1 - U) exponential, Gumbel(scale) = -scale ln E, so the order is that
of the arrivals

```text
ln E + (largest count - count) / scale,    earliest first.
```

**Loss.** Neighbors move all counts in one direction, by at most one, so the log-likelihood ratio of one step stays in
an interval of length w = 1 / scale (Lemma 4.3, monotone case). K(s) = ln E_Q[(P / Q)^s] then has K(0) = K(1) = 0 and
K'' <= w^2 / 4, so D_a <= a w^2 / 8 at every order a > 1: a step costs rho = 1 / (8 scale^2), a quarter of the mean
term of the paper's Lemma 4.4. Steps add up.

**The order is exact.** U is the middle (n + 1/2) / 2^128 of one of 2^128 equal cells, never 0 or 1. The order is
*defined* as that of the arrivals worked out in decimal to 160 digits, ties by position. Decimal arithmetic is rounded
the same way on every machine (its logarithm correctly), and is off by less than 10^-100 here. Floating point only
finds out what needs no decimals: it brackets every arrival, and items whose brackets overlap are compared in decimal.

**The brackets.** Take U where U < 1/2 and 1 - U otherwise: two conversions, one addition and one half more give it to
four roundings of 2^-53. The relative error of E is at most twice that, plus that of the logarithm; it is the absolute
error of ln E, to which the second logarithm adds its own. The other term has three roundings, sum and ends of the
bracket one each. If the logarithms of numpy are right to 16 units in the last place (its own tests ask for 4), all this
is below 64 roundings, and the half-width of the bracket is 128 of them: 2^-46 (1 + |ln E| + other term).

**Distance from the ideal race.** Exchange the ideal U of one item after the other for the middle of its cell. With
the others' arrivals fixed, the first k change with U only where the item passes one of the first k others: k borders.
A cell without a border decides as its middle does, since the middle is at least 2^-129 from any border, which is e
2^-129 and more in the arrival (dU = E e^-E d ln E, and E e^-E <= 1/e), far above the 10^-100 of the decimals. So an
exchange changes the outcome with a chance of at most k 2^-128, and n items make n k 2^-128: `race_distance`.

**Peeling**, the exponential mechanism again and again on what is left, is the first k of one such race. The labels are
known beforehand and all of them are given, those of count 0 too: for labels that come from the data, see `limited_dom`.
"""

import decimal
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_fraction, check_positive
from pianissimo.codec import join_texts
from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.losses import BoundedRange
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys, bound_to
from pianissimo.noise.laws import SCALE_GRID


@dataclass(frozen=True, slots=True)
class Answer:
    """Labels in order, whether the threshold stopped the walk, and what else came with them."""

    labels: tuple[str, ...]
    """The labels, the one that came first at the front."""

    met_threshold: bool
    """Whether the threshold is part of the answer: it came before a k-th label did."""

    counts: tuple[int, ...] | None = None
    """A noisy count for each label, or None where publishing it is not covered by the loss."""

    candidates: int | None = None
    """How many labels were looked at, where the mechanism itself chose it."""

    @property
    def length(self) -> int:
        """How many things were learned: the labels, and the threshold if it was met."""
        return len(self.labels) + self.met_threshold


MOST = 2**44
"""No count is as large: with 16 bits of grid it stays far inside 64."""


@dataclass(frozen=True, slots=True, repr=False)
class Counted:
    """Labels and how many users hold each: secret, so that nothing of it is shown.

    **Refusals are not private.** A null, a key that is no text, a count out of range is refused here, however few users
    it is about. Whoever counts must leave such keys out beforehand, row by row, or must not show the error, as `Table`
    does.
    """

    labels: pl.Series
    """In the order of their bytes, each once."""

    counts: NDArray[np.int64]

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "Counted":
        """The columns of a mapping, if it is one from texts to counts."""
        if not isinstance(counts, Mapping):
            raise InputError(f"counts must map keys to whole numbers, got {type(counts).__name__}")
        if None in counts:
            raise InputError("keys must not be null, got a null; leave it out or give it a name")
        kinds = set(map(type, counts))
        if not all(issubclass(kind, str) for kind in kinds):
            raise InputError("keys must be texts, got something else; str() makes texts of them")
        values = _whole_numbers(counts)
        try:
            labels = pl.Series("key", list(counts), dtype=pl.String)
        except UnicodeEncodeError:
            raise InputError("keys must be texts that can be written as UTF-8, got one that cannot") from None
        order = labels.arg_sort().to_numpy()
        return cls(labels.gather(order), values[order])

    def keys(self, places: NDArray[np.int64], noise: Noise) -> Keys:
        return noise.at("labels").label_keys(*join_texts(self.labels.gather(places)))

    def noise(self, noise: Noise) -> Noise:
        """The noise bound to labels and counts, so that no two histograms share one."""
        text, lengths = join_texts(self.labels)
        return bound_to(noise, text, lengths.tobytes(), self.counts.tobytes())

    def names(self, places: NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(self.labels.gather(places).to_list())


def _whole_numbers(counts: Mapping[str, int]) -> NDArray[np.int64]:
    refusal = InputError("counts must be whole numbers from 0 to 2^44 - 1, got something else")
    if not all(issubclass(kind, int | np.integer) and kind is not bool for kind in set(map(type, counts.values()))):
        raise refusal
    try:
        values = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    except OverflowError:
        raise refusal from None
    if len(values) and not (values.min() >= 0 and values.max() < MOST):
        raise refusal
    return values


_CONTEXT = decimal.Context(prec=160, rounding=decimal.ROUND_HALF_EVEN)
_HALF_WIDTH = 2.0**-46
_SMALLEST_SCALE, _LARGEST_SCALE = Fraction(1, 2**64), Fraction(2**48)


def first_in_race(counts: NDArray[np.int64], bits: NDArray[np.uint64], scale: Fraction, k: int) -> NDArray[np.int64]:
    """The places of the k largest of count + Gumbel(scale), largest first; all of them if there are fewer.

    `bits` has a row (low, high) of 128 uniform bits for each item. Equal arrivals go by position, so give the items in
    the order of their labels. Counts stay below 2^61 in size.
    """
    check_race_scale(scale)
    check_at_least(1, k=k)
    if len(counts) == 0:
        return np.empty(0, dtype=np.int64)
    behind = counts.max() - counts
    earliest, latest = _brackets(behind, bits, scale)
    last = min(k, len(counts)) - 1
    # Whoever starts after k brackets have ended comes after k others.
    front = np.flatnonzero(earliest <= np.partition(latest, last)[last])
    order = front[np.argsort(earliest[front], kind="stable")]
    # A group ends where everybody before is surely earlier than everybody after.
    ended = np.maximum.accumulate(latest[order])[:-1] < earliest[order][1:]
    if not ended.all():
        edges = [0, *(np.flatnonzero(ended) + 1).tolist(), len(order)]
        for start in np.flatnonzero(np.diff(edges) > 1):
            # It has one of the first k: before any later one k brackets would have ended.
            group = slice(edges[start], edges[start + 1])
            order[group] = _sorted_exactly(order[group], behind, bits, scale)
    return order[:k]


def exact_arrival(behind: int, bits: int, scale: Fraction) -> Decimal:
    """ln E + behind / scale to 160 digits, E = -ln(1 - U), U = (bits + 1/2) / 2^128."""
    with decimal.localcontext(_CONTEXT):
        # 129 places: exact.
        rest = Decimal(2**129 - 2 * bits - 1) / Decimal(2**129)
        return (-rest.ln()).ln() + Decimal(behind * scale.denominator) / Decimal(scale.numerator)


def race_distance(items: int, k: int) -> Fraction:
    """How far the first k of a race of so many items are from the ideal ones, in total variation."""
    return Fraction(items * k, 2**128)


def race_rho(steps: int, scale: Fraction) -> Fraction:
    """What so many places of a race cost if neighbors move all counts one way by at most one."""
    return steps / (8 * scale**2)


def race_scale(steps: int, rho: Fraction | float) -> Fraction:
    """The least scale, a multiple of 1/4096, at which so many places cost at most `rho`."""
    check_at_least(1, steps=steps)
    check_positive(rho=rho)
    # The least m with (m / 4096)^2 >= steps / (8 rho).
    square = math.ceil(Fraction(steps * SCALE_GRID**2) / (8 * Fraction(rho)))
    return Fraction(math.isqrt(square - 1) + 1, SCALE_GRID)


def check_race_scale(scale: Fraction) -> None:
    """Refuse what is not an exact scale between 2^-64 and 2^48."""
    if not isinstance(scale, Fraction) or not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
        raise ParameterError(f"scale must be a Fraction from 2^-64 to 2^48, got {scale}")


def _brackets(
    behind: NDArray[np.int64], bits: NDArray[np.uint64], scale: Fraction
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between which numbers each arrival lies; the module's docstring says why."""
    low, high = bits[:, 0], bits[:, 1]
    early = high < np.uint64(2**63)
    share = np.where(early, high, ~high) * 2.0**-64 + (np.where(early, low, ~low) + 0.5) * 2.0**-128
    waits = np.log(-np.where(early, np.log1p(-share), np.log(share)))
    lags = behind * float(1 / scale)
    arrivals = waits + lags
    half_widths = _HALF_WIDTH * (1 + np.abs(waits) + lags)
    return arrivals - half_widths, arrivals + half_widths


def _sorted_exactly(
    group: NDArray[np.int64], behind: NDArray[np.int64], bits: NDArray[np.uint64], scale: Fraction
) -> list[int]:
    places = group.tolist()
    words = [low | high << 64 for low, high in bits[group].tolist()]
    runners = dict(zip(places, zip(behind[group].tolist(), words, strict=True), strict=True))
    arrivals = {(lag, word): exact_arrival(lag, word, scale) for lag, word in set(runners.values())}
    return sorted(places, key=lambda place: (arrivals[runners[place]], place))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeling:
    """The first k labels of a known domain in a race of count + Gumbel(1 / epsilon).

    Guarantee: k steps of bounded range epsilon, (k epsilon^2 / 8) zCDP; nothing bad.
    Error: with a chance of 1 - b every picked count is at least h_(k) - ln(k (items - k) / b) / epsilon.
    Cost: 128 bits a label.

    >>> from pianissimo.testing import NoNoise
    >>> Peeling(items=3, k=2, epsilon=Fraction(1)).answer({"a": 3, "b": 0, "c": 9}, NoNoise()).labels
    ('c', 'a')
    """

    items: int
    """How many labels the domain has; public."""

    k: int
    """How many are picked."""

    epsilon: Fraction
    """Of one pick."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k, items=self.items)
        if not self.k <= self.items:
            raise ParameterError(f"k must be at most the {self.items} labels of the domain, got {self.k}")
        check_fraction(epsilon=self.epsilon)
        check_positive(epsilon=self.epsilon)
        check_race_scale(1 / self.epsilon)

    @property
    def loss(self) -> BoundedRange:
        return BoundedRange(steps=self.k, width=self.epsilon, distance=race_distance(self.items, self.k))

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The picks in order. The noise is given by tests, or fresh."""
        histogram = Counted.of(counts)
        noise = histogram.noise(noise)
        if len(histogram.counts) != self.items:
            raise InputError(f"counts must hold the {self.items} labels of the domain, got another number of them")
        keys = histogram.keys(np.arange(self.items), noise)
        first = first_in_race(histogram.counts, noise.at("race").bits(keys), 1 / self.epsilon, self.k)
        return Answer(histogram.names(first), met_threshold=False)

    def cost(self, answer: Answer) -> int:
        return answer.length
