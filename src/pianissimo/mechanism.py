"""The one shape of every mechanism, and the rules of its use.

What can be known without data (parameters, guarantee, error) is a frozen `Mechanism`. What has seen data is one small
state. The life cycle (ticks, horizon, storing) is in `Run` and nowhere else.
"""

import os
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast, runtime_checkable

from pianissimo import codec, identity
from pianissimo.checks import check_probability
from pianissimo.errors import HorizonError, InputError, ParameterError, StateError
from pianissimo.loss.losses import Guarantee
from pianissimo.noise.keyed import Noise

Batch = TypeVar("Batch")
State = TypeVar("State")
Value = TypeVar("Value")
Batch_contra = TypeVar("Batch_contra", contravariant=True)
State_contra = TypeVar("State_contra", contravariant=True)
Value_co = TypeVar("Value_co", covariant=True)

_INTERRUPTED = "what was interrupted half-way must not go on"

TRANSIENT = {"transient": True}
"""Metadata of a state's field that is not stored: a cache that the state's other fields and the noise make anew."""


class Mechanism(Protocol[Batch_contra, State, Value_co]):
    """Frozen parameters that answer one query at every tick."""

    @property
    def guarantee(self) -> Guarantee:
        """The promise of one whole run."""

    def error(self, tick: int, coverage: float) -> float:
        """The half-width around the estimate that covers the truth with this chance, known before any data."""

    def start(self, noise: Noise) -> State:
        """The state before the first event."""

    def update(self, state: State, batch: Batch_contra) -> None:
        """Count a batch: `add(state, gather(state, batch))`. Draws no noise, and changes nothing if it raises."""

    def gather(self, state: State, batch: Batch_contra) -> codec.Plain:
        """What a batch adds, as plain data that can be stored before it is counted; it changes nothing.

        It is the same for the same events in any order or, where only a user's first events count, in any order that
        keeps each user's own. It is aggregated as far as that goes. It reads the state as the ticks before have left
        it, so that it is the same whatever else is gathered in the open tick. Users are in it as keyed pseudonyms, or
        by the slots of these in the state, if at all.
        """

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        """What batches add together, byte for byte what one batch of all their events adds.

        Pieces are in the order of their batches; each user's own events keep their order. So what is stored of a tick,
        and the noise that is bound to it, tell nothing of where batches were cut, or of who gathered them.
        """

    def add(self, state: State, gathered: codec.Plain) -> None:
        """Count what was gathered."""

    def release(self, state: State, tick: int, noise: Noise) -> Value_co:
        """What is published at `tick`: where data meet noise."""


class Gathering:
    """A mechanism that counts a batch by what it gathers of it, as a base class."""

    __slots__ = ()

    def update(self: Any, state: Any, batch: Any) -> None:
        self.add(state, self.gather(state, batch))


Conversation = Generator[Any, list[Any], Value]
"""Yields questions, is sent all shards' answers to each, and returns what is published."""


class Conversing(Generic[Value]):
    """A mechanism whose release is a conversation with whoever has the state, as a base class.

    `converse(state, tick, noise)` yields questions, public ones, is sent the answers of all shards in no order, and
    returns the value. `answer(state, question, tick, noise)` answers for what one shard has counted, and tells secrets:
    both ends are trusted. A shard that has counted nothing is not asked. `split(gathered, shards)` says which shard
    counts what. Here one state is both ends. A question may change the state of who answers, as a function of it alone.
    """

    __slots__ = ()

    def release(self: Any, state: Any, tick: int, noise: Noise) -> Value:
        talk: Conversation[Value] = self.converse(state, tick, noise)
        try:
            question = next(talk)
            while True:
                question = talk.send([self.answer(state, question, tick, noise)])
        except StopIteration as end:
            value: Value = end.value
            return value


def in_shards(mechanism: Any) -> bool:
    """Whether shards can have the state of a mechanism, and not only whoever drives them."""
    # Its own word: one around another passes on what that one says.
    return hasattr(type(mechanism), "in_shards") and bool(mechanism.in_shards)


@runtime_checkable
class Windowed(Protocol[State_contra, Value_co]):
    """A mechanism that answers intervals of the past from the nodes already public, at no further loss."""

    def between(self, state: State_contra, start: int, end: int, noise: Noise) -> Value_co:
        """What ticks start + 1 .. end added."""

    def between_error(self, start: int, end: int, coverage: float) -> float:
        """The half-width of that answer; the two ends share noise, so it is not that of independent ends."""


