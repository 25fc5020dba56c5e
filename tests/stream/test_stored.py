"""A stream as plain data and back: every query kind, every field, every unit."""

import json
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pianissimo as pp
from pianissimo.errors import PianissimoError, StateError
from pianissimo.loss.losses import Unit
from pianissimo.stream import Stream, StreamPlan

labels = st.lists(st.text("abcü", min_size=1, max_size=4), min_size=3, max_size=6, unique=True)
amounts = st.integers(-(10**6), 10**6).map(lambda value: value / 2)
ranges = st.tuples(amounts, amounts).filter(lambda pair: pair[0] < pair[1])
common = {"weight": st.floats(0.5, 4.0), "every": st.integers(1, 3)}
tidy = st.lists(st.sampled_from(["non_negative", "monotone"]), unique=True)
watched = {"alarms_per_user": st.integers(1, 9), "threshold": st.one_of(st.just("auto"), st.integers(10, 10**6))}
conditions = st.one_of(
    st.sampled_from(["price < 5", "drug = 'aspirin' AND price > 2", "region IN ('north', 'south')"]),
    st.integers(0, 9).map(lambda least: (pl.col("price") > least) & pl.col("drug").is_in(["a", "b"])),
)


def query(kind: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, dict[str, Any]]]:
    return st.fixed_dictionaries(fields).map(lambda chosen: (kind, chosen))


KINDS = {
    "Count": query(pp.Count, **common, tidy=tidy),
    "Sum": query(
        pp.Sum,
        **common,
        value=st.just("price"),
        range=ranges,
        outside=st.sampled_from(["clamp", "refuse"]),
        grid=st.sampled_from([0.5, 0.25, Fraction(1, 2)]),
    ),
    "Histogram": query(
        pp.Histogram,
        **common,
        tidy=tidy,
        key=st.just("drug"),
        domain=st.one_of(st.none(), labels),
        max_keys_per_event=st.integers(1, 4),
        remember=st.booleans(),
    ),
    "TopK": query(
        pp.TopK, **common, key=st.just("drug"), k=st.integers(1, 3), domain=labels, max_keys_per_event=st.none()
    ),
    "MaxFrequency": query(pp.MaxFrequency, **common, key=st.just("drug"), domain=labels),
    "Distinct": query(pp.Distinct, **common, key=st.just("drug")),
    "Users": query(pp.Users, **common, tidy=tidy, where=st.one_of(st.none(), conditions)),
    "HeavyHitters": query(
        pp.HeavyHitters,
        **common,
        key=st.just("drug"),
        k=st.integers(1, 99),
        expected_events=st.one_of(st.none(), st.integers(1, 10**9)),
        memory=st.integers(2**20, 2**30),
    ),
    "Quantiles": query(
        pp.Quantiles,
        **common,
        value=st.just("price"),
        range=ranges,
        at=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=3, unique=True),
        largest=st.lists(st.integers(1, 9), max_size=2, unique=True),
        cells=st.sampled_from([2, 64]),
    ),
    "Alarm": query(pp.Alarm, **watched, where=conditions),
    "Trending": query(
        pp.Trending,
        **watched,
        key=st.just("drug"),
        domain=st.one_of(st.none(), labels),
        max_keys_per_user=st.integers(1, 4),
    ),
}
caps: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"max_events_per_user": st.integers(1, 99)}),
    st.fixed_dictionaries(
        {
            "max_events_per_user": st.integers(1, 99),
            "within": st.sampled_from(["2h", "1d", timedelta(hours=3), 4]),
        },
        optional={"reset": st.booleans()},
    ),
    st.fixed_dictionaries({"within": st.sampled_from(["1d", "1w"])}, optional={"starts": st.sampled_from([7, 2])}),
)
more = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.just("sign"),
        "most_events_per_user": st.integers(1, 999),
        "first_cap": st.integers(1, 64),
        "caps": st.integers(1, 15),
        "cap_share": st.floats(0.05, 0.9),
    },
)
units = st.one_of(st.none(), st.tuples(caps, more).map(lambda both: pp.user("who", **both[0], **both[1])))


EPSILONS: list[Any] = [1, 0.5, Fraction(1, 3)]
DELTAS: list[Any] = [1e-9, Fraction(1, 10**7)]
LENGTHS: list[Any] = ["1h", "30m", timedelta(minutes=15)]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    queries = []
    for place, kind in enumerate(kinds):
        made, fields = draw(KINDS[kind])
        queries.append(made(f"q{place}", **fields))
    unit = draw(units)
    numbers: list[Any] = [draw(st.sampled_from(each)) for each in (EPSILONS, DELTAS, LENGTHS)]
    return Stream(
        "stored",
        budget=pp.Budget(numbers[0], numbers[1]),
        horizon=draw(st.one_of(st.none(), st.integers(3, 10**6))),
        queries=queries,
        coverage=draw(st.floats(0.5, 0.99)),
        tick=numbers[2],
        unit=Unit.EVENT if unit is None else unit,
    )


def attempts() -> st.SearchStrategy[Stream | None]:
    """Streams that may be; others are refused when they are written down by their users."""

    @st.composite
    def attempt(draw: st.DrawFn) -> Stream | None:
        try:
            return draw(streams())
        except PianissimoError:
            return None

    return attempt()


