"""The exceptions of Pianissimo.

```text
PianissimoError
├── ParameterError (ValueError)    a parameter that cannot be, found when an object is made
├── SpecError                      a stream file that cannot be read; names the field and the way out
├── InputError                     a batch or a data file that cannot be counted; nothing of it was
├── HorizonError                   a run has made all the releases its promise covers
├── MergeError                     two runs that may not become one
├── BudgetError                    a charge that what is left of a budget does not cover; nothing was charged
├── LedgerError                    a ledger that cannot be trusted, reached or written; nothing may be asked
└── StateError                     stored bytes that are not a state this version knows
```

No message contains an event, a user or an exact count.
"""


class PianissimoError(Exception):
    """Everything that Pianissimo raises on purpose.

    >>> issubclass(InputError, PianissimoError)
    True
    """


class ParameterError(PianissimoError, ValueError):
    """A parameter that cannot be.

    >>> raise ParameterError("sigma must be finite and positive, got nan")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: sigma must be finite and positive, got nan
    """


class SpecError(PianissimoError):
    """A stream file that cannot be read.

    >>> raise SpecError("stream.epsilon must be positive, got -1")
    Traceback (most recent call last):
    pianissimo.errors.SpecError: stream.epsilon must be positive, got -1
    """


class InputError(PianissimoError):
    """A batch or a data file that cannot be counted; nothing of it was.

    >>> raise InputError("column 'drug' must be in the batch, got columns 'region', 'price'")
    Traceback (most recent call last):
    pianissimo.errors.InputError: column 'drug' must be in the batch, got columns 'region', 'price'
    """


class HorizonError(PianissimoError):
    """A run has made all the releases that its promise covers.

    >>> raise HorizonError("all 1440 releases are made; start a new run")
    Traceback (most recent call last):
    pianissimo.errors.HorizonError: all 1440 releases are made; start a new run
    """


class MergeError(PianissimoError):
    """Two runs that may not become one.

    >>> raise MergeError("runs merge before their first release only")
    Traceback (most recent call last):
    pianissimo.errors.MergeError: runs merge before their first release only
    """


class StateError(PianissimoError):
    """Stored bytes that are not a state this version knows.

    >>> raise StateError("a stored state must carry its checksum, got damaged bytes")
    Traceback (most recent call last):
    pianissimo.errors.StateError: a stored state must carry its checksum, got damaged bytes
    """


class BudgetError(PianissimoError):
    """A charge that what is left of a budget does not cover; nothing was charged.

    >>> raise BudgetError("a charge must fit what is left, 3 steps, got 10")
    Traceback (most recent call last):
    pianissimo.errors.BudgetError: a charge must fit what is left, 3 steps, got 10
    """


class LedgerError(PianissimoError):
    """A ledger that cannot be trusted, reached or written; nothing may be asked.

    >>> raise LedgerError("entry 7 must carry its digest, got another")
    Traceback (most recent call last):
    pianissimo.errors.LedgerError: entry 7 must carry its digest, got another
    """
