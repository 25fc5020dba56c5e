"""One generated day of a pharmacy chain: who bought what, where, when and for how much. No real person is in it.

    python examples/make_pharmacy_data.py [FOLDER]

writes purchases.csv and purchases.parquet; the same seed gives the same files.
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

SEED = 20260105
EVENTS = 2_250
MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)
DRUGS = [
    *("ibuprofen", "paracetamol", "aspirin", "cetirizine", "omeprazole", "loratadine"),
    *("vitamin-d", "magnesium", "nasal-spray", "cough-syrup"),
    *(f"rare-{number:02}" for number in range(1, 41)),
]
REGIONS = ["north", "east", "south", "west"]


def make_purchases(events: int = EVENTS, seed: int = SEED) -> pl.DataFrame:
    """Purchases in the order of their times: few drugs are bought often, most hardly ever; noon is busy."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, len(DRUGS) + 1) ** 1.3
    minutes = np.clip(random.normal(13 * 60, 3.5 * 60, events), 0, 24 * 60 - 1)
    seconds = np.sort((minutes * 60).astype(np.int64)).tolist()
    return pl.DataFrame(
        {
            "time": [MIDNIGHT + timedelta(seconds=second) for second in seconds],
            "drug": random.choice(DRUGS, events, p=popularity / popularity.sum()).tolist(),
            "region": random.choice(REGIONS, events, p=[0.4, 0.3, 0.2, 0.1]).tolist(),
            "customer": random.integers(100, 999, events).tolist(),
            "price": (np.clip(random.gamma(3.0, 400.0, events), 99, 8000).astype(np.int64) / 100).tolist(),
        }
    )


def main(folder: Path) -> None:
    purchases = make_purchases()
    purchases.write_csv(folder / "purchases.csv", datetime_format="%Y-%m-%dT%H:%MZ")
    minutes = purchases.with_columns(pl.col("time").dt.truncate("1m"))
    minutes.write_parquet(folder / "purchases.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