@runtime_checkable
class Storable(Protocol):
    """A part of a state that is more than plain data in memory but plain data when stored."""

    def to_plain(self) -> codec.Plain:
        """Its content as plain data."""

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content; called on a fresh part."""


@runtime_checkable
class Logged(Protocol):
    """A part of a state that grows by one entry a tick and keeps the last ones: entries are stored once each."""

    @property
    def log_length(self) -> int:
        """How many of its last entries make it whole."""

    def to_plain(self) -> codec.Plain:
        """Its content without the entries."""

    def log(self) -> codec.Plain:
        """The last entry."""

    def take_logged(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        """Take over a stored content and the last entries, the oldest first; called on a fresh part."""


@runtime_checkable
class Lasting(Logged, Protocol):
    """One that keeps something of a few ticks for longer than its entries: it is stored once as well."""

    def checkpoint(self) -> codec.Plain:
        """What is kept for long of the last entry; None where nothing is. `take_logged` takes it among the entries."""

    def lasting(self) -> set[int]:
        """After how many releases there was something that is still needed."""

    def missing(self) -> set[int]:
        """After how many releases there should be something, and is not."""


@runtime_checkable
class BySlot(Protocol):
    """A mechanism that may gather by what its state knows: who has no state gathers by names, which it translates."""

    def by_name(self) -> Any:
        """The same mechanism, gathering by names alone: from the events, and from nothing else."""

    def from_names(self, state: Any, gathered: codec.Plain) -> codec.Plain:
        """What that one gathered, byte for byte as `gather` gives it here."""


@runtime_checkable
class BeginsAnew(Protocol):
    """A mechanism whose names are others after some public ticks: whoever gathers elsewhere must know since when."""

    def standing(self, state: Any) -> int:
        """The first tick of the run that has the names of the open one."""

    def stand_at(self, state: Any, tick: int) -> None:
        """Gather for a tick of the run from now on; of a state that has counted nothing."""


@dataclass(frozen=True, slots=True)
class Release(Generic[Value_co]):
    """What is published for one tick, with the half-width of its error bars."""

    tick: int
    value: Value_co
    error: float
    since: int = field(default=0, repr=False)
    """Of an interval: the tick after which it begins."""


class Run(Generic[Batch, State, Value]):
    """One run of a mechanism: counts ticks, stops at the horizon, and gives what of it is stored.

    >>> from pianissimo.counting import Counter
    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.testing import NoNoise
    >>> run = Run(Counter(plan=HaarPlan.calibrated(horizon=8, rho=0.5)), NoNoise())
    >>> run.update(["a", "b"])
    >>> run.release()
    Release(tick=1, value=2, error=...)
    """

    def __init__(
        self,
        mechanism: Mechanism[Batch, State, Value],
        noise: Noise,
        *,
        coverage: float = 0.95,
        digest: bytes | None = None,
    ) -> None:
        check_probability(coverage=coverage)
        self.mechanism = mechanism
        self.coverage = coverage
        self._noise = noise
        self._state = mechanism.start(noise)
        self._tick = 0
        self._horizon = mechanism.guarantee.horizon
        self._guard = Guard()
        if digest is not None:
            # As it is stored with its plan: a later version may have another form of the same mechanism.
            self._identity = digest

    @property
    def tick(self) -> int:
        """How many releases have been made."""
        return self._tick

    @property
    def is_open(self) -> bool:
        """Whether any release is to come."""
        return self._tick < self._horizon

    def update(self, batch: Batch) -> None:
        """Count a batch of the open tick."""
        # Both are raised before anything was counted: the run may go on.
        with self._guard.forgiving(HorizonError, InputError):
            self._check_open()
            self.mechanism.update(self._state, batch)

    def gather(self, batch: Batch) -> codec.Plain:
        """What a batch of the open tick adds, as plain data that `add` counts; nothing is counted yet."""
        with self._guard.forgiving(HorizonError, InputError):
            self._check_open()
            return self.mechanism.gather(self._state, batch)

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        """What batches of the open tick add together, of what `gather` gave for each, in their order."""
        return pieces[0] if len(pieces) == 1 else self.mechanism.combine(pieces)

    @property
    def standing(self) -> int:
        """The first tick that has the names of the open one."""
        return self.mechanism.standing(self._state) if isinstance(self.mechanism, BeginsAnew) else 1

    def stand_at(self, tick: int) -> None:
        """Gather for a tick, where nothing is ever counted."""
        if isinstance(self.mechanism, BeginsAnew):
            self.mechanism.stand_at(self._state, tick)

    def from_elsewhere(self, gathered: codec.Plain) -> codec.Plain:
        """What was gathered where there is no state, as `gather` gives it here."""
        if not isinstance(self.mechanism, BySlot):
            return gathered
        with self._guard.forgiving(InputError):
            return self.mechanism.from_names(self._state, gathered)

    def add(self, gathered: codec.Plain) -> None:
        """Count what `gather` gave, or `combine`."""
        with self._guard:
            self._check_open()
            self.mechanism.add(self._state, gathered)

    def dump(self) -> codec.Plain:
        """The state between two ticks as plain data, without what `log` gives tick by tick.

        It holds exact counts: keep it as secret as the events, and `load` it once. Two runs that go on from it with
        different events have the same noise over different data, whose difference is the truth.
        """
        with self._guard:
            return {"tick": self._tick, "mechanism": self._identity, "state": plain_parts(self._state)}

    @property
    def log_length(self) -> int:
        """How many of the last logs a dump needs."""
        return max((part.log_length for part in self._logged().values()), default=0)

    def log(self) -> codec.Plain:
        """What the last release has added to what a dump leaves out."""
        with self._guard:
            return {name: part.log() for name, part in self._logged().items()}

    def checkpoint(self) -> codec.Plain:
        """What of the last release is needed for longer than its log; None where nothing is."""
        with self._guard:
            return checkpoint_of(self._logged())

    def lasting(self) -> set[int]:
        """After how many releases there was a checkpoint that a dump still needs."""
        return lasting_of(self._logged())

    def missing(self) -> set[int]:
        """After how many releases there should be a checkpoint, and is none."""
        return missing_of(self._logged())

    def _logged(self) -> dict[str, Logged]:
        return {name: part for name, part in stored_parts(self._state) if is_shaped(part, Logged)}

    def load(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        """Take over what `dump` gave, and the checkpoints and last logs, the oldest first, of the same mechanism.

        The one who calls knows that it is of the same noise.
        """
        with self._guard:
            try:
                if content["mechanism"] != self._identity:
                    raise StateError("a stored state must belong to this mechanism, got one of other parameters")
                tick = content["tick"]
                if not (isinstance(tick, int) and 0 <= tick <= self._horizon):
                    raise StateError("a stored state must stand at a tick of its horizon, got another number")
                state = self.mechanism.start(self._noise)
                restore(state, content["state"], logs)
            except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
                raise StateError("a stored state must have the content of this version, got other content") from None
            self._tick, self._state = tick, state

    def release(self) -> Release[Value]:
        """Close the open tick and publish."""
        with self._guard.forgiving(HorizonError):
            self._check_open()
            tick = self._tick + 1
            value = self.mechanism.release(self._state, tick, self._noise)
            self._tick = tick
        return Release(tick=tick, value=value, error=self.mechanism.error(tick, self.coverage))

    def converse(self) -> Conversation[Release[Value]]:
        """The same, where shards have the state: yields questions, and is sent their answers."""
        with self._guard.forgiving(HorizonError):
            self._check_open()
            tick = self._tick + 1
            value: Value = yield from cast(Any, self.mechanism).converse(self._state, tick, self._noise)
            self._tick = tick
        return Release(tick=tick, value=value, error=self.mechanism.error(tick, self.coverage))

    def answer(self, question: Any) -> Any:
        """At a shard: what the open tick's conversation asks of it."""
        with self._guard:
            return cast(Any, self.mechanism).answer(self._state, question, self._tick + 1, self._noise)

    def stand_after(self, releases: int) -> None:
        """At a shard: so many releases have been made, by those who converse."""
        with self._guard:
            self._tick = releases

    def between(self, start: int, end: int) -> Release[Value]:
        """What ticks start + 1 .. end added, from the nodes already public: it costs nothing more."""
        if not isinstance(self.mechanism, Windowed):
            raise ParameterError(f"{type(self.mechanism).__name__} must answer intervals to be asked for one")
        with self._guard.forgiving(ParameterError):
            if not 0 <= start < end <= self._tick:
                known = f"the {self._tick} released ticks"
                raise ParameterError(f"an interval must lie within {known}, got {start} to {end}")
            value = self.mechanism.between(self._state, start, end, self._noise)
        error = self.mechanism.between_error(start, end, self.coverage)
        return Release(tick=end, value=value, error=error, since=start)

    @cached_property
    def _identity(self) -> bytes:
        return identity.digest(self.mechanism)

    def _check_open(self) -> None:
        if not self.is_open:
            raise HorizonError(f"all {self._horizon} releases are made; start a new run")

    def __repr__(self) -> str:
        return f"Run({self.mechanism!r}, tick={self._tick})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run is not copied or pickled: two of it would share their noise; store its dump")


