"""From files to releases: sources, the loop over ticks, and sinks."""

from pianissimo.io.folder import ReleaseFolder, last_tick, read_plan, read_releases

__all__ = ["ReleaseFolder", "last_tick", "read_plan", "read_releases"]
