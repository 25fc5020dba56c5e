"""Monitors that stay on: they say when something is common, and charge only those whom they have exposed."""

from pianissimo.monitors.above_threshold import AboveThreshold, ThresholdMonitor, UserCharges
from pianissimo.monitors.alarms import Alarms, Found
from pianissimo.monitors.race_monitor import (
    NumberedDomain,
    RaceMonitor,
    Tops,
    clock_delta,
    lone_threshold,
    quiet_threshold,
)
from pianissimo.monitors.trending_monitor import FixedLength, TrendingMonitor

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
    "clock_delta",
    "lone_threshold",
    "quiet_threshold",
]
