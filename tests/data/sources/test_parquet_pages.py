"""Pages of Parquet files: found as they were written, refused when they unpack to too much."""

import contextlib
import itertools
from inspect import signature
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.data.sources import pages as module
from rfcdask.data.sources.pages import pages
from rfcdask.data.sources.parquet import read_parquet

WHOLE = {"use_dictionary": False, "data_page_size": 2**31 - 1}
if "max_rows_per_page" in signature(pq.ParquetWriter).parameters:  # of pyarrow 23 and newer
    WHOLE["max_rows_per_page"] = 10**7
CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")


def varint(number: int) -> bytes:
    number, out = (2 * number if number >= 0 else -2 * number - 1), b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def header(size: int, stored: int, n: int) -> bytes:
    """Return the header of a data page as the specification has it."""
    rows = b"\x15" + varint(n) + b"\x15\x00\x15\x06\x15\x06\x00"
    return b"\x15\x00\x15" + varint(size) + b"\x15" + varint(stored) + b"\x2c" + rows + b"\0"


def in_header(data: bytes) -> list[tuple[int, int]]:
    return list(pages(memoryview(data)))


def chunks(metadata):
    for group, place in itertools.product(range(metadata.num_row_groups), range(2)):
        yield metadata.row_group(group).column(place)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 3000),
    seed=st.integers(0, 9),
    nulls=st.booleans(),
    options=st.fixed_dictionaries(
        {
            "compression": st.sampled_from(CODECS),
            "use_dictionary": st.booleans(),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
            "data_page_size": st.sampled_from([1, 500, 2**20]),
            "write_batch_size": st.sampled_from([1, 64, 1024]),
            "row_group_size": st.sampled_from([500, 10**6]),
            "write_statistics": st.booleans(),
            "write_page_checksum": st.booleans(),
            "write_page_index": st.booleans(),
        }
    ),
)
def test_the_pages_are_those_that_were_written(tmp_path_factory, n, seed, nulls, options):
    path = tmp_path_factory.mktemp("pages") / "a.parquet"
    random = np.random.default_rng(seed)
    hidden = random.random(n) < 0.3 if nulls else None
    texts = np.array(["", "ulm", "long " * 100], object)
    columns = {"a": random.integers(0, 50, n) / 4, "b": texts[random.integers(0, 3, n)]}
    table = pa.table({k: pa.array(v, mask=hidden) for k, v in columns.items()} | {"c": [[1]] * n})
    table = table.set_column(1, "b", table["b"].cast(pa.string()))
    pq.write_table(table, path, **options)
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    for chunk in chunks(metadata):
        if chunk.num_values == 0:  # pyarrow reads them, and finds no page there
            continue
        start = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
        stop = start + chunk.total_compressed_size
        found = list(pages(memoryview(data)[start:stop]))
        # What the metadata tell includes the headers, which are as large packed as unpacked.
        reader = module._Reader(memoryview(data)[start:stop])
        heads, stored = 0, 0
        for _ in found:
            begin = reader.at
            packed = reader.struct()[3, 5]
            heads, stored = heads + reader.at - begin, stored + packed
            reader.at += packed
        assert heads + stored == chunk.total_compressed_size
        assert heads + sum(size for _, size in found) == chunk.total_uncompressed_size
        assert [kind for kind, _ in found].count(2) == chunk.has_dictionary_page
    parts = list(read_parquet(str(path), ["a", "b"], 700))
    whole = pa.Table.from_batches(parts, table.schema.remove(2)) if parts else table.slice(0, 0)
    assert whole.equals(table.select(["a", "b"]) if parts else whole)


def write_large(path: Path, n: int, **options) -> None:
    """Write a few kB whose four columns have a page of 8 `n` bytes each."""
    table = pa.table({name: np.zeros(n) for name in "abcd"})
    pq.write_table(table, path, compression="zstd", write_batch_size=n, **WHOLE, **options)


