"""What a plan says in words is what it says in numbers: the error, what it is about, what is cut off, and warnings."""

import json
import math
import re
import warnings
from dataclasses import replace
from typing import Any

import pytest

import pianissimo as pp
from pianissimo.queries.shared.expected import ExpectedError, number_text
from pianissimo.queries.shared.query import Query
from pianissimo.stream import StreamPlan, render_plan
from pianissimo.stream.shown.plan_table import about_told

DOMAIN = ["a", "b", "c"]
OF_EVENTS: dict[str, tuple[Query, str]] = {
    "count": (pp.Count("q"), "number of events"),
    "where": (pp.Count("q", where="x > 3"), 'number of events where "x" > 3'),
    "tick": (pp.Count("q", per="tick"), "number of events in each tick"),
    "window": (pp.Count("q", per="7d"), "number of events in the last 7 ticks"),
    "sum": (pp.Sum("q", value="x", range=(0, 600)), "sum of x, of values cut to 0 .. 600"),
    "refused": (pp.Sum("q", value="x", range=(0, 0.5), outside="refuse"), "sum of x"),
    "listed": (pp.Histogram("q", key="k", domain=DOMAIN), "number of events of each k"),
    "unknown": (pp.Histogram("q", key="k", max_keys_per_event=5), "number of events of each k"),
    "top": (pp.TopK("q", key="k", k=2), "number of events of each k in the list"),
    "heavy": (pp.HeavyHitters("q", key="k"), "number of events of each k"),
    "distinct": (pp.Distinct("q", key="k"), "number of different values of k"),
}
CAP = ", of events up to the cap of 16 a user"
OF_USERS: dict[str, tuple[Query, str]] = {
    "count": (pp.Count("q"), f"number of events{CAP}"),
    "sum": (
        pp.Sum("q", value="x", range=(0, 600)),
        "sum of x, of values cut to 0 .. 600, of x up to the cap of 600 a user",
    ),
    "histogram": (pp.Histogram("q", key="k", domain=DOMAIN), f"number of events of each k{CAP}"),
    "top": (pp.TopK("q", key="k", k=2, domain=DOMAIN), f"number of events of each k in the list{CAP}"),
    "most": (pp.MaxFrequency("q", key="k", domain=DOMAIN), f"number of events of the most frequent k{CAP}"),
    "quantiles": (pp.Quantiles("q", value="x", range=(0, 600)), f"quantiles of x, of values cut to 0 .. 600{CAP}"),
    "distinct": (pp.Distinct("q", key="k"), f"number of different values of k{CAP.replace('events', 'values')}"),
    "users": (pp.Users("q"), "number of users"),
    "alarm": (pp.Alarm("q", where="x > 3"), 'number of users with charges left when it rings where "x" > 3'),
    "trending": (pp.Trending("q", key="k"), "number of users with charges left of each k that is reported"),
}


def planned(query: Query, unit: Any = "event", **changes: Any) -> StreamPlan:
    given = {"budget": pp.Budget(1.0, 1e-9), "horizon": 366, "tick": "1d", **changes}
    return pp.Stream("s", unit=unit, queries=[query], **given).plan()


def told(plan: StreamPlan) -> tuple[dict[str, Any], str]:
    """The numbers of the one query, and the text that people read, on one line."""
    (query,) = plan.to_dict()["queries"]
    return query, " ".join(str(plan).split())


@pytest.mark.parametrize(
    ("query", "about", "unit"),
    [
        *((query, about, "event") for query, about in OF_EVENTS.values()),
        *((query, about, pp.user("who")) for query, about in OF_USERS.values()),
    ],
    ids=[*OF_EVENTS, *(f"{name} of users" for name in OF_USERS)],
)
def test_the_number_in_words_is_the_number_of_the_data(query: Query, about: str, unit: Any) -> None:
    numbers, text = told(plan := planned(query, unit))
    assert numbers["error_about"] == about
    error = numbers["expected_error"]
    ranks = "ranks " if query.kind == "quantiles" else ""
    assert f"q: within {number_text(error['typical'])} {ranks}of the true {about}, 19 times out of 20" in text
    worst = re.findall(r"\((\S+) at the worst tick\)", text)
    assert worst == ([number_text(error["largest"])] if error["largest"] > 1.02 * error["typical"] else [])
    assert len(numbers["words"]) <= 4
    if numbers["threshold"] is not None:
        assert f"from about {numbers['threshold']['least']:,} {'users' if query.watched else 'events'} on" in text
    # What is for those who ask why is not in the way of the others.
    assert numbers["mechanism"] not in text
    assert not re.search(r"\brho\b|toeplitz|haar|theorem", text)
    explained = " ".join(plan.explain().split())
    assert explained.startswith(text)
    assert all(part in explained for part in (numbers["guarantee"]["theorem"], numbers["reason"]))


