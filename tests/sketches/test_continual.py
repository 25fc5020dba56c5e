"""Heavy keys at every tick: the card's vector and table, sensitivity of the tree, thresholds, and the life of a run."""

import itertools
import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared_checks import check_life_cycle, check_resuming, check_splitting
from tests.sketches.small_sketches import Naive, WrittenNoise

from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.conversion import rho_from_budget
from pianissimo.loss.losses import Booked, Mixed
from pianissimo.mechanism import Mechanism, Run
from pianissimo.sketches import (
    GaussianMisraGries,
    MisraGries,
    PublishedTree,
    RunningSketch,
    SetTree,
    SketchTree,
    reduce,
    threshold,
)
from pianissimo.sketches.released_keys import item_keys
from pianissimo.sketches.tree_nodes import EndedNodes, NodeSketches, prefix_nodes
from pianissimo.testing import NoNoise, SeededNoise

SMALL: dict[str, Mechanism[Any, Any, Any]] = {
    "tree of reduced sketches": SketchTree.calibrated(horizon=6, rho=2.0, bad=0.1, k=3, max_keys_per_event=2),
    "tree without a total": SketchTree.calibrated(horizon=6, rho=2.0, bad=0.1, k=3, with_total=False, adaptive=False),
    "tree of sets": SetTree.calibrated(horizon=6, rho=2.0, bad=0.1, k=3),
    "tree of published nodes": PublishedTree.calibrated(horizon=6, epsilon=5, delta=0.1, k=3),
    "tree of published gaussian nodes": PublishedTree.gaussian(horizon=6, rho=2.0, bad=0.1, k=3),
    "running sketch": RunningSketch.calibrated(horizon=6, rho=2.0, bad=0.1, k=3),
}
every_mechanism = pytest.mark.parametrize("mechanism", SMALL.values(), ids=SMALL.keys())
events = st.lists(st.lists(st.sampled_from(["a", "b", "c", "ü"]), max_size=4), max_size=12)


def as_batch(batch: list[list[str]]) -> pl.Series:
    return pl.Series(batch, dtype=pl.List(pl.String))


