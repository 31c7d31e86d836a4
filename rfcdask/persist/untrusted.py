"""Input from others: what files may hold and how large it may be, and credentials in URLs.

Whoever reads such a file does it within :func:`faults_as`, which makes one error of the package of
the many kinds that decoders raise. Limits are checked before anything of the claimed size is made.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JSON_BYTES = 64 * 2**20  # most bytes of a JSON file
CHUNK_BYTES = 512 * 2**20  # most bytes of one decoded chunk of a zarr array
ZSTD_HEAD = 18  # most bytes before what zstd has packed
MOST_EXPANSION = 10**6
"""How many times larger than on disk a zarr array may say it is: zeros that were never written."""
_SMALL = 2**28
_MODEL_BYTES = 64  # of each column, while a linear model learns
_MEANS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS)
# What numcodecs calls its codecs for bytes, numbers and text; none of them runs code of a file.
_PLAIN_CODECS = (
    *("adler32", "bitround", "crc32", "crc32c", "delta", "fixedscaleoffset", "fletcher32"),
    *("packbits", "quantize", "shuffle", "vlen-utf8"),
    *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"),
)
NUMBERS_AND_TEXT = "biufUST"  # kinds of numpy types that hold neither Python objects nor records
_LONG_KEY = re.compile(r"(?:\.[ \t]*(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')[ \t]*){200}")
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
    r"x-(?:amz|goog)-[\w-]+|awsaccesskeyid|googleaccessid|sig|auth|"
    r"[\w.-]*(?:signature|credential|token|secret|passw(?:or)?d|pwd|authorization|"
    r"(?:api|access|account|private|signing)[_-]?key)[\w.-]*"
)
_QUERY = re.compile(
    rf"([?&;](?:{_SECRET})=)[^&\s#;]+?(?=[\])'\"<>,.:]*(?:[&\s#;]|$))", re.IGNORECASE
)
# Dataverse and Google call a token just key; a short value, or one with a dot, may name a file.
_KEY = re.compile(r"([?&;](?:subscription-)?key=)[\w-]{20,}(?![\w-]*[./%]\w)", re.IGNORECASE)


@contextmanager
def faults_as(refusal: Callable[[str], Exception], *passed: type[Exception]) -> Iterator[None]:
    """Turn whatever a decoder raises within the block into one error of the package.

    Parameters
    ----------
    refusal : callable
        Makes the error from the reason.
    *passed : exception types
        What is raised as it is, beside files closed to the reader and faults of the system such
        as a full disk.
    """
    try:
        yield
    except PermissionError:
        raise
    except MemoryError as error:
        raise refusal("it asks for more memory than there is") from shown_cause(error)
    except Exception as error:
        if isinstance(error, passed) or getattr(error, "errno", None) in _MEANS:
            raise
        raise refusal(reason(error)) from shown_cause(error)


def reason(error: BaseException) -> str:
    """Return the first line of a foreign message, short and without the full stop."""
    text = str(error).strip().partition("\n")[0][:200].rstrip(". ")
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return text if text and not isinstance(error, KeyError) else f"{type(error).__name__} {text}"


def require_plain(path: Path) -> None:
    """Raise a ValueError for a pipe or device, which may keep its reader waiting for ever."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(f"{path} is no plain file")


def read_json(path: Path, most: int = JSON_BYTES) -> Any:
    """Read a JSON file that is no larger than it may be."""
    require_plain(path)
    return json.loads(read_text(path, most))


