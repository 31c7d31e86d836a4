"""Chunks of zarr arrays from others: which codecs are read, and how much they may unpack to.

A few bytes may stand for any number of them, and decoders take the memory before they find out.
So :func:`check_zarr` looks at the metadata of an array, and :class:`Packing` at each chunk, before
it is decoded. Both raise a ValueError, whose text goes into an error of the package.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numcodecs
import numpy as np
from numcodecs import zstd

CHUNK_BYTES = 512 * 2**20  # most bytes of one decoded chunk
MOST_EXPANSION = 10**6
"""How many times larger than on disk a zarr array may say it is: zeros that were never written."""
NUMBERS_AND_TEXT = "biufUST"  # kinds of numpy types that hold neither Python objects nor records
_SMALL = 2**28
_COMPRESSORS = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")
# What numcodecs calls its codecs for bytes, numbers and text; none of them runs code of a file.
_CHECKSUMS = ("adler32", "crc32", "crc32c", "fletcher32")
_TEXTS = ("vlen-utf8", "vlenutf8")
_PLAIN_CODECS = (
    *("bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle", "vlen-utf8"),
    *(*_CHECKSUMS, *_COMPRESSORS),
)
MOST_CHARACTERS = 1000
"""Of a label: numpy gives the label of every row of a block the room of the longest one."""
TEXT_BYTES = 4 + 4 * MOST_CHARACTERS
"""Most bytes of a text, on average over a chunk: texts are labels, which are no longer."""
_PIECE = 2**20  # bytes that are unpacked at a time, to count them
_ZSTD_FRAME, _ZSTD_SKIPPED = 0xFD2FB528, 0x184D2A50
_ZSTD_BLOCK = 2**17  # most bytes of a block of zstd
_ONE_AT_A_TIME = Lock()
_AGAIN = "write it again with zarr's default codecs"


def check_zarr(array: Any, kinds: str = NUMBERS_AND_TEXT) -> None:
    """Raise a ValueError unless types and codecs of a zarr array are known to run no code.

    It looks at the metadata only, and is called before any chunk is read. `kinds` are the letters
    of the numpy types that may be read.
    """
    if np.dtype(array.dtype).kind not in kinds:
        raise ValueError(f"it holds {array.dtype}, and only numbers and text are read: write these")
    is_read = _is_plain if array.metadata.zarr_format == 2 else _is_known
    unknown = [_named(codec) for codec in _codecs_of(array.metadata) if not is_read(codec)]
    if unknown:
        raise ValueError(f"it is packed with {unknown[0]!r}, which is not read: {_AGAIN}")
    size = chunk_bytes(array)
    if array.size and min(*array.chunks, *(array.shards or ()), 1) < 1:
        raise ValueError("its chunks are empty: write it again")
    if size > CHUNK_BYTES:
        raise ValueError(
            f"its chunks have {size:,} bytes, the most that is read is {CHUNK_BYTES:,}: "
            "write it with smaller chunks"
        )
    # Each text that was never written is a copy of it.
    if isinstance(array.fill_value, str) and len(array.fill_value) > MOST_CHARACTERS:
        raise ValueError(
            f"its fill value has more than {MOST_CHARACTERS:,} characters: give it a shorter one"
        )
    Packing.of(array)


def is_chunk(key: str) -> bool:
    """Tell chunks and shards, whatever names the metadata give them, from metadata."""
    return not key.rpartition("/")[2].startswith((".z", "zarr.json"))


def chunk_bytes(array: Any) -> int:
    """Return the size of one decoded chunk of a zarr array."""
    return int(math.prod(array.chunks)) * max(1, int(np.dtype(array.dtype).itemsize))


def row_bytes(array: Any) -> int:
    """Return what one row of an array takes while it is read, or the most that it may take."""
    kind = np.dtype(array.dtype)
    size = TEXT_BYTES if kind.kind == "T" else kind.itemsize  # of texts the type tells no length
    if kind.kind in "UST":  # copies are made to count them, in which each byte becomes a letter
        size *= 16 if kind.kind == "S" else 4
    return max(1, math.prod(array.shape[1:]) * size)


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


@dataclass(frozen=True)
class Packing:
    """How the chunks of an array are packed.

    Parameters
    ----------
    codec : dict
        What packs them, as numcodecs describes it; empty for nothing that does.
    nbytes : int
        Most bytes that a chunk may unpack to.
    n_after : int
        Bytes of checksums that come after what is packed.
    n_texts : int
        Texts of any length in a chunk, 0 for numbers and texts of one length.
    """

    codec: dict[str, Any]
    nbytes: int
    n_after: int
    n_texts: int

    @classmethod
    def of(cls, array: Any) -> Packing:
        """Take it from the metadata; a ValueError for chunks that are packed more than once."""
        codecs, is_new = _codecs_of(array.metadata), array.metadata.zarr_format == 3
        if len(codecs) == 1 and hasattr(codecs[0], "index_codecs"):  # of shards
            codecs = list(codecs[0].codecs)
        names = [_named(codec).removesuffix("Codec").lower() for codec in codecs]
        packed = [place for place, name in enumerate(names) if name in _COMPRESSORS]
        if len(packed) > 1 or "sharding" in names:
            raise ValueError(f"its chunks are packed more than once: {_AGAIN}")
        place = packed[0] if packed else len(names)
        before, after = names[:place], names[place + 1 :]
        texts = bool(before) and before[0] in _TEXTS
        others = [*(before[1:] if texts else ()), *after]
        odd = [name for name in others if not (is_new and name == "crc32c")]
        if odd:
            raise ValueError(f"it is packed with {odd[0]!r} too, which is not read: {_AGAIN}")
        codec: dict[str, Any] = {}
        if packed:
            codec = {"id": names[place]} if is_new else codecs[place].get_config()
        n_texts = math.prod(array.chunks) if texts else 0
        nbytes = min(CHUNK_BYTES, 4 + n_texts * TEXT_BYTES) if texts else chunk_bytes(array)
        nbytes = _filtered_bytes(nbytes, list(zip(before, codecs, strict=False)))
        return cls(codec, nbytes, 4 * len(after), n_texts)

    @property
    def is_slow(self) -> bool:
        """Whether a chunk must be unpacked to know how much it holds."""
        return bool(self.n_texts) or self.codec.get("id") in ("bz2", "gzip", "lzma", "zlib")

    def check(self, stored: Any, *, exact: bool = False) -> None:
        """Raise a ValueError for the bytes of a chunk that would unpack to more than one.

        With `exact`, those of zstd must hold as much as a chunk has.
        """
        packed, name = memoryview(stored)[: len(stored) - self.n_after], self.codec.get("id", "")
        if name == "zstd":
            check_zstd(packed, self.nbytes, exact=exact)
        elif name == "blosc":
            _check_blosc(packed, self.nbytes)
        elif name == "lz4":
            _check_told(int.from_bytes(packed[:4], "little"), self.nbytes)
        elif name:
            found = 0
            try:
                with _open_packed(self.codec, packed) as file:
                    while found <= self.nbytes and (piece := file.read(_PIECE)):
                        found += len(piece)
            except OSError as error:  # what gzip and bz2 raise of damage: no disk has failed
                raise ValueError(str(error)) from error
            if found > self.nbytes:
                raise ValueError(f"a chunk of {self.nbytes:,} bytes unpacks to more")
        else:
            _check_told(len(packed), self.nbytes)
        if self.n_texts:  # how many they are comes first, and as many are made at once
            plain = numcodecs.get_codec(self.codec).decode(bytes(packed)) if name else packed
            _check_told(int.from_bytes(bytes(plain[:4]), "little"), self.n_texts, "texts")


def _filtered_bytes(nbytes: int, filters: list[tuple[str, Any]]) -> int:
    """Return how many bytes filters make of those of a chunk, so that undoing them gives no more.

    A filter that makes one byte of eight gives eight for each, and with others after it any number.
    """
    for name, codec in filters:
        largest = nbytes
        if name in ("delta", "fixedscaleoffset", "quantize"):
            count = -(-nbytes // codec.dtype.itemsize)
            nbytes = count * codec.astype.itemsize
            largest = max(nbytes, 8 * count if name == "fixedscaleoffset" else 0)
        elif name == "packbits":
            nbytes = -(-nbytes // 8) + 1
        elif name in _CHECKSUMS:
            nbytes += 4
        elif name in _TEXTS and name != filters[0][0]:
            raise ValueError(f"it is packed with {name!r} too, which is not read: {_AGAIN}")
        if largest > CHUNK_BYTES:
            raise ValueError(
                f"its filters make chunks of {largest:,} bytes, the most that is read is "
                f"{CHUNK_BYTES:,}: write it with smaller chunks"
            )
    return nbytes


def _check_told(told: int, most: int, what: str = "bytes") -> None:
    if told > most:
        raise ValueError(f"a chunk of {most:,} {what} says that it has {told:,}")


def _open_packed(codec: dict[str, Any], packed: memoryview) -> Any:
    """Return a file of what is packed, to be unpacked piece by piece."""
    if codec["id"] == "zlib":
        return _Zlib(packed)
    file = io.BytesIO(packed)
    if codec["id"] == "gzip":
        return gzip.GzipFile(fileobj=file)
    if codec["id"] == "bz2":
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file, format=codec["format"], filters=codec["filters"])


class _Zlib(io.RawIOBase):
    """What a stream of zlib unpacks to."""

    def __init__(self, packed: memoryview) -> None:
        self._packed, self._at, self._rest = packed, 0, b""
        self._decoder = zlib.decompressobj()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, as many as asked for at most."""
        while not self._decoder.eof:
            if not self._rest:
                # In small steps: what is not yet used of one is copied for each piece.
                self._rest = bytes(self._packed[self._at : self._at + 2**16])
                self._at += len(self._rest)
            if not self._rest:
                break
            piece = self._decoder.decompress(self._rest, size)
            self._rest = self._decoder.unconsumed_tail
            if piece:
                return piece
        return b""


