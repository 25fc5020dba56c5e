"""What a program of this folder tells: some figures, each a number with its unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number that was measured, simulated or counted."""

    what: str
    value: float
    unit: str

    def __str__(self) -> str:
        number = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"
        return f"{self.what}: {number} {self.unit}"


def spread(what: str, seconds: Sequence[float]) -> list[Figure]:
    """The median and the 99th percentile of some times."""
    return [
        Figure(what=f"{what}, p{percent}", value=float(np.percentile(seconds, percent)) * 1e3, unit="ms")
        for percent in (50, 99)
    ]


def check(holds: bool, must: str) -> None:
    """Stop where something does not hold: also where Python leaves its own assertions out."""
    if not holds:
        raise RuntimeError(f"{must}, got another")


def resident_bytes() -> int:
    """What this process has in memory now; 0 where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)
