"""The names of all failpoints, and how a test within one process makes something happen there."""

from collections.abc import Iterator
from contextlib import contextmanager

from pianissimo.durable import failpoints

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

OF_GROUPS = ("absorb.held",)
"""Where a tick that is over is held, to be sealed with the next ones."""

OF_FOLDERS = ("compact.written", "compact.removed")
"""Where a folder sink makes one file of a day's."""

OF_RETENTION = ("remove.before_commit", "remove.commit", "remove.after_commit")
"""Where a stream with retention lets go of ticks."""


@contextmanager
def armed(actions: dict[str, failpoints.Action]) -> Iterator[None]:
    """Do something at some places."""
    before, failpoints._armed = failpoints._armed, dict(actions)
    try:
        yield
    finally:
        failpoints._armed = before
