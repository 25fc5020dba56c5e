"""Workers in this process, which cut every batch into so many parts: what others would gather, without them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from pianissimo.noise import Secret
from pianissimo.workers import GatheredRange, Gatherer, GatherPlan, Range
from pianissimo.workers.hands import TableSlice


class CutBatches:
    """Each batch in `parts`, at places that a generator chooses; several parts may be combined before they are told."""

    def __init__(self, parts: int, *, combined: bool = False, seed: int = 0) -> None:
        self.parts, self.combined = parts, combined
        self.random = np.random.default_rng(seed)
        self.plan: GatherPlan | None = None
        self.gatherer: Gatherer | None = None

    def start(self, rules: Any = None) -> None:
        """Nothing: they are in this process."""

    def begin(self, plan: GatherPlan, key: Secret | None) -> None:
        self.plan, self.gatherer = plan, plan.gatherer(key)

    def gather(self, ranges: Iterable[Range], rules: Any = None) -> Iterator[GatheredRange]:
        assert self.gatherer is not None
        if not self.combined:
            yield from [self.gatherer.of(each, rules) for each in ranges]
            return
        slices = [each for each in ranges if isinstance(each, TableSlice)]
        tables = (each.table for each in slices)
        yield GatheredRange([self.gatherer.gathered(slices[0].tick, tables, **slices[0].options)])

    def ranges_of(self, batch: object, tick: int, options: dict[str, Any]) -> list[Range] | None:
        if not isinstance(batch, pl.DataFrame):
            return None
        edges = np.sort(self.random.integers(0, batch.height + 1, self.parts - 1))
        cuts = [0, *map(int, edges), batch.height]
        return [TableSlice(tick, batch[start:end], options) for start, end in pairwise(cuts)]

    def spread(self) -> int:
        return self.parts

    def own(self, plan: Any, key: Secret) -> None:
        self._owned = plan, key
        self.owners = [plan.worker(key) for _ in range(self.parts)]

    def ask(self, tasks: Sequence[Any]) -> list[Any]:
        """Of owners by chance, some of whom have just been started, and some answer what another answers too."""
        found = []
        for task in tasks:
            chosen, twin, lost = self.random.integers(0, self.parts, 3).tolist()
            if self.random.random() < 0.2:
                self.owners[lost] = self._owned[0].worker(self._owned[1])
            if self.random.random() < 0.2:
                self.owners[twin].of(task)
            found.append(self.owners[chosen].of(task))
        return found

    def close(self) -> None:
        self.gatherer = None
