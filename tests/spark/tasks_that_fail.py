"""Tasks of shards that end their process, or dawdle, when they are first worked on; importable where executors are."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pianissimo.shards.shard_task import ShardTask


@dataclass(frozen=True, repr=False)
class FailsOnce(ShardTask):
    """One whose first worker is killed in the middle of it, or takes long, so that Spark starts a second one."""

    mark: Path = Path()
    seconds: float = 0.0

    @classmethod
    def of(cls, task: ShardTask, mark: Path, seconds: float = 0.0) -> "FailsOnce":
        return cls(task.base, task.seal, task.ticks, task.shards, task.stores, task.keys, mark, seconds)

    def steps(self, shard: int) -> Iterator[Any]:
        """As any task's."""
        if shard == max(self.shards) and not self.mark.exists():
            self.mark.touch()
            if not self.seconds:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(self.seconds)
        yield from super().steps(shard)
