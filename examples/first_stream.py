"""A first private stream: a count and a histogram of made-up purchases, released for a day of hours.

python examples/first_stream.py
"""

import polars as pl

import pianissimo as pp

stream = pp.Stream(
    "pharmacy",
    budget=pp.Budget(epsilon=1.0, delta=1e-9),  # for all hours and all questions together
    horizon=720,  # a month of hours
    tick="1h",
    queries=[pp.Count("purchases"), pp.Histogram("drugs", key="drug")],  # nobody lists the drugs: rare ones stay hidden
)
print(stream.plan())  # before any data: what is promised, and how far from the truth answers will be

live = stream.start()
for hour in range(24):
    drugs = ["ibuprofen"] * 300 + ["aspirin"] * 200 + [f"mixture {hour}"]
    release = live.tick(pl.DataFrame({"drug": drugs}))
print(release["purchases"], release["drugs"])  # key, estimate, low, high
print(live.window("6h")["drugs"])  # the last six hours alone, at no further cost
