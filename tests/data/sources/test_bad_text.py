"""A fault in a text file is named with its line, and with what was expected there."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from data_helpers import GOOD, refused, svmlight_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.data import DataError
from rfcdask.data.sources.dialect import sniff


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"1 2:3 nonsense", r"line 3: expected index:value, found 'nonsense'"),
        (b"1 2:x", r"line 3: expected a number after the colon, found 'x'"),
        (b"spam 2:1", r"line 3: expected a number as label, found 'spam'"),
        (b"1 3:1 2:1", r"line 3: indices must ascend"),
        (b"2:1 3:1", r"line 3: .*the labels are missing"),
        (b"1 2:nan", r"line 3: column 2 is nan, not a finite number: pass nan='drop'"),
        (b"nan 2:1", r"line 3: the label is nan"),
        (b"1 1:1 2:inf", r"line 3: column 2 is inf"),
    ],
)
def test_a_malformed_svmlight_line_is_named(tmp_path, ending, line, words):
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[ending]
    message = refused(tmp_path, f"a.svm{ending}", pack(GOOD + line + b"\n" + GOOD), words)
    assert f"a.svm{ending}, line 3" in message


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 400), st.integers(30, 400))
def test_the_line_is_right_wherever_the_pieces_are_cut(tmp_path, monkeypatch, before, size):
    from rfcdask.data.sources import svmlight, text

    monkeypatch.setattr(svmlight, "plan_pieces", lambda path, _: text.plan_pieces(path, size))
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 1:1\n" * before + b"1 1:oops\n" + b"1 1:1\n" * 50 + b"bad\n")
    with pytest.raises(DataError, match=rf"line {before + 1}: .*'oops'"):
        rf.ingest(path, tmp_path / "out.zarr")


def test_an_index_beyond_the_columns_is_named(tmp_path):
    text = GOOD + b"1 1:1 9:1\n"
    refused(
        tmp_path,
        "a.svm",
        text,
        r"a\.svm, line 3: '9:1' lies beyond the largest index 3",
        n_columns=3,
    )
    # Counted from 0, the largest index of three columns is 2.
    refused(
        tmp_path,
        "a.svm",
        b"1 0:1\n-1 3:1\n",
        r"line 2: '3:1' lies beyond the largest index 2",
        n_columns=3,
    )
    refused(
        tmp_path, "a.svm", b"1 1:1\n-1 0:1\n", r"line 2: .* pass zero_based=True", zero_based=False
    )


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1,2", r"line 4: expected 3 fields, found 2"),
        ("1,2,0,9", r"line 4: expected 3 fields, found 4"),
        ("1,oops,0", r"line 4: expected a number in column 'b', found 'oops'"),
        ("1,,0", r"line 4: column 'b' is missing or not finite: pass nan='drop'"),
        ("1,nan,0", r"line 4: column 'b' is missing or not finite"),
        ("1,inf,0", r"line 4: column 'b' is missing or not finite"),
        ("1,2,", r"line 4: the label is missing"),
    ],
)
def test_a_bad_csv_line_is_named(tmp_path, ending, line, words):
    text = f"a,b,y\n1,2,0\n3,4,1\n{line}\n5,6,1\n".encode()
    packed = gzip.compress(text) if ending else text
    refused(tmp_path, f"a.csv{ending}", packed, words, nan="raise")


def test_blank_lines_count_as_lines(tmp_path):
    refused(tmp_path, "a.csv", "a,y\n1,0\n\n\n,1\n", r"line 5: column 'a'", nan="raise")


def test_a_csv_without_a_label_lists_its_columns(tmp_path):
    words = r"no column named label, target, class, y: pass label= .*'a', 'b', 'c'"
    refused(tmp_path, "a.csv", "a,b,c\n1,2,3\n4,5,6\n", words)
    refused(
        tmp_path, "a.csv", "a,b\n1,2\n3,4\n", "no column 'z': its columns are 'a', 'b'", label="z"
    )
    refused(tmp_path, "a.csv", "a,b\n1,2\n3,4\n", "no column 7", label=7)
    refused(tmp_path, "a.csv", "a,a,y\n1,2,3\n", "'a' occurs twice")
    refused(tmp_path, "a.csv", "justoneword\nanother\n", "no delimiter was found")


@pytest.mark.parametrize("name", ["a.svm", "a.csv", "a.data"])
def test_an_empty_file_is_named(tmp_path, name):
    refused(tmp_path, name, b"", rf"{name} is empty")
    refused(tmp_path, name, b"\n\n\n", rf"{name} (holds|is empty)")


def test_a_header_without_rows(tmp_path):
    refused(tmp_path, "a.csv", "a,b,y\n", "holds no row below its header")
    refused(tmp_path, "a.svm", "# nothing\n", "holds no row")
    refused(tmp_path, "a.svm", "1\n-1\n", "labels only, no index:value pair")


def test_a_packed_file_that_is_cut_short(tmp_path):
    whole = gzip.compress(svmlight_text(np.random.default_rng(0).random((5000, 4)), [0, 1] * 2500))
    refused(tmp_path, "a.svm.gz", whole[: len(whole) // 2], "cut short or damaged")


def test_faults_are_named_through_a_cluster_too(tmp_path, cluster):
    (tmp_path / "a.svm").write_bytes(GOOD * 100 + b"1 1:oops\n")
    with pytest.raises(DataError, match=r"a\.svm, line 201: .*'oops'"):
        rf.ingest(tmp_path / "a.svm", tmp_path / "out.zarr", client=cluster)
    X = np.ones((50, 2))
    X[33, 1] = np.inf
    with pytest.raises(DataError, match="row 33: column 1 is inf"):
        rf.ingest(
            da.from_array(X, chunks=(7, 2)), tmp_path / "b.zarr", block_size=160, client=cluster
        )


def test_svmlight_has_its_label_first(tmp_path):
    refused(tmp_path, "a.svm", GOOD, "label='y': svmlight lines begin with their label", label="y")


@pytest.mark.parametrize(("ending", "pack"), [("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_damaged_stream_among_several_is_refused(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    """Python's readers end before it, as if it were no part of the file."""
    path = tmp_path / f"rows.csv.{ending}"
    lines = "".join(f"{i},{i % 2}\n" for i in range(20)).encode()
    first, second = pack(b"a,label\n" + lines), pack(lines)
    for whole in (first + second, first + second + bytes(8), first + bytes(8) + second):
        path.write_bytes(whole)
        assert rf.ingest(path, tmp_path / "a.zarr", overwrite=True).shape == (40, 1)
    changed = bytearray(first + second)
    changed[len(first) + 1] ^= 1
    for damaged in (bytes(changed), first + second[:-3], first + b"more", first[:-3]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="compressed file is cut short or damaged"):
            rf.ingest(path, tmp_path / "b.zarr")


