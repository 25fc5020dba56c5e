"""What is stored of a stream names its kinds by slugs that last."""

import json
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.mechanisms import CASES, EVENT_CASES, USER_CASES

import pianissimo as pp
from pianissimo.errors import ParameterError, StateError
from pianissimo.identity import _BY_SLUG, _own_fields, digest, digest_of_plain, from_plain, identified, to_plain

PINNED = Path(__file__).parent / "identities.json"
KNOWN = ["a", "b"]
LIMIT = pp.Budget(1, 1e-9)


def planned() -> Iterator[Any]:
    """Queries and mechanisms of many plans, the losers too."""
    of_events: list[list[Any]] = [
        [pp.Count("n"), pp.Sum("s", value="v", range=(0, 5)), pp.Histogram("h", key="k", domain=KNOWN)],
        [pp.Histogram("h", key="k"), pp.TopK("t", key="k", k=1), pp.TopK("u", key="k", k=1, domain=KNOWN)],
        [pp.HeavyHitters("h", key="k", k=16), pp.HeavyHitters("i", key="k", k=16, max_keys_per_event=3)],
    ]
    of_users: list[list[Any]] = [
        [pp.Count("n"), pp.Sum("s", value="v", range=(0, 5)), pp.Histogram("h", key="k", domain=KNOWN)],
        [pp.Distinct("d", key="k"), pp.Users("w"), pp.Quantiles("q", value="v", range=(0, 5))],
        [pp.Alarm("a", where="x = 1"), pp.Trending("t", key="k"), pp.Trending("u", key="k", domain=KNOWN)],
    ]
    streams = [
        *(
            pp.Stream("s", budget=LIMIT, horizon=each, queries=asked)
            for each in (10, 5000, None)
            for asked in of_events
        ),
        *(pp.Stream("s", budget=LIMIT, horizon=10, unit=pp.user("u"), queries=asked) for asked in of_users),
        pp.Stream("s", budget=pp.Budget(1, 0), horizon=10, queries=of_events[0]),
        pp.Stream(
            "s", budget=LIMIT, horizon=10, unit=pp.user("u", max_events_per_user=3, within=2), queries=[pp.Count("n")]
        ),
    ]
    for stream in streams:
        plan = stream.plan()
        yield plan.price
        for each in plan.queries:
            yield each.query
            yield each.mechanism
            yield from (other.mechanism for other in each.alternatives)


def pinned_kinds() -> dict[str, dict[str, Any]]:
    """All kinds but those of examples and tests, once every module that has one is imported."""
    list(planned())
    return {
        each.text: {own.name: default_text(own) for own in _own_fields(each.kind)}
        for each in sorted(_BY_SLUG.values(), key=lambda each: each.slug)
        if not each.text.startswith(("example", "test-"))
    }


def default_text(own: Field[Any]) -> str:
    """The default of a field, or that it has none."""
    default = own.default_factory() if own.default_factory is not MISSING else own.default
    return "required" if default is MISSING else json.dumps(to_plain(default), sort_keys=True)


def test_whatever_a_plan_may_hold_comes_back_as_it_was() -> None:
    values = [*planned(), *(case.mechanism for case in (CASES | USER_CASES | EVENT_CASES).values())]
    assert len(values) > 50
    for value in values:
        stored = json.loads(json.dumps(to_plain(value)))
        back = from_plain(stored)
        assert type(back) is type(value)
        assert to_plain(back) == stored
        assert digest(back) == digest(value) == digest_of_plain(stored)
        guarantee = getattr(value, "guarantee", None)
        assert guarantee is None or back.guarantee == guarantee


def test_kinds_keep_their_slugs_versions_fields_and_defaults() -> None:
    """A line that changes here changes what is stored: a new field needs a default that keeps the old behaviour."""
    assert pinned_kinds() == json.loads(PINNED.read_text(encoding="utf-8"))


def test_an_added_field_with_its_default_keeps_the_digest() -> None:
    @identified("test-before")
    @dataclass(frozen=True)
    class Kind:
        size: int

    before = to_plain(Kind(3))

    @identified("test-after")
    @dataclass(frozen=True)
    class Grown:
        size: int
        added: tuple[int, ...] = ()
        made: list[int] = field(default_factory=list)

    after = to_plain(Grown(3))
    assert before | {"is": ""} == after | {"is": ""}
    assert from_plain({"is": "test-after/1", "size": 3}) == Grown(3)


def test_an_older_version_is_brought_up_to_date() -> None:
    @identified("test-upgraded", 2, upgrade=lambda version, content: {"length": content["size"] * version})
    @dataclass(frozen=True)
    class Kind:
        length: int

    assert from_plain({"is": "test-upgraded/1", "size": 3}) == Kind(3)
    with pytest.raises(StateError, match="a later one"):
        from_plain({"is": "test-upgraded/3", "length": 3})


def test_an_enumeration_and_a_class_are_stored_by_slug() -> None:
    @identified("test-enumeration")
    class Colour(Enum):
        RED = "red"

    assert from_plain(to_plain((Colour.RED, Colour))) == (Colour.RED, Colour)


@pytest.mark.parametrize(
    "plain",
    [{"is": "unheard-of/1"}, {"is": 3}, {"other": 1}, {"fraction": "x"}, {"is": "count"}, {}, {"microseconds": 10**99}],
)
def test_what_is_not_known_is_refused(plain: Any) -> None:
    with pytest.raises(StateError, match="kinds that this version knows"):
        from_plain(plain)


def test_what_has_no_identity_is_not_stored() -> None:
    with pytest.raises(ParameterError, match="must have an identity"):
        to_plain({"a": Fraction(1)})


def test_a_slug_names_one_kind() -> None:
    @identified("test-one")
    class First:
        pass

    with pytest.raises(ParameterError, match="one kind"):

        @identified("test-one")
        class Second:
            pass
