"""What a one-shot selection publishes.

A histogram as one-shot selections take it: from a mapping to columns in the order of the labels' bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.codec import join_texts
from pianissimo.errors import InputError
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys


@dataclass(frozen=True, slots=True)
class Answer:
    """Labels in order, whether the threshold stopped the walk, and what else came with them.

    >>> answer = Answer(labels=("b", "a"), met_threshold=True)
    >>> answer.labels, answer.length
    (('b', 'a'), 3)
    """

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
    it is about, so that an error is an answer about them. Whoever counts must leave such keys out beforehand, row by
    row, or must not show the error. `Table` does so: nothing that a table holds is refused here.

    >>> Counted.of({"b": 2, "a": 3}).labels.to_list()
    ['a', 'b']
    """

    labels: pl.Series
    """In the order of their bytes, each once."""

    counts: NDArray[np.int64]

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "Counted":
        """The columns of a mapping, if it is one from texts to counts.

        >>> Counted.of({"a": -1})
        Traceback (most recent call last):
        pianissimo.errors.InputError: counts must be whole numbers from 0 to 2^44 - 1, got something else
        """
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
        """The item keys of the labels at these places."""
        return noise.at("labels").label_keys(*join_texts(self.labels.gather(places)))

    def names(self, places: NDArray[np.int64]) -> tuple[str, ...]:
        """The labels at these places."""
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
