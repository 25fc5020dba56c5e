"""Noise of a durable stream: bound to its incarnation, its plan and the data sealed before a draw is first made.

If storage ever lies (a restored backup, a cloned disk, a lost tail), other data are sealed under the same tick number.
Their digest is another, so is the path, and the noise is independent: a second exposure, but never a difference that
is the truth. What is drawn without `sealed` is bound to the incarnation and the plan alone.
"""

from collections.abc import Callable
from typing import Self

from pianissimo.noise import Noise
from pianissimo.noise.keyed import OuterNoise, PathPart

Roots = Callable[[int], Noise]
"""The noise of the epoch that a tick of the stream belongs to, at the path of the incarnation."""

Macs = Callable[[int], bytes]
"""The keyed digest of the seal of a tick of the stream."""


class SealedNoise(OuterNoise):
    """Noise whose draws can be bound to a seal.

    >>> from pianissimo.noise import KeyedNoise
    >>> from pianissimo.noise.keyed import sealed
    >>> noise = SealedNoise(lambda tick: KeyedNoise(bytes(32)), lambda tick: bytes([tick]))
    >>> sealed(noise, 1).at("node").gaussian(50.0) == sealed(noise, 1).at("node").gaussian(50.0)
    True
    >>> draws = {sealed(noise, tick).at("node").gaussian(2.0**20) for tick in range(4)}
    >>> len(draws)
    4
    """

    __slots__ = ("_first", "_macs", "_path", "_roots", "_stride")

    def __init__(self, roots: Roots, macs: Macs, *, first: int = 0, stride: int = 1) -> None:
        # What is drawn without a seal.
        super().__init__(roots(first))
        self._roots = roots
        self._macs = macs
        # Tick k of a query that is published at every n-th tick ends with tick first + n k of the stream.
        self._first, self._stride = first, stride
        self._path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        """The noise further down the path."""
        below = object.__new__(type(self))
        below._roots, below._macs = self._roots, self._macs
        below._first, below._stride = self._first, self._stride
        below._path = self._path + path
        below.inner = self.inner.at(*path)
        return below

    def sealed(self, tick: int) -> Noise:
        """The noise here, bound to the seal of a tick of this query."""
        place = self._first + tick * self._stride
        return self._roots(place).at(*self._path, "sealed", self._macs(place))
