"""An object store on loopback that speaks S3, behind a proxy that makes trouble on the wire."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable

SLOW_DOWN = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)
NOT_FOUND = b"<Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>"

Fault = Callable[[int, str, str], str | None]
"""Tells by number, method and path of a request what happens to it; None: nothing."""


class Proxy:
    """Passes requests on, one a connection, except for those that `fault` says otherwise of.

    A fault is "throttle" (503 SlowDown), "cut" (the answer ends half way), "hang up" (no answer),
    "late" (a fifth of a second of nothing), "lost" (404) or "denied" (200, and of every object that
    was to be removed that it may not be).
    """

    def __init__(self, port: int) -> None:
        self.upstream = ("127.0.0.1", port)
        self.fault: Fault = lambda number, method, path: None
        self.counts: dict[str, int] = {}
        self._number = 0
        self._guard = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._socket.accept()
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        with client:
            client.settimeout(60)
            head, body = _read_head(client)
            if not head:
                return
            method, path = head.split(b" ", 2)[:2]
            fault = self._next_fault(method.decode(), path.decode())
            if b"100-continue" in head.lower():
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body += _read_exactly(client, _length(head) - len(body))
            if fault == "hang up":
                return
            if fault in ("throttle", "lost", "denied"):
                client.sendall(_answer(fault, method, body))
                return
            if fault == "late":
                time.sleep(0.2)
            answer = self._ask(head, body)
            client.sendall(answer[: _half(answer)] if fault == "cut" else answer)

    def _next_fault(self, method: str, path: str) -> str | None:
        with self._guard:
            self._number += 1
            fault = self.fault(self._number, method, path)
            if fault:
                self.counts[fault] = self.counts.get(fault, 0) + 1
            return fault

    def _ask(self, head: bytes, body: bytes) -> bytes:
        lines = [line for line in head.split(b"\r\n") if line]
        kept = [line for line in lines if not line.lower().startswith((b"connection:", b"expect:"))]
        with socket.create_connection(self.upstream) as server:
            server.sendall(b"\r\n".join([*kept, b"Connection: close", b"", b""]) + body)
            answer = b""
            while part := server.recv(2**16):
                answer += part
        return answer


def _half(answer: bytes) -> int:
    start = answer.index(b"\r\n\r\n") + 4
    return start + (len(answer) - start) // 2


def _answer(fault: str, method: bytes, body: bytes) -> bytes:
    line, text = (b"503 Slow Down", SLOW_DOWN) if fault == "throttle" else (b"404 x", NOT_FOUND)
    if fault == "denied":
        keys = re.findall(rb"<Key>.*?</Key>", body)
        errors = (b"<Error>%b<Code>AccessDenied</Code></Error>" % key for key in keys)
        line, text = b"200 OK", b"<DeleteResult>%b</DeleteResult>" % b"".join(errors)
    head = b"HTTP/1.1 %b\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n"
    head += b"Connection: close\r\n\r\n"
    return head % (line, len(text)) + (b"" if method == b"HEAD" else text)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    read = b""
    while b"\r\n\r\n" not in read:
        part = client.recv(2**16)
        if not part:
            return b"", b""
        read += part
    head, _, body = read.partition(b"\r\n\r\n")
    return head, body


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _read_exactly(client: socket.socket, count: int) -> bytes:
    parts = []
    while count > 0 and (part := client.recv(min(count, 2**20))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def start() -> Proxy:
    """Start the store with one bucket, and let this process use it through the proxy."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").disabled = True
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False).start()
    proxy = Proxy(port)
    os.environ.update(
        AWS_ACCESS_KEY_ID="AKIDFORTESTS",
        AWS_SECRET_ACCESS_KEY="SeCrEt/0123+abc",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL=proxy.url,
    )
    import s3fs

    s3fs.S3FileSystem().mkdir("bucket")
    return proxy
