"""Input from others: what files may hold and how large it may be, and credentials in URLs.

Whoever reads such a file does it within :func:`faults_as`, which makes one error of the package of
the many kinds that decoders raise. Limits are checked before anything of the claimed size is made.
"""

from __future__ import annotations

import errno
import json
import os
import re
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JSON_BYTES = 64 * 2**20  # most bytes of a JSON file
_MODEL_BYTES = 64  # of each column, while a linear model learns
_REMOTE = getattr(errno, "EREMOTEIO", errno.EIO)  # what s3fs makes of a server in trouble
_MEANS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, _REMOTE)
_NETWORK = ("botocore", "aiobotocore", "aiohttp", "s3fs", "gcsfs", "adlfs", "azure", "google")
NO_PARTS = "support range requests"  # fsspec, of a web server that gives files only as a whole
_LONG_KEY = re.compile(r"(?:\.[ \t]*(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')[ \t]*){200}")
_LONG_NUMBER = re.compile(r"\b0[xob]\w{3000}")  # of more digits than Python writes again
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
HIDDEN = "***"
# Passwords may hold quotes, so a quote ends no URL here: rather too much is hidden than too little.
_AUTHORITY = re.compile(r"(?<=://)[^\s/?#]*@")
# Keys of AWS hold slashes, which end the authority of a URL; a number after the colon is a port.
_SLASHED = re.compile(r"(?<=://)[^\s/?#@:]*:(?!\d{1,5}[/?#'\"<>])[^\s@]*@")
# Buckets have no port. Of http a number and a slash may begin a password too: it is taken for one
# where what stands before the colon has no dot, and a host with a path comes after the @.
_NUMBERED = re.compile(
    r"((?:s3[an]?|gc?s|az|abfss?)://)[^\s/?#@:]*:\S*@"
    r"|((?:https?|s?ftp)://)(?!localhost:)[^\s/?#@:.]+:\d{1,5}/[^\s@]*@(?=[\w.-]+(?::\d+)?/)"
)
_SECRET = (
    r"x-(?:amz|goog)-[\w-]+|awsaccesskeyid|googleaccessid|sig|sas|auth|pass|jwt|bearer|delegation|"
    r"hmac|hdn(?:ea|ts|tl)|"
    r"[\w.-]*(?:signature|credential|token|secret|passw(?:or)?d|passphrase|pwd|authorization|"
    r"(?:api|access|account|private|signing)[_-]?key)[\w.-]*"
)
# No server takes a URL of this length, and the time of what follows grows as the square of it.
_TOO_LONG = re.compile(r"\S{8192,}")
_MARK = re.compile("://|[?&;#]")
_QUERY = re.compile(
    rf"([?&;#](?:{_SECRET})=)[^&\s#;]+?(?=[\])'\"<>,.:]*(?:[&\s#;]|$))", re.IGNORECASE
)
# Dataverse and Google call a token just key; a short value, or one with a dot, may name a file.
_KEY = re.compile(r"([?&;](?:[a-z]+[_-])?key=)[\w-]{20,}(?![\w-]*[./%]\w)", re.IGNORECASE)


class NotReadableError(PermissionError):
    """A file or folder that is there and closed to the reader."""

    def __str__(self) -> str:
        return str(self.strerror)


def not_readable(path: object) -> NotReadableError:
    """Return the error that says so."""
    said = f"{path} may not be opened: change its rights, or give another place."
    return NotReadableError(errno.EACCES, said)


@contextmanager
def rights_said() -> Iterator[None]:
    """Say of a file in the block that is closed to the reader how to go on."""
    try:
        yield
    except PermissionError as error:
        if error.filename is None:  # said already, or by others
            raise
        raise not_readable(error.filename) from error


def require_open(folder: Path | str) -> None:
    """Refuse a folder that is closed to the reader, in which nothing seems to be."""
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
        raise not_readable(folder)


@contextmanager
def faults_as(refusal: Callable[[str], Exception], *passed: type[Exception]) -> Iterator[None]:
    """Turn whatever a decoder raises within the block into one error of the package.

    Parameters
    ----------
    refusal : callable
        Makes the error from the reason.
    *passed : exception types
        What is raised as it is, beside files closed to the reader and faults of the system such
        as a full disk, or of a web server.
    """
    try:
        with rights_said():
            yield
    except PermissionError:
        raise
    except MemoryError as error:
        raise refusal("it asks for more memory than there is") from shown_cause(error)
    except Exception as error:
        of_system = getattr(error, "errno", None) in _MEANS or NO_PARTS in str(error)
        of_system = of_system or isinstance(error, ConnectionError | TimeoutError)
        if isinstance(error, passed) or of_system or is_of_network(error):
            raise
        raise refusal(reason(error)) from shown_cause(error)


def is_of_network(error: BaseException) -> bool:
    """Whether a library for buckets or web servers raised it, and no decoder."""
    return type(error).__module__.partition(".")[0] in _NETWORK


def reason(error: BaseException) -> str:
    """Return the first line of a foreign message, short and without the full stop."""
    text = str(error).strip().partition("\n")[0][:200].rstrip(". ")
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return text if text and not isinstance(error, KeyError) else f"{type(error).__name__} {text}"


