"""The Misra-Gries sketch: the heavy keys of a stream in k counters.

Lebeda and Tetek, "Better Differentially Private Approximate Histograms and Heavy Hitters using the Misra-Gries Sketch",
Algorithm 1. A key that is stored counts one more; a new key takes a free counter, or else the counter of the *smallest*
key of count zero; if there is none, all counts go down by one. The order of evictions is a part of the promise: with
another one, two neighbouring streams can differ in more keys than a release allows for.
"""

from typing import Self

from pianissimo.checks import Real
from pianissimo.noise import Noise
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.keys import KeyKind, key_column
from pianissimo.sketches.private_release import SketchRelease, release_sketch
from pianissimo.sketches.stream_sketch import StreamSketch
from pianissimo.sketches.table import listing_of


class MisraGries(StreamSketch):
    """Counts of the heavy keys of one stream, one key an event.

    Error: c(x) <= f(x) <= c(x) + D for every key, stored or not, and D <= n / (k + 1).
    Cost: at most 64 bytes a counter and the bytes of the keys; a batch is one call, without the interpreter lock.

    >>> sketch = MisraGries(k=3)
    >>> sketch.update([5, 3, 7, 3, 9])
    >>> sketch.estimates(), sketch.decrements
    ({3: 1, 5: 0, 7: 0}, 1)
    """

    sets = False
    stored_as = "misra-gries"

    def update(self, values: object) -> None:
        """Count a batch: a column of whole numbers, texts or bytes from numpy, polars or Arrow.

        All of it is counted, or nothing if one row cannot be; `split_bad` tells which ones.
        """
        self._table.update(key_column(values, self.key_kind))

    def release(self, *, epsilon: Real, delta: Real, noise: Noise | None = None) -> SketchRelease:
        """The heavy keys, once, at (epsilon, delta) for one element: see `release_sketch`.

        A further release of a sketch that has grown costs its own budget and needs a noise path of its own.

        >>> sketch = MisraGries(k=8)
        >>> sketch.update([3] * 500 + [7])
        >>> sketch.release(epsilon=1, delta=1e-9).keys.to_list()
        [3]
        """
        return release_sketch(self.contents(), k=self.k, epsilon=epsilon, delta=delta, noise=noise)

    @classmethod
    def from_contents(cls, contents: Contents, k: int, *, keys: KeyKind) -> Self:
        """The sketch that held these.

        >>> sketch = MisraGries(2, keys="int64")
        >>> sketch.update([5, 5, 3])
        >>> MisraGries.from_contents(sketch.contents(), 2, keys="int64").estimates()
        {3: 1, 5: 2}
        """
        sketch = cls(k, keys=keys)
        listing = listing_of(contents.keys, contents.over)
        sketch._table.restore(keys, listing, decrements=contents.decrements, total=contents.total)
        return sketch
