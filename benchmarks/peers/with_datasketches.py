"""datasketches: heavy keys in a small table, without noise, so without any promise."""

from collections import deque
from importlib.metadata import version

import datasketches

from benchmarks.peers.work import COUNTERS

VERSION = version("datasketches")
PRIVACY = "nothing: no noise"


def heavy(keys: list[str]) -> dict[str, float]:
    """Fed key by key, which is all it offers; of its two sketches the one for objects is faster."""
    sketch = datasketches.frequent_items_sketch((COUNTERS * 4 // 3).bit_length() - 1)
    deque(map(sketch.update, keys), maxlen=0)
    certain = sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_POSITIVES)
    return {key: estimate for key, estimate, _, _ in certain}
