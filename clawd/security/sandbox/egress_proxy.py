"""The egress proxy: reads what sandboxed commands ask for, and copies bytes between sockets.

It parses hostile bytes, so it is a process of its own that can open no file, make no socket and
connect to nothing: for each request it asks the daemon, which judges, resolves and connects, and is
given the connected socket or a refusal. Messages are JSON on a SOCK_SEQPACKET pair:

    → {"op": "serve", "command": 1, "max_bytes": 4000000000}     with the socket that listens
    ← {"op": "ask", "command": 1, "ask": 7, "host": "get.example.org", "port": 443}
    → {"op": "allow", "ask": 7}                                  with the connected socket
    → {"op": "refuse", "ask": 7, "status": 403, "reason": "…", "hint": "…"}
    ← {"op": "done", "command": 1, "ask": 7, "up": 517, "down": 4301, "sni": "a.org", "why": ""}
    ← {"op": "odd", "command": 1, "what": "0x7f.1:80", "why": "…"}        refused unasked
    → {"op": "count", "command": 1, "max_bytes": 4000000000}     and from here on so many more
    ← {"op": "moved", "command": 1, "ask": 7, "up": 517, "down": 4301}    since it was told last
    ← {"op": "counted", "command": 1}
    → {"op": "end", "command": 1}
    ← {"op": "ended", "command": 1}

Standard library and `clawd.kernel` only: `egress_program` starts it without site packages.
"""

import asyncio
import contextlib
import json
import os
import re
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from clawd.kernel import landlock, seccomp, syscalls

MESSAGE_BYTES = 32 << 10
MAX_CONNECTIONS = 64
HEAD_BYTES = 64 << 10
MAX_HEADERS = 200

_HEAD_LIMIT_S = 30.0
_IDLE_LIMIT_S = 600.0
_PIECE_BYTES = 256 << 10
_HELLO_BYTES = 32 << 10
_MEMORY_BYTES = 1 << 30
_SIGKILL = 9