@pytest.mark.parametrize("where", ["here", "behind a URL"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_that_unpack_to_too_much(tmp_path, monkeypatch, where, version):
    """340 kB took 10.8 GB: one page of each column is unpacked at once."""
    monkeypatch.setattr(module, "CHUNK_BYTES", 10**6)
    monkeypatch.setattr(module, "MOST_EXPANSION", 2)
    path, n = tmp_path / "a.parquet", 50_000
    write_large(path, n, data_page_version=version)
    source = str(path)
    if where != "here":
        source = "memory://pages/a.parquet"
        with fsspec.open(source, "wb") as file:
            file.write(path.read_bytes())
    words = (
        r"of the column at byte .* unpack to 400,0\d\d bytes, .* to 1,200,0\d\d, .* is 1,000,000: "
    )
    with pytest.raises(DataError, match=words):
        rf.ingest(source, tmp_path / "a.zarr", label=False)
    small = rf.ingest(source, tmp_path / "b.zarr", label=False, columns=["a", "d"])
    assert small.shape == (n, 2)
    table = pq.read_table(path)  # the remedy that the message names
    pq.write_table(table, path, compression="zstd", data_page_size=2**16, write_batch_size=100)
    assert rf.ingest(path, tmp_path / "c.zarr", label=False).shape == (n, 4)


def test_long_texts_in_one_page(tmp_path, monkeypatch):
    """52 kB took 5.7 GB."""
    monkeypatch.setattr(module, "CHUNK_BYTES", 10**6)
    table = pa.table({"a": ["x" * 10**4] * 500, "label": [0, 1] * 250})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", **WHOLE)
    with pytest.raises(
        DataError, match=r"a page of the column at byte 4 .* unpack to 5,00\d,\d\d\d bytes"
    ):
        rf.ingest(tmp_path / "a.parquet", tmp_path / "a.zarr")


def test_metadata_that_tell_less_than_the_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 10**6)
    write_large(tmp_path / "a.parquet", 50_000)
    told = pq.read_metadata(tmp_path / "a.parquet").row_group(0).column(0).total_uncompressed_size
    data = (tmp_path / "a.parquet").read_bytes().replace(varint(told), varint(20_000))
    (tmp_path / "a.parquet").write_bytes(data)
    chunk = pq.read_metadata(tmp_path / "a.parquet").row_group(0).column(0)
    assert chunk.total_uncompressed_size == 20_000
    with pytest.raises(DataError, match="and the most that is read at once is 1,000,000"):
        rf.ingest(tmp_path / "a.parquet", tmp_path / "a.zarr", label=False)


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (b"\x14" + varint(5), "of another type, which pyarrow skips"),
        (b"\x59\x35" + varint(5) * 3, "a list, which it skips too"),
        (b"\x58\x03abc", "bytes"),
        (b"\x57" + bytes(8), "a double"),
        (b"\x51\x12", "true and false"),
        (b"\x5c\x19\x28\x01a\x02bc\x00", "a struct with a list of bytes"),
    ],
)
def test_fields_that_are_not_known_are_skipped(ending, why):
    data = header(2**31 - 1, 3, 7)[:-1] + ending + b"\0" + b"abc"
    assert in_header(data) == [(0, 2**31 - 1)], why


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x15",
        header(-1, 3, 7),
        header(5, -3, 7),
        header(2**32 + 5, 3, 7),  # of which pyarrow takes 32 bits
        header(5, 3, 7)[:-1] + b"\x04" + varint(2**16 + 2) + varint(5),  # of which it takes 16
        header(5, 3, 7)[:-1] + b"\x59\xf1" + b"\xff" * 8 + b"\x7f",  # a list without an end
        header(5, 3, 7)[:-1] + b"\x5d",
        header(5, 3, 7)[:-1] + b"\x58\xff\xff\xff\xff\x0f",
        b"\x15" + b"\xff" * 99,
        b"\x15\x04\x15\x02",
    ],
)
def test_damaged_headers(data):
    if data:
        with pytest.raises(ValueError, match="a page has no header"):
            in_header(data)
    else:
        assert in_header(data) == []


@pytest.mark.parametrize("seed", range(5))
def test_damaged_files_end_in_an_error_of_the_package(tmp_path, seed):
    pq.write_table(pa.table({"a": np.arange(999.0), "b": ["x", "y", "z"] * 333}), tmp_path / "a")
    good, random = (tmp_path / "a").read_bytes(), np.random.default_rng(seed)
    for _ in range(60):
        data = bytearray(good)
        for at in random.integers(4, len(data) - 8, 3):
            data[at] = random.integers(256)
        (tmp_path / "a").write_bytes(data)
        with contextlib.suppress(DataError):
            for part in read_parquet(str(tmp_path / "a"), ["a", "b"], 100):
                assert part.num_columns == 2


def test_groups_without_rows_among_others(tmp_path):
    table = pa.table({"a": np.arange(9.0), "b": ["x", "y", "z"] * 3})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for n in (0, 4, 0, 0, 5, 0):
            writer.write_table(table.slice(4 * (n == 5), n), row_group_size=10)
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 6
    found = pa.Table.from_batches(read_parquet(str(tmp_path / "a.parquet"), ["a", "b"], 3))
    assert found.equals(table)
