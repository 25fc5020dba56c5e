"""By which method a table is asked for its top labels: the five of Durfee and Rogers 2019, priced in steps.

A step is epsilon^2 / 8 zCDP. A race of Gumbel noise costs one for each label that comes back, and one where it met the
threshold. Laplace noise of scale 2 / epsilon on a number that a user moves costs (epsilon / 2)^2 / 2, one step as well,
for every number that she moves, whatever comes back. All of them have a bad mass of at most one call's delta.

| method | for | pays |
| --- | --- | --- |
| limited | most questions | what comes back |
| strict | engines that cannot order equal counts by the bytes of their labels | what comes back |
| optimal | histograms with a long flat tail: how many labels are looked at is chosen privately | the same, and one |
| laplace | few labels a user, and counts wanted: they come with the labels | as many as a user has labels |
| fixed | few labels, well apart: each is judged by itself against the count of rank k + 1 | k |
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pianissimo.errors import ParameterError
from pianissimo.selection import FixedThresholdLaplace, LimitedDomain, LimitedLaplace, OptimalThreshold, StrictDomain
from pianissimo.table.allowance import StepAllowance

TopMethod = Literal["limited", "strict", "optimal", "laplace", "fixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopChoice:
    """A method with its parameters, and what a plan says of it before any row is looked at."""

    mechanism: Any
    called: str
    noted: str = ""
    """What the ledger notes of it."""

    rows: int
    """How many labels the engine hands over at most."""

    looked_at: int
    """Above the count that comes after so many labels the threshold stands at least."""

    steps: int
    """The most that it costs."""

    threshold: float
    """How far the threshold is above the count that comes after those that are looked at."""

    spread: float
    """How far above the threshold a label is sure to come back, with a chance of 95 %."""

    error: float | None = None
    """The half-width of the counts that come with the labels, where some do."""


def top_choice(
    method: TopMethod, allowance: StepAllowance, *, k: int, seen: int, max_keys_per_user: int | None
) -> TopChoice:
    """A method for k labels of the `seen` largest, within one call and as few steps as it takes."""
    if method not in get_args(TopMethod):
        raise ParameterError(f"method must be one of {', '.join(get_args(TopMethod))}, got {method!r}")
    epsilon, delta, most = allowance.epsilon, allowance.delta, max_keys_per_user
    race = math.log(k / 0.05) / float(epsilon)
    if method in ("limited", "strict"):
        kind = LimitedDomain if method == "limited" else StrictDomain
        own = {"max_keys_per_user": most} if method == "limited" else {}
        made: Any = kind(k=k, candidates=seen, epsilon=epsilon, delta=delta, **own)
        called = "limited domain" if method == "limited" else "strictly limited domain"
        offset = float(made.offset)
        rows = {"rows": seen + 1, "looked_at": seen}
        noted = "" if method == "limited" else ", strict"
        return TopChoice(mechanism=made, called=called, noted=noted, **rows, steps=k, threshold=offset, spread=race)
    if method == "optimal":
        made = OptimalThreshold(k=k + 1, d_bar=seen, epsilon=epsilon, delta=delta)
        # The lowest of the thresholds is above the count of rank k + 2 by this.
        return TopChoice(
            mechanism=made,
            called=f"limited domain of at most {seen - 1} labels, chosen privately for the lowest threshold",
            noted=", optimal",
            rows=seen,
            looked_at=k + 1,
            steps=k + 1,
            threshold=float(made.offsets[0]),
            spread=race + math.log((seen - k - 1) / 0.05) / float(epsilon),
        )
    half = epsilon / 2
    width = math.log(1 / 0.05) / float(half)
    if method == "laplace":
        if most is None:
            raise ParameterError("max_keys_per_user must be given for the method 'laplace', got none: it pays for each")
        made = LimitedLaplace(k=k, candidates=seen, epsilon=half, delta=delta, max_keys_per_user=most)
        called = "limited domain with discrete Laplace noise"
        return TopChoice(
            mechanism=made,
            called=called,
            noted=", laplace",
            rows=seen + 1,
            looked_at=seen,
            steps=made.moved,
            threshold=float(made.offset),
            spread=math.log(2 * k / 0.05) / float(half),
            error=width,
        )
    made = FixedThresholdLaplace(k=k, epsilon=half, delta=delta / k)
    called = "fixed threshold above the label of rank k + 1, discrete Laplace noise"
    offset, rows = float(made.offset), {"rows": k + 1, "looked_at": k}
    return TopChoice(mechanism=made, called=called, noted=", fixed", **rows, steps=k, threshold=offset, spread=width)
