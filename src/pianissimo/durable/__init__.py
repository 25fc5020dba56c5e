"""A stream that can be killed at any instant: its store, its witness, its start and its recovery."""
