"""Files behind web servers: in pieces, and those of servers that give no size or no parts."""

from __future__ import annotations

import gzip
import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import pytest

import rfcdask as rf
from rfcdask.data.errors import DataError, UnreachableError
from rfcdask.data.sources import svmlight

TABLE = pd.DataFrame({"a": np.arange(3_000) / 8, "y": np.arange(3_000) % 2})


def _files() -> dict[str, bytes]:
    parquet = io.BytesIO()
    TABLE.to_parquet(parquet)
    lines = [f"{y} 1:{a}" for a, y in TABLE.itertuples(index=False)]
    text = TABLE.to_csv(index=False).encode()
    return {
        "a.svm": "\n".join(lines).encode(),
        "a.csv": text,
        "a.csv.gz": gzip.compress(text),
        "a.parquet": parquet.getvalue(),
    }


FILES = _files()


class Handler(BaseHTTPRequestHandler):
    """Serves `/parts/a.csv` by ranges, `/whole/a.csv` as one, and `/unsized/a.csv` in chunks.

    `/cut/a.csv` are ranges of which one byte is missing when the connection ends.
    """

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._answer(b"")

    def do_GET(self):
        self._answer(None)

    def _answer(self, body):
        _, way, name = self.path.split("/")
        data = FILES[name]
        wanted = self.headers.get("Range")
        if way in ("parts", "cut") and wanted and body is None:
            first, last = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
            body = data[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.send_header("Content-Length", str(len(body)))
            if way == "cut":
                body, self.close_connection = body[:-1], True
        else:
            self.send_response(200)
            if way == "unsized":
                self.send_header("Connection", "close")
                self.close_connection = True
            else:
                self.send_header("Content-Length", str(len(data)))
            body = data if body is None else body
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:  # the reader has seen enough
            self.close_connection = True

    def log_message(self, *args):
        """Keep the test's output clean."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.handle_error = lambda *args: None  # readers that hang up
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Cut pieces as if files were large, both ours and those that fsspec asks for."""
    monkeypatch.setattr(svmlight, "PIECE_BYTES", 2**12)
    monkeypatch.setattr("fsspec.implementations.http.HTTPFileSystem._open", _in_small_parts())


def _in_small_parts():
    from fsspec.implementations.http import HTTPFileSystem

    whole = HTTPFileSystem._open
    return lambda self, *args, **given: whole(self, *args, **given | {"block_size": 2**12})


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_in_parts(server, tmp_path, name):
    """Lines of svmlight text go over the ends of pieces, and the last one has no end."""
    found = rf.ingest(f"{server}/parts/{name}", tmp_path / "a.zarr")
    np.testing.assert_array_equal(found.X.compute()[:, 0], TABLE["a"])
    np.testing.assert_array_equal(found.y.compute(), TABLE["y"])


@pytest.mark.parametrize(
    ("name", "way", "why"),
    [
        *((name, "unsized", "size") for name in FILES),
        *((name, "whole", "only as a whole") for name in ("a.svm", "a.parquet")),
    ],
)
def test_servers_that_give_no_parts_or_no_size_are_named(server, tmp_path, name, way, why):
    with pytest.raises(DataError, match=f"{why}: copy") as caught:
        rf.ingest(f"{server}/{way}/{name}", tmp_path / "a.zarr")
    assert "damaged" not in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_not_called_damaged_where_the_connection_broke(server, tmp_path, name):
    """What it said was to get the file again."""
    with pytest.raises(UnreachableError, match=r"cannot be reached \(.*: see to the network"):
        rf.ingest(f"{server}/cut/{name}", tmp_path / "a.zarr")