def read_text(path: Path, most: int) -> str:
    """Read UTF-8 text that is no larger than it may be."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it is larger than {most:,} bytes, the most that is read")
    return data.decode("utf-8")


def read_toml(path: Path, most: int) -> dict[str, Any]:
    """Read a TOML file that is no larger than it may be, and whose keys have few parts."""
    import tomllib

    text = read_text(path, most)
    if _LONG_KEY.search(text):  # the time of the parser grows as the square of the parts
        raise ValueError("it is nested too deeply")
    return tomllib.loads(text)


def open_npz(path: Path) -> Any:
    """Open a .npz archive whose arrays fit into memory and hold no Python objects."""
    import numpy as np

    with zipfile.ZipFile(path) as archive:
        require_memory(sum(info.file_size for info in archive.infolist()), "it unpacks to")
    return np.load(path, allow_pickle=False)


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


def check_zarr(array: Any, kinds: str = NUMBERS_AND_TEXT) -> None:
    """Raise a ValueError unless types and codecs of a zarr array are known to run no code.

    It looks at the metadata only, and is called before any chunk is read. `kinds` are the letters
    of the numpy types that may be read.
    """
    import numpy as np

    if np.dtype(array.dtype).kind not in kinds:
        raise ValueError(f"it holds {array.dtype}, and only numbers and text are read")
    metadata = array.metadata
    if metadata.zarr_format == 2:
        codecs = [codec for codec in (*(metadata.filters or ()), metadata.compressor) if codec]
        unknown = [_named(codec) for codec in codecs if not _is_plain(codec)]
    else:
        unknown = [type(codec).__name__ for codec in metadata.codecs if not _is_known(codec)]
        _require_guard(metadata.codecs)
    if unknown:
        raise ValueError(f"it is packed with {unknown[0]!r}, which is not read from files")
    size = chunk_bytes(array)
    if array.size and min(*array.chunks, *(array.shards or ()), 1) < 1:
        raise ValueError("its chunks are empty")
    if size > CHUNK_BYTES:
        raise ValueError(
            f"its chunks have {size:,} bytes, the most that is read is {CHUNK_BYTES:,}: "
            "write it with smaller chunks"
        )


def chunk_bytes(array: Any) -> int:
    """Return the size of one decoded chunk of a zarr array."""
    import numpy as np

    return int(math.prod(array.chunks)) * max(1, int(np.dtype(array.dtype).itemsize))


def _require_guard(codecs: Any, within: bool = False) -> None:
    """Refuse Blosc where neither a checksum nor `check_blosc` comes before it is decoded."""
    from zarr.codecs import BloscCodec, Crc32cCodec, ShardingCodec

    for place, codec in enumerate(codecs):
        after = codecs[place + 1 :]
        if isinstance(codec, ShardingCodec):
            _require_guard(codec.codecs, within=True)
        elif isinstance(codec, BloscCodec) and (after or within):
            guarded = len(after) == 1 and isinstance(after[0], Crc32cCodec)
            if not guarded:
                raise ValueError("it is packed with blosc and has no checksum: write it with zstd")


def is_blosc(array: Any) -> bool:
    """Whether what lies on disk are bytes of Blosc, to be seen by `check_blosc` first."""
    from zarr.codecs import BloscCodec

    metadata = array.metadata
    if metadata.zarr_format == 2:
        return metadata.compressor is not None and _named(metadata.compressor) == "blosc"
    return isinstance(metadata.codecs[-1], BloscCodec)


def check_blosc(head: bytes, stored: int, nbytes: int) -> None:
    """Raise a ValueError unless the header of a chunk fits its size: the decoder reads on blindly.

    Parameters
    ----------
    head : bytes
        The first 16 bytes of the chunk.
    stored, nbytes : int
        Its size on disk, and that of what it holds.
    """
    if len(head) < 16:
        raise ValueError("a chunk is cut short")
    raw, block, packed = (int.from_bytes(head[i : i + 4], "little") for i in (4, 8, 12))
    if packed != stored or raw > nbytes or (raw and not 0 < block <= 2**31):
        raise ValueError(f"a chunk has {stored:,} bytes and says that it has {packed:,}")


def packed_bytes(array: Any) -> int:
    """Return how much a chunk that is packed with zstd may unpack to; 0 for other codecs.

    Text of any length, and filters of format 2, make no more of it than a chunk may have.
    """
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec

    metadata = array.metadata
    if metadata.zarr_format == 2:
        packs = metadata.compressor is not None and _named(metadata.compressor) == "zstd"
        simple = not metadata.filters
    else:
        codecs = metadata.codecs
        codecs = codecs[0].codecs if isinstance(codecs[0], ShardingCodec) else codecs
        packs = any(isinstance(codec, ZstdCodec) for codec in codecs)
        plain = (BytesCodec, Crc32cCodec, TransposeCodec, ZstdCodec)
        simple = all(isinstance(codec, plain) for codec in codecs)
    return (chunk_bytes(array) if simple else CHUNK_BYTES) if packs else 0


def check_zstd(head: bytes, nbytes: int, *, exact: bool) -> None:
    """Raise a ValueError for a chunk that says it has more bytes: zstd makes them first.

    What is no head of zstd at all (RFC 8878, 3.1.1.1) is left to the decoder, which refuses it.

    Parameters
    ----------
    head : bytes
        The first `ZSTD_HEAD` bytes of the chunk.
    nbytes : int
        Most bytes of what it holds.
    exact : bool
        Refuse chunks that say less, or nothing, too.
    """
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        return
    kind, single, named = head[4] >> 6, head[4] >> 5 & 1, head[4] & 3
    first, count = 6 - single + (0, 1, 2, 4)[named], (single, 2, 4, 8)[kind]
    told = int.from_bytes(head[first : first + count], "little") + 256 * (count == 2)
    if told > nbytes or (exact and (not count or told != nbytes)):
        raise ValueError(f"a chunk of {nbytes:,} bytes says that it has {told:,}")


def _is_plain(codec: Any) -> bool:
    """Whether this is a codec of numcodecs (format 2) for bytes, numbers or text."""
    if not type(codec).__module__.startswith("numcodecs."):
        return False
    kinds = [getattr(codec, name, None) for name in ("dtype", "astype")]
    return _named(codec) in _PLAIN_CODECS and not any(
        getattr(kind, "hasobject", False) for kind in kinds
    )


def _named(codec: Any) -> str:
    return str(getattr(codec, "codec_id", type(codec).__name__))


def _is_known(codec: Any) -> bool:
    """Whether this is one of zarr's own codecs (format 3), and so are all within it."""
    from zarr import codecs

    if isinstance(codec, codecs.ShardingCodec):
        return all(map(_is_known, (*codec.codecs, *codec.index_codecs)))
    known = (
        codecs.BloscCodec,
        codecs.BytesCodec,
        codecs.Crc32cCodec,
        codecs.GzipCodec,
        codecs.TransposeCodec,
        codecs.VLenUTF8Codec,
        codecs.ZstdCodec,
    )
    return type(codec) in known


def check_expansion(nbytes: int, count_stored: Callable[[], int]) -> None:
    """Raise a ValueError when far more is declared than lies on disk."""
    if nbytes <= _SMALL:
        return
    stored = count_stored()
    if nbytes > MOST_EXPANSION * stored:
        raise ValueError(
            f"it declares {nbytes:,} bytes where {stored:,} are stored, and at most "
            f"{MOST_EXPANSION:,} times as many are believed"
        )


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
        bare = _NUMBERED.sub(rf"\g<1>\g<2>{HIDDEN}@", bare)
        return _KEY.sub(rf"\g<1>{HIDDEN}", _QUERY.sub(rf"\g<1>{HIDDEN}", bare))
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    return value


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
