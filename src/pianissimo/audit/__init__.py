"""Attempts to break a promise: exact checks (A0), enumeration, replays of neighbors (A2), attacks on many runs (A3)."""

from pianissimo.audit.cases import audit, audit_cases
from pianissimo.audit.enumeration import enumerated_cases, worst_quotient
from pianissimo.audit.exact import drawn_probability, ideal_probability, largest_gap, total_variation
from pianissimo.audit.replay import NoiseCall, RecordingNoise, replay
from pianissimo.audit.report import Attempt, AuditReport, Finding, Verdict

__all__ = [
    "Attempt",
    "AuditReport",
    "Finding",
    "NoiseCall",
    "RecordingNoise",
    "Verdict",
    "audit",
    "audit_cases",
    "drawn_probability",
    "enumerated_cases",
    "ideal_probability",
    "largest_gap",
    "replay",
    "total_variation",
    "worst_quotient",
]
