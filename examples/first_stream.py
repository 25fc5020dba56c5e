"""A first private stream: a count and a histogram of made-up purchases, released for a day of hours.

python examples/first_stream.py
"""

import polars as pl

import pianissimo as pp

budget = pp.Budget(epsilon=1.0, delta=1e-9)  # for a month of hours and both questions together
queries = [pp.Count("purchases"), pp.Histogram("drugs", key="drug")]  # rare drugs stay hidden
stream = pp.Stream("pharmacy", budget=budget, horizon=720, tick="1h", queries=queries)
print(stream.plan())  # before any data: what is promised, and how far off answers will be

live = stream.start()
for hour in range(24):
    drugs = ["ibuprofen"] * 300 + ["aspirin"] * 200 + [f"mixture {hour}"]
    release = live.tick(pl.DataFrame({"drug": drugs}))
print(release["purchases"], release["drugs"])  # key, estimate, low, high
print(live.window("6h")["drugs"])  # the last six hours alone, at no further cost
