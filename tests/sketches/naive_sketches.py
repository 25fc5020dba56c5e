"""The sketches written as the definitions say, their mutants, and what must hold of neighbours."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

Key = Any
State = tuple[dict[Key, int], int]
"""Counts c(x) of the stored keys, zeros included, and D."""

Evict = Callable[[list[Key]], Key]


def smallest(zeros: list[Key]) -> Key:
    return min(zeros)


def oldest(zeros: list[Key]) -> Key:
    """A mutant: the zero key that was stored first."""
    return zeros[0]


def step(state: State, key: Key, k: int, evict: Evict = smallest) -> State:
    """One update of Algorithm 1."""
    counts, decrements = dict(state[0]), state[1]
    if key in counts:
        counts[key] += 1
    elif len(counts) < k:
        counts[key] = 1
    elif zeros := [stored for stored, count in counts.items() if count == 0]:
        del counts[evict(zeros)]
        counts[key] = 1
    else:
        counts = {stored: count - 1 for stored, count in counts.items()}
        decrements += 1
    return counts, decrements


def misra_gries(stream: Iterable[Key], k: int, evict: Evict = smallest) -> State:
    state: State = ({}, 0)
    for key in stream:
        state = step(state, key, k, evict)
    return state


def all_streams(universe: int, longest: int) -> Iterator[tuple[int, ...]]:
    for length in range(longest + 1):
        yield from product(range(1, universe + 1), repeat=length)


def all_states(universe: int, longest: int, k: int, evict: Evict = smallest) -> dict[tuple[int, ...], State]:
    """The sketch of every small stream; each from that of the stream without its last element."""
    states: dict[tuple[int, ...], State] = {(): ({}, 0)}
    for stream in all_streams(universe, longest):
        if stream:
            states[stream] = step(states[stream[:-1]], stream[-1], k, evict)
    return states


PRIVATE_PATTERNS = {((), ()), ((0,), (1,)), ((1,), (0,)), ((0,), (0,)), ((0, 1), (0, 0))}
"""Counts of the keys that only the longer stream's sketch stores, and of those that only the other's does."""


def neighbour_pattern(longer: State, shorter: State, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The counts of private keys, after a check that one element moved one of the numbers u(x) and D by one."""
    (counts, down), (others, other_down) = (_with_free_slots(state, k) for state in (longer, shorter))
    differences = [counts[key] + down - others[key] - other_down for key in counts.keys() & others.keys()]
    assert all(0 <= difference <= 1 for difference in differences)
    if down == other_down + 1:
        assert not any(differences)
    else:
        assert down == other_down
        assert sum(differences) <= 1
    private = tuple(sorted(counts[key] for key in counts.keys() - others.keys()))
    other_private = tuple(sorted(others[key] for key in others.keys() - counts.keys()))
    return private, other_private


def _with_free_slots(state: State, k: int) -> State:
    """Free slots are keys of count zero that nobody sees."""
    counts, decrements = state
    free = {("free", place): 0 for place in range(k - len(counts))}
    return {**free, **counts}, decrements


def check_one_direction(counts: dict[Key, int], others: dict[Key, int], k: int) -> None:
    """Counts of merged sketches, or of sets: each moves by at most one, all in one direction, at most k of them."""
    moved = {counts.get(key, 0) - others.get(key, 0) for key in counts.keys() | others.keys()}
    assert moved <= {0, 1} or moved <= {0, -1}
    assert sum(counts.get(key, 0) != others.get(key, 0) for key in counts.keys() | others.keys()) <= k


def positive(state: State) -> dict[Key, int]:
    return {key: count for key, count in state[0].items() if count > 0}


def merge(left: dict[Key, int], right: dict[Key, int], k: int) -> dict[Key, int]:
    """Sums, less the (k + 1)-th largest."""
    sums = Counter(left) + Counter(right)
    ordered = sorted(sums.values(), reverse=True)
    down = ordered[k] if len(ordered) > k else 0
    return {key: count - down for key, count in sums.items() if count > down}


def privacy_aware(sets: Iterable[Sequence[Key]], k: int) -> State:
    """Algorithm 4."""
    counts: Counter[Key] = Counter()
    decrements = 0
    for keys in sets:
        counts.update(set(keys))
        if len(counts) > k:
            decrements += 1
            counts = Counter({key: count - 1 for key, count in counts.items() if count > 1})
    return dict(counts), decrements


def decrementing_for_each_element(sets: Iterable[Sequence[Key]], k: int) -> State:
    """A mutant: the elements of a set one after the other, each with a decrement of its own."""
    counts: Counter[Key] = Counter()
    decrements = 0
    for keys in sets:
        for key in sorted(set(keys)):
            counts[key] += 1
            if len(counts) > k:
                decrements += 1
                counts = Counter({stored: count - 1 for stored, count in counts.items() if count > 1})
    return dict(counts), decrements
