"""A machine that a project needs, on loopback: repositories, and indexes of packages made here.

It serves plain HTTP on 127.0.0.2, which no program takes for its own machine, so that what a
sandbox reaches of it goes through the egress proxy. Repositories are served as files, as git takes
them from any web server, and by git's own program, which takes a push.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

HOST = "127.0.0.2"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NOT_SHIPPED = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json"}


class PackageServer:
    """Serves what is put into it, and keeps the paths that were asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def do_HEAD(self) -> None:
                server.answer(self)

            def do_POST(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server((HOST, 0), Handler)
        self.name = f"{HOST}:{self._server.server_port}"
        self.url = f"http://{self.name}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.asked.append(path)
        data = self.files.get(path)
        if path.startswith("/smart/"):
            self._backend(request)
            return
        if data is None and path.startswith("/git/"):
            file = (self.folder / path.removeprefix("/git/")).resolve()
            if file.is_file() and self.folder in file.parents:
                data = file.read_bytes()
        request.send_response(404 if data is None else 200)
        kind = "text/html" if path.startswith("/simple/") else "application/octet-stream"
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data or b"")))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data or b"")

    def _backend(self, request: BaseHTTPRequestHandler) -> None:
        """Answer as git's own server does: the repositories of the folder, below `/smart/`."""
        path, _, query = request.path.partition("?")
        size = int(request.headers.get("Content-Length") or 0)
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "PATH_INFO": path.removeprefix("/smart"),
            "QUERY_STRING": query,
            "REQUEST_METHOD": request.command,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(size),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": HOST,
        }
        done = subprocess.run(
            ["git", "http-backend"],
            input=request.rfile.read(size),
            env=environ,
            capture_output=True,
            check=True,
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = [line.partition(": ") for line in head.decode().split("\r\n")]
        status = next((value for name, _, value in fields if name == "Status"), "200 OK")
        request.send_response(int(status.split()[0]))
        for name, _, value in fields:
            if name not in {"Status", "Content-Length"}:
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    # --- Python

    def add_wheel(self, name: str, version: str, files: Mapping[str, bytes]) -> None:
        """Publish a wheel on the index below `/simple/` (PEP 503)."""
        file = f"{name}-{version}-py3-none-any.whl"
        data = _wheel(name, version, files)
        self.files[f"/wheels/{file}"] = data
        digest = hashlib.sha256(data).hexdigest()
        page = f'<!doctype html><a href="/wheels/{file}#sha256={digest}">{file}</a>'
        self.files[f"/simple/{name.replace('_', '-').lower()}/"] = page.encode()

    def add_installed(self, *names: str) -> None:
        """Publish distributions of this interpreter as the wheels that they came from."""
        for name in names:
            found = distribution(name)
            files = {
                str(each): Path(str(each.locate())).read_bytes()
                for each in found.files or ()
                if not str(each).startswith("..")
                and each.name not in _NOT_SHIPPED
                and each.suffix != ".pyc"
            }
            self.add_wheel(name, found.version, files)

    # --- Node

    def add_npm(self, name: str, version: str, files: Mapping[str, str]) -> None:
        """Publish a package on the registry that is the server's root."""
        tarball = _tar({f"package/{path}": text for path, text in files.items()})
        about = json.loads(files["package.json"])
        path = f"/{name}/-/{name}-{version}.tgz"
        integrity = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
        shown = {"tarball": f"{self.url}{path}", "integrity": f"sha512-{integrity}"}
        self.files[path] = tarball
        self.files[f"/{name}"] = json.dumps(
            {
                "name": name,
                "dist-tags": {"latest": version},
                "versions": {version: {**about, "dist": shown}},
            }
        ).encode()

    # --- Rust

    def add_crate(self, name: str, version: str, files: Mapping[str, str]) -> None:
        """Publish a crate on the sparse registry below `/crates/`."""
        crate = _tar({f"{name}-{version}/{path}": text for path, text in files.items()})
        self.files["/crates/config.json"] = json.dumps({"dl": f"{self.url}/crates/dl"}).encode()
        line = {
            "name": name,
            "vers": version,
            "deps": [],
            "cksum": hashlib.sha256(crate).hexdigest(),
            "features": {},
            "yanked": False,
        }
        place = f"{name[:2]}/{name[2:4]}/{name}"
        self.files[f"/crates/{place}"] = json.dumps(line).encode() + b"\n"
        self.files[f"/crates/dl/{name}/{version}/download"] = crate


def _wheel(name: str, version: str, files: Mapping[str, bytes]) -> bytes:
    info = f"{name}-{version}.dist-info"
    has_info = any(path.endswith(".dist-info/METADATA") for path in files)
    about = {} if has_info else {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }  # fmt: skip
    every = {**files, **about}
    folder = next(path for path in every if path.endswith(".dist-info/METADATA")).split("/")[0]
    record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in every.items())
    every[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, data in every.items():
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), data)
    return out.getvalue()


def _digest(data: bytes) -> str:
    plain = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={plain}"


def _tar(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, text in files.items():
            about = tarfile.TarInfo(path)
            about.size, about.mode = len(text.encode()), 0o644
            archive.addfile(about, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


@contextmanager
def package_server(folder: Path) -> Iterator[PackageServer]:
    """Serve until it is left; bare repositories of the folder are below `/git/`."""
    server = PackageServer(folder.resolve())
    server.start()
    try:
        yield server
    finally:
        server.close()
