"""A stream to look at: generated events, private releases, and how far these are from the truth."""

from pianissimo.demo.durable import open_demo, window_at
from pianissimo.demo.folder import DemoFolder, check_demo, is_demo, read_demo
from pianissimo.demo.pharmacy import pharmacy_batches, pharmacy_stream
from pianissimo.demo.record import WINDOW_TICKS, Record
from pianissimo.demo.show import TRUTH_NOTE, Screen, summary

__all__ = [
    "TRUTH_NOTE",
    "WINDOW_TICKS",
    "DemoFolder",
    "Record",
    "Screen",
    "check_demo",
    "is_demo",
    "open_demo",
    "pharmacy_batches",
    "pharmacy_stream",
    "read_demo",
    "summary",
    "window_at",
]
