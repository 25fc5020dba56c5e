"""Windows of user-level releases: what was accepted between two ticks, also where the cap was raised in between.

At a raise the counters start anew, and the new start counts what the higher cap lets in of all earlier ticks as well.
So the difference of two releases counts old events as new ones. Here an interval is cut at the raises that lie in it.
Each segment is counted under the cap of the start that held when it began, with the noise of that start's own plan:

    sum over segments of (accepted at its end - accepted at its begin)
        + floor(sum over segments of (noise at its end - noise at its begin) + 1/2)

Ages are counted from each start's tick. The noise of its prefix is in both ends and cancels. At the tick of a raise the
segment that ends there counts under the old cap, and what the new one lets in besides is in no segment: so each tick
has one entry, under the cap that held when it began, and an interval is the sum of its ticks.

*It costs nothing:* each start keeps its plan up to the horizon, and its price is that of all rows, shown or not. A
window is a function of rows whose ticks are over. Card: units and windows, U2; docs/privacy.md, 'Users'.

*What is missing* is what the cap cuts off. Where it was not raised in between, fewer than `users_above` users have lost
something, each at most what she has beyond the cap. Over a raise nothing bounds how many were above the lower one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys, sealed_since
from pianissimo.noise.plan import NoisePlan
from pianissimo.noise.recent import NO_HISTORY, Recent
from pianissimo.noise.running import OwnNoise, evaluate, rounded
from pianissimo.users.caps import Course, CutOff
from pianissimo.users.counters import Counters, Law


class Span(NamedTuple):
    """A segment: which start held, and from which to which of its ages."""

    place: tuple[int, int, int]
    """Number of the start, its cap, and the tick after which it counts."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SegmentWindow:
    """An interval, cut at the raises that lie in it."""

    moves: NDArray[np.int64]
    """How far each slot moved, in each tick under the cap that held when it began: secret."""

    spans: tuple[Span, ...]
    cut: CutOff
    """What is public of the units that are missing, with the least cap that held."""

    def estimates(self, counters: Counters, moves: NDArray[np.int64], noise: Noise, keys: Keys) -> NDArray[np.int64]:
        """Moves of as many series as there are keys, with the noises of both ends of each segment, rounded once.

        `noise` is that which the releases of the counters have.
        """
        plans = [_plan(counters, span) for span in self.spans]
        shift = max(plan.shift for plan in plans)
        parts = np.zeros(len(moves), dtype=np.int64)
        for plan, span in zip(plans, self.spans, strict=True):
            own = sealed_since(noise.at(*span.place).at("plan"), span.place[2])
            numerators = evaluate(plan, own, span.end, keys, since=span.begin)
            # Whole numbers and what is left of them, so that a common denominator fits in 64 bits.
            moves = moves + (numerators >> plan.shift)
            parts += (numerators & ((1 << plan.shift) - 1)) << (shift - plan.shift)
        return rounded(moves, parts, shift)

    def law(self, counters: Counters) -> Law:
        """The noise of each: that of all segments, which are independent."""
        laws = [Law(_plan(counters, span), span.end, None, begin=span.begin) for span in self.spans]
        # A plan whose noise comes rounded has it so in each segment by itself.
        roundings = len(laws) if isinstance(laws[0].plan, OwnNoise) else 1
        return Law(None, 0, None, others=tuple(laws), roundings=roundings)


class Segments:
    """What was accepted in each of the last ticks, by slots that may grow in number, and all starts so far: secret.

    A slot is a total of a mechanism: the one of a count, or that of each label.
    """

    def __init__(self, history: int, course: Course) -> None:
        check_at_least(1, history=history)
        self._recent = Recent(history)
        self._course = course
        self._starts = [course.standing()]
        self.kept = 0
        """All that was accepted when the last tick ended, for those who know the total alone."""

    def add(self, slots: NDArray[np.int64], moves: NDArray[np.int64]) -> None:
        """Remember what the open tick moved under the cap that held when it began.

        Where the cap is raised at tick 1, before anything was released, the higher one counts as that.
        """
        self._recent.add(slots, moves)

    def add_all(self, moves: NDArray[np.int64]) -> None:
        """The same for all slots at once."""
        slots = np.flatnonzero(moves)
        self._recent.add(slots, moves[slots])

    def close(self, *, kept: int = 0) -> None:
        """End the open tick, after its test."""
        self.kept = kept
        self._recent.close()
        now = self._course.standing()
        # Counters that have released nothing yet just begin with the higher cap.
        self._starts = [each for each in self._starts if each[0] < now[0]] + [now]

    def close_total(self, accepted: int, total: int) -> None:
        """The same for one total: what the cap lets in that held when the tick began, and what the present one does."""
        self.add_all(np.array([accepted - self.kept], dtype=np.int64))
        self.close(kept=total)

    def window(self, start: int, end: int, *, size: int) -> "SegmentWindow":
        """Ticks start + 1 .. end, of so many slots."""
        # Refuses what is not kept any more.
        moves = self._recent.between(start, end, size=size)
        return SegmentWindow(moves, tuple(self._spans(start, end)), self._cut_off(start, end))

    def _spans(self, start: int, end: int) -> Iterator[Span]:
        befores = [*(since for _, _, since in self._starts[1:]), end]
        for (number, level, since), before in zip(self._starts, befores, strict=True):
            begin, last = max(start, since), min(end, before)
            if begin < last:
                yield Span((number, self._course.cap_of(level), since), begin - since, last - since)

    def _cut_off(self, start: int, end: int) -> CutOff:
        own = self._course.cut_off(max(level for _, level, since in self._starts if since <= start))
        is_raised = any(start < since <= end for _, _, since in self._starts)
        return CutOff(own.cap, None, is_raised=True) if is_raised else own

    @property
    def log_length(self) -> int:
        return self._recent.log_length

    def to_plain(self) -> codec.Plain:
        return {"recent": self._recent.to_plain(), "starts": [list(each) for each in self._starts], "kept": self.kept}

    def log(self) -> codec.Plain:
        return self._recent.log()

    def checkpoint(self) -> codec.Plain:
        return self._recent.checkpoint()

    def lasting(self) -> set[int]:
        return self._recent.lasting()

    def missing(self) -> set[int]:
        return self._recent.missing()

    def take_logged(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        self._recent.take_logged(content["recent"], logs)
        self._starts = [(number, level, since) for number, level, since in content["starts"]]
        self.kept = content["kept"]

    def __repr__(self) -> str:
        return "Segments(hidden)"


def segments_of(history: int, course: Course) -> Segments | None:
    """Those of a state, or none where no past ticks are kept."""
    return Segments(history, course) if history else None


def there(segments: Segments | None) -> Segments:
    """Those of a state that is asked for an interval."""
    if segments is None:
        raise ParameterError(NO_HISTORY)
    return segments


def _plan(counters: Counters, span: Span) -> NoisePlan:
    plan = counters.plan(*span.place)
    assert plan is not None  # noqa: S101
    return plan