class Guard:
    """Stops what must not go on: after an interruption half-way, in a forked process, or when it was closed."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._reason = ""

    @property
    def is_at_home(self) -> bool:
        """Whether this is the process that it was made in."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        """Refuse a forked child, before it waits for what a thread of its parent held, or for the threads of polars."""
        if not self.is_at_home:
            raise StateError("a run must stay in the process that began it: a fork would share its noise; start anew")

    def __enter__(self) -> None:
        self.check_process()
        # Also for the same thread: a signal handler in the middle of a release must not release.
        if not self._busy.acquire(blocking=False):
            raise StateError("a run must be used by one caller at a time, got another in the middle of a call")
        if self._reason:
            self._busy.release()
            raise StateError(f"{self._reason}; start anew")
        self._reason = _INTERRUPTED

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._reason == _INTERRUPTED:
            self._reason = ""
        self._busy.release()

    @contextmanager
    def forgiving(self, *harmless: type[Exception]) -> Iterator[None]:
        """The same, where some errors are raised before anything is changed: what they interrupt may go on."""
        try:
            with self:
                yield
        except harmless:
            self.forgive()
            raise

    def forgive(self) -> None:
        """Take back an interruption that is known to have changed nothing."""
        if self._reason == _INTERRUPTED:
            self._reason = ""

    def close(self, reason: str) -> None:
        """Let nothing happen any more."""
        self._reason = reason


class OneCaller:
    """Other threads wait; a call amid another of the same thread, as from a signal or a sink, is refused.

    So is one of a forked child, at once: whatever thread of its parent held the lock is not there to let go.
    """

    __slots__ = ("_guard", "_inside", "lock")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        # Its owner may take it again, so that an interrupt that leaves it taken does not hang its own thread.
        self.lock = threading.RLock()
        """Itself, for what must be possible always: to let go. Other threads are waited for, one's own call is not."""

        self._inside = False

    def __enter__(self) -> None:
        self._guard.check_process()
        self.lock.acquire()
        try:
            self._check_outside()
            self._inside = True
        except BaseException:
            self.lock.release()
            raise

    def _check_outside(self) -> None:
        if self._inside:
            raise StateError("a stream must be used by one caller at a time, got a call in the middle of another")

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self.lock.release()


