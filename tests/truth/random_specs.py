"""Plans of specs at random: each stays within its budget, or is refused with a reason that is the spec's own.

`python -m tests.truth.random_specs COUNT FIRST` looks further.
"""

import math
import random
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pianissimo as pp
from pianissimo.table import StepAllowance

OUR_FAULT = ("please report", "mistake of Pianissimo")
TOO_LARGE = "near enough to its law"
"""What may be said without a delta, where e^epsilon times the distance of drawn noise is told: from about 30 on."""


def unit(chance: random.Random) -> Any:
    rules: list[dict[str, Any]] = [
        {},
        {"max_events_per_user": chance.choice([1, 2, 7, 64, 1000])},
        {"max_events_per_user": chance.choice([1, 5, 30]), "within": chance.choice([1, 2, 7]), "reset": False},
        {"within": chance.choice([1, 2, 7]), "starts": chance.choice([None, 3]), "caps": chance.randint(1, 20)},
        {
            "first_cap": chance.choice([1, 2, 16, 100]),
            "caps": chance.randint(1, 12),
            "cap_share": chance.choice([0.5, 0.25, 0.1, 0.9, 0.01]),
        },
        {"caps": chance.randint(1, 14)},
    ]
    return "event" if chance.random() < 0.3 else pp.user("u", **chance.choice(rules))


def queries(chance: random.Random, *, of_users: bool) -> list[Any]:
    low, high = chance.choice([(0, 600), (-5, 10), (0, 1), (0, 1e6), (-0.25, 0.5)])
    named: list[Any] = [
        pp.Count("n"),
        pp.Count("w", where="v > 3", weight=chance.choice([1, 0.01, 7, 1 / 3])),
        pp.Sum("s", value="v", range=(low, high)),
        pp.Sum("g", value="v", range=(0, 600), grid=1, weight=chance.choice([1, 3, 0.1])),
        pp.Histogram("h", key="k", domain=[f"l{place}" for place in range(chance.choice([1, 2, 30]))]),
        pp.TopK("t", key="k", k=1, domain=["a", "b", "c"]),
    ]
    if of_users:
        named += [
            pp.Quantiles("q", value="v", range=(0, 600), cells=chance.choice([2, 64])),
            pp.MaxFrequency("m", key="k", domain=["a", "b"]),
            pp.Distinct("d", key="k"),
            pp.Users("u", weight=chance.choice([1, 0.2])),
            pp.Alarm("a", where="v > 3", alarms_per_user=chance.choice([1, 4, 9])),
            pp.Trending("tr", key="k", domain=chance.choice([None, ["a", "b"]])),
        ]
    else:
        named += [
            pp.Histogram("uh", key="k", max_keys_per_event=chance.choice([1, 3])),
            pp.TopK("ut", key="k", k=2),
            pp.HeavyHitters("hh", key="k", k=chance.choice([2, 64])),
            pp.Quantiles("q", value="v", range=chance.choice([None, (0, 600)])),
            pp.MaxFrequency("m", key="k", domain=["a", "b"]),
            pp.Alarm("a", where="v > 3", weight=chance.choice([1, 0.01, 3])),
            pp.Trending("tr", key="k", domain=chance.choice([None, ["a", "b"]])),
            pp.Trending("tl", key="l", max_keys_per_event=chance.choice([1, 4])),
        ]
    return chance.sample(named, chance.choice([1, 1, 2, 3, 5]))


def stream(seed: int) -> pp.Stream:
    """A stream at random, of small horizons and tight budgets more often than of others."""
    chance = random.Random(seed)
    hidden = unit(chance)
    epsilon: Any = chance.choice([1, 0.1, 0.5, 2, 1 / 3, math.exp(chance.uniform(-6, 4.2))])
    delta = chance.choice([0, 1e-9, 1e-6, 1e-12, 10 ** chance.uniform(-15, -2)])
    return pp.Stream(
        "s",
        unit=hidden,
        budget=pp.Budget(epsilon, delta),
        horizon=chance.choice([1, 2, 3, 12, 24, 100, 366, chance.randint(1, 500)]),
        queries=queries(chance, of_users=hidden != "event"),
    )


def ours(count: int, first: int = 0) -> Iterator[tuple[int, str]]:
    """The seeds whose plan is refused for a fault of the library, and what it says."""
    for seed in range(first, first + count):
        try:
            asked = stream(seed)
            asked.plan()
        except pp.ParameterError as error:
            is_too_large = asked.budget.pure and asked.budget.epsilon > 30
            if any(words in str(error) for words in OUR_FAULT) or (TOO_LARGE in str(error) and not is_too_large):
                yield seed, str(error)


def allowances(count: int, first: int = 0) -> Iterator[tuple[int, str]]:
    """The same of the steps that a table's budget buys."""
    for seed in range(first, first + count):
        chance = random.Random(seed)
        budget = pp.Budget(math.exp(chance.uniform(-5, 4)), 10 ** chance.uniform(-14, -2))
        try:
            StepAllowance.of(
                budget, steps=chance.choice([1, 2, 17, 200, 5000]), questions=chance.choice([1, 3, 100, 9999])
            )
        except pp.ParameterError as error:
            if any(words in str(error) for words in OUR_FAULT):
                yield seed, str(error)


if __name__ == "__main__":
    wanted, begin = (int(each) for each in (sys.argv[1:] + ["1000", "0"][len(sys.argv) - 1 :]))
    for found in chain(ours(wanted, begin), allowances(wanted, begin)):
        print(*found, stream(found[0]), flush=True)
