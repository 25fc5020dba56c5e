"""MetaAlgo in all four settings, asked of a stream by name or where nothing else fits, with any horizon and without."""

from fractions import Fraction
from typing import Any

import pytest

import pianissimo as pp
from pianissimo.counting import MetaHistogram, MetaTopList
from pianissimo.errors import ParameterError
from pianissimo.queries.shared import answer_trees
from pianissimo.queries.shared.answer_trees import meta_histogram, meta_top_list
from pianissimo.queries.shared.expected import OPEN_HORIZON, Share
from pianissimo.selection import KnownGauss, KnownGumb, UnkGauss, UnkGumb
from pianissimo.stream import Live, StreamPlan
from pianissimo.testing import NoNoise

ABC = ["a", "b", "c"]
ROWS = [{"key": ["a", "b"]}] * 900 + [{"key": ["a"]}] * 600 + [{"key": ["c", "nowhere"]}] * 300


def plan_of(query: Any, horizon: int | None = 100, **fields: Any) -> StreamPlan:
    fields = {"budget": pp.Budget(1, 1e-6)} | fields
    return pp.Stream("s", horizon=horizon, queries=[query], **fields).plan()


SETTINGS = {
    "known, restricted": (pp.Histogram("q", key="key", domain=ABC, max_keys_per_event=2, method="meta"), KnownGauss),
    "unknown, restricted": (pp.Histogram("q", key="key", max_keys_per_event=2, method="meta"), UnkGauss),
    "known, unrestricted": (
        pp.TopK("q", key="key", k=2, domain=ABC, max_keys_per_event=None, method="meta"),
        KnownGumb,
    ),
    "unknown, unrestricted": (pp.TopK("q", key="key", k=2, max_keys_per_event=None), UnkGumb),
}


@pytest.mark.parametrize(("query", "answer"), SETTINGS.values(), ids=SETTINGS.keys())
def test_each_setting_is_asked_of_a_stream(query: Any, answer: type) -> None:
    plan = plan_of(query)
    chosen = plan.queries[0].chosen
    tree = chosen.mechanism if isinstance(chosen.mechanism, MetaHistogram) else chosen.mechanism.histogram
    assert isinstance(tree.answer, answer)
    assert chosen.name == f"{type(chosen.mechanism).__name__} of {answer.__name__}"
    live = Live(plan, NoNoise())
    released = [live.tick(ROWS)["q"] for _ in range(3)][-1]
    truth = {"a": 4500, "b": 2700, "c": 900, "nowhere": 900}
    shown = dict(released.select("key", "estimate").iter_rows())
    assert shown == {key: truth[key] for key in shown}
    assert set(shown) == {
        KnownGauss: {"a", "b", "c"}, UnkGauss: set(truth), KnownGumb: {"a", "b"}, UnkGumb: {"a", "b"},
    }[answer]  # fmt: skip
    # A label may be missing from a cell, and nothing released says by how much.
    assert (released["high"].null_count() > 0) is (answer is not KnownGauss)


SHARES = [Share(rho=Fraction(1, 50), bad=Fraction(1, 10**7)), Share(rho=Fraction(3), bad=Fraction(1, 1000))]


@pytest.mark.parametrize("releases", [1, 8, 1000, 2**20 + 1, OPEN_HORIZON])
@pytest.mark.parametrize("share", SHARES, ids=["tight", "wide"])
def test_what_all_cells_of_an_event_lose_is_within_the_share(share: Share, releases: int) -> None:
    for query, _ in SETTINGS.values():
        make = meta_histogram if isinstance(query, pp.Histogram) else meta_top_list
        loss = make(query, share, releases, 0.95).mechanism.guarantee.loss
        assert Fraction(9, 10) * share.rho < loss.rho <= share.rho
        assert loss.bad <= share.bad


def test_answers_that_are_paid_for_once_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant forgets that an event is in one cell of each level."""
    query, share = SETTINGS["unknown, restricted"][0], SHARES[0]
    made = answer_trees._counts
    monkeypatch.setattr(answer_trees, "_counts", lambda query, share, levels: made(query, share, 1))
    loss = meta_histogram(query, share, 1000, 0.95).mechanism.guarantee.loss
    assert loss.rho > 3 * share.rho
    assert loss.bad > 3 * share.bad


@pytest.mark.parametrize("horizon", [2**20, 2**20 + 1, 2**24, None], ids=str)
def test_unknown_labels_of_any_number_are_listed_over_any_time(horizon: int | None) -> None:
    """Beyond 2^20 ticks this was refused, with a message about histograms."""
    query = SETTINGS["unknown, unrestricted"][0]
    plan = plan_of(query, horizon)
    mechanism = plan.queries[0].chosen.mechanism
    assert isinstance(mechanism, MetaTopList)
    assert mechanism.histogram.horizon == (OPEN_HORIZON if horizon is None else horizon)
    assert plan.price.epsilon <= 1
    assert Live(plan, NoNoise()).tick(ROWS)["q"]["key"].to_list() == ["a", "b"]


def test_a_plan_lists_the_tree_and_takes_it_where_it_is_asked_for() -> None:
    plan = plan_of(pp.Histogram("q", key="key", domain=ABC)).queries[0]
    listed = [other for other in plan.alternatives if isinstance(other.mechanism, MetaHistogram)]
    assert [other.selectable for other in listed] == [False]
    assert listed[0].expected_error.typical > plan.chosen.expected_error.typical
    assert not isinstance(plan.chosen.mechanism, MetaHistogram)


@pytest.mark.parametrize(
    ("query", "fields", "message"),
    [
        ({"method": "best"}, {}, "method must be 'auto' or 'meta', got 'best'"),
        ({"method": "meta", "per": 5}, {}, "plain totals"),
        ({"method": "meta", "min_count": 5}, {}, "plain totals"),
        ({"method": "meta", "other": True}, {}, "plain totals"),
        ({"method": "meta"}, {"unit": pp.user("user")}, "must be left out where users are hidden"),
        ({"method": "meta", "domain": ABC}, {"unit": pp.user("user")}, "must be left out where users are hidden"),
        ({"method": "meta", "domain": ABC}, {"budget": pp.Budget(1, 0)}, "must have a delta, got a pure budget"),
        ({"method": "meta", "count": "users"}, {}, "there are no users"),
    ],
    ids=str,
)
def test_what_a_tree_cannot_answer_is_refused(query: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        plan_of(pp.Histogram("q", key="key", **query), **fields)


def test_labels_that_are_not_listed_are_passed_over_after_the_event_is_cut() -> None:
    """As in a histogram over a noise plan: of three labels the third may be the only one that is listed."""
    query: dict[str, Any] = {"key": "key", "domain": ["a", "b"], "max_keys_per_event": 3}
    for method in ("meta", "auto"):
        live = Live(plan_of(pp.Histogram("q", method=method, **query)), NoNoise())
        assert live.tick([{"key": ["x", "y", "a"]}] * 7)["q"]["estimate"].to_list() == [7, 0]
