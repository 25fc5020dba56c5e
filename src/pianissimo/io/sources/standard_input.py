"""Lines of standard input, as a source of events."""

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import polars as pl

from pianissimo.errors import SourceError
from pianissimo.io.sources.rows.text_rows import BYTE_ORDER_MARK, LONGEST_LINE, NO_TEXT, split_lines
from pianissimo.io.sources.source_records import Records

MOST_BYTES = 64 * 2**20
"""So much is held; then whoever writes has to wait."""

_PIECE = 2**20


class StandardInput:
    """The lines of standard input: a thread takes them in as they come, so that what came before a tick's end is in it.

    Told to stop, or at its end, the lines that came until then are sealed in one more tick, which is over at once. What
    was read is gone: after a crash, or where there is no room for that tick, lines that were not sealed are lost, and
    nothing can find out which. Where that matters, let the producer write to a file, and follow that.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None and sys.stdin is None:
            raise _closed()
        self._descriptor = descriptor
        self._blocks: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._arrived = self._taken = 0
        self._has_ended = False
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def seek(self, position: Any) -> None:
        """Go on with whatever comes; the numbers of lines go on from where they were."""
        if position is not None and (not isinstance(position, dict) or "standard_input" not in position):
            raise SourceError("the source must be the one that was read before, got standard input; mend [source]")
        if self._thread is None:
            descriptor = _standard_input() if self._descriptor is None else self._descriptor
            self._arrived = self._taken = 0 if position is None else position["standard_input"]
            self._thread = threading.Thread(
                target=self._take_in, args=(descriptor,), name="standard input", daemon=True
            )
            self._thread.start()

    def end(self) -> Any:
        """How many whole lines have come."""
        with self._change:
            return self._arrived

    def read(self, end: Any) -> Iterator[Records]:
        """The lines up to an end."""
        while self._taken < end:
            with self._change:
                count, block = self._blocks.popleft()
                if count > end - self._taken:
                    # Cut where the end was told; the rest stays the first.
                    lines = block.split(b"\n")
                    kept = end - self._taken
                    left = b"\n".join(lines[kept:])
                    self._blocks.appendleft((count - kept, left))
                    self._bytes += len(left)
                    count, shorter = kept, b"\n".join(lines[:kept])
                    self._bytes -= len(block)
                    block = shorter
                else:
                    self._bytes -= len(block)
                self._change.notify_all()
            first, self._taken = self._taken + 1, self._taken + count
            numbers = pl.int_range(first, first + count, dtype=pl.Int64, eager=True)
            yield Records(place="standard input", rank=(), numbers=numbers, texts=split_lines(block))

    @property
    def position(self) -> Any:
        """How many lines were read."""
        return {"standard_input": self._taken}

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more; `end` tells of all that came."""
        with self._change:
            return self._has_ended

    def close(self) -> None:
        """The thread ends with the process, or with the input."""

    def __repr__(self) -> str:
        return "StandardInput()"

    def _take_in(self, descriptor: int) -> None:
        # The line that has no end yet; once it is too long, no more of it than tells that.
        rest, is_first = bytearray(), True
        while piece := _read(descriptor):
            head, end, others = piece.partition(b"\n")
            rest += head[: LONGEST_LINE + 1 - len(rest)]
            if not end:
                continue
            # The others are shorter than a piece. This one is judged by its length, wherever pieces were cut.
            line = self._judged(rest, is_first=is_first)
            is_first = False
            whole, end, after = others.rpartition(b"\n")
            self._add(line + b"\n" + whole if end else line)
            rest = bytearray(after)
        if rest:
            self._add(self._judged(rest, is_first=is_first))
        with self._change:
            self._has_ended = True

    @staticmethod
    def _judged(line: bytearray, *, is_first: bool) -> bytes:
        if len(line) > LONGEST_LINE:
            return NO_TEXT
        return bytes(line).removeprefix(BYTE_ORDER_MARK) if is_first else bytes(line)

    def _add(self, block: bytes) -> None:
        with self._change:
            while self._bytes > MOST_BYTES:
                self._change.wait()
            count = block.count(b"\n") + 1
            self._blocks.append((count, block))
            self._bytes += len(block)
            self._arrived += count


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _PIECE)
    except OSError:
        return b""


def _standard_input() -> int:
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        raise _closed() from None


def _closed() -> SourceError:
    return SourceError("standard input must be open, got one that is closed; give a pipe or a file, or < /dev/null")
