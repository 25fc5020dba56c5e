"""Named places where a test may make something go wrong. In production they are off and cost one comparison.

`PIANISSIMO_FAILPOINTS="seal.commit=kill:3,witness.sync=error"` kills the process the third time that it reaches
`seal.commit`, and fails each time at `witness.sync`. It is obeyed only if `PIANISSIMO_UNDER_TEST=1` is set as well.
"""

import errno
import os
import signal
import time
from collections.abc import Callable
from itertools import count

Action = Callable[[str], None]


def reach(point: str) -> None:
    """Pass a place; in production this does nothing."""
    if _armed is not None and point in _armed:
        _armed[point](point)


def _fail(number: int) -> Action:
    def act(point: str) -> None:
        raise OSError(number, point)

    return act


_ACTIONS: dict[str, Action] = {
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "error": _fail(errno.EIO),
    "full": _fail(errno.ENOSPC),
    "delay": lambda _: time.sleep(0.2),
}


def action_of(text: str) -> Action:
    """What `kill`, `stop`, `error`, `full` or `delay`, with `:n` for the n-th time alone, does."""
    name, _, when = text.partition(":")
    if name not in _ACTIONS:
        raise ValueError(f"a failpoint must kill, stop, error, full or delay, got {name!r}")
    times, nth = count(1), int(when or 0)

    def act(point: str) -> None:
        if next(times) == nth or not when:
            _ACTIONS[name](point)

    return act


def _from_environment() -> dict[str, Action] | None:
    text = os.environ.get("PIANISSIMO_FAILPOINTS")
    if not text or os.environ.get("PIANISSIMO_UNDER_TEST") != "1":
        return None
    pairs = (each.split("=", 1) for each in text.split(","))
    return {point: action_of(action) for point, action in pairs}


_armed = _from_environment()
"""What happens where; tests set it."""
