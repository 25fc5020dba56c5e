"""Names of users and values from a key of their own: who gathers users holds this key, and nothing noise is made of.

A stream's names follow from the names key, the stream's life and plan, and where in the plan they are used. The names
key is derived from the secret; the secret cannot be found from it. So a gatherer can tell that two rows are of one
user, and can draw no noise.
"""

from fractions import Fraction
from typing import NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.errors import StateError
from pianissimo.noise.keyed import Integers, KeyedNoise, Keys, Noise, OuterNoise, PathPart, Secret, fresh_secret

_CHECK = np.ones(1, dtype=np.uint32)


def names_root(key: Secret, incarnation: bytes, config_digest: bytes) -> Noise:
    """Where the names of one life of a stream are."""
    return KeyedNoise(key).at("pianissimo/names/v1", incarnation, config_digest)


def names_check(root: Noise) -> bytes:
    """What tells the right names key from a wrong one, and nothing else."""
    return root.at("check").label_keys(b"1", _CHECK).tobytes()


class NamesOnly(OuterNoise):
    """What a gatherer has in the place of noise: names, if it has their key, and no draw at all.

    Tables that hash under a key get one that nobody else has.
    """

    __slots__ = ("_names", "_path", "asked")

    def __init__(self, names: Noise | None) -> None:
        super().__init__(KeyedNoise(fresh_secret()))
        self._names = names
        self._path: tuple[PathPart, ...] = ()
        self.asked: list[str] = []
        """What it was asked for keys of names for, here and further down."""

    def at(self, *path: PathPart) -> Self:
        below = object.__new__(type(self))
        below.inner, below._names = self.inner.at(*path), self._names
        below._path, below.asked = self._path + path, self.asked
        return below

    def naming(self, what: str) -> Noise:
        self.asked.append(what)
        return self.inner.at(what) if self._names is None else self._names.at(*self._path, what)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> NoReturn:  # noqa: ARG002
        raise StateError("noise must be drawn where the stream is, got a draw where events are gathered")

    def bits(self, keys: Keys) -> NDArray[np.uint64]:  # noqa: ARG002
        raise StateError("noise must be drawn where the stream is, got a draw where events are gathered")
