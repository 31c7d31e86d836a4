"""Credentials in URLs: used to open what they name, and shown or kept nowhere."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "***"
_AUTHORITY = re.compile(r"(?<=://)[^\s/?#'\"<>]*@")
# Keys of AWS hold slashes, which end the authority of a URL; a number after the colon is a port.
_SLASHED = re.compile(r"(?<=://)[^\s/?#'\"<>@:]*:(?!\d{1,5}[/?#])[^\s'\"<>@]*@")
_SECRET = (
    r"x-(?:amz|goog)-[\w-]+|awsaccesskeyid|googleaccessid|sig|auth|"
    r"[\w.-]*(?:signature|credential|token|secret|passw(?:or)?d|pwd|authorization|"
    r"(?:api|access|account|private|signing)[_-]?key)[\w.-]*"
)
_QUERY = re.compile(rf"([?&;](?:{_SECRET})=)[^&\s'\"#;<>]+", re.IGNORECASE)


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
        # The last part of a URL alone, such as the name of a file, still has its query.
        bare = _SLASHED.sub(f"{HIDDEN}@", _AUTHORITY.sub(f"{HIDDEN}@", value))
        return _QUERY.sub(rf"\g<1>{HIDDEN}", bare)
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    return value


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
