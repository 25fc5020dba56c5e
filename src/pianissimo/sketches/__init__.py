"""The heavy keys of a stream in small memory: sketches that merge, and their private releases."""

from pianissimo.sketches.contents import Contents, Lineage
from pianissimo.sketches.keys import KeyKind, split_bad
from pianissimo.sketches.merging import MergedSketch, merge_in_order, merge_in_pairs
from pianissimo.sketches.misra_gries import AnySketch, MisraGries, PrivacyAwareMisraGries, sketch_from_bytes
from pianissimo.sketches.private_release import (
    GaussianMisraGries,
    Law,
    PrivateMisraGries,
    SketchRelease,
    release_sketch,
)
from pianissimo.sketches.pure_release import IntegerRange, KnownLabels, PureHistogram
from pianissimo.sketches.reduction import Reduced, ReducedMisraGries, ReducedRelease, add_reduced, reduce
from pianissimo.sketches.sharding import Draws, release_merged, release_shards, shard_of
from pianissimo.sketches.sparse_histogram import CorrelatedHistogram, SparseHistogram, SparseRelease
from pianissimo.sketches.thresholds import (
    exposure,
    gaussian_delta,
    gaussian_threshold,
    group_budget,
    group_delta,
    group_threshold,
    threshold,
)
from pianissimo.sketches.trees.continual import HeavyKeys, SketchTree
from pianissimo.sketches.trees.published import PublishedTree, RunningSketch
from pianissimo.sketches.trees.set_tree import SetTree

__all__ = [
    "AnySketch",
    "Contents",
    "CorrelatedHistogram",
    "Draws",
    "GaussianMisraGries",
    "HeavyKeys",
    "IntegerRange",
    "KeyKind",
    "KnownLabels",
    "Law",
    "Lineage",
    "MergedSketch",
    "MisraGries",
    "PrivacyAwareMisraGries",
    "PrivateMisraGries",
    "PublishedTree",
    "PureHistogram",
    "Reduced",
    "ReducedMisraGries",
    "ReducedRelease",
    "RunningSketch",
    "SetTree",
    "SketchRelease",
    "SketchTree",
    "SparseHistogram",
    "SparseRelease",
    "add_reduced",
    "exposure",
    "gaussian_delta",
    "gaussian_threshold",
    "group_budget",
    "group_delta",
    "group_threshold",
    "merge_in_order",
    "merge_in_pairs",
    "reduce",
    "release_merged",
    "release_shards",
    "release_sketch",
    "shard_of",
    "sketch_from_bytes",
    "split_bad",
    "threshold",
]
