"""Audit level A2: two neighboring streams through one mechanism with one tape of noise.

With the same secret on both sides, the releases may differ by what the event itself counts and by nothing else:
rounding commutes with adding whole numbers, every series has its own noise, and no call for noise may depend on the
data other than by the series there are. What differs beyond that is a problem, named without its content.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.counting import LabelCounts
from pianissimo.mechanism import Mechanism, Run
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Integers, Keys, OuterNoise, PathPart


@dataclass(frozen=True, slots=True)
class NoiseCall:
    """One call for noise: where, of which law and scale, for which keys."""

    path: tuple[PathPart, ...]
    law: str
    parameter: Fraction
    keys: frozenset[bytes]


class RecordingNoise(OuterNoise):
    """Passes calls on and writes them down, so that two runs can be compared call by call.

    >>> from pianissimo.noise import KeyedNoise
    >>> noise = RecordingNoise(KeyedNoise(bytes(32)))
    >>> _ = noise.at("node").laplace(2.0)
    >>> noise.calls[0].path, noise.calls[0].parameter
    (('node',), Fraction(2, 1))
    """

    def __init__(self, inner: Noise, path: tuple[PathPart, ...] = (), calls: list[NoiseCall] | None = None) -> None:
        super().__init__(inner)
        self.path = path
        self.calls = [] if calls is None else calls

    def at(self, *path: PathPart) -> Self:
        """The recorded noise further down the path."""
        return type(self)(self.inner.at(*path), self.path + path, self.calls)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        """The inner noise's draws."""
        self._record(law, parameter, keys)
        self.inner.draw(law, parameter, keys, out)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        """The inner noise's bits."""
        self._record("bits", Fraction(0), keys)
        return self.inner.bits(keys)

    def _record(self, law: str, parameter: Fraction, keys: Keys) -> None:
        self.calls.append(NoiseCall(self.path, law, parameter, frozenset(key.tobytes() for key in keys)))


def replay(
    mechanism: Mechanism[Any, Any, Any],
    noise: Noise,
    larger: Sequence[Any],
    smaller: Sequence[Any],
    *,
    event_tick: int,
    event_labels: frozenset[str],
    always_shown: bool,
) -> list[str]:
    """What differs between two runs beyond the event itself; empty for a sound mechanism.

    `larger` and `smaller` are the batches of each tick, equal but for one event of `event_tick` that only `larger`
    has and that holds `event_labels`. With `always_shown`, labels are released whatever their counts (counters, known
    domains).
    """
    first, second = RecordingNoise(noise), RecordingNoise(noise)
    runs = Run(mechanism, first), Run(mechanism, second)
    problems: list[str] = []
    for tick, batches in enumerate(zip(larger, smaller, strict=True), start=1):
        values = []
        for run, batch in zip(runs, batches, strict=True):
            run.update(batch)
            values.append(_as_dict(run.release().value))
        moved = event_labels if tick >= event_tick else frozenset()
        problems += _compare_values(tick, values[0], values[1], moved, always_shown=always_shown)
    own_keys = _own_keys(first, event_labels)
    problems += _compare_calls(_by_place(first, own_keys), _by_place(second, own_keys))
    return problems


def _as_dict(value: object) -> dict[str, int]:
    return value.to_dict() if isinstance(value, LabelCounts) else {"": int(str(value))}


def _compare_values(
    tick: int, larger: dict[str, int], smaller: dict[str, int], moved: frozenset[str], *, always_shown: bool
) -> list[str]:
    problems = []
    if always_shown and larger.keys() != smaller.keys():
        problems.append(f"tick {tick}: labels of a public list come and go with the data")
    for label in larger.keys() | smaller.keys():
        if label in larger and label in smaller:
            if larger[label] - smaller[label] != (label in moved):
                problems.append(f"tick {tick}: an estimate moved by other than what the event counts")
        elif label not in moved:
            problems.append(f"tick {tick}: a label that the event does not hold is shown on one side only")
    return problems


def _own_keys(noise: RecordingNoise, labels: frozenset[str]) -> frozenset[bytes]:
    texts = [label.encode() for label in sorted(labels)]
    lengths = np.array([len(text) for text in texts], dtype=np.uint32)
    keys = noise.at("labels").label_keys(b"".join(texts), lengths)
    return frozenset(key.tobytes() for key in keys)


def _by_place(noise: RecordingNoise, own_keys: frozenset[bytes]) -> dict[tuple[object, ...], set[bytes]]:
    places: dict[tuple[object, ...], set[bytes]] = {}
    for call in noise.calls:
        keys = places.setdefault((call.path, call.law, call.parameter), set())
        keys |= call.keys - own_keys
    return {place: keys for place, keys in places.items() if keys}


def _compare_calls(
    larger: dict[tuple[object, ...], set[bytes]], smaller: dict[tuple[object, ...], set[bytes]]
) -> list[str]:
    problems = []
    if larger.keys() != smaller.keys():
        problems.append("noise was drawn at other nodes or scales on one side")
    if any(larger[place] != smaller[place] for place in larger.keys() & smaller.keys()):
        problems.append("noise was drawn for other series on one side")
    return problems
