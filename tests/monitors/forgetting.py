"""A monitor that loses what it charged: a mutant of several tests."""

from functools import cache

from pianissimo.codec import Plain
from pianissimo.identity import identified
from pianissimo.monitors import TrendingMonitor, UserCharges
from pianissimo.monitors.trending_monitor import TrendingState
from pianissimo.noise import Noise


class Forgetful(UserCharges):
    """Mutant: stores no charges."""

    def to_plain(self) -> Plain:
        tests, charged, counts, *rest = super().to_plain()
        return [tests, charged[:0], counts[:0], *rest]


@cache
def forgetting_monitor() -> type[TrendingMonitor]:
    """The mutant's class, named once however often this file is imported: see Forgetful."""

    @identified("test-forgets")
    class Forgets(TrendingMonitor):
        __slots__ = ()

        def start(self, noise: Noise) -> TrendingState:
            state = super().start(noise)
            state.charges = Forgetful(noise, limit=self.alarms_per_user, per_tick=self.max_keys_per_user)
            return state

    return Forgets
