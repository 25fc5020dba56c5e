"""Files of events, read into rows that can be counted and rows that are refused, each by itself."""

from pianissimo.io.sources.event_files import CheckedRows, read_rows

__all__ = ["CheckedRows", "read_rows"]
