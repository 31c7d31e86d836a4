"""Credentials of URLs: what is hidden, what stays, and that it holds through whole commands."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import rfcdask as rf
from rfcdask.cli import main
from rfcdask.data import DataError
from rfcdask.data.location import Location
from rfcdask.persist.untrusted import redacted

SECRET = "pa55-w0rd"
SIGNATURE = "5e1f9ab0"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AK:sec@bucket/x", "s3://***@bucket/x"),
        ("s3://AK:se/c+r@bucket/x", "s3://***@bucket/x"),
        ("s3://AK:12/cr@bucket/x", "s3://***@bucket/x"),
        ("s3://AK:12/c@r@bucket", "s3://***@bucket"),
        ("https://me:123/abc@example.org/x.csv", "https://***@example.org/x.csv"),
        ("cannot open http://me:1/a@host:81/x", "cannot open http://***@host:81/x"),
        ("https://u:p@ss@host/x", "https://***@host/x"),
        ("https://token@host/x", "https://***@host/x"),
        ("https://u:p'q\"<r>s@host/x", "https://***@host/x"),
        ("s3://AK:se/c'r@bucket/x", "s3://***@bucket/x"),
        (
            "'https://h/x?token=a'b' and ['http://h?sig=a']",
            "'https://h/x?token=***' and ['http://h?sig=***']",
        ),
        ("in 'ftp://u:p@h/a b' and s3://k:s@b", "in 'ftp://***@h/a b' and s3://***@b"),
        ("https://h/x?X-Amz-Signature=1f&id=3", "https://h/x?X-Amz-Signature=***&id=3"),
        ("https://h/x?id=3&sig=a%2Fb", "https://h/x?id=3&sig=***"),
        ("https://h/x?access_token=a", "https://h/x?access_token=***"),
        (f"https://h/x?alt=media&key=AIza{'x' * 35}", "https://h/x?alt=media&key=***"),
        ("h?key=8a1f3c2e-1b7d-4f0a-9c55-0d2e4b6a7f81. Next", "h?key=***. Next"),
        ("https://h/x?user=me&pass=a", "https://h/x?user=me&pass=***"),
        ("https://h/x?jwt=ey.J0.eX", "https://h/x?jwt=***"),
        ("webhdfs://h/x?op=OPEN&delegation=a", "webhdfs://h/x?op=OPEN&delegation=***"),
        ("https://h/x#access_token=a", "https://h/x#access_token=***"),
        (f"https://h/x?download_key={'x' * 24}", "https://h/x?download_key=***"),
        ("https://h/x?hdnts=exp=1~hmac=a", "https://h/x?hdnts=***"),
        ("a.csv?X-Amz-Credential=a/b is empty", "a.csv?X-Amz-Credential=*** is empty"),
    ],
)
def test_credentials_are_hidden(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted({"a": [text], "b": 1}) == {"a": [shown], "b": 1}


@pytest.mark.parametrize(
    "text",
    [
        "https://h/x?key=folder-with-a-long-name/a.csv",
        "https://h/x?key=a-file-with-a-very-long-name.csv",
        "https://host:8080/a@b.csv",
        "s3://bucket/a:b@c.zarr",
        "http://example.org:8080/me@corp/x.csv",
        "http://localhost:9000/me@corp/x.csv",
        "http://127.0.0.1:9000/me@corp/x.csv",
        "tcp://127.0.0.1:8786",
        "me@example.org",
        "https://h/x?versionId=3&monkey=2",
        "https://h/x?passengers=2&passes=3&sort_key=name",
        "['http://h:8080', 'me@b']",
        "/home/a:b@c/x",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("part", ["://a:b", "token", "s3://a:", "http://a:1/", "?sig=.", "....."])
@pytest.mark.parametrize("end", ["", "@"])
def test_long_words_take_no_time(part: str, end: str) -> None:
    """The time grew as the square of the length: a megabyte took many minutes."""
    shown = redacted(f"of ?sig={part * 200_000}{end} and https://me:{SECRET}@host/x")
    assert shown == "of ?*** and https://***@host/x"
    name = "n" * 100_000
    assert redacted(name) == name


_word = st.text(st.characters(codec="ascii", exclude_characters=" /?#@:&;="), min_size=1)
_clean = _word.filter(lambda word: not any(mark.isspace() or ord(mark) < 32 for mark in word))


@given(user=_clean, password=_clean, host=st.from_regex(r"[a-z]{1,8}(\.[a-z]{2})?", fullmatch=True))
def test_no_password_survives(user: str, password: str, host: str) -> None:
    shown = redacted(f"could not read https://{user}:{password}@{host}/x.csv: no such file")
    assert shown == f"could not read https://***@{host}/x.csv: no such file"
    assert redacted(shown) == shown


def test_errors_and_locations_hide_them() -> None:
    place = Location.of(f"https://me:{SECRET}@h/x.zarr", {"secret": SECRET})
    assert SECRET not in f"{place} {place!r} {DataError(f'{place.url} is bad')}"
    assert SECRET in place.url


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Gives files to who knows the password, and whole sizes for HEAD."""

    def do_GET(self) -> None:
        self._guarded(super().do_GET)

    def do_HEAD(self) -> None:
        self._guarded(super().do_HEAD)

    def _guarded(self, answer: object) -> None:
        wanted = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
        signed = f"X-Amz-Signature={SIGNATURE}" in self.path
        if self.headers.get("Authorization") == wanted or signed:
            answer()  # type: ignore[operator]
        else:
            self.send_error(401)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    X = np.random.default_rng(0).normal(size=(400, 4))
    table = np.column_stack([X, X[:, 0] * X[:, 1] > 0])
    np.savetxt(folder / "a.csv", table, "%.6g", ",", header="a,b,c,d,target", comments="")
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()