_kinds: set[str] = set()
_users = 0


@settings(max_examples=400, deadline=None)
@given(stream=attempts())
def check_round_trip(stream: Stream | None) -> None:
    global _users
    if stream is None:
        return
    _kinds.update(type(each).__name__ for each in stream.queries)
    _users += stream.user is not None
    plain = stream.to_plain()
    again = Stream.from_plain(json.loads(json.dumps(plain)))
    assert again.to_plain() == plain
    # All of it, conditions included: plans are told apart by it.
    assert repr(again) == repr(stream)
    assert again.user == stream.user


def test_every_stream_comes_back_as_it_was_written() -> None:
    check_round_trip()
    assert _kinds == set(KINDS)
    assert _users > 50


@pytest.mark.parametrize("condition", ["price < 5", (pl.col("price") < 5) & pl.col("drug").is_in(["a", "b"])])
def test_the_plan_of_a_stored_alarm_is_the_plan(condition: Any) -> None:
    stream = Stream(
        "s",
        budget=pp.Budget(1.0, 1e-6),
        horizon=20,
        unit=pp.user("who"),
        queries=[pp.Alarm("cheap", where=condition), pp.Trending("rising", key="drug")],
    )
    again = Stream.from_plain(json.loads(json.dumps(stream.to_plain())))
    assert again.plan().digest == stream.plan().digest
    other = Stream(
        "s",
        budget=pp.Budget(1.0, 1e-6),
        horizon=20,
        unit=pp.user("who"),
        queries=[pp.Alarm("cheap", where=(pl.col("price") < 6)), pp.Trending("rising", key="drug")],
    )
    assert other.plan().digest != stream.plan().digest


def test_numbers_of_other_libraries_are_stored_as_numbers() -> None:
    number: Any = np.int64(2)
    stream = Stream(
        "s", budget=pp.Budget(1.0, 1e-6), horizon=20, queries=[pp.Quantiles("n", value="price", range=(number, 5))]
    )
    assert json.loads(json.dumps(stream.to_plain()))["queries"]["tuple"][0]["range"]["tuple"] == [2, 5]


def test_a_stored_plan_is_the_plan_and_is_never_chosen_anew() -> None:
    of_events = {"queries": (pp.Count("n"), pp.Histogram("h", key="drug"))}
    of_users = {"queries": (pp.Count("n"), pp.Distinct("d", key="drug")), "unit": pp.user("who")}
    for asked in (of_events, of_users):
        fields: dict[str, Any] = {"budget": pp.Budget(1.0, 1e-6), "horizon": 20, "tick": "1h", **asked}
        plan = Stream("s", **fields).plan()
        again = StreamPlan.from_plain(json.loads(json.dumps(plan.to_plain())))
        assert again == plan
        assert again.digest == plan.digest
        assert again.to_plain() == plan.to_plain()
        assert [each.guarantee for each in again.queries] == [each.guarantee for each in plan.queries]
    changes: list[dict[str, Any]] = [{"format": 0}, {"stream": 3}, {"mechanisms": {"tuple": []}}, {"queries": [{}]}]
    for change in changes:
        with pytest.raises(StateError, match="that this one knows"):
            StreamPlan.from_plain(plan.to_plain() | change)


def test_queries_of_one_part_share_their_stored_mechanism() -> None:
    asked = [pp.Count("n"), pp.Sum("s", value="price", range=(0, 5))]
    plan = Stream("s", budget=pp.Budget(1.0, 1e-6), horizon=20, unit=pp.user("who"), queries=asked).plan()
    first, second = StreamPlan.from_plain(plan.to_plain()).queries
    assert first.mechanism is second.mechanism


def test_what_is_asked_for_is_compared_field_by_field() -> None:
    def stream(*queries: Any, **changes: Any) -> Stream:
        return Stream("s", **{"budget": pp.Budget(1.0, 1e-6), "horizon": 20, "queries": queries, **changes})

    asked = stream(pp.Count("n"), pp.Histogram("h", key="drug"))
    assert asked.differences(stream(pp.Count("n"), pp.Histogram("h", key="drug"))) == []
    assert asked.differences(stream(pp.Histogram("h", key="drug"), pp.Count("n"))) == ["queries"]
    assert asked.differences(stream(pp.Count("n"), pp.Count("h"), horizon=21)) == ["horizon", "queries.h"]
    assert asked.differences(stream(pp.Count("n", every=2))) == ["queries.n.every", "queries.h"]


def test_what_is_not_of_this_version_is_refused() -> None:
    stream = Stream("s", budget=pp.Budget(1, 1e-9), horizon=10, unit=pp.user("who"), queries=[pp.Count("n")])
    plain = stream.to_plain()
    for change in ({"unit": {"is": "user-unit/1", "column": "who", "more": 1}}, {"unit": "nobody"}, {"is": "stream/9"}):
        with pytest.raises(StateError, match="that this version knows"):
            Stream.from_plain(plain | change)
    with pytest.raises(StateError, match="must be a stream"):
        Stream.from_plain(3)
