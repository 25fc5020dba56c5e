"""What the user writes: streams, their batches and their releases."""

from pianissimo.stream.live import Live
from pianissimo.stream.release import StreamRelease
from pianissimo.stream.shown.plan_table import plan_tables, render_plan
from pianissimo.stream.stream import Stream
from pianissimo.stream.stream_plan import StreamPlan

__all__ = ["Live", "Stream", "StreamPlan", "StreamRelease", "plan_tables", "render_plan"]
