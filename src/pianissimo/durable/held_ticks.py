"""Ticks that are over and held in memory, to be sealed, released, witnessed and published together.

Of old data each tick costs three syncs, and hardly anything else. Ticks that were over before any of them was sealed
may share them: one transaction seals them all, the next releases them all, one append witnesses them all. Every step is
on the disk for all of them before the next begins for any. So no noise is drawn before its seal is durable, and nothing
is shown before its release is stored and witnessed: of a group as of a tick. What is stored, witnessed and sent is byte
for byte what it is where each tick has steps of its own.

* *What a tick adds is gathered before the ticks held before it are counted.* It may not depend on them: mechanisms
  whose gathering looks at the state are never held (`LiveCore.gathers_ahead`). Nor does a group go beyond the last tick
  of a part of the stream, after which that part gathers nothing.
* *A seal covers the last stored state.* A group ends where the state may be stored, so that all its seals cover the
  same one.
* *How many ticks there are in a group* is a function of the number of the tick and of settings, unless what they add is
  large: then fewer are held, so that memory is bounded. No byte of a release depends on it. That a reader may see some
  ticks at once is no more than how long counting took, and with `publish_after` nobody sees that either.

A crash between two steps leaves a few sealed ticks without a release. A start releases them together, from what is
sealed, before anything else is sealed. There are never more than `MOST_TOGETHER`.
"""

from dataclasses import dataclass

from pianissimo.durable.stored_state import Gathered
from pianissimo.stream.live_core import LiveCore

MOST_TOGETHER = 8
"""No more ticks are sealed together."""

MOST_HELD = 2**24
"""Where what they add takes more bytes, no further tick is held."""


@dataclass(frozen=True, slots=True, repr=False)
class HeldTick:
    """What the events of a tick add, and where it was read to: secret."""

    gathered: Gathered
    content: bytes
    """What they add, as it is stored."""

    positions: bytes


def last_together(core: LiveCore, released: int, place: int, every: int) -> int:
    """The last tick that may be sealed together with the one after `released`, which is tick `place` + 1 of its life.

    States are stored at multiples of `every`.
    """
    if not core.gathers_ahead:
        return released + 1
    ends = [place + MOST_TOGETHER, place + every - released % every]
    ends += [end for end in core.closing_ticks if end > place]
    return released + min(ends) - place
