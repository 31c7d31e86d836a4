"""Recipes and downloads, against a real HTTP server on loopback."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from data_helpers import svmlight_text
from scipy import sparse

import rfcdask as rf
from rfcdask.data import DataError, datasets, load_recipe, recipe_names
from rfcdask.data import fetch as fetch_function
from rfcdask.data.download import PIECE_BYTES, download
from rfcdask.data.manifest import content_checksum

# The small files of these tests have no published checksums.
pytestmark = pytest.mark.filterwarnings("ignore:.*is not compared with a published checksum")


class Handler(BaseHTTPRequestHandler):
    """Serves bytes with ranges and entity tags, and can break off in the middle."""

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range")))
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        tag = '"' + hashlib.sha256(content).hexdigest()[:16] + '"'
        start = 0
        asked = self.headers.get("Range")
        if asked and server.ranges and self.headers.get("If-Range") in (None, tag):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", tag)
        self.end_headers()
        stop = len(content)
        if server.break_after:
            stop = min(stop, start + server.break_after.pop(0))
        self.wfile.write(content[start:stop])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.requests, running.break_after = {}, [], []
        running.ranges = True
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        running.url = f"http://127.0.0.1:{running.server_address[1]}"
        yield running
        running.shutdown()
        thread.join()


CONTENT = np.random.default_rng(0).bytes(1_500_000)


def test_a_download_is_cached(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    path = download(f"{server.url}/a.bin", "a.bin", tmp_path)
    assert path.read_bytes() == CONTENT
    download(f"{server.url}/a.bin", "a.bin", tmp_path)
    assert len(server.requests) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on(server, tmp_path, ranges):
    server.files["/a.bin"] = CONTENT
    server.break_after = [600_000, 300_000]
    server.ranges = ranges
    path = download(f"{server.url}/a.bin", "a.bin", tmp_path)
    assert path.read_bytes() == CONTENT
    asked = [wanted for _, wanted in server.requests]
    assert asked[0] is None
    assert all(wanted is not None for wanted in asked[1:])
    if ranges:
        first, second = (int(wanted.strip("bytes=-")) for wanted in asked[1:])
        assert 600_000 - PIECE_BYTES < first <= 600_000
        assert 300_000 - PIECE_BYTES < second - first <= 300_000


def test_a_download_goes_on_in_another_process(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    server.break_after = [200_000] * 5
    with pytest.raises(
        DataError, match=r"failed after 9\d\d,\d\d\d bytes.*run the same call again"
    ):
        download(f"{server.url}/a.bin", "a.bin", tmp_path)
    server.requests.clear()
    assert download(f"{server.url}/a.bin", "a.bin", tmp_path).read_bytes() == CONTENT
    (asked,) = [int(wanted.strip("bytes=-")) for _, wanted in server.requests]
    assert 1_000_000 - 5 * PIECE_BYTES < asked <= 1_000_000


def test_a_file_that_changed_meanwhile_is_downloaded_anew(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    server.break_after = [200_000] * 5
    with pytest.raises(DataError, match="failed after"):
        download(f"{server.url}/a.bin", "a.bin", tmp_path)
    server.files["/a.bin"] = other = CONTENT[::-1]
    assert download(f"{server.url}/a.bin", "a.bin", tmp_path).read_bytes() == other
    # What is left of a longer file does not belong to a shorter one.
    server.files["/b.bin"] = CONTENT
    server.break_after = [300_000] * 5
    with pytest.raises(DataError, match="failed after"):
        download(f"{server.url}/b.bin", "b.bin", tmp_path)
    server.files["/b.bin"] = CONTENT[:1000]
    assert download(f"{server.url}/b.bin", "b.bin", tmp_path).read_bytes() == CONTENT[:1000]


def test_checksums_and_absent_files(server, tmp_path):
    server.files["/a.bin"] = CONTENT
    right = hashlib.sha256(CONTENT).hexdigest()
    assert download(f"{server.url}/a.bin", "a.bin", tmp_path, right).exists()
    with pytest.raises(DataError, match="does not have the checksum of its recipe"):
        download(f"{server.url}/a.bin", "b.bin", tmp_path, "0" * 64)
    assert not (tmp_path / "b.bin").exists()
    with pytest.raises(DataError, match=r"answers 404 .*: pass source="):
        download(f"{server.url}/nothing", "c.bin", tmp_path)


def test_a_server_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="failed after 0 bytes"):
        download("http://127.0.0.1:9/a", "a", tmp_path)


def test_every_recipe_is_whole():
    names = ["adult", "covtype", "criteo", "higgs", "human", "mnist", "sensorless"]
    assert recipe_names() == names
    for name in names:
        recipe = load_recipe(name)
        assert recipe.columns > 0
        assert len(recipe.classes) > 1
        assert recipe.preparation
        assert recipe.home.startswith("https://")
        for part in recipe.parts.values():
            assert all(url.startswith("https://") for url in part.urls)
            assert part.rows > 0
    assert sum(p.rows for p in load_recipe("criteo").parts.values()) == 51_882_752
    for name, wanted in (("adult", 48_842), ("mnist", 70_000), ("human", 10_299)):
        recipe = load_recipe(name)
        assert sum(p.rows for p in recipe.chosen("all")) == wanted == recipe.paper["rows"]
    with pytest.raises(DataError, match="no recipe 'iris': choose one of adult"):
        load_recipe("iris")
    with pytest.raises(DataError, match="no part 'middle': choose one of train, test, all"):
        load_recipe("adult").chosen("middle")


def small(monkeypatch, name: str, url: str, rows: dict[str, int], sha256=None, **changes):
    """Make the recipe of that name point to loopback, for fewer rows."""
    recipe = load_recipe(name)
    parts = {
        key: dataclasses.replace(
            part,
            urls=tuple(f"{url}/{file}" for file in part.files),
            rows=rows[key],
            sha256=(sha256,),
            content=None,
        )
        for key, part in recipe.parts.items()
    }
    changed = dataclasses.replace(recipe, parts=parts, **changes)
    monkeypatch.setattr(datasets, "load_recipe", lambda asked: changed)
    return changed


def test_fetch_downloads_ingests_and_verifies(server, tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    X = (draw.random((300, 123)) < 0.1).astype(int)
    y = np.where(np.arange(300) % 3 == 0, 1, -1)
    server.files["/a9a"] = svmlight_text(X[:200], y[:200])
    server.files["/a9a.t"] = svmlight_text(X[200:], y[200:])
    small(monkeypatch, "adult", server.url, {"train": 200, "test": 100})
    cache = tmp_path / "cache"
    ds = rf.fetch("adult", tmp_path / "all.zarr", cache=cache)
    assert ds.X.dtype == np.uint8
    assert np.array_equal(ds.X.compute(), X)
    assert np.array_equal(ds.y.compute(), y)
    test = rf.fetch("adult", tmp_path / "test.zarr", part="test", cache=cache)
    assert np.array_equal(test.X.compute(), X[200:])
    assert len(server.requests) == 2
    # What is there and fits is opened as it is.
    server.files.clear()
    assert np.array_equal(
        rf.fetch("adult", tmp_path / "test.zarr", part="test").X.compute(), X[200:]
    )
    with pytest.raises(DataError, match=r"not adult \(train\): it has 100 rows instead of 200"):
        rf.fetch("adult", tmp_path / "test.zarr", part="train")


def test_a_wrong_file_fails_naming_the_difference(server, tmp_path, monkeypatch):
    small(monkeypatch, "adult", server.url, {"train": 200, "test": 100})
    X, y = np.eye(150, 123, dtype=int), np.arange(150) % 3
    (tmp_path / "a9a").write_bytes(svmlight_text(X, y))
    words = r"150 rows instead of 200 and classes \[0, 1, 2\] instead of \[-1, 1\]"
    with pytest.raises(DataError, match=words):
        rf.fetch("adult", tmp_path / "a.zarr", source=tmp_path / "a9a", cache=tmp_path)
    assert not (tmp_path / "a.zarr").exists()
    (tmp_path / "a9a").write_bytes(svmlight_text(np.eye(200, 140, dtype=int), np.arange(200) % 2))
    with pytest.raises(
        DataError, match=r"a9a, line 124: '124:1' lies beyond the largest index 123"
    ):
        rf.fetch("adult", tmp_path / "a.zarr", source=tmp_path / "a9a", cache=tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        rf.fetch("adult", tmp_path / "a.zarr", source=tmp_path / "no", cache=tmp_path)


def test_the_name_of_a_file_says_which_part_it_is(server, tmp_path, monkeypatch):
    small(monkeypatch, "mnist", server.url, {"train": 60, "test": 40})
    draw = np.random.default_rng(0)
    X, y = draw.integers(0, 256, (40, 780)), np.arange(40) % 10
    (tmp_path / "mnist.t.bz2").write_bytes(bz2.compress(svmlight_text(X, y)))
    ds = rf.fetch("mnist", tmp_path / "a.zarr", source=tmp_path / "mnist.t.bz2", cache=tmp_path)
    assert ds.X.dtype == np.float32
    np.testing.assert_allclose(ds.X.compute(), X / 255, rtol=1e-6)


def test_members_of_archives(server, tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    X, y = draw.uniform(-1, 1, (90, 561)), np.arange(90) % 6 + 1
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for part, span in (("train", slice(0, 60)), ("test", slice(60, 90))):
            rows = "\n".join("  " + " ".join(f"{v: .17e}" for v in row) for row in X[span])
            archive.writestr(f"UCI HAR Dataset/{part}/X_{part}.txt", rows)
            archive.writestr(f"UCI HAR Dataset/{part}/y_{part}.txt", "\n".join(map(str, y[span])))
    server.files["/UCI-HAR-Dataset.zip"] = packed.getvalue()
    small(monkeypatch, "human", server.url, {"train": 60, "test": 30})
    ds = rf.fetch("human", tmp_path / "a.zarr", cache=tmp_path)
    assert np.array_equal(ds.X.compute(), X)
    assert np.array_equal(ds.y.compute(), y)
    assert len(server.requests) == 1


def test_a_tar_of_sparse_text_is_projected(server, tmp_path, monkeypatch):
    from scipy import sparse

    X = sparse.random(50, 10**6, density=39e-6, random_state=np.random.default_rng(0), format="csr")
    lines = []
    for i in range(50):
        row = X[i]
        pairs = " ".join(
            f"{j + 1}:{v!r}" for j, v in zip(row.indices, row.data.tolist(), strict=True)
        )
        lines.append(f"{i % 2} {pairs}")
    text = ("\n".join(lines) + "\n").encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for name in ("train", "test"):
            info = tarfile.TarInfo(f"criteo.kaggle2014.svm/{name}.txt.svm")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    server.files["/criteo.kaggle2014.svm.tar.xz"] = packed.getvalue()
    small(monkeypatch, "criteo", server.url, {"train": 50, "test": 50})
    ds = rf.fetch("criteo", tmp_path / "a.zarr", cache=tmp_path)
    assert ds.X.shape == (50, 250)
    np.testing.assert_allclose(ds.X.compute(), ds.projection.transform(X), rtol=1e-5, atol=1e-6)
    assert rf.fetch("criteo", tmp_path / "a.zarr", cache=tmp_path).shape == (50, 250)
    unlabelled = rf.fetch("criteo", tmp_path / "b.zarr", part="test", cache=tmp_path)
    assert unlabelled.y is None


def test_csv_without_header_by_recipe(server, tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    X, y = draw.integers(-50, 7000, (80, 54)), np.arange(80) % 7 + 1
    rows = "".join(
        ",".join(map(str, [*row, label])) + "\n" for row, label in zip(X, y, strict=True)
    )
    server.files["/covtype.data.gz"] = gzip.compress(rows.encode())
    small(monkeypatch, "covtype", server.url, {"all": 80})
    ds = rf.fetch("covtype", tmp_path / "a.zarr", cache=tmp_path, block_size=3000)
    assert ds.attrs["shuffled"]
    got = ds.X.compute()
    assert got.dtype == np.int16
    assert sorted(map(tuple, got.tolist())) == sorted(map(tuple, X.tolist()))


@pytest.mark.parametrize("name", ["a9a", "mnist"])
def test_real_data_from_libsvm_text_pass_their_recipes(shared_data, tmp_path, name):
    with np.load(shared_data / "datasets" / f"{name}.npz") as data:
        X, y = data["X_train"], data["y_train"].astype(int)
    columns = {"a9a": 123, "mnist": 780}[name]
    recipe = {"a9a": "adult", "mnist": "mnist"}[name]
    labels = 2 * y - 1 if name == "a9a" else y
    # scikit-learn writes the text; the test must not read what it wrote by itself.
    from sklearn.datasets import dump_svmlight_file

    path = tmp_path / name
    rows = sparse.csr_matrix(X[:, :columns]).astype(np.int64)
    dump_svmlight_file(rows, labels, str(path), zero_based=False)
    ds = rf.fetch(recipe, tmp_path / "a.zarr", source=path, cache=tmp_path)
    assert ds.shape == (len(X), columns)
    assert np.array_equal(ds.y.compute(), labels)
    factor = np.float32(ds.attrs["scale"] or 1)
    stored = ds.X.compute()
    assert np.array_equal(stored, X[:, :columns] * factor if name == "mnist" else X[:, :columns])
    # Two swapped labels are other rows, though as many.
    swapped = labels.copy()
    places = [np.flatnonzero(labels == value)[0] for value in np.unique(labels)[:2]]
    swapped[places] = swapped[places[::-1]]
    dump_svmlight_file(rows, swapped, str(path), zero_based=False)
    with pytest.raises(DataError, match="the rows are not those of"):
        rf.fetch(recipe, tmp_path / "c.zarr", source=path, cache=tmp_path)
    # One row less is another file.
    text = path.read_bytes()
    path.write_bytes(text[: text.rstrip(b"\n").rindex(b"\n") + 1])
    with pytest.raises(DataError, match=f"{len(X) - 1:,} rows instead of {len(X):,}"):
        rf.fetch(recipe, tmp_path / "b.zarr", source=path, cache=tmp_path)


def test_recipes_lie_where_an_installed_package_has_them(tmp_path, monkeypatch):
    assert fetch_function is rf.fetch
    folder = datasets.recipe_folder()
    assert (folder / "adult.toml").exists()


@pytest.mark.parametrize("text", ["", "parts = 3", "[" * 10**5, "[parts.a]\nurls = 1", "\x00"])
def test_a_damaged_recipe_is_named(tmp_path, monkeypatch, text):
    monkeypatch.setattr(datasets, "recipe_folder", lambda: tmp_path)
    (tmp_path / "adult.toml").write_text(text)
    with pytest.raises(DataError, match=r"adult\.toml is no recipe"):
        load_recipe("adult")


_STRANGE = ['member = "../../x"', 'label_member = "/etc/x"', 'files = ["../x"]', "files = []"]
_OPTIONS = ["[ingest]\nprogress = 3", "[ingest]\nfoo = 1"]


@pytest.mark.parametrize("line", [*_STRANGE, 'rows = "many"', "rows = 0", *_OPTIONS])
def test_a_recipe_that_leads_out_of_the_cache_or_cannot_be(tmp_path, monkeypatch, line):
    """A member of an archive was written wherever its name led."""
    monkeypatch.setattr(datasets, "recipe_folder", lambda: tmp_path)
    head = 'title = "t"\nhome = "h"\nformat = "csv"\ncolumns = 3\nclasses = [0, 1]\n'
    head += 'preparation = ""\n[parts.all]\nurls = ["https://example.org/a.zip"]\n'
    known = "" if line.startswith("rows") else "rows = 5\n"
    (tmp_path / "adult.toml").write_text(f"{head}{known}{line}\n")
    with pytest.raises(DataError, match=r"adult\.toml is no recipe .*(leads out|there are|is no)"):
        load_recipe("adult")


def test_a_checksum_of_rows_is_of_what_they_say():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 9, (50, 4)), rng.integers(0, 3, 50)
    known = content_checksum([(X, y)])
    order = rng.permutation(50)
    assert content_checksum([(X[order].astype(np.float32), y[order].astype(np.int8))]) == known
    parts = [content_checksum([(X[:20], y[:20])]), content_checksum([(X[20:], y[20:])])]
    assert sum(parts) % 2**64 == known == content_checksum([(X[:20], y[:20]), (X[20:], y[20:])])
    assert content_checksum([(sparse.csr_matrix(X), y)]) == known
    assert content_checksum([(X * np.float32(1 / 9), y)], scale=1 / 9) == known
    for other in (X[:, ::-1], X + (np.arange(50) == 7)[:, None], X[np.r_[0, 0, 2:50]]):
        assert content_checksum([(other, y)]) != known


def higgs_text(labels) -> bytes:
    """As UCI's file has them: the label first, everything as a float of 19 digits."""
    rows = np.column_stack([labels, np.random.default_rng(0).normal(size=(len(labels), 28))])
    return "".join(",".join(f"{v:.18e}" for v in row) + "\n" for row in rows).encode()


