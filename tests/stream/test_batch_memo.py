"""What queries have in common of a batch is worked out once, and releases are as if each had worked alone."""

from contextlib import nullcontext
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pianissimo as pp
from pianissimo import labels
from pianissimo.batch_memo import BatchMemo, once_a_batch
from pianissimo.filters import Filter
from pianissimo.stream.live_core import LiveCore
from pianissimo.testing import SeededNoise

QUERIES: list[Any] = [
    pp.Histogram("plain", key="drug"),
    pp.Histogram("again", key="drug", nulls="skip"),
    pp.Histogram("known", key="drug", domain=["a", "b"]),
    pp.Histogram("old", key="drug", where="age > 60"),
    pp.TopK("top", key="drug", k=2, where="age > 60"),
    pp.Count("events", where="age > 60"),
    pp.Count("others", where="age > 60 AND drug != 'a'"),
    pp.Sum("ages", value="age", range=(0, 100), where="age > 60"),
    pp.Trending("now", key="drug"),
]
PLAN = pp.Stream("s", budget=pp.Budget(40, 1e-3), horizon=8, queries=QUERIES).plan()

rows = st.lists(
    st.fixed_dictionaries(
        {"drug": st.sampled_from(["a", "b", "c", None, "x" * 300]), "age": st.none() | st.integers(0, 100)}
    ),
    max_size=20,
)


def released(batches: list[list[dict[str, Any]]], *, gathers: bool) -> list[Any]:
    core = LiveCore(PLAN, lambda _: SeededNoise(3))
    found = []
    for tick, batch in enumerate(batches, 1):
        frame = pl.DataFrame(batch * 40, schema={"drug": pl.String, "age": pl.Int64})
        inputs = core.inputs(frame, tick, drop_bad_rows=False)
        if gathers:
            core.add([core.gather(inputs)])
        else:
            core.update(inputs)
        found.append({name: table.to_dicts() for name, table in core.release(tick).items()})
    return found


@settings(max_examples=15, deadline=None)
@given(st.lists(rows, min_size=1, max_size=3), st.booleans())
def test_releases_are_those_of_queries_that_share_nothing(batches: list[list[dict[str, Any]]], gathers: bool) -> None:
    shared = released(batches, gathers=gathers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchMemo, "used", lambda _: nullcontext())
        assert shared == released(batches, gathers=gathers)


def test_a_filter_and_the_groups_of_a_key_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def told(name: str, function: Any) -> Any:
        def noted(*given: Any) -> Any:
            asked.append(name)
            return function(*given)

        return noted

    monkeypatch.setattr(labels, "_flat_labels", told("groups", labels._flat_labels))
    monkeypatch.setattr(Filter, "matches", told("filter", Filter.matches))
    released([[{"drug": "a", "age": 70}, {"drug": "b", "age": 50}]], gathers=False)
    # Of all rows and of those that match; two conditions.
    assert (asked.count("groups"), asked.count("filter")) == (2, 2)


def test_nothing_is_kept_outside_of_a_batch_or_of_the_one_before() -> None:
    asked = []

    @once_a_batch
    def length(column: pl.Series, name: str) -> int:
        asked.append(name)
        return len(column)

    column = pl.Series([1, 2])
    assert [length(column, "a"), length(column, "a")] == [2, 2]
    assert len(asked) == 2
    for memo in (BatchMemo(), BatchMemo()):
        with memo.used():
            assert [length(column, "a"), length(column, "a"), length(column, "b")] == [2, 2, 2]
            assert length(column.clone(), "a") == 2
    assert len(asked) == 2 + 2 * 3
    assert repr(memo) == "BatchMemo(hidden)"
