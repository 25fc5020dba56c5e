"""What the user writes: streams, their batches and their releases."""

from pianissimo.stream.choosing import StreamPlan
from pianissimo.stream.live import Live
from pianissimo.stream.plan_table import plan_tables, render_plan
from pianissimo.stream.release import StreamRelease
from pianissimo.stream.stream import Stream

__all__ = ["Live", "Stream", "StreamPlan", "StreamRelease", "plan_tables", "render_plan"]
