"""Monitors that stay on: they say when something is common, and charge only those whom they have exposed."""

from pianissimo.monitors.above_threshold import AboveThreshold, UserCharges
from pianissimo.monitors.alarms import Alarms, Found
from pianissimo.monitors.race_monitor import (
    NumberedDomain,
    RaceMonitor,
    Tops,
    clock_delta,
    lone_threshold,
    quiet_threshold,
)
from pianissimo.monitors.threshold_monitor import ThresholdMonitor
from pianissimo.monitors.tick_counts import TickCounts, lone_event_threshold, noise_margin, tick_noise
from pianissimo.monitors.trending_monitor import FixedLength, TrendingMonitor

__all__ = [
    "AboveThreshold",
    "Alarms",
    "FixedLength",
    "Found",
    "NumberedDomain",
    "RaceMonitor",
    "ThresholdMonitor",
    "TickCounts",
    "Tops",
    "TrendingMonitor",
    "UserCharges",
    "clock_delta",
    "lone_event_threshold",
    "lone_threshold",
    "noise_margin",
    "quiet_threshold",
    "tick_noise",
]
