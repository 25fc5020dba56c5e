"""Attempts to break a promise, from exact checks (A0) to replays of neighboring streams (A2)."""

from pianissimo.audit.exact import drawn_probability, ideal_probability, largest_gap, total_variation
from pianissimo.audit.replay import NoiseCall, RecordingNoise, replay

__all__ = [
    "NoiseCall",
    "RecordingNoise",
    "drawn_probability",
    "ideal_probability",
    "largest_gap",
    "replay",
    "total_variation",
]
