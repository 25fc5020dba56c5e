"""From files to releases: sources, the loop over ticks, and sinks."""

from pianissimo.io.run import RunSummary, run_file
from pianissimo.io.sinks.folder import ReleaseFolder, last_tick, read_plan, read_releases
from pianissimo.io.sources.event_files import CheckedRows, read_rows

__all__ = [
    "CheckedRows",
    "ReleaseFolder",
    "RunSummary",
    "last_tick",
    "read_plan",
    "read_releases",
    "read_rows",
    "run_file",
]
