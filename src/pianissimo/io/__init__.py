"""From files to releases: sources, the loop over ticks, and sinks."""

from pathlib import Path
from typing import TYPE_CHECKING

from pianissimo.errors import InputError
from pianissimo.io.folder import last_tick, read_folder, read_plan

if TYPE_CHECKING:
    import polars as pl

__all__ = ["last_tick", "read_plan", "read_releases"]


def read_releases(place: Path | str, *, window: object = None) -> dict[str, "pl.DataFrame"]:
    """What was released, by query, in the order of the ticks.

    The place is a folder of releases, or the folder or `postgresql://` URL of a durable stream. Each is a table with
    the columns tick, start, end and since (if the stream has an origin), and those of the query's releases. With a
    `window`, such as "24h", it tells what that time up to each tick added, of the queries of a durable stream whose
    totals add up: the difference of two releases, with its own bars. A label that was not shown at the beginning has no
    estimate, and no low end.
    """
    from pianissimo.io.inspect import is_state, stored_releases

    if is_state(place):
        return stored_releases(place, window=window)
    if window is not None:
        raise InputError(
            f"window must be asked of a durable stream, got the folder {place}, which does not tell the noise that two "
            "releases share; ask the stream (--state), or give its queries per"
        )
    return read_folder(place)
