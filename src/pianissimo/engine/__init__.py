"""From files to releases: sources, the loop over ticks, and sinks."""

from pianissimo.engine.run import RunSummary, run_file
from pianissimo.engine.sinks import ReleaseFolder, last_tick, read_plan, read_releases

__all__ = ["ReleaseFolder", "RunSummary", "last_tick", "read_plan", "read_releases", "run_file"]
