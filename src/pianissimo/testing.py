"""For tests alone: noise that is absent or seeded.

Nothing else may import this module, so that `NoNoise` cannot reach a deployment.
"""

import hashlib
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise.keyed import Integers, KeyedNoise, Keys, Noise, PathPart


class NoNoise(Noise):
    """Noise that is always zero: with it a mechanism equals the plain statistic.

    >>> NoNoise().at("node", 1).gaussian(5.0, np.arange(3, dtype=np.uint64))
    array([0, 0, 0])
    """

    def at(self, *path: PathPart) -> Self:
        """Itself: zero is zero everywhere."""
        return self

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        """Zeros."""
        out[:] = 0

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        """The same middle bits for every key: 2^127."""
        return np.tile(np.array([0, 2**63], dtype=np.uint64), (len(keys), 1))

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:
        """Item keys under a public key."""
        return KeyedNoise(bytes(32)).label_keys(text, lengths)


class SeededNoise(KeyedNoise):
    """The real noise from a number everybody knows, so that tests repeat.

    >>> SeededNoise(1).gaussian(50.0) == SeededNoise(1).gaussian(50.0)
    True
    """

    __slots__ = ()

    def __init__(self, seed: int) -> None:
        super().__init__(hashlib.sha256(f"pianissimo test seed {seed}".encode()).digest())
