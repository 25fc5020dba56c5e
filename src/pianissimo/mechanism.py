"""The one shape of every mechanism, and the rules of its use.

What can be known without data (parameters, guarantee, error) is a frozen `Mechanism`. What has seen data is one small
state. The life cycle (ticks, horizon, storing) is in `Run` and nowhere else.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast, runtime_checkable

from pianissimo import codec, identity
from pianissimo.checks import check_probability
from pianissimo.errors import HorizonError, InputError, ParameterError, StateError
from pianissimo.guard import Guard
from pianissimo.loss.losses import Guarantee
from pianissimo.noise.keyed import Noise
from pianissimo.stored_parts import (
    Logged,
    checkpoint_of,
    is_shaped,
    lasting_of,
    missing_of,
    plain_parts,
    restore,
    stored_parts,
    whole_logs_of,
)

Batch = TypeVar("Batch")
State = TypeVar("State")
Value = TypeVar("Value")
Batch_contra = TypeVar("Batch_contra", contravariant=True)
State_contra = TypeVar("State_contra", contravariant=True)
Value_co = TypeVar("Value_co", covariant=True)


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

    `converse(state, tick, noise)` yields questions, public ones, is sent the answers of all shards in the order of
    their numbers, and returns the value. `answer(state, question, tick, noise)` answers for what one shard has counted,
    and tells secrets: both ends are trusted. A shard that has counted nothing is not asked. `split(gathered, shards)`
    says which shard counts what. Here one state is both ends. A question may change the state of who answers, as a
    function of it alone.
    """

    __slots__ = ()

    def release(self: Any, state: Any, tick: int, noise: Noise) -> Value:
        talk: Conversation[Value] = self.converse(state, tick, noise)
        return answered(talk, lambda question: self.answer(state, question, tick, noise))


def answered(talk: Conversation[Value], answer: Callable[[Any], Any]) -> Value:
    """What comes of a conversation with one who has the whole state."""
    try:
        question = next(talk)
        while True:
            question = talk.send([answer(question)])
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

    def dump(self, *, whole: bool = False) -> codec.Plain:
        """The state between two ticks as plain data: without what `log` gives tick by tick, or `whole`, with it.

        It holds exact counts: keep it as secret as the events, and `load` it once. Two runs that go on from it with
        different events have the same noise over different data, whose difference is the truth.
        """
        with self._guard:
            content = {"tick": self._tick, "mechanism": self._identity, "state": plain_parts(self._state)}
            logs = whole_logs_of(self._logged()) if whole else {}
            return content | ({"log": logs} if logs else {})

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
                restore(state, content["state"], [content["log"]] if "log" in content else logs)
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
