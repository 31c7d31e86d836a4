"""Stores on S3: the real protocol, spoken to a server on loopback by a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# In its own process: botocore and aiohttp set up loops, sessions and environment for good.
BEGIN = """
import os, sys
from s3_server import start
proxy = start()
import numpy as np
import rfcdask as rf
from rfcdask.data import DataError
X = np.random.default_rng(0).normal(size=(900, 6)).astype("f4")
y = np.arange(900) % 3
URL = "s3://bucket/data.zarr"
def ingest(url=URL, **more):
    return rf.ingest((X, y), url, block_size=12_000, progress=False, **more)
def check(url=URL):
    data = rf.open_dataset(url)
    assert data.X.npartitions == 2, data.X
    np.testing.assert_array_equal(data.X.compute(), X)
    np.testing.assert_array_equal(data.y.compute(), y)
    np.testing.assert_array_equal(data.rows([899, 3, 3]).X, X[[899, 3, 3]])
def only(fault, part, method="GET"):
    proxy.fault = lambda number, m, path: fault if m == method and part in path else None
def raised(call, *args):
    try:
        call(*args)
    except DataError as error:
        return str(error)
    raise AssertionError("nothing was raised")
"""
END = """
print("all good", flush=True)
os._exit(0)
"""


def _run(script: str, cwd: Path | None = None, **environment: str) -> str:
    """Run a script to its end and return what it said, which must not hold the secret."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script + END],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.strip().endswith("all good"), done.stderr[-3000:]
    assert "SeCrEt" not in done.stdout + done.stderr
    return done.stderr


def test_a_store_on_s3_is_written_read_and_sampled() -> None:
    _run("""
ingest()
check()
data = rf.open_dataset(URL)
features = rf.CompressedFeatures(8, n_candidates=100, refine=5, random_state=0).fit(data.X)
local = rf.CompressedFeatures(8, n_candidates=100, refine=5, random_state=0).fit(X)
np.testing.assert_array_equal(features.selected_, local.selected_)
""")


def test_trouble_that_passes_changes_nothing() -> None:
    _run("""
for number, fault in enumerate(("throttle", "hang up", "cut", "late")):
    # A prime, so that it is not the same request of every attempt; throttled ones wait long.
    every = 31 if fault == "throttle" else 13
    proxy.fault = lambda n, method, path: fault if n % every == 0 else None
    ingest(f"s3://bucket/{number}.zarr")
    check(f"s3://bucket/{number}.zarr")
    assert proxy.counts[fault] > 1, proxy.counts
""")


def test_trouble_that_stays_is_said_and_mended() -> None:
    """No shard that could not be read is taken for zeros; an ingest that was cut off goes on."""
    _run(
        """
import s3fs
s3fs.S3FileSystem.retries = 2  # by default five attempts, with longer waits between them
only("hang up", "X/c/1", "PUT")
said = raised(ingest)
assert "call again; what is written so far stays" in said, said
said = raised(rf.open_dataset, URL)
assert "unfinished" in said, said
only(None, "X")
ingest()
check()
data = rf.open_dataset(URL)
for fault in ("throttle", "hang up", "cut"):
    only(fault, "X/c/1")
    said = raised(data.X.compute)
    assert "bucket/data.zarr cannot be reached" in said, said
for key, call in {"X/c/1": data.X.compute, "y/c/1": data.y.compute}.items():
    only("lost", key)  # the object is listed, and not given
    said = raised(call)
    assert "it is missing" in said, said
    raised(data.rows, [899])
only(None, "X")
check()
proxy.fault = lambda number, method, path: "hang up"
said = raised(rf.open_dataset, URL)
assert "bucket/data.zarr cannot be reached" in said, said
""",
        AWS_MAX_ATTEMPTS="1",
    )


def test_one_answer_that_fails_does_not_mix_two_orders_of_rows() -> None:
    """What was begun with a seed of its own is not begun with another one beside its blocks."""
    _run("""
only("lost", "X/c/1", "PUT")
raised(lambda: ingest(shuffle=True))
answers = iter([None, "lost"])  # the first look at what was begun, and the second
mark = ("GET", "/bucket/data.zarr/zarr.json")
proxy.fault = lambda number, *asked: next(answers, None) if asked == mark else None
said = raised(lambda: ingest(shuffle=True))
assert "bucket/data.zarr cannot be reached" in said, said
data = ingest(shuffle=True).X.compute()
np.testing.assert_array_equal(np.sort(data[:, 0]), np.sort(X[:, 0]))
""")


def test_what_may_not_be_removed_is_not_gone_on_with() -> None:
    """S3 says so within a good answer, and s3fs does not repeat it: rows of two sets were mixed."""
    _run("""
import dask.array as da
from rfcdask.linear import write_zarr
only("denied", "delete", "POST")
array, other = (da.from_array(rows, chunks=(300, 6)) for rows in (X, -X))
write_zarr(array, "s3://bucket/array.zarr")
said = raised(lambda: write_zarr(other, "s3://bucket/array.zarr", overwrite=True))
assert "could not be removed: get the right to delete there" in said, said
ingest("s3://bucket/whole.zarr")
only("lost", "X/c/1", "PUT")
raised(ingest)
only("denied", "delete", "POST")
for url in (URL, "s3://bucket/whole.zarr"):
    said = raised(lambda: rf.ingest((-X, y), url, block_size=12_000, overwrite=True))
    assert "could not be removed: get the right to delete there" in said, said
check("s3://bucket/whole.zarr")
only(None, "")
write_zarr(array, "s3://bucket/array.zarr", overwrite=True)
ingest(overwrite=True)
check()
""")


