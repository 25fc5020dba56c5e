"""A stream to look at: generated events, private releases, and how far these are from the truth."""

from pianissimo.demo.folder import DemoFolder, is_demo, read_demo
from pianissimo.demo.pharmacy import pharmacy_batches, pharmacy_stream
from pianissimo.demo.record import WINDOW_TICKS, Record
from pianissimo.demo.show import TRUTH_NOTE, Screen, summary

__all__ = [
    "TRUTH_NOTE",
    "WINDOW_TICKS",
    "DemoFolder",
    "Record",
    "Screen",
    "is_demo",
    "pharmacy_batches",
    "pharmacy_stream",
    "read_demo",
    "summary",
]
