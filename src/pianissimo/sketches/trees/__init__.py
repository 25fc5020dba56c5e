"""Sketches over time: trees of sketches that are released at every tick."""