def test_credentials_are_kept_and_shown_nowhere(tmp_path: Path) -> None:
    """As options they reach the server, and neither store nor model nor message repeats them."""
    _run(
        """
from click.testing import CliRunner
from rfcdask.cli import main
url = "s3://AKIDFORTESTS:SeCrEt/0123+abc@bucket/data.zarr"
for call in (ingest, rf.open_dataset):
    try:
        call(url)
    except ValueError as error:
        assert "s3://***@bucket/data.zarr has credentials" in str(error), error
        assert "SeCrEt" not in str(error)
    else:
        raise AssertionError
for command in (["info", url], ["run", url], ["fit", url, "model"], ["ingest", url, "a.zarr"]):
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2, done.output
    assert "AWS_SECRET_ACCESS_KEY" in done.output, done.output
    assert "SeCrEt" not in done.output, done.output
ingest()  # the environment has them, as the message says
check()
secret = os.environ.pop("AWS_SECRET_ACCESS_KEY")
options = {"key": os.environ.pop("AWS_ACCESS_KEY_ID"), "secret": secret}
made = ingest(overwrite=True, storage_options=options)
data = rf.open_dataset(URL, storage_options=options)
np.testing.assert_array_equal(data.X.compute(), X)
for shown in (data, data.reader, data.attrs, made.reader.location, data.X, data.X.dask):
    assert secret not in repr(shown) + str(shown), shown
model = rf.RidgeClassifier().fit(data.X, data.y)
rf.save(model, "model")
import s3fs
fs = s3fs.S3FileSystem(**options)
for path in fs.find("bucket"):
    assert secret.encode() not in fs.cat_file(path), path
for name in os.listdir("model"):
    if os.path.isfile(f"model/{name}"):
        assert secret.encode() not in open(f"model/{name}", "rb").read(), name
proxy.fault = lambda number, method, path: "throttle"
assert secret not in raised(data.X.compute)
""",
        tmp_path,
        AWS_MAX_ATTEMPTS="1",  # of botocore; those of s3fs stay
    )


def test_what_others_wrote_since_a_bucket_was_listed_is_seen() -> None:
    """Listings are kept by the process that asked for them, which may be one of many hours."""
    _run("""
import dask.array as da
from rfcdask.data.location import Location
from rfcdask.linear import write_zarr
fs, _ = Location.of(URL).filesystem()
fs.pipe_file("bucket/other", b"x")
fs.ls("bucket")
stale = dict(fs.dircache._cache)
def forget():
    fs.dircache._cache.clear()
    fs.dircache._cache.update(stale)
ingest()
forget()
assert not fs.exists("bucket/data.zarr")
said = raised(lambda: rf.ingest(X[:300], URL, progress=False))
assert "exists already" in said, said
check()
only("lost", "X/c/1", "PUT")
raised(lambda: ingest("s3://bucket/half.zarr"))
only(None, "X")
forget()
said = raised(lambda: rf.ingest(X[:300], "s3://bucket/half.zarr", progress=False))
assert "unfinished, from another source" in said, said
write_zarr(da.from_array(X), "s3://bucket/array.zarr")
forget()
try:
    write_zarr(da.from_array(X[:300]), "s3://bucket/array.zarr")
except FileExistsError:
    pass
else:
    raise AssertionError
""")


def test_files_that_others_wrote_since_a_bucket_was_listed_are_read() -> None:
    """The listing said that they are not there, or what they were before."""
    _run("""
other = __import__("s3fs").S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
def put(name, value, rows=30):
    text = "a,b\\n" + "".join(f"{value}.5,{row}\\n" for row in range(rows))
    other.pipe_file(f"bucket/parts/{name}.csv", text.encode())
def first_column(**more):
    more |= {"label": False, "overwrite": True, "progress": False}
    return rf.ingest("s3://bucket/parts/*.csv", "memory://parts", **more).X.compute()[:, 0].tolist()
put("a", 1)
assert first_column() == [1.5] * 30
put("b", 2)
assert first_column() == [1.5] * 30 + [2.5] * 30
said = raised(lambda: first_column(check=lambda survey: put("b", 3)))
assert "was changed while it was read" in said, said
assert first_column() == [1.5] * 30 + [3.5] * 30
put("b", 4, rows=50)
assert first_column() == [1.5] * 30 + [4.5] * 50
""")


def test_a_bucket_that_is_a_store_is_never_removed() -> None:
    _run("""
import s3fs
s3fs.S3FileSystem().mkdir("whole")
raised(lambda: rf.ingest(np.full((3, 2), np.nan), "s3://whole", progress=False))
for overwrite in (False, True):
    ingest("s3://whole", overwrite=overwrite)
    check("s3://whole")
""")
