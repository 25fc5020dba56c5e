"""Statistics of live event streams, released again and again, under one differential-privacy promise.

>>> import pianissimo as pp
>>> stream = pp.Stream("pharmacy", budget=pp.Budget(epsilon=1.0, delta=1e-9), horizon=1440,
...                    queries=[pp.Count("purchases"), pp.Histogram("drugs", key="drug")])
>>> release = stream.start().tick([{"drug": "aspirin"}] * 500)
>>> release["purchases"].columns
['estimate', 'low', 'high']
"""

from importlib.metadata import version

from pianissimo.budget import Budget
from pianissimo.errors import (
    HorizonError,
    InputError,
    MergeError,
    ParameterError,
    PianissimoError,
    SpecError,
    StateError,
)
from pianissimo.labels import Domain
from pianissimo.loss.losses import Unit
from pianissimo.queries import (
    Alarm,
    Count,
    Distinct,
    HeavyHitters,
    Histogram,
    MaxFrequency,
    Quantiles,
    Sum,
    Tidy,
    TopK,
    Trending,
)
from pianissimo.stream import Live, Stream, StreamRelease
from pianissimo.table import Table
from pianissimo.unit import User, user

__all__ = [
    "Alarm",
    "Budget",
    "Count",
    "Distinct",
    "Domain",
    "HeavyHitters",
    "Histogram",
    "HorizonError",
    "InputError",
    "Live",
    "MaxFrequency",
    "MergeError",
    "ParameterError",
    "PianissimoError",
    "Quantiles",
    "SpecError",
    "StateError",
    "Stream",
    "StreamRelease",
    "Sum",
    "Table",
    "Tidy",
    "TopK",
    "Trending",
    "Unit",
    "User",
    "__version__",
    "user",
]

__version__ = version("pianissimo")
