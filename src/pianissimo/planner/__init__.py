"""Which mechanism, which parameters, why: from a budget to a plan, before any data."""

from pianissimo.planner.candidates import candidates
from pianissimo.planner.expected import Candidate, ExpectedError, Share, predict_error
from pianissimo.planner.forward_secrecy import check_forward_secrecy
from pianissimo.planner.plan import QueryPlan, StreamPlan, make_plan
from pianissimo.planner.table import plan_tables, render_plan

__all__ = [
    "Candidate",
    "ExpectedError",
    "QueryPlan",
    "Share",
    "StreamPlan",
    "candidates",
    "check_forward_secrecy",
    "make_plan",
    "plan_tables",
    "predict_error",
    "render_plan",
]
