"""What the user writes: streams, their batches and their releases."""

from pianissimo.queries.expected import Candidate, ExpectedError, Share, predict_error
from pianissimo.stream.choosing import QueryPlan, StreamPlan, candidates, make_plan
from pianissimo.stream.live import Live
from pianissimo.stream.plan_table import plan_tables, render_plan
from pianissimo.stream.release import StreamRelease
from pianissimo.stream.stream import Stream

__all__ = [
    "Candidate",
    "ExpectedError",
    "Live",
    "QueryPlan",
    "Share",
    "Stream",
    "StreamPlan",
    "StreamRelease",
    "candidates",
    "make_plan",
    "plan_tables",
    "predict_error",
    "render_plan",
]
