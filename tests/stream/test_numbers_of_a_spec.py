"""Every number of a stream file has a range: beyond it a fault names the field, and nothing ever raises otherwise."""

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest

import pianissimo as pp
from pianissimo.errors import ParameterError, PianissimoError, SpecError
from pianissimo.queries import KINDS
from pianissimo.stream.spec import load_spec

ODD: list[Any] = [
    0,
    -1,
    3,
    2**31,
    2**40,
    2**63 - 1,
    0.5,
    1e-9,
    1e-99,
    1e99,
    -2.5,
    1e-17,
    1e17,
    math.inf,
    -math.inf,
    math.nan,
]
BEYOND: list[Any] = [2**63, -(2**63), 10**400, 1e-320, 1e-101, 1.1e100]
BASES: dict[str, dict[str, Any]] = {
    "key": {"key": "k"},
    "value": {"value": "v", "range": [0, 600]},
    "where": {"where": "v > 3"},
}
BY_KIND = {each.kind: each for each in KINDS}
STREAM = {"name": "s", "epsilon": 1, "delta": 1e-9, "horizon": 24, "tick": "1h", "coverage": 0.95}
NUMBERS = {"epsilon", "delta", "horizon", "coverage"}
OF_USERS = ("max_events_per_user", "within", "first_cap", "caps", "cap_share", "most_events_per_user", "starts")


def written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {written(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def base_of(kind: str) -> dict[str, Any]:
    names = {each.name for each in dataclasses.fields(BY_KIND[kind])}
    required = {each.name for each in dataclasses.fields(BY_KIND[kind]) if each.default is dataclasses.MISSING}
    found = {"kind": kind}
    for name, fields in BASES.items():
        if name in required or (name == "where" and kind == "alarm"):
            found |= {each: value for each, value in fields.items() if each in names}
    return found


def numbers_of(kind: str) -> list[str]:
    """The fields of a kind that may hold a number, or several."""
    return [
        each.name for each in dataclasses.fields(BY_KIND[kind]) if "int" in str(each.type) or "float" in str(each.type)
    ]


def spec_with(chance: random.Random, odd: Any) -> tuple[str, str]:
    """A stream file with one number, and the field that holds it."""
    stream: dict[str, Any] = dict(STREAM)
    kind = chance.choice(sorted(BY_KIND))
    query = base_of(kind)
    place = chance.randrange(3)
    if place == 0:
        name = chance.choice(sorted(NUMBERS))
        stream[name] = odd
        field = f"stream.{name}"
    elif place == 1:
        name = chance.choice(OF_USERS)
        stream["unit"] = {"user": "u", name: odd}
        field = f"stream.unit.{name}"
    else:
        name = chance.choice(numbers_of(kind))
        query[name] = [odd, 600] if name == "range" else [odd] if name in ("at", "quantiles") else odd
        field = f"queries.q.{name}"
    return f"stream = {written(stream)}\nqueries.q = {written(query)}\n", field


def test_a_number_beyond_all_ranges_is_a_fault_of_its_field(tmp_path: Path) -> None:
    chance = random.Random(12)
    path = tmp_path / "s.toml"
    for number in range(200):
        text, field = spec_with(chance, BEYOND[number % len(BEYOND)])
        path.write_text(text)
        with pytest.raises(
            SpecError, match=f"^{path}: {field} must be (at most 2\\^63 - 1|from 1e-100 to 1e100) in size"
        ):
            load_spec(path)
    path.write_text(text.replace("24", "9" * 5000).replace("600", "9" * 5000))
    with pytest.raises(SpecError):
        load_spec(path)


def test_a_number_at_random_makes_a_plan_or_a_message(tmp_path: Path) -> None:
    chance = random.Random(12)
    path = tmp_path / "s.toml"
    planned = 0
    for _ in range(250):
        text, _ = spec_with(chance, chance.choice(ODD))
        path.write_text(text)
        try:
            stream = load_spec(path).stream
            # A plan of so many ticks takes long, and says nothing of its numbers.
            if stream.horizon is not None and stream.horizon <= 24:
                stream.plan()
                planned += 1
        except PianissimoError:
            pass
    assert planned > 25


@pytest.mark.parametrize("epsilon", [1e-320, 10**400, 1e101, math.inf])
def test_the_same_holds_in_python(epsilon: float) -> None:
    with pytest.raises(ParameterError, match=r"^epsilon must be"):
        pp.Budget(epsilon, 1e-9)


def test_a_whole_number_with_many_digits_is_told_without_them() -> None:
    with pytest.raises(
        ParameterError, match=r"^expected_keys must be at most 2\^63 - 1 in size, got a number with more"
    ):
        pp.HeavyHitters("h", key="k", expected_keys=10**5000)


@pytest.mark.parametrize("coverage", [0.9999999999999999, 0.99999999999, 0.001])
def test_a_coverage_at_which_bars_have_no_end_is_refused(coverage: float) -> None:
    # Half of what nearly all bars may miss was rounded to nothing, and the plan ended in a traceback of statistics.
    with pytest.raises(ParameterError, match=r"^coverage must be from 0\.01 to 0\.9999999999, got"):
        pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=3, queries=[pp.Count("n")], coverage=coverage)
    widest = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=3, queries=[pp.Count("n")], coverage=0.9999999999)
    assert widest.plan().queries[0].chosen.expected_error.largest > 0


@pytest.mark.parametrize("field", ["alarms_per_user", "max_keys_per_user"])
@pytest.mark.parametrize("size", [2**18 + 1, 2**32, 2**62])
def test_more_charges_than_can_be_summed_are_refused_before_anything_is_made(field: str, size: int) -> None:
    fields: dict[str, Any] = {field: size}
    query = pp.Trending("t", key="k", **fields)
    stream = pp.Stream("s", unit=pp.user("u"), budget=pp.Budget(1, 1e-9), horizon=3, queries=[query])
    with pytest.raises(ParameterError, match=r"^charges must be at most 262144, got"):
        stream.plan()
