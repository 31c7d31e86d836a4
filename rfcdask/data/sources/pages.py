"""How large the pages of a Parquet file are, by their headers, before they are unpacked.

A page is unpacked as a whole, as large as its header says, and one of each column is held at once:
300 kB may stand for 10 GB. What the metadata of columns say may be wrong, and tells no pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from rfcdask.data.errors import DataError
from rfcdask.persist.chunks import CHUNK_BYTES

MOST_EXPANSION = 24
"""How many times larger than the file pages may be beyond that limit: snappy packs no better."""
_I32, _BYTES, _LISTS, _STRUCT = 5, 8, (9, 10), 12  # types of Thrift's compact protocol
_FIXED = {1: 1, 2: 1, 3: 1, 7: 8}  # bytes of true, false, a byte and a double
_KIND, _SIZE, _STORED = (1, _I32), (2, _I32), (3, _I32)
_DICTIONARY = 2
_NO_HEADER = "a page has no header"


class CheckedPages:
    """A file for pyarrow to read Parquet from, which looks at the pages in what is read.

    pyarrow reads at once all that a group of rows has of a column, then unpacks it page by page. So
    the headers cost no request, and what is looked at is what is unpacked. Nothing is asked of the
    metadata of columns: they may lie, and pyarrow ends the process where they are damaged.
    """

    def __init__(self, file: Any, path: str) -> None:
        self._file, self._path = file, path
        self._n_columns, self._limit = 0, 0
        self._largest: list[int] = []
        self._total = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def watch(self, n_columns: int, size: int) -> None:
        """Take what is read from now on for columns, so many of a file of so many bytes."""
        self._n_columns, self._limit = n_columns, max(CHUNK_BYTES, MOST_EXPANSION * size)

    def read_buffer(self, size: int | None = None) -> Any:
        """Return the next bytes, of whose pages none is too large."""
        begin = self._file.tell()
        read = self._file.read_buffer(size)
        if self._n_columns:
            self._check(begin, memoryview(read).cast("B"))
        return read

    read = read_buffer

    def _check(self, begin: int, data: memoryview) -> None:
        largest = [0, 0]  # of those with rows, and of dictionaries
        for kind, page in pages(data):
            largest[kind == _DICTIONARY] = max(largest[kind == _DICTIONARY], page)
        # At no time is more held than the largest of all groups, one for each column.
        heappush(self._largest, sum(largest))
        self._total += sum(largest)
        if len(self._largest) > self._n_columns:
            self._total -= heappop(self._largest)
        if self._total > self._limit:
            raise DataError(
                f"{self._path}: a page of the column at byte {begin:,} and its dictionary unpack "
                f"to {sum(largest):,} bytes, with those of other columns to {self._total:,}, and "
                f"the most that is read at once is {self._limit:,}: choose fewer columns with "
                "columns=, or write it with smaller pages (pyarrow: data_page_size=2**20, "
                "write_batch_size=100)."
            )


def pages(data: memoryview) -> Iterator[tuple[int, int]]:
    """Yield kind and unpacked size of the pages that a group of rows has of a column."""
    reader = _Reader(data)
    while reader.at < len(data):
        try:
            head = reader.struct()
            kind, size, stored = head[_KIND], head[_SIZE], head[_STORED]
        except (IndexError, KeyError):
            raise ValueError(_NO_HEADER) from None
        if not (0 <= size < 2**31 and 0 <= stored < 2**31):
            raise ValueError(_NO_HEADER)
        yield kind, size
        reader.at += stored


class _Reader:
    """Reads the compact protocol of Thrift, as strictly as pyarrow does or more so."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def struct(self) -> dict[tuple[int, int], Any]:
        """Read fields by number and type; of several that share both the last counts."""
        found: dict[tuple[int, int], Any] = {}
        number = 0
        while (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._whole(signed=True)
            if not 0 <= number < 2**15:
                raise ValueError(_NO_HEADER)
            # Of a field that is true or false the type is the value.
            found[number, head & 15] = None if head & 15 in (1, 2) else self._value(head & 15)
        return found

    def _value(self, kind: int) -> Any:
        """Read a value, which is skipped unless it is a whole number or a struct."""
        if kind in (4, 5, 6):
            return self._whole(signed=True)
        if kind == _STRUCT:
            return self.struct()
        if kind in _FIXED:
            self.at += _FIXED[kind]
        elif kind == _BYTES:
            length = self._whole()
            self.at += length
        elif kind in _LISTS:
            head = self._byte()
            count = self._whole() if head >> 4 == 15 else head >> 4
            if count > len(self.data):
                raise ValueError(_NO_HEADER)
            for _ in range(count):
                self._value(head & 15)
        else:
            raise ValueError(_NO_HEADER)
        return None

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _whole(self, *, signed: bool = False) -> int:
        found = 0
        for shift in range(0, 70, 7):
            part = self._byte()
            found |= (part & 127) << shift
            if part < 128:
                return found >> 1 ^ -(found & 1) if signed else found
        raise ValueError(_NO_HEADER)
