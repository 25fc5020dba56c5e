"""What the five papers print and what holds: each counterexample as a few lines that run."""