@pytest.mark.parametrize("column", ["label", "text"])
def test_lines_within_quotes_are_whole_wherever_blocks_end(tmp_path, monkeypatch, column):
    """Of pyarrow's blocks, one that begins with LF after a CR lost it, also within quotes."""
    texts = ["one\r\ntwo", "a\nb", "c\rd", "\r\n\r\n", "e"] * 4
    rows = [f'{i},"{text}",{i % 2}' for i, text in enumerate(texts)]
    (tmp_path / "a.csv").write_bytes("\n".join(["n,text,y", *rows]).encode())
    for size in range(40, 56):
        monkeypatch.setattr("rfcdask.data.sources.csv.BLOCK_BYTES", size)
        place = tmp_path / f"{size}.zarr"
        if column == "label":
            found = rf.ingest(tmp_path / "a.csv", place, label="text", columns=["n"])
            assert found.y.compute().tolist() == texts
        else:
            found = rf.ingest(tmp_path / "a.csv", place, label="y", columns={"n": "drop"})
            known = {text.strip() for text in texts} - {""}
            assert {name.removeprefix("text=") for name in found.columns} == {
                *known,
                "text missing",
            }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,y", "holds no row below its header"),
        ("a,b,y\n1,2,0\n3, NA,1\n5,6,1\n", "line 3: expected a number in column 'b', found ' NA'"),
        ("\ufeff1,2,0\n3,x,1\n", "line 2: expected a number in column '1', found 'x'"),
        ("\u00a0\na,b,y\nu,v,k\nw,v,l\n", "line 1: column 0 has no name"),
        (
            "a,b,y\n" + "1,2,0\n" * 30 + '1,"2,0\n' + "3,4,1\n" * 900_000,
            "a quote that is never closed",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_said_in_our_words(tmp_path, text, words):
    """pyarrow's words named no line, a short header was too long, or the names became a row."""
    refused(tmp_path, "a.csv", text.encode(), words, label=2)


@pytest.mark.parametrize("number", ["\u00a02", '"2\n"'])
def test_numbers_with_other_blanks_around_them(tmp_path, number):
    (tmp_path / "a.csv").write_text(f"a,b,y\n1,{number},0\n3,4,1\n")
    found = rf.ingest(tmp_path / "a.csv", tmp_path / "a.zarr")
    assert found.columns == ["a", "b"]
    np.testing.assert_array_equal(found.X.compute(), [[-1, -1], [1, 1]])


def test_a_table_is_known_by_its_header_alone(tmp_path):
    """Where a text is too long for Python's reader, or the header comes after blank lines."""
    (tmp_path / "a.csv").write_text(f"a,b,y\n1,{'x' * 140_000},0\n3,x,1\n")
    long = rf.ingest(tmp_path / "a.csv", tmp_path / "a.zarr", columns=["a"])
    assert long.X.compute().tolist() == [[1], [3]]
    assert sniff(_wide(tmp_path / "b.csv"))[1][-1] == "column39999"


def _wide(path: Path) -> str:
    path.write_text("\n" + ",".join(f"column{i}" for i in range(40_000)) + f"\n{'1,' * 39_999}1\n")
    return str(path)
