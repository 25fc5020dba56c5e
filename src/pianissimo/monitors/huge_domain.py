"""Domains too large to go through, but whose elements are numbered: keys that nobody holds are reported by lot.

Every key of the domain is tested at every tick, those of weight 0 too, or a key's report would tell that somebody holds
it. Those of weight 0 all have the same chance q, so their reports are drawn together: a Binomial number of them,
distinct elements with equal chances, and a value for each given that it is at least the threshold. The law is that of
testing them one by one, and no delta is spent.
"""

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import polars as pl

from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import LONGEST_LABEL
from pianissimo.monitors.race_monitor import Integers, RaceNoise
from pianissimo.noise import Noise
from pianissimo.noise.exact_draws import binomial, rational

LARGEST_DOMAIN = 2**128
"""Elements are drawn with 256 bits, so within 2^-128 of equal chances for a domain up to this size."""

MOST_EMPTY = 1000
"""More reports of keys that nobody holds are not expected at a tick: the threshold would be senseless."""


class NumberedDomain(Protocol):
    """A finite set of texts that is known beforehand, numbered from 0."""

    @property
    def size(self) -> int:
        """How many texts there are, at most 2^128."""

    def label(self, number: int) -> str:
        """The text of a number; different numbers have different texts."""

    def contains(self, labels: pl.Series) -> pl.Series:
        """Whether each text is in the domain."""


@identified("fixed-length")
@dataclass(frozen=True)
class FixedLength:
    """All texts of one length over an alphabet, as codes of drugs, diseases or machines are.

    >>> codes = FixedLength("abc", 2)
    >>> codes.size, codes.label(5)
    (9, 'bc')
    >>> codes.contains(pl.Series(["ab", "abc", "xa"])).to_list()
    [True, False, False]
    """

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


def draw_empty(
    domain: NumberedDomain, held: Container[str], weighty: int, least: int, law: RaceNoise, noise: Noise
) -> tuple[list[str], Integers]:
    """The keys of weight 0 that are reported, and their values; `weighty` keys, those `held`, are not among them.

    Distance: 2^-127 for each of the expected reports, together below 2^-110.
    """
    chance = int(law.chance(least) * 2**128)
    count = binomial(domain.size - weighty, rational(law.chance(least)), noise.at("empty keys"))
    labels = _distinct(domain, held, weighty, count, noise.at("empty key"))
    # Given that they are below `chance`, the bits of a test are equally likely.
    given = [_number(noise.at("empty value"), place) * chance >> 256 for place in range(count)]
    rows = np.array([(bits % 2**64, bits >> 64) for bits in given], dtype=np.uint64).reshape(count, 2)
    return labels, law.values(rows)


def _distinct(domain: NumberedDomain, held: Container[str], weighty: int, count: int, noise: Noise) -> list[str]:
    """So many different keys that nobody holds, all with equal chances."""
    if count and 2 * (weighty + count) > domain.size:
        # Few are left, and most lots would fall on keys that are held; such a domain is small enough to go through.
        left = [label for number in range(domain.size) if (label := domain.label(number)) not in held]
        return [left.pop(_number(noise, place) * len(left) >> 256) for place in range(count)]
    labels: dict[str, None] = {}
    attempt = 0
    while len(labels) < count:
        label = domain.label(_number(noise, attempt) * domain.size >> 256)
        attempt += 1
        if label not in held:
            labels.setdefault(label)
    return list(labels)


def _number(noise: Noise, place: int) -> int:
    """A uniform number of 256 bits."""
    halves = noise.bits(np.arange(2 * place, 2 * place + 2, dtype=np.uint64)).ravel().tolist()
    return sum(half << (64 * position) for position, half in enumerate(halves))
