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
├── StateError                     stored bytes that are not a state this version knows
├── StoreError                     a store that cannot be reached or written just now
│   ├── DiskFullError              nothing was written; it may be tried again when there is room
│   ├── UnknownCommitError         a commit that failed: what it wrote may be there or not
│   ├── PendingError               a tick that is sealed and not released yet; its events must not come again
│   └── SyncError                  a sync that failed: the process must end, whatever it still believes
├── LeaseError                     another process seals this stream
└── RefusalError                   a durable stream that must not go on as it is
    ├── DamageError                a record that is not as it was written
    ├── RollbackError              a store that is behind its witness or its sinks
    ├── SecretError                a secret that is missing, open to others, or of another stream
    ├── ConfigError                a stream that was created with other parameters
    └── SourceError                a source that is not the one that was read before, or lacks what comes next
        └── SourceAwayError        a source that does not answer now; it may be asked again
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


class StoreError(PianissimoError):
    """A store that cannot be reached or written just now.

    >>> raise StoreError("state.db must be free to write to, got a process that holds it")
    Traceback (most recent call last):
    pianissimo.errors.StoreError: state.db must be free to write to, got a process that holds it
    """


class DiskFullError(StoreError):
    """A disk without room: nothing was written, and it may be tried again when there is some.

    >>> issubclass(DiskFullError, StoreError)
    True
    """


class UnknownCommitError(StoreError):
    """A commit that failed: what it wrote may be there or not. Look before going on.

    >>> UnknownCommitError("lost", full=True).full
    True
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full
        """Whether it failed for want of room."""


class PendingError(StoreError):
    """A tick that is sealed and not released yet: `finish` releases it, and its events must not be given again.

    >>> issubclass(PendingError, StoreError)
    True
    """


class SyncError(StoreError):
    """A sync that failed: what looks written may not be on the disk, so the process must end.

    >>> issubclass(SyncError, StoreError)
    True
    """


class LeaseError(PianissimoError):
    """Another process seals this stream.

    >>> raise LeaseError("one process may seal a stream, got another that does")
    Traceback (most recent call last):
    pianissimo.errors.LeaseError: one process may seal a stream, got another that does
    """


class RefusalError(PianissimoError):
    """A durable stream that must not go on as it is: in doubt it stops.

    >>> issubclass(RollbackError, RefusalError)
    True
    """


class DamageError(RefusalError):
    """A record that is not as it was written.

    >>> raise DamageError("seal 7 must carry its digest, got another; restore a backup")
    Traceback (most recent call last):
    pianissimo.errors.DamageError: seal 7 must carry its digest, got another; restore a backup
    """


class RollbackError(RefusalError):
    """A store that is behind its witness or its sinks.

    >>> issubclass(RollbackError, RefusalError)
    True
    """


class SecretError(RefusalError):
    """A secret that is missing, open to others, or of another stream.

    >>> issubclass(SecretError, RefusalError)
    True
    """


class ConfigError(RefusalError):
    """A stream that was created with other parameters.

    >>> issubclass(ConfigError, RefusalError)
    True
    """


class SourceError(RefusalError):
    """A source that is not the one that was read before, or lacks what comes next.

    >>> issubclass(SourceError, RefusalError)
    True
    """


class SourceAwayError(SourceError):
    """A source that does not answer now; nothing of it is lost, and it may be asked again.

    >>> issubclass(SourceAwayError, SourceError)
    True
    """
