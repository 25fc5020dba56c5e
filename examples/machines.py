"""Alarms of single events: a hundred machines over a week of hours, of which some run hot for a while.

Nobody is charged for a report, so what lasts is reported as long as it lasts. The data are generated, so the truth may
be shown too; a real stream never shows it.

python examples/machines.py
"""

import numpy as np
import polars as pl

import pianissimo as pp

HOURS, HOT, NEW_ERROR = 168, range(60, 66), range(100, 103)

stream = pp.Stream(
    "machines",
    budget=pp.Budget(epsilon=1.0, delta=1e-6),  # for one event
    horizon=HOURS,
    tick="1h",
    queries=[
        pp.Alarm("overheated", where="temperature >= 90"),
        pp.Trending("errors", key="error"),  # whatever becomes common in an hour, listed or not
        pp.Quantiles("temperature", value="temperature", at=[0.5, 0.9], per="24h", every="24h"),  # of no known range
    ],
)
print(stream.plan())

random, live = np.random.default_rng(7), stream.start()
for hour in range(1, HOURS + 1):
    temperature = random.normal(70 + 18 * (hour in HOT), 6, 4000)
    rare = [f"error {number}" for number in random.integers(0, 500, 100)]
    errors = [*rare, *["E-STOP"] * (150 * (hour in NEW_ERROR)), *[None] * 3900][:4000]
    release = live.tick(pl.DataFrame({"temperature": temperature, "error": errors}))
    for row in release["overheated"].to_dicts():
        true = int((temperature >= 90).sum())
        print(f"hour {hour}: overheated, about {row['estimate']} ({row['low']} to {row['high']}); truth {true}")
    for row in release["errors"].to_dicts():
        print(f"hour {hour}: {row['key']}, about {row['estimate']} ({row['low']} to {row['high']})")
print(release["temperature"])
