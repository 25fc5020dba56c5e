"""R1: the protocol as a graph of states, searched breadth-first in a small scope; and broken variants of it.

Two workers, a source of events, one store, a witness, readers. Faults: a crash of a worker, a commit whose outcome is
unknown, a backup that is restored with or without the witness. A state is a tuple of small tuples and numbers:

    store     (charges, lease, seals, released, visible), or None before there is one
    seals     one (incarnation, tick, start, end, next) after the other: events start .. end - 1, go on at `next`
    released  the payload of each seal so far
    payload   (incarnation, tick, bound, data): what the noise depends on, and what it covers
    worker    (phase, lease, index, start, end, nonce)
    public    the payloads that anybody outside has ever seen

What is searched is the design of `pianissimo.durable`, not its code: the code's own faults are for the other tests.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

DOWN, READY, READ, SEALED, RELEASED, WITNESSED, UNSURE = range(7)
_NOBODY = (DOWN, 0, 0, 0, 0, 0)

State = tuple[Any, ...]


@dataclass(frozen=True)
class Scope:
    """How much may happen."""

    events: int = 2
    ticks: int = 3
    crashes: int = 2
    unknown: int = 1
    restores: int = 1
    losses: int = 1
    """Of the witness."""


@dataclass(frozen=True)
class Protocol:
    """The design, with switches that break it."""

    upsert_seal: bool = False
    publish_before_durable: bool = False
    positions_outside_seal: bool = False
    charge_later: bool = False
    charge_at_every_start: bool = False
    commit_error_is_rollback: bool = False
    fresh_noise_after_restart: bool = False
    no_lease: bool = False
    seal_before_release: bool = False
    no_witness_check: bool = False
    same_incarnation_after_rollback: bool = False
    positions_of_the_store_after_rollback: bool = False
    witness_after_publish: bool = False
    noise_not_bound_to_data: bool = False


BROKEN = {name: Protocol(**{name: True}) for name in Protocol.__dataclass_fields__}


@dataclass
class Outcome:
    """What a search found."""

    states: int
    violation: str | None
    trace: list[str] = field(default_factory=list)


def search(protocol: Protocol, scope: Scope, *, most: int = 5_000_000, trace: bool = False) -> Outcome:
    """Visit every state that can be reached, and stop at the first that breaks an invariant."""
    first: State = (
        0,
        None,
        None,
        (0, 0),
        _NOBODY,
        _NOBODY,
        (),
        scope.crashes,
        scope.unknown,
        scope.restores,
        scope.losses,
    )
    seen = {first}
    parents: dict[State, tuple[State, str]] = {}
    frontier = [first]
    step = Steps(protocol, scope)
    while frontier:
        following: list[State] = []
        for state in frontier:
            for name, after in step.of(state):
                if after in seen:
                    continue
                seen.add(after)
                if trace:
                    parents[after] = (state, name)
                problem = violation(after, kept=after[10] == scope.losses)
                if problem is not None:
                    return Outcome(len(seen), problem, _path(parents, after))
                following.append(after)
        if len(seen) > most:
            return Outcome(len(seen), None)
        frontier = following
    return Outcome(len(seen), None)


def _path(parents: dict[State, tuple[State, str]], state: State) -> list[str]:
    names = []
    while state in parents:
        state, name = parents[state]
        names.append(name)
    return names[::-1]


def violation(state: State, *, kept: bool) -> str | None:
    """The invariant that a state breaks; `kept` says that the witness was never lost."""
    store, (witness, _), public = state[1], state[3], state[6]
    if store is not None:
        charges, _, seals, released, visible = store
        if charges > 1:
            return "I8: paid twice"
        if released and charges < 1:
            return "I4: released without a charge"
        end, tick, incarnation = 0, 0, 1
        for number, (life, when, start, stop, _) in enumerate(seals):
            if life == incarnation and (when != tick + 1 or start != end):
                return "I2: an event lost or counted twice"
            tick, end, incarnation = when, stop, life
            if number < len(released) and released[number] is not None and released[number][3][-1] != (start, stop):
                return "I1: a seal that changed after its release"
        if len(seals) > len(released) + 1:
            return "I11: sealed before the release"
        if visible > len(released):
            return "I9: visible before it is stored"
    covered: dict[Any, Any] = {}
    shown: dict[Any, Any] = {}
    events: dict[int, Any] = {}
    for payload in public:
        incarnation, tick, bound, data, noise = payload
        if covered.setdefault((incarnation, tick, bound, noise), data) != data:
            return "I6: one noise over two data"
        if kept:
            # As long as the witness was never lost, everything outside must agree.
            if shown.setdefault(tick, payload) != payload:
                return "I5: a tick shown in two ways"
            begin, end = data[-1]
            for event in range(begin, end):
                if events.setdefault(event, (incarnation, tick)) != (incarnation, tick):
                    return "I7: an event under two noises of a node"
            if witness < tick:
                return "I9: visible before it is witnessed"
    return None


class Steps:
    """What can happen next."""

    def __init__(self, protocol: Protocol, scope: Scope) -> None:
        self.protocol = protocol
        self.scope = scope

    def of(self, state: State) -> Iterator[tuple[str, State]]:
        """Every next state, with the name of the step."""
        arrived, store, backup, witness, left, right, public, crashes, unknown, restores, losses = state
        scope = self.scope
        if arrived < scope.events:
            yield "arrive", (arrived + 1, *state[1:])
        down = left[0] == DOWN and right[0] == DOWN
        if store is not None:
            if restores and backup is None:
                yield "back up", (arrived, store, store, *state[3:])
            if restores and backup is not None and down and backup != store:
                yield (
                    "restore",
                    (*state[:1], backup, backup, witness, left, right, public, crashes, unknown, restores - 1, losses),
                )
            if losses and down and witness[0]:
                yield "lose the witness", (arrived, store, backup, (0, 0), *state[4:10], losses - 1)
            if down and self._behind(store, witness):
                yield from self._accept(state)
        for number, worker in ((4, left), (5, right)):
            if worker[0] != DOWN:
                if crashes:
                    yield f"crash {number}", self._with(state, number, _NOBODY, crashes=crashes - 1)
                yield from self._go_on(state, number, worker)
            elif number == 4 or left[0] != DOWN:
                # Workers are alike: the second starts only while the first runs.
                yield from self._start(state, number)

    @staticmethod
    def _with(state: State, number: int, worker: State, **changes: Any) -> State:
        arrived, store, backup, witness, left, right, public, crashes, unknown, restores, losses = state
        if number == 4:
            left = worker
        else:
            right = worker
        return (
            arrived,
            changes.get("store", store),
            backup,
            changes.get("witness", witness),
            left,
            right,
            changes.get("public", public),
            changes.get("crashes", crashes),
            changes.get("unknown", unknown),
            restores,
            losses,
        )

    @staticmethod
    def _behind(store: State, witness: State) -> bool:
        seals = store[2]
        return bool(witness[0] > (seals[-1][1] if seals else 0))

    def _accept(self, state: State) -> Iterator[tuple[str, State]]:
        """Somebody accepts a rollback: a new incarnation after the witness."""
        arrived, store, _, witness = state[:4]
        charges, lease, seals, released, _ = store
        if len(seals) > len(released):
            return
        start = witness[1]
        if self.protocol.positions_of_the_store_after_rollback:
            start = seals[-1][4] if seals else 0
        life = (seals[-1][0] if seals else 1) + (0 if self.protocol.same_incarnation_after_rollback else 1)
        if life > 2:
            return
        # A seal without events stands for the record of the new incarnation.
        base = (life, witness[0], start, start, start)
        after = (charges, lease + 1, (*seals, base), (*released, None), len(released) + 1)
        yield "accept the rollback", (arrived, after, *state[2:])

    def _start(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        store, witness = state[1], state[3]
        protocol = self.protocol
        if store is None:
            if witness[0]:
                return
            charges = 0 if protocol.charge_later else 1
            store = (charges, 1, (), (), 0)
            yield f"create {number}", self._with(state, number, (READY, 1, 0, 0, 0, 0), store=store)
            return
        charges, lease, seals, released, visible = store
        if self._behind(store, witness) and not protocol.no_witness_check:
            return
        if lease >= 5:
            return
        lease += 1
        if protocol.charge_at_every_start:
            charges += 1
        store = (charges, lease, seals, released, visible)
        nonce = lease if protocol.fresh_noise_after_restart else 0
        if len(seals) > len(released):
            phase = SEALED
        elif seals and witness[0] < seals[-1][1]:
            phase = RELEASED
        elif visible < len(released):
            phase = WITNESSED
        else:
            phase = READY
        yield f"start {number}", self._with(state, number, (phase, lease, len(seals) - 1, 0, 0, nonce), store=store)

    def _go_on(self, state: State, number: int, worker: State) -> Iterator[tuple[str, State]]:
        phase = worker[0]
        if phase == READY:
            yield from self._absorb(state, number, worker)
        elif phase == READ:
            yield from self._seal(state, number, worker)
        elif phase == UNSURE:
            yield from self._look(state, number, worker)
        elif phase == SEALED:
            yield from self._release(state, number, worker)
        elif phase == RELEASED:
            yield from self._witness(state, number, worker)
        elif phase == WITNESSED:
            yield from self._publish(state, number, worker)

    def _absorb(self, state: State, number: int, worker: State) -> Iterator[tuple[str, State]]:
        arrived, store = state[:2]
        _, lease, _, _, _, nonce = worker
        charges, current, seals, released, visible = store
        if self.protocol.charge_later and charges == 0:
            yield "charge", self._with(state, number, worker, store=(1, current, seals, released, visible))
        if seals and seals[-1][1] >= self.scope.ticks:
            return
        start = seals[-1][4] if seals else 0
        for end in range(start, arrived + 1):
            yield f"read {number}", self._with(state, number, (READ, lease, len(seals), start, end, nonce))

    def _seal(self, state: State, number: int, worker: State) -> Iterator[tuple[str, State]]:
        store, unknown = state[1], state[8]
        _, lease, index, start, end, nonce = worker
        charges, current, seals, released, visible = store
        protocol = self.protocol
        last = seals[-1] if seals else (1, 0, 0, 0, 0)
        if lease != current and not (protocol.no_lease or protocol.upsert_seal):
            yield f"stale {number}", self._with(state, number, _NOBODY)
            return
        fits = len(seals) == index and last[4] == start
        if not fits and not (protocol.upsert_seal or protocol.no_lease):
            yield f"too late {number}", self._with(state, number, _NOBODY)
            return
        if len(released) < len(seals) and not protocol.seal_before_release and not protocol.upsert_seal:
            yield f"too early {number}", self._with(state, number, _NOBODY)
            return
        if not fits and protocol.no_lease and not protocol.upsert_seal:
            # Without the lease and its checks, whoever comes late appends what it has read.
            index = len(seals)
        if index < len(seals):
            seals = (*seals[:index], (seals[index][0], seals[index][1], start, end, end), *seals[index + 1 :])
        else:
            seals = (*seals, (last[0], last[1] + 1, start, end, end))
        if len(seals) > self.scope.ticks + 2:
            return
        after = (charges, current, seals, released, visible)
        # Without waiting for the release, the next tick is read at once.
        done = (READY if protocol.seal_before_release else SEALED, lease, index, 0, 0, nonce)
        yield f"seal {number}", self._with(state, number, done, store=after)
        if protocol.positions_outside_seal and state[7]:
            # The seal is there; where the sources were read to is not.
            torn = (*seals[:-1], (*seals[-1][:4], start))
            yield (
                f"seal {number}, crash before the positions",
                self._with(
                    state, number, _NOBODY, store=(charges, current, torn, released, visible), crashes=state[7] - 1
                ),
            )
        if unknown:
            unsure = (UNSURE, lease, index, start, end, nonce)
            yield f"seal {number}, unknown", self._with(state, number, unsure, store=after, unknown=unknown - 1)
            yield f"no seal {number}, unknown", self._with(state, number, unsure, unknown=unknown - 1)

    def _look(self, state: State, number: int, worker: State) -> Iterator[tuple[str, State]]:
        _, lease, index, start, end, nonce = worker
        _, _, seals, _, _ = state[1]
        if self.protocol.commit_error_is_rollback:
            # The same events once more, in the next free tick.
            yield f"try again {number}", self._again(state, number, worker)
            return
        there = len(seals) == index + 1 and seals[index][2:4] == (start, end)
        phase = (SEALED, lease, index, 0, 0, nonce) if there else (READY, lease, len(seals) - 1, 0, 0, nonce)
        yield f"look {number}", self._with(state, number, phase)

    def _again(self, state: State, number: int, worker: State) -> State:
        _, lease, _, start, end, nonce = worker
        charges, current, seals, released, visible = state[1]
        last = seals[-1] if seals else (1, 0, 0, 0, 0)
        after = (charges, current, (*seals, (last[0], last[1] + 1, start, end, end)), released, visible)
        return self._with(state, number, (SEALED, lease, len(seals), 0, 0, nonce), store=after)

    def _payload(self, seals: State, index: int, nonce: int) -> State:
        life, tick = seals[index][:2]
        data = tuple(each[2:4] for each in seals[: index + 1] if each[0] == life and each[1] <= tick)
        bound = () if self.protocol.noise_not_bound_to_data else data
        return (life, tick, bound, data, nonce)

    def _release(self, state: State, number: int, worker: State) -> Iterator[tuple[str, State]]:
        store, unknown = state[1], state[8]
        _, lease, index, _, _, nonce = worker
        charges, current, seals, released, visible = store
        if lease != current and not self.protocol.no_lease:
            yield f"stale {number}", self._with(state, number, _NOBODY)
            return
        if index >= len(seals):
            yield f"gone {number}", self._with(state, number, _NOBODY)
            return
        payload = self._payload(seals, index, nonce)
        if self.protocol.publish_before_durable:
            yield (
                f"publish {number} too early",
                self._with(state, number, worker, public=_added(state[6], payload)),
            )
        if index < len(released):
            # Fresh noise is stored over what was there.
            again = self.protocol.fresh_noise_after_restart
            after = (*released[:index], payload, *released[index + 1 :]) if again else released
        elif index == len(released):
            after = (*released, payload)
        else:
            after = (*released, *(self._payload(seals, place, nonce) for place in range(len(released), index + 1)))
        done = (RELEASED, lease, index, 0, 0, nonce)
        stored = (charges, current, seals, after, visible)
        yield f"release {number}", self._with(state, number, done, store=stored)
        if unknown:
            yield f"release {number}, unknown", self._with(state, number, worker, store=stored, unknown=unknown - 1)
            yield f"no release {number}, unknown", self._with(state, number, worker, unknown=unknown - 1)

    def _witness(self, state: State, number: int, worker: State) -> Iterator[tuple[str, State]]:
        _, lease, index, _, _, nonce = worker
        _, _, seals, released, _ = state[1]
        if index >= len(released):
            yield f"gone {number}", self._with(state, number, _NOBODY)
            return
        if self.protocol.witness_after_publish:
            yield f"show {number}", self._with(state, number, worker, public=_added(state[6], released[index]))
        # A process that was overtaken may come late; the witness keeps the furthest tick.
        witness = max(state[3], (seals[index][1], seals[index][4]))
        yield f"witness {number}", self._with(state, number, (WITNESSED, lease, index, 0, 0, nonce), witness=witness)

    def _publish(self, state: State, number: int, worker: State) -> Iterator[tuple[str, State]]:
        _, lease, index, _, _, nonce = worker
        charges, current, seals, released, visible = state[1]
        if index >= len(released):
            yield f"gone {number}", self._with(state, number, _NOBODY)
            return
        public = state[6]
        for payload in released[visible : index + 1]:
            public = _added(public, payload)
        shown = (charges, current, seals, released, max(visible, index + 1)) if lease == current else state[1]
        ready = (READY, lease, index, 0, 0, nonce) if lease == current else _NOBODY
        yield f"publish {number}", self._with(state, number, ready, store=shown, public=public)


def _added(public: State, payload: State | None) -> State:
    if payload is None or payload in public:
        return public
    return tuple(sorted((*public, payload)))


Check = Callable[[Protocol, Scope], Outcome]
