"""Statistics of live event streams, released again and again, under one differential-privacy promise.

>>> import pianissimo as pp
>>> stream = pp.Stream("pharmacy", budget=pp.Budget(epsilon=1.0, delta=1e-9), horizon=1440,
...                    queries=[pp.Count("purchases"), pp.Histogram("drugs", key="drug")])
>>> release = stream.start().tick([{"drug": "aspirin"}] * 500)
>>> release["purchases"].columns
['estimate', 'low', 'high']

All but the exceptions is imported when it is first used, so that `import pianissimo` and the program start quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pianissimo.errors import (
    BudgetError,
    BudgetWarning,
    ConfigError,
    DamageError,
    DiskFullError,
    HorizonError,
    InputError,
    LeaseError,
    LedgerError,
    MergeError,
    ParameterError,
    PendingError,
    PianissimoError,
    RefusalError,
    RollbackError,
    SecretError,
    SourceAwayError,
    SourceError,
    SpecError,
    StateError,
    StoreError,
    SyncError,
    UnknownCommitError,
)

if TYPE_CHECKING:
    from pianissimo.budget import Budget
    from pianissimo.durable.durable_stream import DurableStream
    from pianissimo.io import read_releases
    from pianissimo.labels import Domain
    from pianissimo.ledger import Ledger
    from pianissimo.queries import (
        Alarm,
        Count,
        Distinct,
        HeavyHitters,
        Histogram,
        MaxFrequency,
        Mean,
        Quantiles,
        Sum,
        Tidy,
        TopK,
        Trending,
        Users,
    )
    from pianissimo.stream import Live, Stream, StreamPlan, StreamRelease
    from pianissimo.stream.spec import load
    from pianissimo.table import Table
    from pianissimo.unit import user

_WHERE = {
    "Budget": "budget",
    "Domain": "labels",
    "DurableStream": "durable.durable_stream",
    "Ledger": "ledger",
    "Live": "stream",
    "Stream": "stream",
    "StreamPlan": "stream",
    "StreamRelease": "stream",
    "Table": "table",
    "load": "stream.spec",
    "read_releases": "io",
    "user": "unit",
}
"""Which module a name is imported from when it is first used; those that are not here are queries."""

__all__ = [
    "Alarm",
    "Budget",
    "BudgetError",
    "BudgetWarning",
    "ConfigError",
    "Count",
    "DamageError",
    "DiskFullError",
    "Distinct",
    "Domain",
    "DurableStream",
    "HeavyHitters",
    "Histogram",
    "HorizonError",
    "InputError",
    "LeaseError",
    "Ledger",
    "LedgerError",
    "Live",
    "MaxFrequency",
    "Mean",
    "MergeError",
    "ParameterError",
    "PendingError",
    "PianissimoError",
    "Quantiles",
    "RefusalError",
    "RollbackError",
    "SecretError",
    "SourceAwayError",
    "SourceError",
    "SpecError",
    "StateError",
    "StoreError",
    "Stream",
    "StreamPlan",
    "StreamRelease",
    "Sum",
    "SyncError",
    "Table",
    "Tidy",
    "TopK",
    "Trending",
    "UnknownCommitError",
    "Users",
    "__version__",
    "load",
    "read_releases",
    "user",
]

__version__ = "0.1.0b1"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pianissimo' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"pianissimo.{_WHERE.get(name, 'queries')}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
