"""A server of models on loopback, which misbehaves in every way that it is told to."""

import hashlib
import json
import re
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


def model_bytes(size: int, seed: int = 0) -> bytes:
    """Return what begins as a GGUF file and has no two equal pieces."""
    body = bytearray(struct.pack("<4sI", b"GGUF", 3))
    number = 0
    while len(body) < size:
        body += hashlib.sha256(f"{seed} {number}".encode()).digest()
        number += 1
    return bytes(body[:size])


@dataclass(kw_only=True)
class Faults:
    """What goes wrong; a number is how often.

    Attributes:
        breaks: answers that end in the middle, `break_bytes` after their begin.
        refusals: answers of `refusal` instead of content.
        wrong_at: a byte that is sent wrong, as long as it is not None.
        told_bytes: the size that is told in answers, where it is not the true one.
        has_ranges: whether a part can be asked for.
        key: without which nothing is given, by its path.
        elsewhere: the server that answers are redirected to.
    """

    breaks: int = 0
    break_bytes: int = 1_000
    refusals: int = 0
    refusal: int = 503
    wrong_at: int | None = None
    told_bytes: int = 0
    has_ranges: bool = True
    key: str = ""
    elsewhere: str = ""
    etag: str = '"one"'


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    sent_bytes: list[int] = field(default_factory=list)


class ModelServer:
    """Serves `files` and `documents` by their paths."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.documents: dict[str, Any] = {}
        self.faults = Faults()
        self.seen: list[Seen] = []
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = f"https://localhost:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def sent_bytes(self) -> int:
        """Return how much of all files was sent."""
        return sum(sum(each.sent_bytes) for each in self.seen)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        seen = Seen(path=request.path, headers={k.lower(): v for k, v in request.headers.items()})
        with self.lock:
            self.seen.append(seen)
            refused = self.faults.refusals > 0 and request.path in self.files
            self.faults.refusals -= refused
        if refused:
            request.send_response(self.faults.refusal)
            request.send_header("Retry-After", "0.01")
            request.end_headers()
        elif self.faults.key and seen.headers.get("authorization") != f"Bearer {self.faults.key}":
            request.send_error(401)
        elif self.faults.elsewhere:
            request.send_response(302)
            request.send_header("Location", self.faults.elsewhere + request.path)
            request.end_headers()
        elif request.path in self.documents:
            data = json.dumps(self.documents[request.path]).encode()
            request.send_response(200)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)
        elif request.path in self.files:
            self._send(request, seen, self.files[request.path])
        else:
            request.send_error(404)

    def _send(self, request: BaseHTTPRequestHandler, seen: Seen, data: bytes) -> None:
        faults = self.faults
        size = faults.told_bytes or len(data)
        asked = _RANGE.fullmatch(seen.headers.get("range", "")) if faults.has_ranges else None
        if seen.headers.get("if-range", faults.etag) != faults.etag:
            asked = None
        first, last = (int(asked[1]), int(asked[2])) if asked else (0, len(data) - 1)
        part = bytearray(data[first : last + 1])
        if faults.wrong_at is not None and first <= faults.wrong_at <= last:
            part[faults.wrong_at - first] ^= 1
        request.send_response(206 if asked else 200)
        if asked:
            request.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        request.send_header("Content-Length", str(len(part) if asked else size))
        request.send_header("ETag", faults.etag)
        request.end_headers()
        with self.lock:
            breaks = faults.breaks > 0 and len(part) > faults.break_bytes
            faults.breaks -= breaks
        if breaks:
            part = part[: faults.break_bytes]
        seen.sent_bytes.append(len(part))  # before whoever gets it looks
        request.wfile.write(part)


@contextmanager
def model_server(certificate: tuple[Path, Path] | None = None) -> Iterator[ModelServer]:
    """Serve until it is left; with a certificate and its key by TLS."""
    server = ModelServer(certificate)
    server.start()
    try:
        yield server
    finally:
        server.close()


def hub_document(files: dict[str, bytes], commit: str = "c0ffee") -> dict[str, Any]:
    """Return what the hub tells of a repository with these files."""
    siblings: list[dict[str, Any]] = [{"rfilename": "README.md", "size": 7}]
    for path, data in files.items():
        lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        siblings.append({"rfilename": path, "size": len(data), "lfs": lfs})
    return {"id": "org/repo", "sha": commit, "siblings": siblings}