@pytest.mark.filterwarnings("error:.*is not compared")
def test_a_file_is_compared_with_the_checksum_of_its_recipe(server, tmp_path, monkeypatch):
    labels = np.arange(60) % 2
    packed = gzip.compress(higgs_text(labels))
    known = hashlib.sha256(packed).hexdigest()
    small(monkeypatch, "higgs", server.url, {"all": 60}, known)
    server.files["/HIGGS.csv.gz"] = packed
    ds = rf.fetch("higgs", tmp_path / "a.zarr", cache=tmp_path / "cache")  # and no warning
    assert np.array_equal(ds.y.compute(), labels)
    assert ds.shape == (60, 28)
    mine = tmp_path / "HIGGS.csv.gz"
    mine.write_bytes(packed)
    rf.fetch("higgs", tmp_path / "b.zarr", source=mine, cache=tmp_path)
    mine.write_bytes(gzip.compress(higgs_text(1 - labels)))
    with pytest.raises(DataError, match=f"is not HIGGS.csv.gz of https.*and not {known}; get it"):
        rf.fetch("higgs", tmp_path / "c.zarr", source=mine, cache=tmp_path)
    assert not (tmp_path / "c.zarr").exists()
    plain = tmp_path / "HIGGS.csv"
    plain.write_bytes(higgs_text(1 - labels))  # of which no checksum is known
    with pytest.warns(UserWarning, match=r"higgs \(all\) is not compared .*HIGGS\.csv only rows"):
        rf.fetch("higgs", tmp_path / "c.zarr", source=plain, cache=tmp_path)
    server.files.clear()
    wanted = rf"higgs needs HIGGS\.csv\.gz \(SHA-256 {known}\) of https://archive\.ics.*404"
    with pytest.raises(DataError, match=wanted):
        rf.fetch("higgs", tmp_path / "d.zarr", cache=tmp_path / "other")


