"""The noise plans: which node noises enter release t, with which weights."""
