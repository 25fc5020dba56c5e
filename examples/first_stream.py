"""A first private stream: a count and two histograms of generated purchases, released for a day of hours.

python examples/first_stream.py
"""

import numpy as np
import polars as pl

import pianissimo as pp

stream = pp.Stream(
    "pharmacy",
    budget=pp.Budget(epsilon=1.0, delta=1e-9),  # for the whole run, all queries together
    horizon=720,  # a month of hours
    tick="1h",
    queries=[
        pp.Count("purchases"),
        pp.Histogram("drugs", key="drug"),  # labels nobody listed: rare ones stay hidden
        pp.Histogram("regions", key="region", domain=["north", "east", "south", "west"]),
    ],
)
print(stream.plan())  # before any data: what is promised, and how far from the truth answers will be

random = np.random.default_rng(1)
live = stream.start()  # in memory, with a fresh secret
for hour in range(24):
    drugs = random.choice(["ibuprofen", "aspirin", f"mixture {hour}"], size=500, p=[0.6, 0.39, 0.01])
    regions = random.choice(["north", "south"], size=500)
    release = live.tick(pl.DataFrame({"drug": drugs, "region": regions}))
print(release["purchases"], release["drugs"], release["regions"])  # key, estimate, low, high
print(live.window("6h")["drugs"])  # the last six hours alone, with their own error bars, at no further cost
