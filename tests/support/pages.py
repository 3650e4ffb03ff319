"""A web server of an attacker: a page, what the page tells it, and the rest handed on as it is.

Handing on is what DNS rebinding comes to: to the browser the page and the gateway behind it are
one origin, and to the gateway the request names a host that is not its own.
"""

import contextlib
import json
import socket
import socketserver
import threading
from typing import Any

LIMIT_S = 100.0


class Pages:
    """Serves on an address of loopback until closed.

    Args:
        address: where; port 0 takes any.
        behind: the port on 127.0.0.1 that all but the page and its words go to; 0 for none.
    """

    def __init__(self, address: tuple[str, int], page: str, *, behind: int = 0) -> None:
        self.page = page
        self.behind = behind
        self._told: Any = None
        self._is_told = threading.Event()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer.answer(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(address, Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def told(self) -> Any:
        """Return what the page told, when it has."""
        assert self._is_told.wait(LIMIT_S), "the page told nothing"
        return self._told

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, client: socket.socket) -> None:
        """Answer one connection's first request."""
        client.settimeout(LIMIT_S)
        with contextlib.suppress(OSError):
            head, body = _request(client)
            if head.startswith(b"POST /told "):
                self._told = json.loads(body)
                self._is_told.set()
                client.sendall(_response("thanks"))
            elif head.startswith(b"GET / "):
                client.sendall(_response(self.page))
            elif self.behind:
                with socket.create_connection(("127.0.0.1", self.behind), LIMIT_S) as inner:
                    inner.sendall(head + body)
                    while data := inner.recv(65_536):
                        client.sendall(data)


def _request(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65_536)
        if not more:
            raise OSError("no request came")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    while lengths and len(body) < lengths[0]:
        body += client.recv(65_536)
    # One request a connection: what is handed on is closed when it is answered.
    kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""]), body


def _response(text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
