"""Ranges that end their process, or dawdle, when they are first read; importable where executors are."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pianissimo.workers import Range, ReadRange


@dataclass(frozen=True)
class EndsOnce:
    """One whose first reader is killed in the middle of it."""

    inner: Range
    mark: Path

    def read(self, rules: Any) -> ReadRange:
        """As the inner one."""
        found = self.inner.read(rules)
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found


@dataclass(frozen=True)
class DawdlesOnce:
    """One whose first reader takes long, so that Spark starts a second one."""

    inner: Range
    mark: Path
    seconds: float

    def read(self, rules: Any) -> ReadRange:
        """As the inner one."""
        if not self.mark.exists():
            self.mark.touch()
            time.sleep(self.seconds)
        self.mark.with_name(f"{self.mark.name} {os.getpid()} {time.monotonic_ns()}").touch()
        return self.inner.read(rules)