@every_mechanism
@settings(max_examples=20)
@given(batch=events, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_batches_split_anyhow_count_the_same(
    mechanism: Mechanism[Any, Any, Any], batch: list[list[str]], cuts: list[int]
) -> None:
    check_splitting(mechanism, as_batch(batch), cuts)  # type: ignore[arg-type]


@every_mechanism
@settings(max_examples=15)
@given(stream=st.lists(events, min_size=6, max_size=6), stop=st.integers(0, 6))
def test_saving_and_resuming_change_nothing(
    mechanism: Mechanism[Any, Any, Any], stream: list[list[list[str]]], stop: int
) -> None:
    check_resuming(mechanism, [as_batch(batch) for batch in stream], stop)


@every_mechanism
def test_a_run_ends_at_its_horizon_and_stays_silent(mechanism: Mechanism[Any, Any, Any]) -> None:
    check_life_cycle(mechanism, as_batch([["a"], ["b"]]))  # type: ignore[arg-type]


@every_mechanism
def test_states_do_not_merge(mechanism: Mechanism[Any, Any, Any]) -> None:
    """Sketches of the same ticks merged would not be that of all events: shards are released by themselves."""
    assert not hasattr(mechanism, "merge")


@every_mechanism
def test_a_bad_batch_changes_nothing(mechanism: Mechanism[Any, Any, Any]) -> None:
    run, other = Run(mechanism, SeededNoise(1)), Run(mechanism, SeededNoise(1))
    for bad in (as_batch([["a"], ["x" * 300]]), pl.Series([[1, 2]]), pl.Series([["a", None]])):
        with pytest.raises(InputError):
            run.update(bad)
    for each in (run, other):
        each.update(as_batch([["a"]] * 500))
    assert run.release().value.to_dict() == other.release().value.to_dict()


@pytest.mark.parametrize("keys", ["int64", "bytes"])
def test_numbers_and_bytes_are_keys_too(keys: Any) -> None:
    column = pl.Series([7] * 400 + [8]) if keys == "int64" else pl.Series([b"\xff"] * 400 + [b"a"])
    for mechanism in (
        SketchTree.calibrated(horizon=3, rho=2.0, bad=0.1, k=3, keys=keys),
        SetTree.calibrated(horizon=3, rho=2.0, bad=0.1, k=3, keys=keys),
        PublishedTree.calibrated(horizon=3, epsilon=5, delta=0.1, k=3, keys=keys),
    ):
        batch = column.reshape((-1, 1)).arr.to_list() if isinstance(mechanism, SetTree) else column
        check_resuming(mechanism, [batch, batch, batch], 2)
        run: Run[Any, Any, Any] = Run(mechanism, SeededNoise(2))
        run.update(batch)
        assert run.release().value.keys.to_list() == [column[0]]


def test_nodes_of_the_card() -> None:
    assert prefix_nodes(6) == [(2, 1), (1, 3)]
    assert prefix_nodes(7) == [(2, 1), (1, 3), (0, 7)]


def test_the_vector_of_the_card() -> None:
    tree = SketchTree(horizon=3, k=2, variance=Fraction(1), bad=Fraction(1, 2), keys="int64", with_total=False)
    run = Run(tree, NoNoise())
    run.update(pl.Series([1] * 9 + [2] * 5))
    run.release()
    run.update(pl.Series([3, 4, 4, 1]))
    assert run.release().value.to_dict() == {1: 4.0}
    run.update(pl.Series([1, 1, 2]))
    assert run.release().value.to_dict() == {1: 5.0}


def test_a_sum_has_the_noise_of_its_nodes_whether_they_hold_the_key_or_not() -> None:
    tree = SketchTree(horizon=3, k=2, variance=Fraction(1), bad=Fraction(1, 2), keys="int64")
    noise = WrittenNoise(
        {
            ("node", 1, 1, "counts", 1): 5,
            ("node", 1, 1, "total"): 2,
            ("node", 0, 3, "counts", 1): -3,
            ("node", 0, 3, "counts", 9): 40,
            ("node", 0, 3, "total"): 1,
            ("node", 1, 1, "counts", 9): -7,
        }
    )
    run = Run(tree, noise)
    for batch in ([1] * 30, [1] * 30, [9] * 20):
        run.update(pl.Series(batch))
        value = run.release().value
    # Node of ticks 1-2: C(1) = 3 * 60 - 60; node of tick 3: C(9) = 3 * 20 - 20.
    assert dict(zip(value.keys.to_list(), value.values.tolist(), strict=True)) == {1: 120 + 5 - 3, 9: 40 + 40 - 7}
    assert value.total == 80 + 2 + 1


def _node_vectors(stream: tuple[tuple[int, ...], ...], k: int) -> dict[tuple[int, int], tuple[dict[int, int], int]]:
    nodes = NodeSketches(k=k, keys="int64", horizon=len(stream))
    vectors = {}
    for tick, keys in enumerate(stream, start=1):
        nodes.feed(pl.Series(keys, dtype=pl.Int64))
        reduced = reduce(nodes.close(tick).contents(), k=k)
        level = (tick & -tick).bit_length() - 1
        values = dict(zip(reduced.keys.to_list(), reduced.values.tolist(), strict=True))
        vectors[level, tick >> level] = values, reduced.total
    return vectors


def test_how_far_one_element_moves_a_tree_of_three_ticks() -> None:
    """Over all streams of up to two keys a tick: at most L (k^2 + k - 1) in squares, L (k^2 + k) with totals."""
    k, levels = 2, 2
    ticks = [(), *itertools.product((1, 2, 3), repeat=1), *itertools.product((1, 2, 3), repeat=2)]
    worst = worst_total = 0
    for stream in itertools.product(ticks, ticks, ((), (1,), (3, 2))):
        whole = _node_vectors(stream, k)
        for tick, place in itertools.product(range(3), range(2)):
            if place >= len(stream[tick]):
                continue
            fewer = list(stream)
            fewer[tick] = stream[tick][:place] + stream[tick][place + 1 :]
            other = _node_vectors(tuple(fewer), k)
            moves = [
                whole[node][0].get(key, 0) - other[node][0].get(key, 0)
                for node in whole
                for key in whole[node][0].keys() | other[node][0].keys()
            ]
            totals = sum(whole[node][1] - other[node][1] for node in whole)
            worst = max(worst, sum(move * move for move in moves))
            worst_total = max(worst_total, sum(move * move for move in moves) + totals)
            # A key that is a candidate on one side alone has a sum of at most k there.
            for end in (1, 2, 3):
                ours, theirs = (_sums(nodes, end) for nodes in (whole, other))
                assert all(ours[key] <= k for key in ours.keys() - theirs.keys())
                assert all(theirs[key] <= k for key in theirs.keys() - ours.keys())
    assert levels * (k * k + k - 1) - 1 == worst
    assert levels * (k * k + k) - 1 == worst_total


def _sums(nodes: dict[tuple[int, int], tuple[dict[int, int], int]], tick: int) -> dict[int, int]:
    sums: dict[int, int] = {}
    for node in prefix_nodes(tick):
        for key, value in nodes[node][0].items():
            sums[key] = sums.get(key, 0) + value
    return sums


def test_every_node_is_the_sketch_of_its_own_ticks() -> None:
    generator = np.random.default_rng(1)
    horizon, k = 13, 3
    stream = tuple(tuple(generator.integers(1, 7, size=generator.integers(0, 9)).tolist()) for _ in range(horizon))
    for (level, number), (values, total) in _node_vectors(stream, k).items():
        span = stream[(number - 1) << level : number << level]
        reduced = reduce(Naive(k).update([key for keys in span for key in keys]).contents(), k=k)
        assert values == dict(zip(reduced.keys.to_list(), reduced.values.tolist(), strict=True))
        assert total == sum(map(len, span))


def test_a_tree_of_sets_merges_its_children() -> None:
    """Node of ticks 1-2 over node of ticks 3-4, as the clock says; without noise, counts of the merged sketch."""
    batches = [
        pl.Series([[1, 2], [1, 3], [1, 4]]),
        pl.Series([[2, 3], [1, 2, 5]]),
        pl.Series([[1, 2]]),
        pl.Series([[1]]),
    ]
    run = Run(SetTree(horizon=4, k=3, variance=Fraction(1, 100), bad=Fraction(9, 10), keys="int64"), NoNoise())
    shown = []
    for batch in batches:
        run.update(batch)
        shown.append(run.release().value.to_dict())
    # {1: 2} + {1: 1, 2: 2, 3: 1, 5: 1} has four keys: less one each.
    assert shown[0] == {1: 2.0}
    assert shown[1][1] == 2.0
    assert shown[3][1] >= 3.0


# horizon: deviation, threshold, undershoot, threshold for a stream fixed in advance; in counts, at k = 1024, epsilon =
# 1, delta = 1e-8 in halves, coverage 0.99.
TABLE = {
    24: (28, 223, 371, 212),
    365: (50, 433, 727, 397),
    8760: (77, 726, 1228, 648),
    65536: (94, 921, 1560, 808),
    2**20: (116, 1201, 2039, 1035),
}


def _with_most_nodes(horizon: int) -> int:
    """A tick whose prefix has L nodes, in a tree with as many levels."""
    return (1 << horizon.bit_length()) - 1


@pytest.mark.parametrize("horizon", TABLE)
def test_the_table_of_the_card(horizon: int) -> None:
    deviation, least, undershoot, fixed_least = TABLE[horizon]
    rho, k, unit = 0.016468, 1024, 1025
    tree = SketchTree.calibrated(horizon=horizon, rho=rho, bad=5e-9, k=k, with_total=False)
    fixed = SketchTree.calibrated(horizon=horizon, rho=rho, bad=5e-9, k=k, with_total=False, adaptive=False)
    last = _with_most_nodes(horizon)
    spread = math.sqrt(last.bit_count() * float(tree.variance)) / unit
    assert round(spread) == deviation
    assert abs(tree.threshold(last) / unit - least) < 1
    assert abs(fixed.threshold(last) / unit - fixed_least) < 1
    quantile = -NormalDist().inv_cdf(0.01 / (2 * k * tree.levels * horizon))
    assert abs(tree.threshold(last) / unit + quantile * spread - undershoot) <= 1.5
    # The bound by moments is two to four per cent more.
    reach = tree.reach(last, 0.99) / unit
    assert 1.01 < (tree.threshold(last) / unit + reach) / undershoot < 1.05


@pytest.mark.parametrize(
    ("horizon", "laplace", "gaussian"),
    [(24, 570, 537), (365, 1890, 1314), (8760, 4648, 2574), (65536, 6902, 3459), (2**20, 10605, 4771)],
)
def test_the_table_of_published_nodes(horizon: int, laplace: int, gaussian: int) -> None:
    """Thresholds of all nodes of a longest prefix, without their noise."""
    levels = horizon.bit_length()
    least = threshold(epsilon=Fraction(1, levels), delta=Fraction(1, 10**8) / levels, k=1024)
    assert levels * least == laplace
    assert PublishedTree.calibrated(horizon=horizon, epsilon=1, delta=1e-8, k=1024).node.threshold == least
    tree = PublishedTree.gaussian(horizon=horizon, rho=0.016468, bad=5e-9, k=1024)
    assert levels * tree.node.threshold == pytest.approx(gaussian, rel=0.01)


@pytest.mark.parametrize(("releases", "undershoot"), [(24, 437), (365, 1836), (8760, 9701)])
def test_the_table_of_re_releases(releases: int, undershoot: int) -> None:
    mechanism = GaussianMisraGries.calibrated(k=1024, rho=0.016468, bad=5e-9, releases=releases)
    # Beside the threshold, the noise of one count: two draws, over all keys and releases.
    spread = math.sqrt(2 * float(mechanism.variance))
    quantile = -NormalDist().inv_cdf(0.01 / (2 * 1024 * releases))
    assert math.floor(mechanism.threshold + quantile * spread) == undershoot


@pytest.mark.parametrize(
    ("epsilon", "delta", "rho"),
    [
        (0.5, 5e-7, 0.006224),
        (0.5, 5e-9, 0.004370),
        (1.0, 5e-7, 0.022937),
        (1.0, 5e-9, 0.016468),
        (2.0, 5e-7, 0.083441),
        (2.0, 5e-9, 0.061376),
    ],
)
def test_the_list_of_rho(epsilon: float, delta: float, rho: float) -> None:
    """The card's orders are real numbers, ours whole ones: hardly less. It prints six digits, rounded down."""
    ours = float(rho_from_budget(epsilon, delta))
    assert 0.999 * rho < ours <= rho + 1.5e-6


def test_what_a_tree_costs() -> None:
    loss = SketchTree.calibrated(horizon=365, rho=0.016468, bad=5e-9, k=1024, max_keys_per_event=3).guarantee.loss
    assert isinstance(loss, Booked)
    assert 0.99 * 0.016468 < loss.rho <= Fraction(0.016468)
    assert loss.bad == Fraction(5e-9)
    assert loss.distance < Fraction(1, 2**60)
    sets = SetTree.calibrated(horizon=365, rho=0.016468, bad=5e-9, k=1024)
    assert sets.guarantee.loss.as_booked().rho <= Fraction(0.016468)
    assert sets.variance == math.ceil(1024 * 9 / (2 * Fraction(0.016468)))
    nodes = PublishedTree.calibrated(horizon=365, epsilon=1, delta=1e-8, k=1024).guarantee.loss
    assert isinstance(nodes, Mixed)
    assert nodes.pure == 1
    assert nodes.bad <= Fraction(1e-8)


def test_estimates_and_bars_of_a_long_run() -> None:
    """Bars of coverage 1 - 1e-10 over all keys and ticks."""
    tree = SketchTree.calibrated(horizon=20, rho=0.5, bad=1e-6, k=64)
    run = Run(tree, SeededNoise(3))
    generator = np.random.default_rng(2)
    truth: dict[str, int] = {}
    shown = 0
    for tick in range(1, 21):
        labels = [f"page {int(rank)}" for rank in generator.zipf(1.3, size=4000) if rank < 5000]
        for label in labels:
            truth[label] = truth.get(label, 0) + 1
        run.update(pl.Series(labels))
        value = run.release().value
        for key, _, lower, upper in value.to_frame(tree.reach(tick, 1 - 1e-10)).iter_rows():
            assert lower <= truth[key] <= upper
            shown += 1
        assert value.keys.to_list() == sorted(value.keys.to_list())
    assert shown > 20


def test_draws_of_a_node_stay_the_same_at_every_tick() -> None:
    """A node's noise is a function of the node and the key alone: two releases share it."""
    tree = SketchTree.calibrated(horizon=3, rho=0.1, bad=0.1, k=4, keys="int64", with_total=False)
    noise = SeededNoise(9)
    run = Run(tree, noise)
    values = []
    for _ in range(3):
        run.update(pl.Series([5] * 10**5))
        values.append(int(run.release().value.values[0]))

    def drawn(level: int, number: int) -> int:
        keys = item_keys(pl.Series([5]), noise)
        return int(noise.at("node", level, number, "counts").gaussian(variance=tree.variance, keys=keys)[0])

    assert values[0] == 4 * 10**5 + drawn(0, 1)
    assert values[1] == 8 * 10**5 + drawn(1, 1)
    assert values[2] == 12 * 10**5 + drawn(1, 1) + drawn(0, 3)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ParameterError, match="sigma must be between"):
        SketchTree.calibrated(horizon=2**20, rho=1e-9, bad=0.1, k=2**20)
    with pytest.raises(ParameterError, match="keys must be"):
        SketchTree(horizon=3, k=2, variance=Fraction(1), bad=Fraction(1, 2), keys="float")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="bad must be"):
        SetTree.calibrated(horizon=3, rho=1, bad=0, k=2)


def test_what_ended_is_kept_as_long_as_it_is_needed() -> None:
    nodes = EndedNodes()
    sketch = MisraGries(k=2)
    sketch.update([1])
    assert nodes.total == 0
    assert len(NodeSketches(k=2, keys="int64", horizon=5).to_plain()) == 3
