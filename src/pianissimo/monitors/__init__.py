"""Monitors that stay on: they say when something is common, and charge only those whom they have exposed."""

from pianissimo.monitors.above_threshold import AboveThreshold, ThresholdMonitor, UserCharges
from pianissimo.monitors.alarms import Alarms, Found
from pianissimo.monitors.huge_domain import FixedLength, NumberedDomain
from pianissimo.monitors.race_monitor import RaceMonitor, Tops, automatic_threshold, clock_delta
from pianissimo.monitors.trending_monitor import TrendingMonitor

__all__ = [
    "AboveThreshold",
    "Alarms",
    "FixedLength",
    "Found",
    "NumberedDomain",
    "RaceMonitor",
    "ThresholdMonitor",
    "Tops",
    "TrendingMonitor",
    "UserCharges",
    "automatic_threshold",
    "clock_delta",
]
