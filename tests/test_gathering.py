"""What a batch adds, of the mechanisms of streams that `tests/mechanisms.py` does not list: sketches and monitors."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.report import size
from tests.mechanisms import (
    CASES,
    DOMAIN,
    EVENT_CASES,
    HAAR,
    SMALL_CAP,
    USER_CASES,
    Case,
    as_labels,
    as_lengths,
    as_users,
)
from tests.shared_checks import check_combining, check_gathering, check_resuming, check_splitting

from pianissimo import codec
from pianissimo.counting import KnownHistogram, MetaHistogram, MetaTopList, Summer, TopList, UnknownHistogram
from pianissimo.errors import InputError
from pianissimo.identity import _BY_SLUG
from pianissimo.mechanism import Run
from pianissimo.monitors import Alarms, FixedLength, TrendingMonitor
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.selection import KnownGauss
from pianissimo.sketches import MisraGries, PublishedTree, RunningSketch, SetTree, SketchTree
from pianissimo.sketches.tree_nodes import OpenKeys, OpenSets, gather_keys, gather_sets
from pianissimo.testing import SeededNoise
from pianissimo.users import EachPeriod, PeriodCap, UserStatistics, UserSum
from pianissimo.users.user_labels import UserLabels

SCALE = Fraction(1, 4)
ONE_SHOT = KnownGauss(domain=DOMAIN, variance=SCALE, max_keys_per_event=2)


def as_single(events: list[list[str]]) -> pl.Series:
    """One key an event."""
    return pl.Series([event[0] if event else "none" for event in events], dtype=pl.String)


def as_holdings(events: list[list[str]]) -> pl.DataFrame:
    """The first label is the user, the others the keys that she holds."""
    pairs = [(event[0], key) for event in events for key in event[1:]]
    return pl.DataFrame(pairs, schema={"user": pl.String, "key": pl.String}, orient="row")


def as_matches(events: list[list[str]]) -> pl.DataFrame:
    """The first label is the user; her event matches what it holds besides."""
    return pl.DataFrame(
        {
            "user": pl.Series([event[0] if event else "nobody" for event in events], dtype=pl.String),
            "a": pl.Series(["a" in event[1:] for event in events], dtype=pl.Boolean),
            "b": pl.Series(["b" in event[1:] for event in events], dtype=pl.Boolean),
        }
    )


def trending(**fields: Any) -> TrendingMonitor:
    return TrendingMonitor(horizon=6, alarms_per_user=2, scale=SCALE, **fields)


def lists_of(**fields: Any) -> UnknownHistogram:
    return UnknownHistogram(plan=HAAR, delta=SCALE, max_keys_per_event=2, **fields)


MORE = {
    "sum": Case(Summer(plan=HAAR, low=-1, high=3), as_lengths, always_shown=True),
    "top list": Case(TopList(histogram=KnownHistogram(plan=HAAR, domain=DOMAIN), k=2), as_labels, always_shown=False),
    "top list of labels that nobody listed": Case(TopList(histogram=lists_of(), k=2), as_labels, always_shown=False),
    "labels from a floor on, in turn": Case(lists_of(show_from=3, test_every=2), as_labels, always_shown=False),
    "top list of one-shot answers": Case(
        MetaTopList(histogram=MetaHistogram(base=2, horizon=6, answer=ONE_SHOT), k=2), as_labels, always_shown=False
    ),
    "sketch tree": Case(
        SketchTree.calibrated(horizon=6, rho=200.0, bad=0.5, k=2, max_keys_per_event=2), as_labels, always_shown=False
    ),
    "published tree": Case(PublishedTree.gaussian(horizon=6, rho=200.0, bad=0.5, k=2), as_single, always_shown=False),
    "running sketch": Case(RunningSketch.calibrated(horizon=6, rho=200.0, bad=0.5, k=2), as_single, always_shown=False),
    "set tree": Case(SetTree.calibrated(horizon=6, rho=200.0, bad=0.5, k=2), as_labels, always_shown=False),
    "set tree with a total": Case(
        SetTree.calibrated(horizon=6, rho=200.0, bad=0.5, k=2, max_keys_per_event=2, with_total=True),
        as_labels,
        always_shown=False,
    ),
    "trends": Case(
        trending(threshold=3, max_keys_per_user=2, delta_skip=Fraction(1, 2)), as_holdings, always_shown=False
    ),
    "trends of a domain": Case(trending(threshold=2, domain=DOMAIN), as_holdings, always_shown=False),
    "trends of a huge domain": Case(
        trending(threshold=2, max_keys_per_user=2, domain=FixedLength("abc", 1)), as_holdings, always_shown=False
    ),
    "alarms": Case(
        Alarms(horizon=6, thresholds=(("a", 1), ("b", 2)), alarms_per_user=2, scale=SCALE),
        as_matches,
        always_shown=False,
    ),
    "trends by period": Case(
        trending(threshold=2, domain=DOMAIN, period=2, tells_exhausted=True), as_holdings, always_shown=False
    ),
    "alarms by period": Case(
        Alarms(horizon=6, thresholds=(("a", 1),), alarms_per_user=1, scale=SCALE, period=3, tells_exhausted=True),
        as_matches,
        always_shown=False,
    ),
    "unsigned sum of users": Case(
        UserSum(cap=SMALL_CAP, plan=HaarPlan, horizon=6, rho=Fraction(2)), as_users, always_shown=True
    ),
    "count of users by period": Case(
        UserStatistics(cap=PeriodCap(units=2, ticks=2), plan=TreePlan, horizon=6, rho=Fraction(2)),
        as_users,
        always_shown=True,
    ),
}

events = st.lists(st.lists(st.sampled_from(["a", "b", "c", "nowhere", "ü"]), max_size=4), max_size=12)
ticks = st.lists(events, min_size=6, max_size=6)
more_mechanisms = pytest.mark.parametrize("case", MORE.values(), ids=MORE.keys())
few_examples = settings(max_examples=size(8, 25), deadline=None)


def test_every_mechanism_is_listed() -> None:
    """Whoever adds one has the checks of what pieces add run over it."""
    listed = {type(case.mechanism) for cases in (CASES, USER_CASES, EVENT_CASES, MORE) for case in cases.values()}
    known = {each.kind for each in _BY_SLUG.values() if each.kind.__module__.startswith("pianissimo.")}
    found = {kind for kind in known if all(hasattr(kind, name) for name in ("gather", "combine", "add", "release"))}
    assert len(found) > 20
    assert found <= listed


@more_mechanisms
@few_examples
@given(stream=ticks, order=st.permutations(range(12)))
def test_what_a_tick_adds_can_be_stored_and_counted_later(
    case: Case, stream: list[list[list[str]]], order: list[int]
) -> None:
    check_gathering(case.mechanism, [case.as_batch(batch) for batch in stream], order)


@more_mechanisms
@few_examples
@given(batch=events, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_where_batches_are_cut_is_no_matter(case: Case, batch: list[list[str]], cuts: list[int]) -> None:
    """Where they are cut may depend on the number of events: it must not enter what is released."""
    check_splitting(case.mechanism, case.as_batch(batch), cuts)


@more_mechanisms
@few_examples
@given(batch=events, cuts=st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_what_pieces_add_together_is_what_the_whole_adds(case: Case, batch: list[list[str]], cuts: list[int]) -> None:
    check_combining(case.mechanism, case.as_batch(batch), cuts)


@more_mechanisms
@few_examples
@given(stream=ticks, stop=st.integers(0, 6))
def test_saving_and_resuming_change_nothing(case: Case, stream: list[list[list[str]]], stop: int) -> None:
    check_resuming(case.mechanism, [case.as_batch(batch) for batch in stream], stop)


@pytest.mark.parametrize("case", (CASES | USER_CASES | MORE).values(), ids=(CASES | USER_CASES | MORE).keys())
@few_examples
@given(first=events, second=events)
def test_an_update_adds_what_is_gathered_and_what_is_gathered_knows_nothing_of_others(
    case: Case, first: list[list[str]], second: list[list[str]]
) -> None:
    """What a batch adds is the same whatever was counted before, also in the same tick.

    By slot, it reads what earlier ticks have left: all batches of a tick are then gathered before any is counted.
    """
    by_slot = getattr(case.mechanism, "by_slot", False)
    updated, added, fresh = (Run(case.mechanism, SeededNoise(7)) for _ in range(3))
    one, other = case.as_batch(first), case.as_batch(second)
    at_first = codec.pack("gathered", 1, fresh.gather(other))
    for _ in range(2):
        # Of as many ticks, and no events.
        gathered = codec.pack("gathered", 1, fresh.gather(other))
        # Users have other names in another period.
        assert gathered == at_first or isinstance(case.mechanism, EachPeriod)
        own = codec.pack("gathered", 1, added.gather(other))
        updated.update(one)
        added.add(added.gather(one))
        if not by_slot:
            assert codec.pack("gathered", 1, added.gather(other)) == own == gathered
        updated.update(other)
        added.add(codec.unpack("gathered", 1, own))
        if not _keeps_labels_as_they_come(case.mechanism):
            assert codec.pack("state", 1, updated.dump()) == codec.pack("state", 1, added.dump())
        assert repr(updated.release()) == repr(added.release())
        fresh.release()


def _keeps_labels_as_they_come(mechanism: Any) -> bool:
    """Whether an update numbers labels as they come, and `add` in their order; no release tells which."""
    return isinstance(getattr(mechanism, "histogram", mechanism), UnknownHistogram | TrendingMonitor | UserLabels)


@pytest.mark.parametrize("case", (USER_CASES | MORE).values(), ids=(USER_CASES | MORE).keys())
def test_no_users_id_is_in_what_is_gathered(case: Case) -> None:
    canary = "canary-of-the-gathered"
    batch = case.as_batch([[canary, "a", "b"], ["b", "a"]])
    if not isinstance(batch, pl.DataFrame):
        pytest.skip("this mechanism has no users")
    texts = [name for name in ("label", "key") if batch.schema.get(name) == pl.String]
    batch = batch.with_columns(pl.lit("a").alias(name) for name in texts)
    run = Run(case.mechanism, SeededNoise(7))
    assert canary.encode() not in codec.pack("gathered", 1, run.gather(batch))
    run.update(batch)
    assert canary.encode() not in codec.pack("state", 1, run.dump())


keys = st.lists(st.integers(0, 6), max_size=30)


@settings(max_examples=size(100, 300), deadline=None)
@given(stream=keys, place=st.integers(0, 29), cuts=st.lists(st.integers(0, 30), max_size=4))
def test_a_stream_without_one_element_is_fed_in_the_same_order(stream: list[int], place: int, cuts: list[int]) -> None:
    """Neighbors stay neighbors, wherever either is cut into batches."""
    if place >= len(stream):
        return
    without = stream[:place] + stream[place + 1 :]
    fed = [_fed(stream, cuts), _fed(without, [cut + 1 for cut in cuts])]
    fed[0].remove(stream[place])
    assert fed[0] == fed[1]


def _fed(stream: list[int], cuts: list[int]) -> list[int]:
    tick = OpenKeys()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(places):
        tick.add(gather_keys(pl.Series(stream[start:end], dtype=pl.Int64), "int64"))
    return tick.take().to_list()


@settings(max_examples=size(70, 200), deadline=None)
@given(stream=st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=12), cut=st.integers(0, 12))
def test_sets_are_fed_in_an_order_of_their_own(stream: list[list[int]], cut: int) -> None:
    expected = sorted((sorted(set(each)) for each in stream if each), key=lambda each: (len(each), each))
    tick = OpenSets("int64")
    for piece in (stream[:cut], stream[cut:]):
        tick.add(gather_sets(pl.Series(piece, dtype=pl.List(pl.Int64)), "int64"))
    found = tick.take()
    assert ([] if found is None else found.to_list()) == expected


def test_sorting_each_batch_by_itself_would_not_do() -> None:
    """With batches of two elements, one element less reorders others: sketches then differ in more than they may."""

    def by_batches(stream: list[int]) -> list[int]:
        return [key for start in range(0, len(stream), 2) for key in sorted(stream[start : start + 2])]

    stream = [9, 1, 8, 2, 7, 3]
    left = by_batches(stream)
    left.remove(9)
    assert left != by_batches(stream[1:])


def test_sketches_count_what_was_gathered() -> None:
    tree = SketchTree.calibrated(horizon=4, rho=2.0, bad=1e-6, k=8)
    run = Run(tree, SeededNoise(1))
    run.update(pl.Series(["b", "a", "b"]))
    sketch = MisraGries(8, keys="text")
    sketch.update(run._state.tick.take())
    assert sketch.estimates() == {"a": 1, "b": 2}


@pytest.mark.parametrize("kind", ["int64", "text", "bytes"])
def test_keys_of_all_kinds_are_stored_without_an_object_for_each(kind: Any) -> None:
    column = {
        "int64": pl.Series([3, -1, 3]),
        "text": pl.Series(["ü", "", "ü"]),
        "bytes": pl.Series([b"\xff", b"", b"\xff"], dtype=pl.Binary),
    }[kind]
    stored = codec.unpack("keys", 1, codec.pack("keys", 1, gather_keys(column, kind)))
    tick = OpenKeys()
    tick.add(stored)
    assert tick.take().to_list() == sorted(column.to_list())
    if kind == "bytes":
        with pytest.raises(InputError, match="valid UTF-8"):
            gather_keys(column, "text")
        with pytest.raises(InputError, match="at most 256 bytes"):
            gather_keys(pl.Series([b"x" * 257]), "bytes")


def test_numbers_are_stored_as_short_as_they_are() -> None:
    for low, high, expected in ((0, 255, "uint8"), (-1, 5, "int8"), (0, 256, "int16"), (-(2**40), 0, "int64")):
        assert codec.narrow(np.array([low, high])).dtype == expected
    assert codec.narrow(np.array([2**63], dtype=np.uint64)).dtype == "uint64"
    assert codec.narrow(np.array([300], dtype=np.uint32)).dtype == "uint32"