def test_what_the_list_says_is_verified():
    found = {name: load_recipe(name).verified for name in recipe_names()}
    nothing = {"criteo": "nothing", "sensorless": "nothing"}
    rows = dict.fromkeys(("adult", "covtype", "mnist"), "rows")
    assert found == nothing | rows | {"higgs": "file", "human": "file"}


def test_data_that_cannot_be_downloaded_are_asked_for(server, tmp_path, monkeypatch):
    small(monkeypatch, "adult", server.url, {"train": 3, "test": 3})
    wanted = r"adult needs a9a of https://www\.csie.*answers 404.*pass source="
    with pytest.raises(DataError, match=wanted):
        rf.fetch("adult", tmp_path / "a.zarr", part="train", cache=tmp_path)


def test_a_store_of_other_rows_is_not_kept(server, tmp_path, monkeypatch):
    """The same call again opened it, without a word."""
    X, y = np.eye(60, 123, dtype=int), np.where(np.arange(60) % 3 == 0, 1, -1)
    recipe = small(monkeypatch, "adult", server.url, {"train": 60, "test": 60})
    known = f"{content_checksum([(X, y)]):016x}"
    parts = {key: dataclasses.replace(p, content=known) for key, p in recipe.parts.items()}
    changed = dataclasses.replace(recipe, parts=parts)
    monkeypatch.setattr(datasets, "load_recipe", lambda asked: changed)
    for rows, good in ((X[:, ::-1], False), (X[:, ::-1], False), (X, True)):
        (tmp_path / "a9a").write_bytes(svmlight_text(rows, y))
        if good:
            rf.fetch("adult", tmp_path / "a.zarr", source=tmp_path / "a9a", cache=tmp_path)
            continue
        with pytest.raises(DataError, match=r"the rows are not those of adult .*was removed"):
            rf.fetch("adult", tmp_path / "a.zarr", source=tmp_path / "a9a", cache=tmp_path)
        assert not (tmp_path / "a.zarr").exists()
    monkeypatch.setattr(datasets, "content_checksum", out_of_reach)
    with pytest.raises(DataError, match="out of reach"):
        rf.fetch("adult", tmp_path / "b.zarr", source=tmp_path / "a9a", cache=tmp_path)
    assert rf.open_dataset(tmp_path / "b.zarr").shape == (60, 123)


