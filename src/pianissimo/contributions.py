"""What one event adds to the counts of labels: one for each distinct label, at most `max_keys_per_event`.

The cut looks at that event only: the first so many distinct labels in the event's own order. The
order in which events come, and what other events hold, make no difference.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL, LabelIndex, any_too_long


def count_labels(events: pl.Series, max_keys_per_event: int | None) -> tuple[pl.Series, NDArray[np.int64]]:
    """The labels of a batch and how many events hold each; one event is a text or a list of texts; None cuts nothing.

    >>> labels, counts = count_labels(pl.Series([["a", "b", "a"], ["c", "b", "a"]]), 2)
    >>> sorted(zip(labels, counts.tolist()))
    [('a', 1), ('b', 2), ('c', 1)]
    """
    if events.dtype == pl.List(pl.String):
        whole = events.list.drop_nulls()
        has_nulls = bool((whole.list.len() != events.list.len()).any())
        distinct = whole.list.unique(maintain_order=True)
        bounded = distinct if max_keys_per_event is None else distinct.list.head(max_keys_per_event)
        labels = bounded.list.explode(empty_as_null=False, keep_nulls=False)
    elif events.dtype == pl.String:
        has_nulls, labels = False, events
    else:
        raise InputError(f"labels must be texts or lists of texts, got {events.dtype}")
    if has_nulls or events.null_count():
        raise InputError("labels must not be null, got nulls; drop or fill them")
    counted = labels.alias("key").to_frame().group_by("key").len("count")
    if any_too_long(counted["key"]):
        raise InputError(f"labels must have at most {LONGEST_LABEL} bytes, got a longer one")
    return counted["key"], counted["count"].to_numpy().astype(np.int64)


def count_known(
    events: pl.Series, index: LabelIndex, max_keys_per_event: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The slots of the labels of a batch that have one, and how many events hold each.

    >>> from pianissimo.testing import NoNoise
    >>> index = LabelIndex(NoNoise())
    >>> _ = index.slots_or_new(pl.Series(["a", "b"]))
    >>> slots, counts = count_known(pl.Series([["a", "b", "a"], ["c", "b", "a"]]), index, 2)
    >>> sorted(zip(slots.tolist(), counts.tolist()))
    [(0, 1), (1, 2)]
    """
    labels, counts = count_labels(events, max_keys_per_event)
    slots = index.slots(labels)
    known = slots >= 0
    return slots[known], counts[known]
