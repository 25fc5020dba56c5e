"""The privacy-aware Misra-Gries sketch: the heavy keys of a stream of sets.

Lebeda and Tetek, Algorithm 4. Each distinct key of a set counts one more; if more than k keys are stored then, all
counts go down by one, once for the whole set, and zeros are dropped. So one set, of any size, moves every count by at
most one, all in one direction, in at most k keys: what one event or one user brings need not be clipped.
"""

from pianissimo.checks import Real
from pianissimo.noise import Noise
from pianissimo.sketches.keys import key_column, sets_of
from pianissimo.sketches.merged_release import release_merged
from pianissimo.sketches.sparse_histogram import SparseRelease
from pianissimo.sketches.stream_sketch import StreamSketch


class PrivacyAwareMisraGries(StreamSketch):
    """Counts of the heavy keys of one stream of sets: an event with several keys, or a user who comes once.

    Error: 0 <= f(x) - c(x) <= (N - sum of c) / (k + 1), N the sizes of all sets together.
    Cost: that of `MisraGries`, and for a moment a counter for each key of the largest set.

    >>> sketch = PrivacyAwareMisraGries(k=3)
    >>> sketch.update([[1, 2], [1, 3], [1, 4, 1]])
    >>> sketch.estimates(), sketch.decrements
    ({1: 2}, 1)
    """

    sets = True
    stored_as = "privacy-aware"

    def update(self, values: object) -> None:
        """Count a batch: a column of lists of whole numbers, texts or bytes; one list is one set.

        A key that a list has twice counts once. All of the batch is counted, or nothing if one key cannot be.
        """
        keys, ends, trusted = sets_of(values)
        self._table.update(key_column(keys, self.key_kind, trusted=trusted), ends)

    def release(self, *, epsilon: Real, delta: Real, noise: Noise | None = None) -> SparseRelease:
        """The heavy keys, once, at (epsilon, delta) for one set of any size: see `release_merged`."""
        return release_merged(self.contents(), k=self.k, epsilon=epsilon, delta=delta, noise=noise)