def out_of_reach(*_given):
    raise DataError("out of reach")


LABELS = "UCI HAR Dataset/train/y_train.txt"


def tar_with_a_header(kind: bytes) -> bytes:
    """Return an archive whose first header says that it goes on for a gigabyte."""
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = kind, 2**30
    return head.tobuf(tarfile.GNU_FORMAT) + bytes(2**20)


def sparse_tar() -> bytes:
    """Return an archive of a member that is nearly all holes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        head = tarfile.TarInfo(LABELS)
        head.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        head.pax_headers |= {"GNU.sparse.name": LABELS, "GNU.sparse.realsize": str(2**28 + 1)}
        head.size = 512
        tar.addfile(head, io.BytesIO(b"0\n".ljust(512, b"\0")))
    return made.getvalue()


def zip_of(method: int) -> bytes:
    """Return an archive of labels that are packed in one way."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr(LABELS, "\n" * 2**10)
    return made.getvalue()


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (bz2.compress(tar_with_a_header(tarfile.XHDTYPE)), "a header in it has 1,073,741,824"),
        (tar_with_a_header(tarfile.GNUTYPE_LONGNAME), "a header in it has 1,073,741,824 bytes"),
        (sparse_tar(), "it holds sparse files"),
        (zip_of(zipfile.ZIP_BZIP2), "is not packed by deflate"),
        (zip_of(zipfile.ZIP_LZMA), "is not packed by deflate"),
    ],
)
def test_archives_that_unpack_without_bound_are_refused(tmp_path, archive, words):
    path = tmp_path / "given"
    path.write_bytes(archive)
    options = {"part": "train", "source": path, "cache": tmp_path / "cache", "progress": False}
    with pytest.raises(DataError, match=f"given is no archive, .*{words}"):
        rf.fetch("human", tmp_path / "a.zarr", **options)
    assert not any(found.is_file() for found in tmp_path.glob("cache/**/*"))


def test_a_huge_text_of_numbers_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "_TEXT_BYTES", 1000)
    path = tmp_path / "given"
    path.write_bytes(zip_of(zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(LABELS.replace("y_train", "X_train"), "1 2\n" * 1000)
    options = {"part": "train", "source": path, "cache": tmp_path / "cache", "progress": False}
    with pytest.raises(DataError, match="it has 4,000 bytes, and at most 1,000 are read"):
        rf.fetch("human", tmp_path / "a.zarr", **options)
