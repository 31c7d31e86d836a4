"""Chunks of zarr arrays from others never unpack to more than a chunk."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import warnings
import zlib

import google_crc32c
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from numcodecs import Zstd
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ShardingCodec, ZstdCodec

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.persist.chunks import check_zstd

SKIPPED = b"\x50\x2a\x4d\x18\x04\0\0\0 abc"  # a frame of zstd that holds nothing


def zeros_of_zstd(n_blocks: int) -> bytes:
    """A frame that does not say how much it holds: blocks of 128 KiB, of one byte each."""
    block = (2**17 << 3 | 2).to_bytes(3, "little") + b"\0"
    last = (8 << 3 | 3).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\0\x58" + n_blocks * block + last


MUCH = bytes(2**20)
BLOSC = bytes(numcodecs.Blosc(shuffle=0).encode(MUCH))
LZ4 = (2**30).to_bytes(4, "little") + bytes(numcodecs.LZ4().encode(MUCH))[4:]
BOMBS = {  # what packs chunks of 512 bytes, and a chunk that unpacks to far more
    "gzip": (GzipCodec(), gzip.compress(MUCH)),
    "two": (GzipCodec(), gzip.compress(bytes(512)) + bytes(9) + gzip.compress(MUCH)),
    "gzip, format 2": (numcodecs.GZip(), gzip.compress(MUCH)),
    "zlib": (numcodecs.Zlib(), zlib.compress(MUCH)),
    "bz2": (numcodecs.BZ2(), bz2.compress(MUCH)),
    "lzma": (numcodecs.LZMA(), lzma.compress(MUCH)),
    "lz4": (numcodecs.LZ4(), LZ4),
    "blosc": (BloscCodec(), BLOSC),
    "blosc, format 2": (numcodecs.Blosc(), BLOSC),
    "zstd": (ZstdCodec(), zeros_of_zstd(5000)),
    "two frames": (Zstd(), bytes(Zstd().encode(bytes(512))) + zeros_of_zstd(5000)),
    "skipped frame": (Zstd(), SKIPPED + zeros_of_zstd(5000)),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_chunks_that_unpack_to_more_than_a_chunk(tmp_path, kind):
    codec, bomb = BOMBS[kind]
    rows = np.random.default_rng(0).normal(size=(64, 4))
    format = 3 if type(codec).__module__.startswith("zarr") else 2
    x = tmp_path / "x.zarr"
    zarr.create_array(x, data=rows, chunks=(16, 4), compressors=codec, zarr_format=format)
    good = rf.ingest(str(x), tmp_path / "good.zarr", shuffle=False)
    assert np.array_equal(good.X.compute(), rows)
    (x / ("1.0" if format == 2 else "c/1/0")).write_bytes(bomb)
    with pytest.raises(DataError, match=r"a chunk of 512 bytes|a chunk has .* bytes and says"):
        rf.ingest(str(x), tmp_path / "bad.zarr")


def test_a_frame_of_zstd_need_not_tell_its_size(tmp_path):
    """Other programs write them so; and in two frames."""
    x = tmp_path / "x.zarr"
    rows = np.ones((64, 4))
    zarr.create_array(x, data=rows, chunks=(16, 4), compressors=Zstd(), zarr_format=2)
    half = b"\x28\xb5\x2f\xfd\0\x58" + (256 << 3 | 3).to_bytes(3, "little") + b"\0"
    (x / "0.0").write_bytes(SKIPPED + half + half)
    found = rf.ingest(str(x), tmp_path / "y.zarr", shuffle=False).X.compute()
    assert np.array_equal(found, np.repeat([0.0, 1.0], [64, 192]).reshape(64, 4))


FILTERS = {  # and the type of the array, of which a chunk has 64 values
    "one byte of eight, five times": ("i8", [numcodecs.Delta("<i8", "i1")] * 5),
    "one byte of eight": ("f8", [numcodecs.FixedScaleOffset(0, 1, "<f8", "u1")]),
    "bits": ("bool", [numcodecs.PackBits()]),
    "a checksum": ("f8", [numcodecs.CRC32()]),
}


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize("packed", [Zstd(), None])
def test_chunks_that_filters_make_larger(tmp_path, kind, packed):
    """40 kB took 2.7 GB: each filter that is undone made eight bytes of one."""
    dtype, filters = FILTERS[kind]
    rows = np.ones((64, 4), dtype)
    x, how = tmp_path / "x.zarr", {"chunks": (16, 4), "compressors": packed, "zarr_format": 2}
    if "five" in kind:  # which no chunk can be written with
        zarr.create_array(x, shape=rows.shape, dtype=dtype, filters=filters, **how)
    else:
        zarr.create_array(x, data=rows, filters=filters, **how)
        good = rf.ingest(str(x), tmp_path / "good.zarr", shuffle=False)
        assert np.array_equal(good.X.compute(), rows)
    bomb = bytes(5000)
    (x / "1.0").write_bytes(bytes(packed.encode(bomb)) if packed else bomb)
    with pytest.raises(DataError, match=r"a chunk of [0-9]+ bytes says that it has 5,000"):
        rf.ingest(str(x), tmp_path / "bad.zarr", label=False)


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ([numcodecs.Delta("i1", "<i8")] * 8, "its filters make chunks of"),
        ([numcodecs.Delta("<f8", "V99999999")], "packed with 'delta', which is not read"),
    ],
)
def test_filters_whose_chunks_cannot_be_bounded(tmp_path, filters, why):
    how = {"chunks": (16, 4), "filters": filters, "zarr_format": 2}
    zarr.create_array(tmp_path / "x.zarr", shape=(64, 4), dtype="f8", **how)
    with pytest.raises(DataError, match=why):
        rf.ingest(str(tmp_path / "x.zarr"), tmp_path / "y.zarr")


def test_texts_behind_a_filter(tmp_path):
    """Where they are not the first, nobody counts them."""
    np.save(tmp_path / "x.npy", np.ones((64, 2)))
    y = tmp_path / "y.zarr"
    zarr.create_array(y, shape=(64,), dtype="str", zarr_format=2)[:] = np.array(["a", "b"] * 32)
    told = json.loads((y / ".zarray").read_text())
    told["filters"].insert(0, numcodecs.Shuffle().get_config())
    (y / ".zarray").write_text(json.dumps(told))
    with pytest.raises(DataError, match="packed with 'vlen-utf8' too, which is not read"):
        rf.ingest(str(tmp_path / "x.npy"), tmp_path / "z.zarr", label=str(y))


def test_frames_of_zstd_without_a_size_hold_no_more_than_a_chunk():
    """Each of many chunks could take half a GiB: 320 kB of them took 7 GB."""
    with pytest.raises(ValueError, match="a chunk of 512 bytes says that it has 5,242,888"):
        check_zstd(zeros_of_zstd(40), 512, exact=False)
    many = b"".join(bytes(Zstd().encode(bytes(100))) for _ in range(40))
    check_zstd(many, 4000, exact=False)  # each may have 128 KiB, by its head
    with pytest.raises(ValueError, match="a chunk of 3,999 bytes says that it has 4,000"):
        check_zstd(many, 3999, exact=False)


def test_a_second_frame_in_a_model(tmp_path):
    """The first has just the size of a chunk, and the decoder goes on after it."""
    X = np.random.default_rng(0).normal(size=(90, 3))
    rf.save(rf.SGDClassifier(random_state=0).fit(X, X[:, 0] > 0), tmp_path / "m")
    path = tmp_path / "m" / "arrays.zarr" / "coef_" / "c" / "0" / "0"
    data = path.read_bytes()[:-4] + zeros_of_zstd(100)
    path.write_bytes(data + google_crc32c.value(data).to_bytes(4, "little"))
    with pytest.raises(ValueError, match=r"'coef_' in .* is damaged: a chunk of 24 bytes says"):
        rf.load(tmp_path / "m")


@given(st.binary(max_size=400), st.integers(-5, 19), st.booleans())
def test_just_what_zstd_makes_of_a_chunk_is_let_through(data, level, checksum):
    packed = Zstd(level=level, checksum=checksum).encode(data * 1000)
    assume(len(data))
    check_zstd(packed, len(data) * 1000, exact=True)
    check_zstd(packed, len(data) * 1000 + 1, exact=False)
    for wrong in (packed + packed, packed + SKIPPED + zeros_of_zstd(1)):
        with pytest.raises(ValueError, match="says that it has"):
            check_zstd(wrong, len(data) * 1000, exact=True)
    for most, exact in ((len(data) * 1000 - 1, False), (len(data) * 1000 + 1, True)):
        with pytest.raises(ValueError, match="says that it has"):
            check_zstd(packed, most, exact=exact)


def packed_by(codec: ZstdCodec | BloscCodec | None) -> numcodecs.abc.Codec | None:
    return numcodecs.get_codec({"id": type(codec).__name__[:-5].lower()}) if codec else None


@pytest.mark.parametrize("shards", [None, (64,)])
@pytest.mark.parametrize("packed", [None, ZstdCodec(), BloscCodec()])
def test_texts_that_claim_to_be_many(tmp_path, packed, shards):
    """As many are made at once: 34 GB from four bytes."""
    y, rows = tmp_path / "y.zarr", tmp_path / "x.npy"
    how = {"shape": (64,), "chunks": (64,), "shards": shards, "compressors": packed}
    zarr.create_array(y, dtype="str", **how)[:] = np.array(["a", "b"] * 32)
    np.save(rows, np.ones((64, 2)))
    good = rf.ingest(str(rows), tmp_path / "good.zarr", label=str(y))
    assert list(good.classes) == ["a", "b"]
    path, codec = y / "c" / "0", packed_by(packed)
    data = path.read_bytes()[: -20 if shards else None]  # after it, where the chunk is
    plain = (2**32 - 1).to_bytes(4, "little") + bytes(codec.decode(data) if codec else data)[4:]
    data = bytes(codec.encode(plain) if codec else plain)
    if shards:
        place = np.array([0, len(data)], "<u8").tobytes()
        data += place + google_crc32c.value(place).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a chunk of 64 texts says that it has 4,294,967,295"):
        rf.ingest(str(rows), tmp_path / "bad.zarr", label=str(y))


@pytest.mark.filterwarnings("ignore:Combining a")
@pytest.mark.parametrize("how", ["a compressor as filter", "shards within shards", "packed shards"])
def test_arrays_that_are_packed_more_than_once(tmp_path, how):
    x, rows = tmp_path / "x.zarr", np.ones((64, 4))
    inner = ShardingCodec(chunk_shape=(16, 4), codecs=[BytesCodec(), ZstdCodec()])
    codecs = [inner, ZstdCodec()]
    if how == "shards within shards":
        codecs = [ShardingCodec(chunk_shape=(32, 4), codecs=[inner])]
    with warnings.catch_warnings(action="ignore"):
        if how == "a compressor as filter":
            old = {"filters": [numcodecs.Zlib()], "compressor": Zstd(), "zarr_format": 2}
            array = zarr.create(store=x, shape=(64, 4), dtype="f8", chunks=(16, 4), **old)
        else:
            new = {"codecs": codecs, "zarr_format": 3}
            array = zarr.create(store=x, shape=(64, 4), dtype="f8", chunks=(64, 4), **new)
        array[:] = rows
    with pytest.raises(
        DataError, match="packed more than once: write it again with zarr's default codecs"
    ):
        rf.ingest(str(x), tmp_path / "y.zarr")


@pytest.mark.parametrize(
    "how",
    [
        lambda: {"compressors": zarr.codecs.numcodecs.Zstd()},
        lambda: {"filters": zarr.codecs.numcodecs.Delta(dtype="<f8")},
        lambda: {"compressors": [GzipCodec(), ZstdCodec()]},
        lambda: {"shards": {"shape": (32, 4), "index_location": "start"}},
    ],
    ids=["other codec", "filter", "two compressors", "index at the start"],
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
def test_whole_arrays_in_other_codecs_are_read_when_written_again_as_the_message_says(
    tmp_path, how
):
    x, rows = tmp_path / "x.zarr", np.arange(256.0).reshape(64, 4)
    zarr.create_array(x, data=rows, chunks=(16, 4), **how())
    again = (
        r"x\.zarr is not read: .*: write it again (with zarr's default codecs|without shards)\.$"
    )
    with pytest.raises(DataError, match=again):
        rf.ingest(str(x), tmp_path / "y.zarr")
    zarr.create_array(tmp_path / "again.zarr", data=zarr.open_array(x, mode="r")[:])
    found = rf.ingest(str(tmp_path / "again.zarr"), tmp_path / "y.zarr")
    np.testing.assert_array_equal(found.X.compute(), rows)


HUGE = b"\x28\xb5\x2f\xfd\xe0" + (2**50).to_bytes(8, "little") + b"\x01\0\0"  # a frame of zstd


@pytest.mark.parametrize("packed", ["format 2", "format 3", "shards", "labels"])
def test_chunks_of_zarr_that_claim_more_than_a_chunk(tmp_path, packed):
    rows, zstd = np.ones((64, 4)), zarr.codecs.ZstdCodec()
    how = {"zarr_format": 2, "compressors": Zstd()} if packed == "format 2" else {}
    how = {"chunks": (16, 4), "compressors": zstd} | how
    if packed == "shards":
        how["shards"] = (64, 4)
    place = tmp_path / "a.zarr"
    zarr.create_array(place, data=rows, **how)
    y = tmp_path / "y.zarr"
    zarr.create_array(y, data=np.arange(64), chunks=(16,), compressors=zstd)
    rf.ingest(str(place), tmp_path / "good.zarr", label=str(y))
    if packed == "shards":
        path = place / "c" / "0" / "0"
        data = bytearray(path.read_bytes())
        data[: len(HUGE)] = HUGE
    else:
        path = {"format 2": place / "1.0", "format 3": place / "c" / "1" / "0"}.get(packed)
        path, data = path or y / "c" / "1", HUGE
    assert path.exists()
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"says that it has 1,125,899,906,842,624"):
        rf.ingest(str(place), tmp_path / "bad.zarr", label=str(y))