def test_what_is_cut_or_hidden_is_said() -> None:
    def words(query: Query, unit: Any = "event") -> str:
        return told(planned(query, unit))[1]

    assert "labels of k appear" not in words(pp.Histogram("q", key="k", domain=DOMAIN))
    assert "not among the 3 listed are passed over" in words(pp.Histogram("q", key="k", domain=DOMAIN))
    unknown = words(OF_EVENTS["unknown"][0])
    assert re.search("labels of [a-z]+ appear from about", unknown)
    assert "of an event at most 5 labels count; rarer ones stay hidden" in unknown.replace("Of an", "of an")
    assert "Rows with a x outside 0 .. 0.5 are refused" in words(OF_EVENTS["refused"][0])
    assert "Values are rounded, each value by itself" in words(pp.Sum("q", value="x", range=(0, 600), grid=100))
    assert "ounts are too low by up to 1 / 1,025 of the labels so far" in words(OF_EVENTS["heavy"][0])
    assert "ranks are those of capped events" in words(OF_USERS["top"][0], pp.user("who"))
    assert "uantiles are those of capped events" in words(OF_USERS["quantiles"][0], pp.user("who"))
    assert "published every 6 ticks" in words(pp.Count("q", every=6))


def test_an_error_of_ranks_is_told_in_the_units_of_the_value_too() -> None:
    numbers, text = told(planned(OF_USERS["quantiles"][0], pp.user("who")))
    value = numbers["error_in_value"]
    assert value["within"] == 6
    # So many events, evenly over the range, have `typical` of them in every 6.
    assert value["events"] / 600 * value["within"] == pytest.approx(numbers["expected_error"]["typical"], rel=1e-3)
    assert f"In value, within 6 once {number_text(value['events'])} events lie evenly over 0 .. 600" in text


def test_the_error_is_told_for_every_cap_that_may_be_reached() -> None:
    plan = planned(pp.Count("q"), pp.user("who"))
    numbers, text = told(plan)
    counters = plan.queries[0].mechanism.counters[0]
    assert [each["cap"] for each in numbers["caps"]] == list(plan.queries[0].mechanism.cap.caps)
    assert numbers["caps"][0]["typical"] == numbers["expected_error"]["typical"]
    for place, each in enumerate(numbers["caps"], 1):
        found = counters.law(place, each["cap"], 100 if place > 1 else 0, 200).half_width(0.95)
        assert found == pytest.approx(each["typical"], rel=0.15), "also after a raise"
    shown = ", ".join(f"{number_text(each['typical'])} at {each['cap']:,}" for each in numbers["caps"][1:4])
    assert f"When the cap is raised the error is about {shown}" in text
    assert "what the cap cuts off is missing, and bars are open on that side" in text
    fixed = told(planned(pp.Count("q"), pp.user("who", max_events_per_user=20)))[1]
    assert "of events up to the cap of 20 a user" in fixed
    assert "raised" not in fixed
    whole = told(planned(pp.Count("q"), pp.user("who", max_events_per_user=20, most_events_per_user=20)))[1]
    assert "up to the cap" not in whole
    assert "Nothing is cut off, as no user has more than 20" in whole
    day = told(planned(pp.Count("q"), pp.user("who", max_events_per_user=20, within="2d", reset=False)))[1]
    assert "up to the cap of 20 a user in each period of 2 ticks" in day


def test_caps_that_cannot_be_reached_are_said() -> None:
    unit = pp.user("who", caps=30)
    numbers, text = told(planned(pp.Sum("q", value="x", range=(0, 600)), unit))
    assert len(numbers["caps"]) < 30
    assert f"of the 30 caps asked for, noise can be drawn for {len(numbers['caps'])}" in text
    assert "asked for" not in told(planned(pp.Count("q"), pp.user("who", caps=3)))[1]


def test_the_head_says_promise_unit_and_ticks() -> None:
    plan = planned(pp.Count("q"), pp.user("who"), origin="2026-01-01", time_zone="Europe/Berlin")
    lines = str(plan).splitlines()
    promise = plan.to_dict()["promise"]
    epsilon, delta = f"{promise['epsilon']:.4g}", f"{promise['delta']:.2g}"
    if promise["method"] != "pure":
        assert lines[0].startswith(f"Stream s: differential privacy with epsilon {epsilon} and delta {delta}")
    assert lines[1] == "It hides one user with all her events."
    assert lines[2].startswith("It has 366 ticks, each of 1d, from 2026-01-01 00:00:00+01:00 on")
    assert "by the clocks of Europe/Berlin." in lines[2]
    assert str(plan) == render_plan(plan.to_dict())
    assert plan._repr_html_().startswith("<p>Stream s: ")


