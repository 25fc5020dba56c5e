"""R1, the beginning of a life: intend, reserve, testify, use, insert, searched exhaustively in a small scope.

Two copies of one store, each with a witness of its own that may be lost, and one ledger. A copy is made of the other at
any moment, without its witness. A state is (ledger, homes):

    ledger    for each intention that is reserved the incarnation that uses it
    home      (intention, told, life): the name that is stored, the incarnation in the witness, the one in the store

A process may be killed between any two steps, which is as good as that it does not take the next one.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

Home = tuple[int, int, int] | None
State = tuple[frozenset[tuple[int, int]], tuple[Home, Home], int, int]
"""Names are numbers from 1; 0 is none. The last two are the next fresh name, and how many witnesses may be lost yet."""


@dataclass(frozen=True)
class Beginning:
    """The protocol; each flag is a mistake."""

    inserts_before_use: bool = False
    inserts_before_witness: bool = False
    starts_unpaid: bool = False
    starts_without_witness: bool = False

    def steps(self, state: State) -> Iterator[State]:
        _, homes, fresh, losses = state
        for number, home in enumerate(homes):
            other = homes[1 - number]
            if home is None:
                if other is not None and fresh < 9:
                    yield self._with(state, number, (other[0], 0, other[2]))  # a copy, without the witness
                continue
            intention, told, life = home
            if told and losses:
                changed = self._with(state, number, (intention, 0, life))
                yield (*changed[:3], losses - 1)
            yield from self._next(state, number)

    def _next(self, state: State, number: int) -> Iterator[State]:
        ledger, homes, fresh, losses = state
        home = homes[number]
        assert home is not None
        intention, told, life = home
        charges = dict(ledger)
        if life or fresh > 9:
            return
        if intention == 0:
            yield self._with((ledger, homes, fresh + 1, losses), number, (fresh, told, life))
        elif intention not in charges and not self.starts_unpaid:
            yield (ledger | {(intention, 0)}, *state[1:])
        elif told == 0:
            kept = fresh if self.inserts_before_witness else life
            yield self._with((ledger, homes, fresh + 1, losses), number, (intention, fresh, kept))
        elif self.starts_unpaid or self.inserts_before_use or charges[intention] == told:
            yield self._with(state, number, (intention, told, told))
        elif charges[intention] == 0:
            yield (ledger - {(intention, 0)} | {(intention, told)}, *state[1:])

    @staticmethod
    def _with(state: State, number: int, home: Home) -> State:
        homes = (home, state[1][1]) if number == 0 else (state[1][0], home)
        return (state[0], homes, *state[2:])

    def may_run(self, home: Home) -> bool:
        """Whether a start of this home counts events."""
        return home is not None and home[2] != 0 and (home[1] == home[2] or self.starts_without_witness)


def search(protocol: Beginning) -> tuple[int, str]:
    """How many states there are, and the first thing that must not be; empty if there is none."""
    start: State = (frozenset(), ((0, 0, 0), None), 1, 1)
    seen, queue = {start}, deque([start])
    reached = False
    while queue:
        state = queue.popleft()
        charges = dict(state[0])
        running = [home for home in state[1] if home is not None and protocol.may_run(home)]
        reached = reached or bool(running)
        if len(running) > len({intention for intention, _, _ in running}):
            return len(seen), "two streams run for one charge"
        if any(charges.get(intention) != life for intention, _, life in running):
            return len(seen), "a stream runs whose charge another uses, or nobody"
        for after in protocol.steps(state):
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return len(seen), "" if reached else "no stream ever begins"
