"""A stream of a thousand million keys, simulated piece by piece on one machine: `python -m benchmarks.scale`."""
