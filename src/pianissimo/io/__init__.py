"""From files to releases: sources, the loop over ticks, and sinks."""

from pathlib import Path
from typing import TYPE_CHECKING

from pianissimo.io.folder import ReleaseFolder, last_tick, read_folder, read_plan

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ReleaseFolder", "last_tick", "read_plan", "read_releases"]


def read_releases(place: Path | str) -> dict[str, "pl.DataFrame"]:
    """What was released, by query, in the order of the ticks.

    The place is a folder of releases, or the folder or `postgresql://` URL of a durable stream. Each is a table with
    the columns tick, start and end (if the stream has an origin), and those of the query's releases.
    """
    from pianissimo.io.inspect import is_state, stored_releases

    return stored_releases(place) if is_state(place) else read_folder(place)
