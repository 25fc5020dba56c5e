"""Attempts to break a promise: attacks on many runs of neighboring streams, and a report with lower bounds."""

from pianissimo.audit.cases import audit, audit_cases
from pianissimo.audit.report import Attempt, AuditReport, AuditVerdict, Finding

__all__ = ["Attempt", "AuditReport", "AuditVerdict", "Finding", "audit", "audit_cases"]
