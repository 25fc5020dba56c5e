"""The heavy keys of a stream in small memory: sketches that merge, and their private releases."""

from pianissimo.sketches.contents import Contents
from pianissimo.sketches.key_columns import IntegerRange, split_bad
from pianissimo.sketches.merging import MergedSketch, merge_in_order, merge_in_pairs
from pianissimo.sketches.misra_gries import MisraGries, PrivacyAwareMisraGries
from pianissimo.sketches.private_release import (
    GaussianMisraGries,
    PrivateMisraGries,
    SketchRelease,
    release_shards,
    shard_of,
)
from pianissimo.sketches.published_keys import PublishedKeys, add_published
from pianissimo.sketches.published_tree import PublishedTree, RunningSketch
from pianissimo.sketches.pure_histogram import PureHistogram
from pianissimo.sketches.reduction import Reduced, ReducedMisraGries, add_reduced, reduce
from pianissimo.sketches.released_keys import HeavyKeys, SparseRelease, threshold
from pianissimo.sketches.sketch_tree import SetTree, SketchTree
from pianissimo.sketches.sparse_histogram import CorrelatedHistogram, SparseHistogram
from pianissimo.sketches.standard_sketch import AnySketch, StandardMisraGries, sketch_from_bytes

__all__ = [
    "AnySketch",
    "Contents",
    "CorrelatedHistogram",
    "GaussianMisraGries",
    "HeavyKeys",
    "IntegerRange",
    "MergedSketch",
    "MisraGries",
    "PrivacyAwareMisraGries",
    "PrivateMisraGries",
    "PublishedKeys",
    "PublishedTree",
    "PureHistogram",
    "Reduced",
    "ReducedMisraGries",
    "RunningSketch",
    "SetTree",
    "SketchRelease",
    "SketchTree",
    "SparseHistogram",
    "SparseRelease",
    "StandardMisraGries",
    "add_published",
    "add_reduced",
    "merge_in_order",
    "merge_in_pairs",
    "reduce",
    "release_shards",
    "shard_of",
    "sketch_from_bytes",
    "split_bad",
    "threshold",
]
