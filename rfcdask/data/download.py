"""Downloads that go on where they stopped."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from rfcdask.data.errors import DataError, missing_extra
from rfcdask.execution.progress import track
from rfcdask.persist.untrusted import read_json, shown_cause

ATTEMPTS = 5
PIECE_BYTES = 2**14
"""What is lost at most when a connection breaks."""
TIMEOUT = 60


def pooch_or_error() -> Any:
    """Return pooch, or say how it is installed."""
    try:
        import pooch
    except ImportError:
        raise missing_extra("pooch", "fetch", "Downloading data sets") from None
    return pooch


def download(
    url: str, name: str, folder: Path, sha256: str | None = None, progress: Any = None
) -> Path:
    """Return a file from the cache, downloading it unless it is there with the right checksum."""
    pooch = pooch_or_error()
    known = None if sha256 is None else f"sha256:{sha256}"
    fetcher = ResumingDownloader(folder / f"{name}.part", progress)
    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(pooch.retrieve(url, known, fname=name, path=folder, downloader=fetcher))
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{url} does not have the checksum of its recipe: try again, or pass source= with a "
            f"file you trust ({error})."
        ) from shown_cause(error)


class ResumingDownloader:
    """A downloader for pooch that keeps what it has and asks the server for the rest.

    The bytes received so far are kept in `part`; beside it lies what the server said of the file,
    so that a file that changed meanwhile is downloaded anew.
    """

    def __init__(self, part: Path, progress: Any = None) -> None:
        self.part = part
        self.note = part.with_name(part.name + ".json")
        self.progress = progress

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        """Download `url` and put it where pooch wants it."""
        import requests

        self.part.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(ATTEMPTS):
            try:
                if self._receive(url):
                    break
            except (requests.ConnectionError, requests.Timeout, OSError) as error:
                if attempt == ATTEMPTS - 1:
                    raise self._gave_up(url, error) from shown_cause(error)
        else:
            raise self._gave_up(url, None)
        self.part.replace(output_file)
        self.note.unlink(missing_ok=True)

    def _have(self) -> int:
        """Return how many bytes are here."""
        return self.part.stat().st_size if self.part.exists() else 0

    def _gave_up(self, url: str, error: Exception | None) -> DataError:
        reason = "" if error is None else f" ({error})"
        return DataError(
            f"downloading {url} failed after {self._have():,} bytes{reason}: run the same call "
            "again to go on from there, or pass source= with a file you have."
        )

    def _receive(self, url: str) -> bool:
        """Ask for what is missing; whether the file is whole afterwards."""
        import requests

        have = self._have()
        with requests.get(url, headers=self._headers(have), stream=True, timeout=TIMEOUT) as reply:
            if reply.status_code == 416:  # what is here does not belong to what is there
                self.part.unlink(missing_ok=True)
                return False
            if reply.status_code >= 400:
                raise DataError(
                    f"{url} answers {reply.status_code} {reply.reason}: pass source= with a file "
                    "you have."
                )
            going_on = reply.status_code == 206
            have = have if going_on else 0
            self._remember(reply.headers)
            length = reply.headers.get("Content-Length")
            total = None if length is None else have + int(length)
            self._save(reply, "ab" if going_on else "wb", have, total)
            return total is None or self.part.stat().st_size == total

    def _headers(self, have: int) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        # Where it is not known what the server called the file, the download begins anew.
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            if have:
                # The server sends the whole file instead when it is no longer the same.
                mark = str(read_json(self.note)["mark"])
                headers |= {"Range": f"bytes={have}-", "If-Range": mark}
        return headers

    def _remember(self, headers: Any) -> None:
        mark = headers.get("ETag") or headers.get("Last-Modified")
        if mark:
            self.note.write_text(json.dumps({"mark": mark}))
        else:
            self.note.unlink(missing_ok=True)

    def _save(self, reply: Any, mode: str, have: int, total: int | None) -> None:
        with (
            open(self.part, mode) as file,
            track(f"downloading {self.part.stem}", total, "bytes", progress=self.progress) as bar,
        ):
            bar.advance(have)
            for piece in reply.iter_content(PIECE_BYTES):
                file.write(piece)
                bar.advance(len(piece))
