"""What streams with forward secrecy may ask, over which plans, and what it takes: noisy sums, not exact counts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pianissimo.counting import Counter, KnownHistogram, NoisyHistogram, NoisyTopList, NoisyTotal, Summer, TopList
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import Unit
from pianissimo.noise.noisy_nodes import state_bytes
from pianissimo.queries import Count, Histogram, Query, Sum, TopK
from pianissimo.stream.expected import Candidate
from pianissimo.unit import User

COMFORTABLE = 64 * 2**20
"""The sums are stored whole at every tick: a plan that takes more than this must take little more than the least."""

Noisy = NoisyTotal | NoisyHistogram | NoisyTopList


def check_forward_secrecy(unit: Unit | User, queries: Sequence[Query]) -> None:
    """Refuse what cannot be answered from noisy sums alone.

    >>> check_forward_secrecy(Unit.EVENT, [Histogram("drugs", key="drug")])
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: query 'drugs' must have a domain under forward_secrecy, got unknown labels: ...
    """
    if isinstance(unit, User):
        raise ParameterError(
            "forward_secrecy must be of single events, got users: what is kept of each user, so that she stays within "
            "her cap, is exact; leave it out, or take unit=Unit.EVENT"
        )
    for query in queries:
        if not isinstance(query, Count | Sum | Histogram | TopK):
            raise ParameterError(
                f"query {query.name!r} must be a count, a sum, a histogram or a top list under forward_secrecy, "
                f"got {query.kind}, whose state is exact"
            )
        if isinstance(query, Histogram | TopK) and query.domain is None:
            raise ParameterError(
                f"query {query.name!r} must have a domain under forward_secrecy, got unknown labels: the state would "
                "hold labels that were never shown; give domain=[...]"
            )


def noisy(candidate: Candidate) -> Candidate:
    """The same mechanism, kept as noisy sums; `ParameterError` where there is no such."""
    mechanism = _noisy(candidate.mechanism)
    return replace(
        candidate,
        name=f"{type(mechanism).__name__} over {mechanism.plan.name}",
        mechanism=mechanism,
        memory=state_bytes(mechanism.plan, mechanism.series),
    )


def _noisy(mechanism: Any) -> Any:
    if isinstance(mechanism, Counter | Summer):
        return NoisyTotal(counter=replace(mechanism, history=0))
    if isinstance(mechanism, KnownHistogram):
        return NoisyHistogram(histogram=replace(mechanism, history=0))
    if isinstance(mechanism, TopList) and isinstance(mechanism.histogram, KnownHistogram):
        return NoisyTopList(histogram=_noisy(mechanism.histogram), k=mechanism.k)
    raise ParameterError(f"forward secrecy must be over noisy sums, got {type(mechanism).__name__}")


def affordable(found: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, those that take far more memory than others marked as not to be chosen."""
    most = max(COMFORTABLE, 2 * min(each.memory or 0 for each in found))
    return [
        each
        if (each.memory or 0) <= most
        else replace(each, selectable=False, excluded=f"takes {each.memory} bytes, more than {most}")
        for each in found
    ]


def kept_of(candidate: Candidate) -> dict[str, Any]:
    """What the state of a noisy mechanism takes, as plain data; nothing for others."""
    mechanism = candidate.mechanism
    if not isinstance(mechanism, Noisy):
        return {}
    return {"open_nodes": mechanism.plan.open_nodes, "series": mechanism.series, "memory": candidate.memory}  # type: ignore[attr-defined]
