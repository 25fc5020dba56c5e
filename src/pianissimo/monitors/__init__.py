"""Monitors that stay on: they say when something is common, and charge only those whom they have exposed."""

from pianissimo.monitors.above_threshold import AboveThreshold
from pianissimo.monitors.alarm import Alarms
from pianissimo.monitors.charges import UserCharges
from pianissimo.monitors.found import Found
from pianissimo.monitors.huge_domain import FixedLength, NumberedDomain
from pianissimo.monitors.predicate import check_row_by_row
from pianissimo.monitors.race_monitor import RaceMonitor, Tops
from pianissimo.monitors.threshold_monitor import ThresholdMonitor
from pianissimo.monitors.trending import Trending

__all__ = [
    "AboveThreshold",
    "Alarms",
    "FixedLength",
    "Found",
    "NumberedDomain",
    "RaceMonitor",
    "ThresholdMonitor",
    "Tops",
    "Trending",
    "UserCharges",
    "check_row_by_row",
]
