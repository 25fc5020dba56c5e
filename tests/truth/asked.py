"""What is asked of whom, for the bars of every query and unit: queries, units, and which are asked together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.truth import plain_truth as plain
from tests.truth.generated_rows import DAYS, DOMAIN, TAGS, Row

import pianissimo as pp
from pianissimo.queries import KINDS, Query

MANY = [*TAGS, *(f"tag {number}" for number in range(100, 3000))]

EVERY_EVENT = plain.in_order(plain.itself)
Keep = Callable[[list[list[Row]], int | None], plain.Ranked]
Capped = Callable[[list[list[Row]], float, int | None], float]


@dataclass(frozen=True, eq=False)
class Asked:
    """A query and what is true of rows."""

    query: Query
    truth: plain.Told
    keep: Keep = EVERY_EVENT
    """Of users: which units its cap lets through."""
    capped: Capped | None = None
    """Of users, where a cap is not one of units: what is true under it."""


def spent(low: float, high: float) -> Capped:
    return lambda ticks, cap, period: plain.spent(ticks, cap, low, high, period)


SUMS = [
    Asked(pp.Sum("amount", value="amount", range=(0, 600)), plain.total(0, 600)),
    Asked(pp.Sum("signed", value="amount", range=(-50, 50)), plain.total(-50, 50)),
    Asked(pp.Sum("tens", value="amount", range=(0, 600), grid=10), plain.total(0, 600, 10)),
]
COUNTS = [
    Asked(pp.Count("n"), plain.count),
    Asked(pp.Count("large", where="amount > 100"), plain.large),
]
KNOWN = [
    Asked(pp.Histogram("places", key="place", domain=DOMAIN), plain.each_label("place")),
    Asked(pp.TopK("top_places", key="place", k=3, domain=DOMAIN), plain.each_label("place")),
]
KINDS_OF_KEYS = [
    Asked(
        pp.Histogram("with_nulls", key="place", domain=["north", "(null)"], nulls="label"),
        plain.each_label("place", nulls=True),
    ),
    Asked(pp.Histogram("codes", key="code", domain=range(-1, 8)), plain.each_label("code")),
    Asked(pp.Histogram("flags", key="flag", domain=[True, False]), plain.each_label("flag")),
    Asked(pp.Histogram("days", key="day", domain=DAYS), plain.each_label("day")),
]
TAGGED = [
    Asked(pp.Histogram("tags", key="tags", domain=TAGS, max_keys_per_event=2), plain.each_tag(2)),
    Asked(pp.TopK("top_tags", key="tags", k=3, domain=TAGS, max_keys_per_event=None), plain.each_tag(None)),
]
MANY_TAGS = [
    # A tree of selections: what a part of it does not select is missing.
    Asked(pp.TopK("top_of_many", key="tags", k=3, domain=MANY, max_keys_per_event=None), plain.each_tag(None)),
]
COPIES = [
    Asked(pp.Count("copies", count_column="copies"), plain.copies(None)),
    Asked(pp.Histogram("copies_of_places", key="place", domain=DOMAIN, count_column="copies"), plain.copies("place")),
    Asked(pp.Histogram("copies_of_any", key="place", count_column="copies"), plain.copies("place")),
    Asked(pp.TopK("most_copies", key="place", k=3, domain=DOMAIN, count_column="copies"), plain.copies("place")),
]
UNKNOWN = [
    Asked(pp.Histogram("any_place", key="place", other=True), plain.each_label("place")),
    Asked(pp.Histogram("now_shown", key="place", remember=False), plain.each_label("place")),
    Asked(pp.TopK("top_any", key="place", k=5), plain.each_label("place")),
]
HEAVY = [
    Asked(pp.HeavyHitters("heavy", key="place", k=16), plain.each_label("place")),
    Asked(pp.HeavyHitters("heavy_exact", key="place", k=16, expected_keys=100), plain.each_label("place")),
    Asked(pp.HeavyHitters("heavy_tags", key="tags", k=8, max_keys_per_event=3), plain.each_tag(3)),
]
VALUES = [
    Asked(pp.MaxFrequency("most", key="place", domain=DOMAIN), plain.commonest("place", DOMAIN)),
    Asked(
        pp.Quantiles("spread", value="amount", range=(0, 600), at=[0.1, 0.5, 0.9], largest=[1, 9], smallest=[1, 9]),
        plain.quantiles(0, 600, [0.1, 0.5, 0.9], [1, 9]),
    ),
    Asked(
        pp.Quantiles("any_spread", value="amount", at=[0.1, 0.5, 0.9]),
        plain.quantiles(-(2.0**32), 2.0**32, [0.1, 0.5, 0.9], []),
    ),
]
DIFFERENT = Asked(
    pp.Distinct("different", key="place"), plain.different("place"), keep=plain.by_label("place", once=False)
)
PEOPLE = [
    Asked(pp.Users("people"), plain.people()),
    Asked(pp.Users("spenders", where="amount > 100"), plain.people(plain.is_large)),
]
WATCHED = [
    Asked(pp.Alarm("over_25", where="amount > 25", alarms_per_user=3), plain.count),
    Asked(pp.Trending("rising", key="place", domain=DOMAIN, alarms_per_user=2), plain.count),
    Asked(pp.Trending("any_rising", key="code", alarms_per_user=2), plain.count),
]
EVENTS_WATCHED = [
    Asked(pp.Alarm("events_over_25", where="amount > 25"), plain.over_25),
    Asked(pp.Trending("common", key="place", domain=DOMAIN, threshold=20), plain.each_label("place")),
    Asked(pp.Trending("common_codes", key="code"), plain.each_label("code")),
    Asked(pp.Trending("common_tags", key="tags", max_keys_per_event=2), plain.each_tag(2)),
]
PER = [
    Asked(pp.Count("of_a_tick", per="tick"), plain.count),
    Asked(pp.Sum("of_two_ticks", value="amount", range=(0, 600), per=2), plain.total(0, 600)),
    Asked(pp.Mean("mean_of_two", value="amount", range=(0, 600), per=2), plain.sums_by("", 0, 600, means=True)),
    replace(DIFFERENT, query=pp.Distinct("first_seen_of_two", key="place", per=2)),
]
NEW = Asked(pp.Users("new_of_two", per=2), plain.people())
LABELS_PER = [
    Asked(pp.Histogram("places_of_two", key="place", domain=DOMAIN, per=2), plain.each_label("place")),
    Asked(pp.TopK("top_of_two", key="place", k=3, domain=DOMAIN, per=2), plain.each_label("place")),
    Asked(pp.MaxFrequency("most_of_two", key="place", domain=DOMAIN, per=2), plain.commonest("place", DOMAIN)),
    Asked(
        pp.Quantiles("spread_of_two", value="amount", range=(0, 600), at=[0.5, 0.9], per=2),
        plain.quantiles(0, 600, [0.5, 0.9], []),
    ),
    Asked(
        pp.Histogram("any_of_two", key="place", per=2), plain.each_label("place"), keep=plain.in_order(plain.labelled)
    ),
]
HOLDERS_PER = Asked(
    pp.Histogram("holders_of_two", key="place", count="users", per=2),
    plain.each_label("place"),
    keep=plain.by_label("place", once=True),
)
MEAN = Asked(pp.Mean("mean", value="amount", range=(0, 600)), plain.sums_by("", 0, 600, means=True))
BY_LABEL = [
    Asked(
        pp.Mean("mean_of_places", value="amount", range=(0, 600), key="place", domain=DOMAIN),
        plain.sums_by("place", 0, 600, means=True),
    ),
    Asked(
        pp.Sum("sum_of_places", value="amount", range=(-50, 50), key="place", domain=DOMAIN),
        plain.sums_by("place", -50, 50),
    ),
]
BY_ANY_LABEL = [
    Asked(
        pp.Mean("mean_of_any", value="amount", range=(0, 600), key="place"),
        plain.sums_by("place", 0, 600, means=True),
        keep=plain.in_order(plain.labelled_value),
    ),
    Asked(
        pp.Sum("sum_of_any", value="amount", range=(0, 600), key="place"),
        plain.sums_by("place", 0, 600),
        keep=plain.in_order(plain.labelled_value),
    ),
]
LABELS_OF_USERS = [
    *(replace(each, keep=plain.in_order(plain.labelled)) for each in (UNKNOWN[0], UNKNOWN[2], HEAVY[1])),
    Asked(
        pp.Histogram("any_two_tags", key="tags", max_keys_per_event=2),
        plain.each_tag(2),
        keep=plain.in_order(plain.tags_of(2)),
    ),
    Asked(
        pp.Histogram("holders", key="place", count="users", min_count=3),
        plain.each_label("place"),
        keep=plain.by_label("place", once=True),
    ),
    Asked(
        pp.Histogram("known_holders", key="place", count="users", domain=DOMAIN),
        plain.each_label("place"),
        keep=plain.by_label("place", once=True, domain=DOMAIN),
    ),
]
SPENT = Asked(
    pp.Sum("spent", value="amount", range=(0, 600), max_per_user="auto"), plain.total(0, 600), capped=spent(0, 600)
)
SPENT_AT_MOST = replace(SPENT, query=pp.Sum("spent_at_most", value="amount", range=(0, 600), max_per_user=1200))
TAKEN_BACK = [replace(each, truth=plain.taken_back(each.truth)) for each in (*COUNTS, *SUMS[:2], *KNOWN)]


@dataclass(frozen=True, eq=False)
class Group:
    """Queries that are asked together, under one budget."""

    budget: pp.Budget
    asked: list[Asked]
    several: bool = False
    """Whether each has labels with noise of their own: an eighth of the runs has as many independent numbers."""


EVENT, USER, FIXED = "event", "user", "user, fixed cap"
RAISED, BACK = "user, cap raised", "user, events taken back"
AT_MOST, FIT = "user, at most 600 events", "user, all events fit the cap"
TOTALS, ANEW = "user within 2 ticks, totals", "user within 2 ticks, anew"
UNITS: dict[str, Any] = {
    EVENT: EVENT,
    USER: pp.user("user"),
    FIXED: pp.user("user", max_events_per_user=8),
    RAISED: pp.user("user", first_cap=1, caps=4),
    AT_MOST: pp.user("user", most_events_per_user=600),
    FIT: pp.user("user", max_events_per_user=500, most_events_per_user=500),
    BACK: pp.user("user", max_events_per_user=500, most_events_per_user=500, weight="change"),
    TOTALS: pp.user("user", max_events_per_user=5, within=2, reset=False),
    ANEW: pp.user("user", max_events_per_user=5, within=2),
    f"{ANEW}, cap follows": pp.user("user", within=2, first_cap=4, caps=6),
}


def groups_of(unit: str) -> list[Group]:
    """What is asked of a unit."""
    return GROUPS[unit]


def _of_users(unit: str) -> list[Group]:
    if unit == BACK:
        return [Group(pp.Budget(8, 1e-6), TAKEN_BACK)]
    fixed, closed = UNITS[unit].max_events_per_user is not None, UNITS[unit].most_events_per_user is not None
    numbers = [COUNTS[0], SUMS[0], MEAN, VALUES[0], DIFFERENT, PEOPLE[0], *PER, NEW]
    labels = [KNOWN[0], KNOWN[1], VALUES[1], *LABELS_PER, HOLDERS_PER]
    if unit == USER:
        numbers += [COUNTS[1], *SUMS[1:], PEOPLE[1]]
        labels += [*KINDS_OF_KEYS, VALUES[2]]
    groups = [
        Group(pp.Budget(12, 1e-6), numbers),
        Group(pp.Budget(16, 1e-6), labels, several=True),
        Group(pp.Budget(16, 1e-6), [*BY_LABEL, *BY_ANY_LABEL], several=True),
        Group(pp.Budget(16, 1e-6), LABELS_OF_USERS, several=True),
        Group(pp.Budget(4, 1e-6), [SPENT_AT_MOST if fixed else SPENT]),
    ]
    if unit in (USER, TOTALS, ANEW):
        # Alarms and trends have no cap of events.
        groups.append(Group(pp.Budget(20, 1e-6), WATCHED))
    if fixed and not closed:
        groups.append(Group(pp.Budget(30, 1e-6), HEAVY[:1]))
    return groups


GROUPS: dict[str, list[Group]] = {
    EVENT: [
        Group(pp.Budget(8, 1e-6), [*COUNTS, *SUMS, MEAN, VALUES[0], DIFFERENT, *PER]),
        Group(pp.Budget(8, 1e-6), COPIES),
        Group(pp.Budget(8, 1e-6), [*KNOWN, *KINDS_OF_KEYS, *TAGGED, *VALUES[1:], *LABELS_PER], several=True),
        Group(pp.Budget(12, 1e-6), UNKNOWN, several=True),
        Group(pp.Budget(12, 1e-6), EVENTS_WATCHED, several=True),
        Group(pp.Budget(8, 1e-6), [*BY_LABEL, *BY_ANY_LABEL], several=True),
        Group(pp.Budget(6, 1e-6), HEAVY),
        Group(pp.Budget(2, 1e-6), MANY_TAGS, several=True),
        Group(pp.Budget(1, 0), [*COUNTS[:1], *SUMS[:1], *KNOWN[:1]]),
    ],
} | {unit: _of_users(unit) for unit in UNITS if unit != EVENT}
"""What is asked together, with noise of one budget: of events, and of users under every rule for their cap."""

REFUSED: dict[tuple[str, str], Query] = {(EVENT, each.query.kind): each.query for each in PEOPLE}
"""Kinds that a unit has no answer for."""


def cases() -> Iterator[tuple[type[Query], str, list[Asked]]]:
    """Every kind of query with every unit, and what is asked of it there: nothing where it is refused."""
    for kind in KINDS:
        for unit in UNITS:
            if unit == BACK:
                continue  # counts, sums, and histograms and top lists of listed labels alone
            yield (
                kind,
                unit,
                [each for group in groups_of(unit) for each in group.asked if each.query.kind == kind.kind],
            )