def _check_blosc(packed: memoryview, nbytes: int) -> None:
    """Raise a ValueError unless the header of a chunk fits it: the decoder reads on blindly."""
    if len(packed) < 16:
        raise ValueError("a chunk is cut short")
    raw, block, told = (int.from_bytes(packed[i : i + 4], "little") for i in (4, 8, 12))
    if told != len(packed) or raw > nbytes or (raw and not 0 < block <= 2**31):
        raise ValueError(f"a chunk has {len(packed):,} bytes and says that it has {told:,}")


def check_zstd(packed: Any, nbytes: int, *, exact: bool) -> None:
    """Raise a ValueError for what zstd would unpack to more than `nbytes`.

    One frame that tells its size is decoded into as much memory. Where it tells none, or others
    follow it, the decoder goes on for as long as there are blocks, so their heads are counted
    (RFC 8878, section 3.1.1). They say how much it is at most: what may be far more than a chunk is
    unpacked to see, if no chunk that is read may have more. What is no frame is left to the
    decoder, which refuses it. With `exact` it must be one frame of just `nbytes`.
    """
    data, at, most = memoryview(packed), 0, 0
    frames: list[int | None] = []
    while at + 6 <= len(data):
        magic = int.from_bytes(data[at : at + 4], "little")
        if magic & ~15 == _ZSTD_SKIPPED:
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        if magic != _ZSTD_FRAME:
            break
        flags = data[at + 4]
        single, dictionary = flags >> 5 & 1, (0, 1, 2, 4)[flags & 3]
        first, count = at + 6 - single + dictionary, (single, 2, 4, 8)[flags >> 6]
        told = int.from_bytes(data[first : first + count], "little") + 256 * (count == 2)
        frames.append(told if count else None)
        at, size = _blocks_of_zstd(data, first + count)
        most, at = most + size, at + 4 * (flags >> 2 & 1)  # a checksum
    if not frames or frames == [nbytes]:
        return
    plain = len(frames) == 1 and frames[0] is not None
    found, limit = (frames[0] or 0, nbytes) if plain else (most, 2 * nbytes + _PIECE)
    if limit < found <= CHUNK_BYTES and not (plain or exact):
        with _ONE_AT_A_TIME:  # as many chunks as there are threads would take as much each
            found = len(zstd.decompress(data))
        limit = nbytes
    if exact or found > limit:
        raise ValueError(f"a chunk of {nbytes:,} bytes says that it has {found:,}")


def _blocks_of_zstd(data: memoryview, at: int) -> tuple[int, int]:
    """Return where the blocks of a frame end, and the most bytes that they hold."""
    most = last = 0
    while not last and at + 3 <= len(data):
        head = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        most += size if kind < 2 else _ZSTD_BLOCK  # as it is, one byte again and again, or packed
        at += 3 + (1 if kind == 1 else size)
    return at, most


def _codecs_of(metadata: Any) -> list[Any]:
    """Return the codecs of an array, in the order in which they pack it."""
    if metadata.zarr_format == 3:
        return list(metadata.codecs)
    return [codec for codec in (*(metadata.filters or ()), metadata.compressor) if codec]


def _is_plain(codec: Any) -> bool:
    """Whether this is a codec of numcodecs (format 2) for bytes, numbers or text."""
    if not type(codec).__module__.startswith("numcodecs."):
        return False
    types = [getattr(codec, name) for name in ("dtype", "astype") if hasattr(codec, name)]
    return _named(codec) in _PLAIN_CODECS and all(found.kind in "biuf" for found in types)


def _named(codec: Any) -> str:
    """Return what numcodecs calls a codec, or the class of one of zarr's own."""
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
