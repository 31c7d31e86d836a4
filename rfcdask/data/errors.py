"""What can be wrong with data, each with a sentence that names the place and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from rfcdask.persist.untrusted import NO_PARTS, faults_as, is_of_network, redacted, shown_cause


class DataError(ValueError):
    """The given data, or the place it should go to, cannot be used as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class NotNumbersError(DataError):
    """Text or a missing value where numbers belong; a table may be read with all its kinds."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class UnfinishedStoreError(DataError):
    """A store whose ingest was interrupted; running the same ingest again finishes it."""


class DamagedStoreError(DataError):
    """A chunk of a store is missing or its checksum does not match."""


class OutOfMemoryError(DataError, MemoryError):
    """Workers died over the blocks of an ingest, which are too large for their memory."""


class StoreExistsError(DataError, FileExistsError):
    """The destination holds something already and nobody said it may be replaced."""


class UnreachableError(DataError, OSError):
    """A store or file behind a URL that the network or its server does not give."""


_ANSWERS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, DataError)


@contextmanager
def reachable(place: object, *also: type[Exception]) -> Iterator[None]:
    """Turn failures of a network, after all retries, into a sentence that says what to do.

    `also` are what file systems raise of addresses and options that they cannot use.
    """
    try:
        yield
    except Exception as error:
        answer = _answer(error)
        if NO_PARTS in str(answer) and not isinstance(answer, DataError):
            raise UnreachableError(
                f"the server of {place} gives files only as a whole: copy the file here first."
            ) from shown_cause(error)
        known = is_of_network(answer) or isinstance(answer, (OSError, *also))
        if isinstance(answer, _ANSWERS) or not known:
            raise
        lines = str(answer).strip().splitlines()
        reason = f"{type(answer).__name__}: {lines[0]}" if lines else type(answer).__name__
        raise UnreachableError(
            f"{place} cannot be reached ({reason}): see to the network, the address, the "
            "credentials and storage_options, and call again; what is written so far stays."
        ) from shown_cause(error)


def _answer(error: Exception) -> BaseException:
    """Return what a web server said where fsspec calls it a missing file, whatever it was."""
    said = error.__cause__
    refused = getattr(said, "status", None) not in (404, 410)
    if isinstance(error, FileNotFoundError) and said and refused and is_of_network(said):
        return said
    return error


def faults_of(name: object, what: str) -> AbstractContextManager[None]:
    """Say of every fault in the block that something is no such thing, or is damaged."""
    return faults_as(
        lambda why: DataError(
            f"{name} is no {what}, is damaged or is cut short ({why}): get it again."
        ),
        *(DataError, FileNotFoundError),
    )


def limits_of(name: object) -> AbstractContextManager[None]:
    """Say of something whole why it is not read; the reason ends in what to do."""
    return faults_as(lambda why: DataError(f"{name} is not read: {why}."), DataError)


def missing_extra(package: str, extra: str, purpose: str) -> DataError:
    """Return the error for an optional package that is not installed."""
    return DataError(f"{purpose} needs {package}: pip install 'rfcdask[{extra}]'.")
