"""The exceptions of Pianissimo. No message contains an event, a user or an exact count."""


class PianissimoError(Exception):
    """Everything that Pianissimo raises on purpose."""


class ParameterError(PianissimoError, ValueError):
    """A parameter that cannot be."""


class SpecError(PianissimoError):
    """A stream file that cannot be read."""


class InputError(PianissimoError):
    """A batch or a data file that cannot be counted; nothing of it was."""


class HorizonError(PianissimoError):
    """A run has made all the releases that its promise covers."""


class MergeError(PianissimoError):
    """Two sketches that may not become one."""


class StateError(PianissimoError):
    """Stored bytes that are not a state this version knows."""


class BudgetError(PianissimoError):
    """A charge that what is left of a budget does not cover; nothing was charged."""


class BudgetWarning(UserWarning):
    """A budget so large that it promises little; nothing is refused."""


class LedgerError(PianissimoError):
    """A ledger that cannot be trusted, reached or written; nothing may be asked."""


class StoreError(PianissimoError):
    """A store that cannot be reached or written just now."""


class DiskFullError(StoreError):
    """A disk without room: nothing was written, and it may be tried again when there is some."""


class UnknownCommitError(StoreError):
    """A commit that failed: what it wrote may be there or not. Look before going on."""

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full
        """Whether it failed for want of room."""


class PendingError(StoreError):
    """A tick that is sealed and not released yet: `finish` releases it, and its events must not be given again."""


class SyncError(StoreError):
    """A sync that failed: what looks written may not be on the disk, so the process must end."""


class LeaseError(PianissimoError):
    """Another process seals this stream."""


class RefusalError(PianissimoError):
    """A durable stream that must not go on as it is: in doubt it stops."""


class DamageError(RefusalError):
    """A record that is not as it was written."""


class RollbackError(RefusalError):
    """A store that is behind its witness or its sinks."""


class SecretError(RefusalError):
    """A secret that is missing, open to others, or of another stream."""


class ConfigError(RefusalError):
    """A stream that was created with other parameters."""


class SourceError(RefusalError):
    """A source that is not the one that was read before, or lacks what comes next."""


class SourceAwayError(SourceError):
    """A source that does not answer now; nothing of it is lost, and it may be asked again."""
