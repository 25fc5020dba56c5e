"""Named places where a test may make something go wrong. In production they are off and cost one comparison.

`PIANISSIMO_FAILPOINTS="seal.commit=kill:3,witness.sync=error"` kills the process the third time that it reaches
`seal.commit`, and fails each time at `witness.sync`. It is obeyed only if `PIANISSIMO_UNDER_TEST=1` is set as well.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POINTS = (
    "absorb.read",
    "intend.before_commit",
    "intend.commit",
    "intend.after_commit",
    "charge.reserved",
    "charge.used",
    "create.before_commit",
    "create.commit",
    "create.after_commit",
    "seal.begin",
    "seal.before_commit",
    "seal.commit",
    "seal.after_commit",
    "release.computed",
    "release.before_commit",
    "release.commit",
    "release.after_commit",
    "witness.before_append",
    "witness.append",
    "witness.sync",
    "witness.after_sync",
    "publish.before_send",
    "publish.send",
    "publish.before_commit",
    "publish.commit",
    "publish.after_commit",
    "checkpoint.before",
    "checkpoint.after",
    "lease.before_commit",
    "lease.commit",
    "lease.after_commit",
    "recover.before_commit",
    "recover.commit",
    "rotate.before_commit",
    "rotate.commit",
    "rotate.after_commit",
)
"""Every place, in the order of a tick."""

Action = Callable[[str], None]

_armed: dict[str, Action] | None = None


def reach(point: str) -> None:
    """Pass a place; in production this does nothing."""
    if _armed is not None and point in _armed:
        _armed[point](point)


@contextmanager
def armed(actions: dict[str, Action]) -> Iterator[None]:
    """For tests within one process: do something at some places."""
    global _armed
    before, _armed = _armed, dict(actions)
    try:
        yield
    finally:
        _armed = before


def action_of(text: str) -> Action:
    """What `kill`, `stop`, `error`, `full` or `delay`, with `:n` for the n-th time alone, does.

    >>> action_of("error")("seal.commit")
    Traceback (most recent call last):
    OSError: [Errno 5] seal.commit
    """
    name, _, when = text.partition(":")
    do: dict[str, Action] = {"kill": _kill, "stop": _stop, "error": _fail, "full": _fill, "delay": _delay}
    if name not in do:
        raise ValueError(f"a failpoint must kill, stop, error, full or delay, got {name!r}")
    if not when:
        return do[name]
    left = int(when)

    def act(point: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            do[name](point)

    return act


def _kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _fail(point: str) -> None:
    raise OSError(errno.EIO, point)


def _fill(point: str) -> None:
    raise OSError(errno.ENOSPC, point)


def _delay(_: str) -> None:
    time.sleep(0.2)


def _from_environment() -> dict[str, Action] | None:
    text = os.environ.get("PIANISSIMO_FAILPOINTS")
    if not text or os.environ.get("PIANISSIMO_UNDER_TEST") != "1":
        return None
    pairs = (each.split("=", 1) for each in text.split(","))
    return {point: action_of(action) for point, action in pairs}


_armed = _from_environment()