@pytest.mark.parametrize(("epsilon", "words"), [(0.7636, " (of a budget of epsilon 1)"), (0.995, "")])
def test_the_head_names_the_budget_where_not_all_of_it_is_used(epsilon: float, words: str) -> None:
    content = planned(pp.Count("q")).to_dict()
    content["promise"] |= {"epsilon": epsilon, "delta": 1e-9, "method": "zcdp"}
    head = " ".join(render_plan(content).split())
    assert f"epsilon {epsilon} and delta 1e-09{words}, for all queries" in head


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (pp.Budget(40, 1e-9), "epsilon is 40: above 10"),
        (pp.Budget(10.5, 1e-9), "epsilon is 10.5: above 10"),
        (pp.Budget(1, 1e-4), "delta is 0.0001: above one in 100,000 the promise may fail"),
    ],
)
def test_a_large_budget_is_warned_about_once_and_in_the_plan(budget: pp.Budget, words: str) -> None:
    stream = pp.Stream("s", budget=budget, horizon=4, queries=[pp.Count("q")])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        plan = stream.plan()
        stream.start()
    assert [str(each.message).startswith(words) for each in caught] == [True]
    assert issubclass(caught[0].category, pp.BudgetWarning)
    assert f"Warning: {words}" in str(plan)
    assert plan.to_dict()["warnings"][0].startswith(words)


def test_what_is_expected_says_which_delta_is_too_large() -> None:
    heavy = pp.HeavyHitters("q", key="k", expected_events=10**8)
    assert "above one in 100,000,000 that are expected" in str(planned(heavy, budget=pp.Budget(1, 1e-7)))
    assert "Warning" not in str(planned(heavy))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned(pp.Count("q"), budget=pp.Budget(10, 1e-5))


def test_chances_are_said_as_people_say_them() -> None:
    for coverage, words in ((0.95, "19 times out of 20"), (0.9, "9 times out of 10"), (0.999, "999 times out of 1000")):
        assert ExpectedError(coverage=coverage, typical=1, largest=1).often == words
    assert ExpectedError(coverage=0.5, typical=1, largest=2).often == "1 times out of 2 (2 at the worst tick)"


@pytest.mark.parametrize("unit", ["event", pp.user("who", max_events_per_user=4), pp.user("who", within="7d")])
@pytest.mark.parametrize(
    "query", [pp.TopK("q", key="k", k=2, per=3), pp.Sum("q", value="x", range=(0, 9), key="k", per=3)]
)
def test_windows_of_unknown_labels_say_that_these_are_shown_for_their_totals(query: Any, unit: Any) -> None:
    numbers, text = told(planned(query, unit, horizon=None if getattr(unit, "within", None) else 366))
    assert ", of labels that are shown for their totals" in numbers["error_about"]
    assert "of labels that are shown for their totals" in about_told(numbers)
    assert re.search("labels of k appear from about [0-9,]+ events in all on", text)
    assert "totals" not in told(planned(replace(query, domain=DOMAIN), unit))[0]["error_about"]


@pytest.mark.parametrize(
    ("query", "added"),
    [
        (pp.Count("q"), 16),
        (pp.Histogram("q", key="k", domain=["a", "b"]), 16),
        (pp.Sum("q", value="x", range=(-5, 600), max_per_user="events"), 16 * 600),
        (pp.Sum("q", value="x", range=(0, 600)), 600),
    ],
)
def test_a_plan_says_how_many_users_an_error_of_a_tenth_takes(query: Query, added: float) -> None:
    numbers, text = told(planned(query, pp.user("u")))
    needed = math.ceil(10 * numbers["expected_error"]["typical"] / added)
    assert f"For an error below a tenth it takes {needed:,} users who reach the cap, or more with less each" in text
    assert "Fewer users than that? There is less noise with people counted in place of events" in text
    of_events = replace(query, max_per_user=None) if isinstance(query, pp.Sum) else query
    assert "For an error below a tenth" not in told(planned(of_events))[1]


def test_a_plan_advises_nothing_that_its_stream_has() -> None:
    alarm, day = pp.Alarm("bell", where="x > 3"), pp.user("u", within=24)
    _, text = told(planned(pp.Count("q"), pp.user("u")))
    assert 'a user\'s day (within = "1d"), a larger epsilon' in text
    for horizon, more in ((None, "for alarms an end (horizon), "), (96, "")):
        stream = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=horizon, unit=day, queries=[pp.Count("q"), alarm])
        advice = " ".join(str(stream.plan()).split())
        assert f"a smaller cap (max_events_per_user), {more}a larger epsilon" in advice