def is_shaped(part: object, shape: type) -> bool:
    """Whether something has the shape of a protocol: as `isinstance` tells it, but found out once a class."""
    place = (type(part), shape)
    if place not in _shapes:
        _shapes[place] = all(hasattr(type(part), name) for name in dir(shape) if not name.startswith("_"))
    return _shapes[place]


_shapes: dict[tuple[type, type], bool] = {}


def stored_parts(state: object) -> Iterator[tuple[str, Any]]:
    """The parts that are stored; one that is None is not there, as in states of before there was such a part."""
    kept = (each.name for each in fields(cast(Any, state)) if not each.metadata.get("transient"))
    return ((name, part) for name in kept if (part := getattr(state, name)) is not None)


def plain_parts(state: object) -> dict[str, codec.Plain]:
    """They as plain data, without what is logged tick by tick."""
    parts = stored_parts(state)
    shapes = (Storable, Logged)
    return {name: part.to_plain() if any(is_shaped(part, shape) for shape in shapes) else part for name, part in parts}


def checkpoint_of(parts: dict[str, Logged]) -> codec.Plain:
    """What some parts of a state keep for long of the last tick; None where nothing is."""
    found = {name: cast(Lasting, part).checkpoint() for name, part in parts.items() if is_shaped(part, Lasting)}
    return {name: content for name, content in found.items() if content is not None} or None


def lasting_of(parts: dict[str, Logged]) -> set[int]:
    """Of which ticks they still need it."""
    lasting = (cast(Lasting, part) for part in parts.values() if is_shaped(part, Lasting))
    return set[int]().union(*(part.lasting() for part in lasting))


def missing_of(parts: dict[str, Logged]) -> set[int]:
    """Of which ticks they should have it, and do not."""
    return set[int]().union(*(part.missing() for part in parts.values() if isinstance(part, Lasting)))


def restore(state: object, content: dict[str, codec.Plain], logs: Sequence[codec.Plain]) -> None:
    """Give a fresh state what `plain_parts` gave, and the checkpoints and last logs, the oldest first."""
    parts = dict(stored_parts(state))
    if set(content) != set(parts):
        raise StateError("a stored state must have the fields of this version, got other fields")
    for name, part in parts.items():
        if isinstance(part, Logged):
            part.take_logged(content[name], [log[name] for log in logs if name in log])
        elif isinstance(part, Storable):
            part.take_plain(content[name])
        else:
            setattr(state, name, content[name])