def require_plain(path: Path) -> None:
    """Raise a ValueError for a pipe or device, which may keep its reader waiting for ever.

    So it does for a link that leads nowhere: readers of zarr take what is not there for zeros.
    """
    if os.path.isfile(path) or os.path.isdir(path) or not os.path.lexists(path):
        return
    what = "no plain file" if os.path.exists(path) else "a link that leads nowhere"
    raise ValueError(f"{path} is {what}")


def require_absent(path: Path, root: Path) -> None:
    """Raise a ValueError where a file is not read for it is a folder, or lies in what is none.

    Folders are looked at up to `root`.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder")
    while path != root and not os.path.lexists(path):
        path = path.parent
    if path != root and not path.is_dir():
        raise ValueError(f"{path} is {'a link that leads nowhere' * path.is_symlink() or 'a file'}")


def read_json(path: Path, most: int = JSON_BYTES) -> Any:
    """Read a JSON file that is no larger than it may be."""
    require_plain(path)
    return parse_json(read_text(path, most))


def parse_json(text: str | bytes) -> Any:
    """Return what JSON holds, unless a text in it cannot be written: half of a pair of UTF-16."""
    found = json.loads(text)
    if _SURROGATE.search(text if isinstance(text, bytes) else text.encode()):
        json.dumps(found, ensure_ascii=False).encode()
    return found


def read_text(path: Path, most: int) -> str:
    """Read UTF-8 text that is no larger than it may be."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it is larger than {most:,} bytes, the most that is read")
    return data.decode("utf-8")


def read_toml(path: Path, most: int) -> dict[str, Any]:
    """Read a TOML file that is no larger than it may be, and whose keys have few parts."""
    return parse_toml(read_text(path, most).removeprefix("\ufeff"))  # of old editors of Windows


def parse_toml(text: str) -> dict[str, Any]:
    """Return what TOML holds, unless its keys have many parts or its numbers very many digits."""
    import tomllib

    if _LONG_KEY.search(text):  # the time of the parser grows as the square of the parts
        raise ValueError("it is nested too deeply")
    if _LONG_NUMBER.search(text):
        raise ValueError("a whole number in it has more than 3,000 digits")
    return tomllib.loads(text)


def open_npz(path: Path) -> Any:
    """Open a .npz archive whose arrays fit into memory and hold no Python objects."""
    import numpy as np

    require_plain(path)
    with zipfile.ZipFile(path) as archive:
        check_zip(archive)
        require_memory(sum(info.file_size for info in archive.infolist()), "it unpacks to")
        # numpy stops where a changed shape says, before the checksum at the end is looked at.
        if (damaged := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {damaged!r}")
    return np.load(path, allow_pickle=False)


def check_zip(archive: zipfile.ZipFile) -> None:
    """Raise BadZipFile for members whose decoders unpack all of them at once, whatever is read."""
    for info in archive.infolist():
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{info.filename} is not packed by deflate: pack it so")


def require_memory(size: int, what: str) -> None:
    """Raise a ValueError for something that takes more bytes than the machine has."""
    import psutil

    memory = psutil.virtual_memory().total
    if size > memory:
        raise ValueError(f"{what} {size:,} bytes, more than the {memory:,} of memory")


def check_width(n_columns: int) -> None:
    """Raise a ValueError for sparse rows of more columns than a linear model has room for.

    They are declared and not stored: a file of a few bytes may declare any number.
    """
    require_memory(_MODEL_BYTES * n_columns, f"a linear model of {n_columns:,} columns takes")


def redacted(value: Any) -> Any:
    """Return a text, or a JSON value, with the credentials of every URL in it left out.

    These are user and password before the host, and those fields of the query that sign a request
    or grant access. Two URLs that differ in nothing else become the same text: a new signature
    does not make another file.

    Examples
    --------
    >>> redacted("https://me:pass@example.org/a.csv?X-Amz-Signature=12ab&version=3 is empty")
    'https://***@example.org/a.csv?X-Amz-Signature=***&version=3 is empty'
    """
    if isinstance(value, str):
        value = _TOO_LONG.sub(_cut, value)
        # The last part of a URL alone, such as the name of a file, still has its query.
        bare = _SLASHED.sub(f"{HIDDEN}@", _AUTHORITY.sub(f"{HIDDEN}@", value))
        bare = _NUMBERED.sub(rf"\g<1>\g<2>{HIDDEN}@", bare)
        return _KEY.sub(rf"\g<1>{HIDDEN}", _QUERY.sub(rf"\g<1>{HIDDEN}", bare))
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    return value


def _cut(word: re.Match[str]) -> str:
    """Hide all of a long word from where a URL, or a query, may begin."""
    begin = _MARK.search(word[0])
    return word[0] if begin is None else word[0][: begin.end()] + HIDDEN


def shown_cause(error: BaseException) -> BaseException | None:
    """Return a foreign error to be the cause of ours; None where its traceback shows credentials.

    Those of fsspec repeat the whole URL, and notebooks and logs show them below ours.
    """
    shown = "".join(traceback.format_exception(error))
    return error if redacted(shown) == shown else None


def usable_url(url: str) -> str:
    """Return a URL as it is, unless it holds credentials where its protocol knows of none.

    Raises
    ------
    ValueError
        When a bucket is written as ``s3://key:secret@bucket``.
    """
    shown: str = redacted(url)
    if shown.startswith((f"s3://{HIDDEN}@", f"s3a://{HIDDEN}@")):
        raise ValueError(
            f"{shown} has credentials before the bucket, where S3 knows of none: leave them out of "
            "the URL and set the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return url