_TLS_PORT = 443
_HOST = re.compile(
    r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_BRACKETED = re.compile(r"\[[0-9a-f:.]{2,45}\]")
_NAME_LIMIT = 253
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_OWN_HEADERS = frozenset(
    {b"host", b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"upgrade"}
    | {b"proxy-authorization", b"proxy-authenticate"}
)

_DENIED = (
    "execve", "execveat", "clone", "clone3", "fork", "vfork", "socket", "socketpair", "connect",
    "bind", "listen", "open", "openat", "openat2", "creat", "kill", "tkill", "rt_sigqueueinfo",
    "rt_tgsigqueueinfo", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "ptrace",
    "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "move_pages", "setns",
    "unshare", "mount", "umount2", "move_mount", "open_tree", "fsopen", "fsmount", "pivot_root",
    "chroot", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "keyctl", "add_key", "request_key", "open_by_handle_at",
    "name_to_handle_at", "inotify_add_watch", "fanotify_init", "mq_open", "msgget", "msgsnd",
    "semget", "semop", "shmget", "shmat",
)  # fmt: skip


class RefusedRequest(Exception):  # noqa: N818 - a refusal, told to who asked
    """A request that is refused: the status and the reason that its sender is told."""

    def __init__(self, status: int, reason: str, hint: str = "", *, what: str = "") -> None:
        super().__init__(reason)
        self.status, self.reason, self.hint, self.what = status, reason, hint, what


class ProxyTarget(NamedTuple):
    """What a request asks for: a tunnel, or one exchange with a server of plain HTTP.

    `head` is what the server is sent, empty for a tunnel; `body` how many bytes of a body follow,
    -1 for one in chunks, None where both sides speak as they like from here on.
    """

    host: str
    port: int
    head: bytes = b""
    body: int | None = None


def main(descriptor: int) -> int:
    """Serve until the daemon is gone."""
    control = socket.socket(fileno=descriptor)
    syscalls.set_death_signal(_SIGKILL)
    syscalls.set_not_dumpable()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    asyncio.run(_serve(control))
    return 0


async def _serve(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    raise_fence()
    proxy = Proxy(control)
    loop.add_reader(control.fileno(), proxy.take_message)
    await proxy.over.wait()
    os._exit(0)  # the kernel closes all


def raise_fence() -> None:
    """Give up for good all that copying between given sockets does not need."""
    syscalls.drop_capabilities()
    if landlock.abi():
        landlock.restrict((), landlock.abi())
    machine = os.uname().machine
    lines = [*seccomp.beginning(machine), *seccomp.denied(machine, _DENIED)]
    seccomp.load(b"".join([*lines, seccomp.statement(seccomp.RETURN, seccomp.ALLOW)]), machine)


class Proxy:
    """All that the daemon has given: commands by number, and what is asked about."""

    def __init__(self, control: socket.socket) -> None:
        self.over = asyncio.Event()
        self._control = control
        self._commands: dict[int, Command] = {}
        self._asked: dict[int, asyncio.Future[socket.socket]] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._last = 0

    def tell(self, **message: Any) -> None:
        """Send the daemon a message; it reads all the time, so this waits for a moment at most."""
        try:
            self._control.send(json.dumps(message).encode())
        except OSError:
            self.over.set()

    async def ask(self, command: int, host: str, port: int) -> tuple[int, socket.socket]:
        """Return the number of the question, and a socket that is connected.

        Raises:
            Refused: the daemon says no.
        """
        self._last += 1
        number, answer = self._last, asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self.tell(op="ask", command=command, ask=number, host=host, port=port)
        try:
            return number, await answer
        finally:
            del self._asked[number]

    def take_message(self) -> None:
        """Take one message of the daemon."""
        data, given, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 1)
        if not data:
            self.over.set()
            return
        message = json.loads(data)
        sockets = [socket.socket(fileno=each) for each in given]
        for each in sockets:
            each.setblocking(False)  # noqa: FBT003 - the name of the call says it
        match message["op"]:
            case "serve":
                number = message["command"]
                command = Command(self, number, sockets[0], message["max_bytes"])
                self._commands[number] = command
                command.start()
            case "allow":
                self._settle(message["ask"], sockets[0])
            case "refuse":
                refused = RefusedRequest(message["status"], message["reason"], message["hint"])
                self._settle(message["ask"], refused)
            case "count":
                counted = self._commands.get(message["command"])
                if counted is not None:
                    counted.count(message["max_bytes"])
            case "end":
                ended = self._commands.pop(message["command"], None)
                if ended is not None:
                    ending = asyncio.get_running_loop().create_task(ended.end())
                    self._endings.add(ending)
                    ending.add_done_callback(self._endings.discard)
            case _:
                pass  # of a newer daemon

    def _settle(self, number: int, answer: socket.socket | RefusedRequest) -> None:
        asked = self._asked.get(number)
        if asked is None or asked.done():  # nobody waits for it any more
            if isinstance(answer, socket.socket):
                answer.close()
        elif isinstance(answer, RefusedRequest):
            asked.set_exception(answer)
        else:
            asked.set_result(answer)


class Command:
    """The connections of one command."""

    def __init__(self, proxy: Proxy, number: int, listener: socket.socket, max_bytes: int) -> None:
        self.proxy, self.number = proxy, number
        self.bytes_left = max_bytes
        self._listener = listener
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._exchanges: set[ProxiedConnection] = set()

    def start(self) -> None:
        """Begin to accept."""
        self._keep(self._accept())

    def count(self, max_bytes: int) -> None:
        """Tell the daemon how far open connections got, and let them move so many bytes more."""
        self.bytes_left = max_bytes
        for exchange in self._exchanges:
            exchange.tell_moved()
        self.proxy.tell(op="counted", command=self.number)

    async def end(self) -> None:
        """Close everything, and tell the daemon how far each connection got."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        self.proxy.tell(op="ended", command=self.number)

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                client, _ = await loop.sock_accept(self._listener)
            except OSError:
                return
            self._keep(self._attend(client))

    async def _attend(self, client: socket.socket) -> None:
        exchange = ProxiedConnection(self, client)
        self._exchanges.add(exchange)
        try:
            await exchange.run()
        finally:
            self._exchanges.discard(exchange)
            exchange.close()
            self._room.release()


class ProxiedConnection:
    """One connection of a command, and the one to where it leads."""

    def __init__(self, command: Command, client: socket.socket) -> None:
        self._command = command
        self._client = client
        self._server: socket.socket | None = None
        self._ask = 0
        self._up = self._down = 0
        self._sni = self._why = ""
        self._moved = time.monotonic()
        self._waiting = b""

    def close(self) -> None:
        """Close both sides and tell the daemon how far it got."""
        self._client.close()
        if self._server is None:
            return
        self._server.close()
        self._tell("done", sni=self._sni, why=self._why)

    def tell_moved(self) -> None:
        """Tell the daemon how far it got by now."""
        if self._server is not None and self._up + self._down:
            self._tell("moved")

    def _tell(self, op: str, **more: str) -> None:
        """Tell what was moved since this was told last."""
        moved = {"up": self._up, "down": self._down}
        self._up = self._down = 0
        number = self._command.number
        self._command.proxy.tell(op=op, command=number, ask=self._ask, **moved, **more)

    async def run(self) -> None:
        """Serve the one request of a connection."""
        try:
            await self._run()
        except RefusedRequest as refused:
            if refused.what:
                what = refused.what.encode("ascii", "backslashreplace").decode()[:200]
                self._command.proxy.tell(
                    op="odd", command=self._command.number, what=what, why=refused.reason
                )
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_HEAD_LIMIT_S):
                    await self._loop.sock_sendall(self._client, refusal(refused))
        except (OSError, TimeoutError) as error:
            self._why = self._why or str(error) or "it was idle for too long"

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def _run(self) -> None:
        async with asyncio.timeout(_HEAD_LIMIT_S):
            head = await self._head()
        asked = parse_request(head)
        self._ask, self._server = await self._command.proxy.ask(
            self._command.number, asked.host, asked.port
        )
        if asked.head:
            await self._to_server(asked.head)
            await self._both(self._body(asked.body))
            return
        await self._loop.sock_sendall(self._client, b"HTTP/1.1 200 clawd connected\r\n\r\n")
        if asked.port == _TLS_PORT:
            await self._check_name(asked.host)
        await self._both(self._rest(self._client, self._to_server, ends=self._server))

    async def _head(self) -> bytes:
        """Return the request's head with its empty line; what follows stays in `_waiting`."""
        while (end := self._waiting.find(b"\r\n\r\n")) < 0:
            if len(self._waiting) > HEAD_BYTES:
                raise RefusedRequest(431, "the head of the request is too long")
            await self._more()
        head, self._waiting = self._waiting[: end + 4], self._waiting[end + 4 :]
        return head

    async def _more(self) -> None:
        data = await self._loop.sock_recv(self._client, _PIECE_BYTES)
        if not data:
            raise ConnectionError("the command closed the connection")
        self._waiting += data

    async def _check_name(self, host: str) -> None:
        """Hold the first message of TLS to the host that was granted: it is not sent before."""
        async with asyncio.timeout(_HEAD_LIMIT_S):
            while (name := server_name(self._waiting)) is None:
                if len(self._waiting) > _HELLO_BYTES:
                    name = "no ClientHello"
                    break
                await self._more()
        self._sni = name
        # An address has no name to be held to.
        if name == host or (
            not name and (host.startswith("[") or host.rpartition(".")[2].isdigit())
        ):
            return
        self._why = f"TLS named {name or 'no host'} on a connection to {host}"
        self._command.proxy.tell(
            op="odd", command=self._command.number, what=f"{host}:{_TLS_PORT}", why=self._why
        )
        raise ConnectionError(self._why)

    async def _both(self, upwards: Coroutine[Any, Any, None]) -> None:
        """Copy both ways until both have ended, or nothing has moved for too long."""
        server = self._server
        assert server is not None
        tasks = [
            self._loop.create_task(upwards),
            self._loop.create_task(self._rest(server, self._to_client, ends=self._client)),
        ]
        try:
            while pending := [task for task in tasks if not task.done()]:
                left = self._moved + _IDLE_LIMIT_S - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
                for task in tasks:
                    if task.done() and (error := task.exception()) is not None:
                        raise error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rest(
        self,
        source: socket.socket,
        send: Callable[[bytes], Awaitable[None]],
        *,
        ends: socket.socket | None,
    ) -> None:
        """Copy until the source ends."""
        if source is self._client and self._waiting:
            data, self._waiting = self._waiting, b""
            await send(data)
        while data := await self._loop.sock_recv(source, _PIECE_BYTES):
            await send(data)
        if ends is not None:
            with contextlib.suppress(OSError):
                ends.shutdown(socket.SHUT_WR)

    async def _body(self, length: int | None) -> None:
        """Copy the body of a request and nothing that follows it."""
        if length is None:
            await self._rest(self._client, self._to_server, ends=self._server)
        elif length >= 0:
            await self._copy(length)
        else:
            while size := await self._chunk():
                await self._copy(size + 2)

    async def _chunk(self) -> int:
        """Copy the line before a chunk, or at the end the last lines; return the chunk's size."""
        line = await self._line()
        digits = line.partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9a-fA-F]{1,15}", digits):
            raise ConnectionError("the size of a chunk is no number")
        size = int(digits, 16)
        await self._to_server(b"%x\r\n" % size)
        if not size:
            while await self._line():  # trailers are not passed on
                pass
            await self._to_server(b"\r\n")
        return size

    async def _line(self) -> bytes:
        while (end := self._waiting.find(b"\r\n")) < 0:
            if len(self._waiting) > HEAD_BYTES:
                raise ConnectionError("a line is too long")
            await self._more()
        line, self._waiting = self._waiting[:end], self._waiting[end + 2 :]
        return line

    async def _copy(self, count: int) -> None:
        while count:
            if not self._waiting:
                await self._more()
            data, self._waiting = self._waiting[:count], self._waiting[count:]
            await self._to_server(data)
            count -= len(data)

    async def _to_server(self, data: bytes) -> None:
        assert self._server is not None
        self._up += self._count(data)
        await self._loop.sock_sendall(self._server, data)

    async def _to_client(self, data: bytes) -> None:
        self._down += self._count(data)
        await self._loop.sock_sendall(self._client, data)

    def _count(self, data: bytes) -> int:
        self._moved = time.monotonic()
        self._command.bytes_left -= len(data)
        if self._command.bytes_left < 0:
            self._why = "the command has moved more bytes than it may"
            raise ConnectionError(self._why)
        return len(data)


