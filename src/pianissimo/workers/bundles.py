"""What a tick adds to the parts of a stream that shards have, cut by a public hash, and on its way to who has them.

Whoever gathers cuts it into bundles, each of some shards, so that the driver passes it on as it came. Whoever has these
shards brings the pieces of a bundle together, in their order, and cuts them by shard. That is byte for byte what one
cut of all that the tick adds gives: all that a shard counts is in one bundle, and what is cut and combined is the same
as what is combined and cut.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any

from pianissimo import codec
from pianissimo.mechanism import in_shards
from pianissimo.stream import StreamPlan
from pianissimo.stream.live_core import answered_together

MOST_BUNDLES = 256
"""Into no more bundles is it cut: as many tasks can bring them together."""

Bundle = list[Any]
"""The number of a bundle, and what it has of one piece, packed: plain data."""


def bundles_of(shards: int) -> int:
    """How many bundles there are: as many as share the hash of shards, so that a shard is in bundle `shard % bundles`.

    >>> [bundles_of(shards) for shards in (16, 4096, 1000, 4093)]
    [16, 256, 250, 1]
    """
    return next(count for count in range(min(shards, MOST_BUNDLES), 0, -1) if shards % count == 0)


class ShardedParts:
    """The parts of a stream whose state shards have."""

    def __init__(self, plan: StreamPlan) -> None:
        self.shards = plan.shards
        self.mechanisms: dict[int, Any] = {
            number: answered[0].mechanism
            for number, answered in enumerate(answered_together(plan))
            if in_shards(answered[0].mechanism)
        }
        """By their numbers in the stream."""

    def taken_out(self, contents: Sequence[codec.Plain]) -> tuple[list[codec.Plain], list[codec.Plain]]:
        """What a piece adds to each part, without those that shards have; and what it adds to these."""
        own = [None if number in self.mechanisms else content for number, content in enumerate(contents)]
        return own, [contents[number] for number in self.mechanisms]

    def by_shard(self, theirs: Sequence[codec.Plain]) -> dict[int, list[codec.Plain]]:
        """By shard what is added to each part; None where it is nothing."""
        return self._cut(theirs, self.shards)

    def bundled(self, theirs: Sequence[codec.Plain]) -> list[Bundle]:
        """The same as bundles, in the order of their numbers, each packed."""
        cut = self._cut(theirs, bundles_of(self.shards))
        return [[number, codec.pack("bundle", 1, cut[number])] for number in sorted(cut)]

    def together(self, packed: Iterable[bytes], closed: Container[int] = ()) -> dict[int, list[codec.Plain]]:
        """By shard what several pieces of one bundle add, in their order; nothing to parts that are closed."""
        pieces = [codec.unpack("bundle", 1, each) for each in packed]
        whole = []
        for place, (number, mechanism) in enumerate(self.mechanisms.items()):
            own = [piece[place] for piece in pieces if piece[place] is not None and number not in closed]
            whole.append(mechanism.combine(own) if len(own) > 1 else own[0] if own else None)
        return self.by_shard(whole)

    def _cut(self, theirs: Sequence[codec.Plain], count: int) -> dict[int, list[codec.Plain]]:
        found: dict[int, list[codec.Plain]] = {}
        for place, (mechanism, content) in enumerate(zip(self.mechanisms.values(), theirs, strict=True)):
            for number, own in ({} if content is None else mechanism.split(content, count)).items():
                found.setdefault(number, [None] * len(self.mechanisms))[place] = own
        return found
