"""What can be wrong with data, each with a sentence that names the place and the remedy."""

from __future__ import annotations

from rfcdask.redact import redacted


class DataError(ValueError):
    """The given data, or the place it should go to, cannot be used as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class UnfinishedStoreError(DataError):
    """A store whose ingest was interrupted; running the same ingest again finishes it."""


class DamagedStoreError(DataError):
    """A chunk of a store is missing or its checksum does not match."""


class OutOfMemoryError(DataError, MemoryError):
    """Workers died over the blocks of an ingest, which are too large for their memory."""


class StoreExistsError(DataError, FileExistsError):
    """The destination holds something already and nobody said it may be replaced."""


def missing_extra(package: str, extra: str, purpose: str) -> DataError:
    """Return the error for an optional package that is not installed."""
    return DataError(f"{purpose} needs {package}: pip install 'rfcdask[{extra}]'.")