def parse_request(head: bytes) -> ProxyTarget:
    """Return what a proxy request asks for.

    Raises:
        Refused: it is none, or one whose meaning two readers could take differently.
    """
    line, *fields = head[:-4].split(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]) or words[2] not in _VERSIONS:
        raise RefusedRequest(400, "this is no request to a proxy")
    method, target = words[0], words[1].decode("latin-1")
    headers = _headers(fields)
    if method == b"CONNECT":
        host, port = parse_authority(target, 0)
        return ProxyTarget(host=host, port=port)
    scheme, found, rest = target.partition("://")
    if not found:
        raise RefusedRequest(400, "this is a proxy: it takes CONNECT and whole http:// addresses")
    if scheme.lower() != "http":
        raise RefusedRequest(400, f"a proxy is asked for {scheme[:20]}:// by CONNECT", what=target)
    authority, path = re.fullmatch(r"([^/?#]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr] # it always fits
    host, port = parse_authority(authority, 80)
    if port == _TLS_PORT:
        raise RefusedRequest(400, f"plain HTTP to {host}:{port} is refused", what=f"{host}:{port}")
    return _plain(method, host, port, path, headers)


_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")


def _plain(
    method: bytes, host: str, port: int, path: str, headers: list[tuple[bytes, bytes]]
) -> ProxyTarget:
    """Return a request of plain HTTP as its server is to see it."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(value)
    lengths, codings = values.get(b"content-length", []), values.get(b"transfer-encoding", [])
    if len(lengths) + len(codings) > 1:
        raise RefusedRequest(400, "a body has one length: Content-Length or Transfer-Encoding")
    if codings and codings[0].lower() != b"chunked":
        raise RefusedRequest(400, "the only Transfer-Encoding is chunked")
    if lengths and not re.fullmatch(rb"[0-9]{1,15}", lengths[0]):
        raise RefusedRequest(400, "Content-Length is no number")
    length: int | None = -1 if codings else int(lengths[0]) if lengths else 0
    options = b",".join(values.get(b"connection", [])).lower()
    dropped = _OWN_HEADERS | {word.strip() for word in options.split(b",")}
    dropped -= {b"content-length", b"transfer-encoding"}
    is_websocket = values.get(b"upgrade", [b""])[0].lower() == b"websocket"
    shown = f"{host}:{port}" if port != 80 else host
    target = path if path.startswith("/") else f"/{path}"
    lines = [b"%s %s HTTP/1.1" % (method, target.partition("#")[0].encode("latin-1"))]
    lines.append(b"Host: " + shown.encode())
    lines += [b"%s: %s" % pair for pair in headers if pair[0].lower() not in dropped]
    if is_websocket and not codings and not length:
        lines += [b"Connection: Upgrade", b"Upgrade: websocket"]
        length = None
    else:
        lines.append(b"Connection: close")
    return ProxyTarget(host=host, port=port, head=b"\r\n".join([*lines, b"", b""]), body=length)


def _headers(fields: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(fields) > MAX_HEADERS:
        raise RefusedRequest(431, "the request has too many headers")
    found = []
    for field in fields:
        name, colon, value = field.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or re.search(rb"[\x00\r\n]", value):
            raise RefusedRequest(400, "the request has a broken header")
        found.append((name, value.strip(b" \t")))
    return found


def parse_authority(text: str, default_port: int) -> tuple[str, int]:
    """Return host (lower case, without a dot at its end) and port.

    Raises:
        Refused: it is written in an odd way: a user name, `%`, letters that are not ASCII.
    """
    found = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?", text.lower(), re.ASCII)
    host = found[1] if found else ""
    port = int(found[2]) if found and found[2] else default_port
    host = host.removesuffix(".")
    is_name = _HOST.fullmatch(host) and len(host) <= _NAME_LIMIT
    if not (is_name or _BRACKETED.fullmatch(host)) or not 0 < port < 1 << 16:
        raise RefusedRequest(403, "this is no plain HOST:PORT", what=text)
    return host, port


def server_name(data: bytes) -> str | None:
    """Return the host that a ClientHello names, lower case; empty for none; None for too few bytes.

    RFC 8446, 4.1.2 and 5.1; RFC 6066, 3. What is no ClientHello names none.
    """
    hello = b""
    while data:
        if data[0] != 22:
            return ""
        length = int.from_bytes(data[3:5], "big")
        if len(data) < 5 or len(data) < 5 + length:
            return None
        if not length:
            return ""
        hello, data = hello + data[5 : 5 + length], data[5 + length :]
        if hello[0] != 1:
            return ""
        if len(hello) >= 4 and len(hello) >= 4 + int.from_bytes(hello[1:4], "big"):
            return _name_in(hello[4 : 4 + int.from_bytes(hello[1:4], "big")])
    return None


def _name_in(hello: bytes) -> str:
    at = 34  # version, random
    for width in (1, 2, 1):  # session, ciphers, compressions
        at += width + int.from_bytes(hello[at : at + width], "big")
    extensions = hello[at + 2 : at + 2 + int.from_bytes(hello[at : at + 2], "big")]
    while len(extensions) >= 4:
        kind, length = (int.from_bytes(extensions[i : i + 2], "big") for i in (0, 2))
        value, extensions = extensions[4 : 4 + length], extensions[4 + length :]
        if kind == 0:  # server_name: a list with one entry of type 0
            name = value[5 : 5 + int.from_bytes(value[3:5], "big")]
            whole = len(value) == 5 + len(name) and value[2:3] == b"\0"
            return name.decode("ascii", "replace").lower() if whole else ""
    return ""


def refusal(refused: RefusedRequest) -> bytes:
    """Return the answer to a refused request: the reason stands where programs show it.

    Its body is a comment to a shell, for those who pipe what they fetch into one.
    """
    reason = (
        f"clawd refused: {refused.reason}" if refused.status == 403 else f"clawd: {refused.reason}"
    )
    line = re.sub(r"[^ -~]", "?", reason)[:400]
    text = "".join(f"# {re.sub('[^ -~]', '?', each)}\n" for each in (reason, refused.hint) if each)
    head = [f"HTTP/1.1 {refused.status} {line}", "Content-Type: text/plain; charset=utf-8"]
    head += [f"Content-Length: {len(text)}", "Connection: close", "", text]
    return "\r\n".join(head).encode("ascii")
