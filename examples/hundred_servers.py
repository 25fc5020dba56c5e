"""A hundred servers see 10 million requests; each sends a sketch of a few thousand counters, and one release comes out.

Run it: `python examples/hundred_servers.py`, or with fewer requests: `python examples/hundred_servers.py 1000000`.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from pianissimo.sketches import MergedSketch, MisraGries, SparseRelease, merge_in_order, merge_in_pairs

SERVERS = 100
REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
PAGES = 1_000_000
COUNTERS = 4096
EPSILON, DELTA = 1.0, 1e-9

pages = pl.Series("page", [f"/shop/item/{number:07d}" for number in range(PAGES)])
chances = 1 / np.arange(1, PAGES + 1) ** 1.1
limits = np.cumsum(chances / chances.sum())
generator = np.random.default_rng(5)

started = time.perf_counter()
truth = np.zeros(PAGES, dtype=np.int64)
raw_bytes = 0
folder = tempfile.TemporaryDirectory()
files = [Path(folder.name, f"server-{number:03d}.pps") for number in range(SERVERS)]
for number, file in enumerate(files):
    requests = REQUESTS // SERVERS
    visited = np.searchsorted(limits, generator.random(requests)).clip(max=PAGES - 1)
    truth += np.bincount(visited, minlength=PAGES)
    keys = pages.gather(visited)
    raw_bytes += int(keys.str.len_bytes().sum()) + requests  # a line each

    # What a server does: count, and write the sketch to a file that travels.
    sketch = MisraGries(k=COUNTERS, name=f"server-{number:03d}")
    sketch.update(keys)
    file.write_bytes(sketch.to_bytes())

moved_bytes = sum(file.stat().st_size for file in files)
print(f"{SERVERS} servers, {truth.sum():,} requests for {np.count_nonzero(truth):,} pages, k = {COUNTERS:,}")
print(f"bytes of raw data {raw_bytes:>13,}")
print(f"bytes moved       {moved_bytes:>13,}   {raw_bytes / moved_bytes:.1f} times less")

# The order of merges is fixed before the data. One after the other, or neighbors first: the promise and the bound on
# the error are the same, and the counts may differ within it.
arrived = [MisraGries.from_bytes(file.read_bytes()) for file in files]
folder.cleanup()
bound = truth.sum() / (COUNTERS + 1)
exact: dict[str, int] = dict(zip(pages.to_list(), truth.tolist(), strict=True))


def worst_error(merged: MergedSketch) -> int:
    """How far the counts are from the truth at most, over all pages."""
    estimates = merged.estimates()
    return max(abs(count - estimates.get(page, 0)) for page, count in exact.items())


trees = {"one after the other": merge_in_order(arrived), "in pairs": merge_in_pairs(arrived)}
print(f"\nmerged, without noise; the bound on the error is n / (k + 1) = {bound:,.0f}")
for name, merged in trees.items():
    kept, off = len(merged.estimates()), worst_error(merged)
    print(f"  {name:<20} {kept:>5,} pages kept, worst error {off:,}, {off / bound:.2f} of the bound")
left, right = (merged.estimates() for merged in trees.values())
apart = max(abs(left.get(page, 0) - right.get(page, 0)) for page in left.keys() | right.keys())
print(f"  the two differ by at most {apart:,}")

# Only one of the two is released: both would cost the budget twice.
released: SparseRelease = trees["in pairs"].release(epsilon=EPSILON, delta=DELTA, ledger="not accounted for")
shown = {str(page): estimate for page, estimate in released.to_dict().items()}
surely = bound + 2 * released.threshold
heavy = {page for page, count in exact.items() if count >= surely}
errors = [abs(estimate - exact[page]) for page, estimate in shown.items()]
print(f"\none release at ({EPSILON:g}, {DELTA:g}), shown from {released.threshold:,.1f}")
print(f"  heavy hitters of {surely:,.0f} requests and more: {len(heavy & shown.keys())} of {len(heavy)} found")
print(f"  pages shown {len(shown)}, of which never requested {sum(exact[page] == 0 for page in shown)}")
print(f"  error at most {max(errors, default=0):,.0f}; the sketch's bound and the threshold allow {surely:,.0f}")
for page, estimate in sorted(shown.items(), key=lambda row: -row[1])[:5]:
    print(f"  {page}  {estimate:>12,.1f}   truly {exact[page]:>9,}")
print(f"\n{time.perf_counter() - started:.0f} s")