def test_a_plan_says_how_many_users_a_label_takes_to_be_shown() -> None:
    numbers, text = told(planned(pp.Histogram("q", key="k"), pp.user("u")))
    fewest = math.ceil(numbers["threshold"]["least"] / 16)
    assert f"a label that fewer than {fewest:,} have stays hidden" in text
    numbers, text = told(planned(pp.Sum("q", value="x", range=(0, 500), key="k"), pp.user("u")))
    fewest = math.ceil(numbers["threshold"]["least"] / 16)
    assert f"a label that fewer than {fewest:,} have stays hidden" in text
    people = told(planned(pp.Users("q"), pp.user("u")))[1]
    assert "For an error below a tenth" not in people
    assert "Fewer users than that" not in people


def test_a_plan_says_what_values_outside_a_range_count_as() -> None:
    _, text = told(planned(pp.Sum("q", value="x", range=(-5, 600))))
    assert "Values of x above 600 count as 600, below -5 as -5." in text
    refused = told(planned(pp.Sum("q", value="x", range=(-5, 600), outside="refuse")))[1]
    assert "count as" not in refused


def test_for_how_many_events_a_plan_tells_the_error_of_a_mean_is_not_said_of_a_release() -> None:
    numbers, text = told(planned(pp.Mean("q", value="x", range=(0, 9))))
    assert "of the true mean of x, of values cut to 0 .. 9, if it is one of 10,000 events" in text
    assert about_told(numbers) == "mean of x, of values cut to 0 .. 9 (above 9 counts as 9, below 0 as 0)"


def test_thresholds_of_later_caps_are_told() -> None:
    numbers, text = told(planned(pp.Histogram("q", key="k", count="users"), pp.user("who")))
    later = numbers["caps"][1:4]
    shown = ", ".join(f"{each['threshold']['least']:,} at {each['cap']:,}" for each in later)
    assert f"labels appear then from about {shown}, .. " in text
    assert numbers["threshold"] == numbers["caps"][0]["threshold"]


UNKNOWN = [
    pp.Histogram("q", key="k"),
    pp.TopK("q", key="k", k=3),
    pp.Sum("q", value="x", range=(0, 9), key="k"),
    pp.Mean("q", value="x", range=(0, 9), key="k"),
    pp.HeavyHitters("q", key="k", k=16, expected_keys=99),
    pp.Trending("q", key="k"),
]


@pytest.mark.parametrize("unit", ["event", pp.user("who"), pp.user("who", max_events_per_user=4, within=3)])
def test_every_plan_of_unknown_labels_has_thresholds_and_errors_in_json(unit: Any) -> None:
    for query in UNKNOWN:
        numbers = json.loads(planned(query, unit, horizon=12).to_json())["queries"][0]
        assert numbers["expected_error"]["typical"] > 0, query
        assert 0 < numbers["threshold"]["least"] <= numbers["threshold"]["largest"], query
        assert all("threshold" in each for each in numbers.get("caps", ())), query


@pytest.mark.parametrize("query", [query for query, _ in OF_EVENTS.values()], ids=OF_EVENTS)
def test_a_plan_of_events_tells_for_which_numbers_its_error_is_large(query: Query) -> None:
    numbers, text = told(planned(query))
    assert (
        f"The error is more than a tenth of any number below {number_text(10 * numbers['expected_error']['typical'])}."
        in text
    )
    assert text.endswith("listed labels (domain), a larger epsilon; see docs/how_to.md.")


@pytest.mark.parametrize("unit", ["event", pp.user("who", max_events_per_user=3)], ids=["event", "user"])
def test_means_and_quantiles_tell_how_few_events_they_are_of_no_use_for(unit: Any) -> None:
    numbers, text = told(planned(pp.Mean("q", value="x", range=(-100, 100)), unit))
    events = 10 * 10_000 * numbers["expected_error"]["typical"] / 200
    assert f"more than a tenth of the range for a mean of fewer than {number_text(events)} events." in text
    numbers, text = told(planned(pp.Quantiles("q", value="x", range=(0, 600)), unit))
    ranks = number_text(10 * numbers["expected_error"]["typical"])
    assert f"The error is more than a tenth of all ranks for fewer than {ranks} events." in text


@pytest.mark.parametrize("query", [pp.Users("q"), pp.Histogram("q", key="k", domain=DOMAIN, count="users")])
def test_plans_that_count_people_tell_it_too(query: Query) -> None:
    assert "The error is more than a tenth of any number below" in told(planned(query, pp.user("who")))[1]


def test_an_alarm_tells_its_own_and_what_is_expected_is_a_warning() -> None:
    assert "a tenth" not in told(planned(pp.Alarm("q", where="x > 3")))[1]
    few, many = (planned(pp.HeavyHitters("q", key="k", expected_events=each)) for each in (300, 10**6))
    assert "Warning: q: an error of" in str(few)
    assert "is more than a tenth of all 300 events that are expected" in " ".join(str(few).split())
    assert not many.to_dict()["warnings"]
