"""Dong, Luo and Yi, "Continual observation under user-level differential privacy": Table III, simulated data."""