def _require_clean(folder: Path, *texts: str) -> None:
    found = [file for file in folder.rglob("*") if file.is_file()]
    assert found
    for secret in (SECRET, SIGNATURE):
        for text in texts:
            assert secret not in text
        for file in found:
            assert secret.encode() not in file.read_bytes(), file


FEW = ["--set", "sizes=8", "--set", "methods=random", "--set", "method=random", "--set", "refine=0"]


def test_through_commands(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"http://me:{SECRET}@{server}/a.csv"
    shown = f"http://***@{server}/a.csv"
    said = []

    def call(*args: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, args)
        assert done.exit_code == code, done.output
        said.append(done.output)
        return done.output

    call("ingest", url, "a.zarr", "--label", "target")
    assert rf.open_dataset("a.zarr").attrs["source"] == [shown]
    call("info", "a.zarr", "--json")
    call("fit", url, "model", "--label", "target", "--method", "none", "--learner", "ridge")
    assert shown in call("info", "model")
    call("run", url, "--label", "target", "--scheduler", "threads", *FEW)
    assert shown in json.loads(Path("rfcdask-run/results.json").read_text())["command"]
    assert "does not exist" in call("ingest", url.replace("a.csv", "b.csv"), "b.zarr", code=2)
    assert "a.csv" in call("fit", url, "m", "--label", "nope", "--debug", code=2)
    _require_clean(tmp_path, *said)


def _fail(*_: object) -> None:
    raise OSError("the disk is gone")


def test_a_run_from_a_signed_url_goes_on(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature is not kept: whoever goes on gives the URL again, signed anew or as it was."""
    monkeypatch.chdir(tmp_path)
    url = f"http://{server}/a.csv?X-Amz-Signature={SIGNATURE}"
    options = ["--label", "target", "--scheduler", "threads", *FEW]
    with monkeypatch.context() as broken:
        broken.setattr("rfcdask.pipeline.run.write_results", _fail)
        first = CliRunner().invoke(main, ["run", url, *options])
    assert first.exit_code == 1, first.output
    alone = CliRunner().invoke(main, ["run", "--resume", "--scheduler", "threads"])
    assert alone.exit_code == 2, alone.output
    assert "give the whole URL again, with --resume" in alone.output
    again = CliRunner().invoke(main, ["run", url + "&X-Amz-Date=2", "--resume", *options])
    assert again.exit_code == 2, again.output  # another query is another address
    done = CliRunner().invoke(main, ["run", url, "--resume", *options])
    assert done.exit_code == 0, done.output
    _require_clean(tmp_path, first.output, alone.output, again.output, done.output)


def test_credentials_in_the_address_of_a_scheduler_are_not_repeated() -> None:
    with pytest.raises(ValueError, match=r"tcp://\*\*\*@127.0.0.1:9 has credentials") as caught:
        rf.connect("tcp://me:hidden@127.0.0.1:9", timeout=1).__enter__()
    assert "hidden" not in str(caught.value)


def _shown(call: Callable[[], object]) -> str:
    """Return the error of a call as a notebook shows it, with all that it came of."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the caller looks at the words
        call()
    return "".join(traceback.format_exception(caught.value))


def test_causes_of_our_errors_do_not_repeat_credentials(tmp_path: Path) -> None:
    """fsspec's own error has the whole URL, and stood above ours."""
    pytest.importorskip("aiohttp")
    urls = [
        f"http://me:{SECRET}@127.0.0.1:9/a.csv",
        f"http://127.0.0.1:9/a.csv?X-Amz-Signature={SECRET}",
    ]
    for url in urls:
        shown = _shown(functools.partial(rf.ingest, url, tmp_path / "a.zarr"))
        assert SECRET not in shown
        assert "cannot be reached" in shown
    shown = _shown(lambda: rf.open_dataset(f"zip://a.zarr::http://me:{SECRET}@127.0.0.1:9/a.zip"))
    assert SECRET not in shown


def test_models_are_no_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders named by the parts of the URL were made, its password among them."""
    monkeypatch.chdir(tmp_path)
    url = f"s3://me:{SECRET}@bucket/model"
    model = rf.RandomFeatures(4).fit(np.eye(3))
    for call in (lambda: rf.load(url), lambda: rf.save(model, url)):
        shown = _shown(call)
        assert "s3://***@bucket/model is a URL" in shown.splitlines()[-1]
        assert SECRET not in shown
    assert not list(tmp_path.iterdir())
