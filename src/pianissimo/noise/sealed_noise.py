"""Noise that is bound to seals: draws of a durable stream follow from what was sealed when they are first made."""

from collections.abc import Callable
from typing import Self

from pianissimo.noise.keyed import Noise, OuterNoise, PathPart

Roots = Callable[[int], Noise]
"""The noise of the epoch that a tick of the stream belongs to, at the path of the incarnation."""

Macs = Callable[[int], bytes]
"""The keyed digest of the seal of a tick of the stream."""


NamesRoot = Callable[[], Noise | None]
"""Where names are, of a stream that has a key of their own for them; asked for when something is named."""


class SealedNoise(OuterNoise):
    """Noise whose draws can be bound to a seal."""

    __slots__ = ("_first", "_macs", "_names", "_path", "_roots", "_stride")

    def __init__(
        self, roots: Roots, macs: Macs, *, first: int = 0, stride: int = 1, names: NamesRoot = lambda: None
    ) -> None:
        # What is drawn without a seal.
        super().__init__(roots(first))
        self._roots = roots
        self._macs = macs
        # Tick k of a query that is published at every n-th tick ends with tick first + n k of the stream.
        self._first, self._stride = first, stride
        self._names = names
        self._path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        """The noise further down the path."""
        below = object.__new__(type(self))
        below._roots, below._macs = self._roots, self._macs
        below._first, below._stride = self._first, self._stride
        below._names = self._names
        below._path = self._path + path
        below.inner = self.inner.at(*path)
        return below

    def naming(self, what: str) -> Noise:
        """From the names key; streams of before have their names from the noise."""
        root = self._names()
        return self.inner.naming(what) if root is None else root.at(*self._path, what)

    def sealed(self, tick: int) -> Noise:
        """The noise here, bound to the seal of a tick of this query."""
        place = self._first + tick * self._stride
        return self._roots(place).at(*self._path, "sealed", self._macs(place))
