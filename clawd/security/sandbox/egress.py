"""The way out of a sandbox: by name, through a proxy, and nowhere else.

    egress = Egress(lambda: rules, home=home)
    way_out = egress.way_out(decide)
    result = await sandbox.run(command, way_out=way_out)
    way_out.contacts, way_out.refused

A sandbox has a network namespace with nothing in it. While it is held at its gate, a helper
(`egress_enter`) enters that namespace, binds 127.0.0.1:3128 there and passes the socket out. When
somebody inside connects to it, the socket goes to the proxy (`egress_proxy`), which may connect to
nothing: it asks here for each connection, and `decide` says whether the host may be reached. Only
then is it resolved, every address held to the rules of the web tools, and what is connected to is
what was judged. There is no other way out, whatever dies.
"""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, SandboxUnavailableError
from clawd.security.network import NetworkRules, Resolve, judge_url, resolve_and_judge
from clawd.security.sandbox import egress_program
from clawd.security.sandbox.egress_enter import PROXY_PORT
from clawd.security.sandbox.egress_proxy import MESSAGE_BYTES, RefusedRequest, parse_authority
from clawd.wire.safe_text import visible_line

MAX_BYTES = 4_000_000_000
MAX_HOSTS = 200
"""So many hosts of one command are told apart; more are refused."""

_CONNECT_LIMIT_S = 30.0
_ADDRESS_LIMIT_S = 10.0
_REPORT_LIMIT_S = 2.0
_HELPER_LIMIT_S = 10.0
_MOST_LOSSES = 5
"""So often a lasting way out is given another proxy: what ends them all may be its program."""

_CERTIFICATES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "PIP_CERT",
)  # fmt: skip

_log = logging.getLogger(__name__)


class Contact(msgspec.Struct, kw_only=True):
    """A host that was reached, over all connections to it; `live` of them are open now."""

    host: str
    port: int
    address: str
    connections: int = 0
    live: int = 0
    up: int = 0
    down: int = 0

    @property
    def name(self) -> str:
        """The host as a grant names it: `get.example.org:443`."""
        return f"{self.host}:{self.port}"


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """Why a host may not be reached, and what would let it be."""

    reason: str
    hint: str = ""


Decide = Callable[[str, int], Awaitable[Denial | None]]
"""Says whether a host and port may be reached; asked before the name is resolved."""

Connect = Callable[[tuple[str, ...], int], Awaitable[tuple[socket.socket, str]]]
"""Connects to the first address that answers, and says which; raises OSError, TimeoutError."""


class _FromProxy(msgspec.Struct, kw_only=True):
    """A message of the proxy, which reads hostile bytes: no more is believed than it must be."""

    op: str
    command: int = 0
    ask: int = 0
    host: str = ""
    port: int = 0
    up: int = 0
    down: int = 0
    why: str = ""
    what: str = ""


_decoder = msgspec.json.Decoder(_FromProxy)


class Egress:
    """The helper and the proxy of a daemon, each started when it is first needed.

    Args:
        rules: returns where connections may lead, and which private addresses may be reached.
        resolve: gives the addresses of a host and port; the system's resolver if None.
        connect: connects to the first of some addresses that answers; by TCP if None.
        python: path of the interpreter that runs both.
        max_bytes: what one command may move, both ways together.
    """

    def __init__(
        self,
        rules: Callable[[], NetworkRules] = NetworkRules,
        *,
        resolve: Resolve | None = None,
        connect: Connect | None = None,
        python: str = sys.executable,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.rules = rules
        self.resolve = resolve
        self.connect = connect or _connect
        self.max_bytes = max_bytes
        self._helper = _Child("enter", python, self._take_listener)
        self._proxy = _Child("proxy", python, self._take_message)
        self._entering: list[asyncio.Future[socket.socket]] = []
        self._ways: dict[int, WayOut] = {}
        self._last = 0

    def way_out(
        self, decide: Decide, *, named: tuple[str, ...] = (), is_lasting: bool = False
    ) -> "WayOut":
        """Return the way out of one command.

        Args:
            decide: says which hosts it may reach.
            named: `host:port` entries that may lead to this machine or a private network, for it.
            is_lasting: it stays for as long as the daemon may: a proxy that ends is replaced.
        """
        self._last += 1
        return WayOut(self, self._last, decide, named, is_lasting=is_lasting)

    @property
    def proxy_pid(self) -> int:
        """The proxy's process number; 0 while there is none."""
        return self._proxy.pid

    async def close(self) -> None:
        """End both processes."""
        for child in (self._helper, self._proxy):
            child.close()
        self._fail_entering("the daemon ends")

    # --- the helper

    def enter(self, namespace: int) -> asyncio.Future[socket.socket]:
        """Have a socket bound in a network namespace; the descriptor stays the caller's."""
        listening: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        try:
            self._helper.send(b"e", namespace)
        except OSError as error:
            listening.set_exception(SandboxUnavailableError(f"the helper cannot be asked: {error}"))
            return listening
        self._entering.append(listening)
        return listening

    def _take_listener(self, data: bytes, given: list[int]) -> None:
        if not data:
            self._fail_entering("the helper ended")
            return
        if not self._entering:
            for each in given:
                os.close(each)
            return
        listening = self._entering.pop(0)
        if data == b"+" and given:
            listener = socket.socket(fileno=given[0])
            if listening.done():
                listener.close()
            else:
                listening.set_result(listener)
        elif not listening.done():
            said = data.decode(errors="replace")
            listening.set_exception(SandboxUnavailableError(f"no socket in the sandbox: {said}"))

    def _fail_entering(self, why: str) -> None:
        waiting, self._entering = self._entering, []
        for listening in waiting:
            if not listening.done():
                listening.set_exception(SandboxUnavailableError(why))

    # --- the proxy

    def serve(self, way: "WayOut", listener: socket.socket) -> None:
        """Hand a listening socket to the proxy; ours stays the caller's."""
        self._ways[way.number] = way
        message = {"op": "serve", "command": way.number, "max_bytes": self.max_bytes}
        self.tell(message, listener.fileno())

    def tell(self, message: dict[str, Any], descriptor: int = -1) -> None:
        """Send the proxy a message; one that does not read is ended, and with it all ways out."""
        try:
            self._proxy.send(msgspec.json.encode(message), descriptor)
        except OSError as error:
            _log.error("the egress proxy cannot be told anything, it is ended: %s", error)
            self._proxy.close()
            self._lose_proxy()

    def forget(self, way: "WayOut") -> None:
        """Drop a way out that has ended."""
        self._ways.pop(way.number, None)

    def _take_message(self, data: bytes, given: list[int]) -> None:
        for each in given:
            os.close(each)
        if not data:
            self._lose_proxy()
            return
        try:
            message = _decoder.decode(data)
        except msgspec.DecodeError as error:
            _log.error("the egress proxy said what it cannot mean, it is ended: %s", error)
            self._proxy.close()
            self._lose_proxy()
            return
        way = self._ways.get(message.command)
        if way is not None:
            way.take(message)

    def _lose_proxy(self) -> None:
        ways, self._ways = self._ways, {}
        for way in ways.values():
            way.lose("the egress proxy ended")


class WayOut:
    """The way out of one command. An overseer of the sandbox calls `begin` and `is_ready`.

    Attributes:
        contacts: the hosts that were reached, by name.
        refused: why each of the others was not, by name.
        refusals: how often each of these was refused.
        problem: why there is no way out; empty when all is well.
        losses: how often the proxy ended beneath it.
        reaches_here: whether it may lead to this machine by its own name.
    """

    def __init__(
        self,
        egress: Egress,
        number: int,
        decide: Decide,
        named: tuple[str, ...] = (),
        *,
        is_lasting: bool = False,
    ) -> None:
        self.number = number
        self.contacts: dict[str, Contact] = {}
        self.refused: dict[str, str] = {}
        self.refusals: Counter[str] = Counter()
        self.problem = ""
        self.losses = 0
        self.reaches_here = any(_names_this_machine(each) for each in named)
        self._egress = egress
        self._decide = decide
        self._named = named
        self._is_lasting = is_lasting
        self._listening: asyncio.Future[socket.socket] | None = None
        self._listener: socket.socket | None = None
        self._is_served = False
        self._asked: dict[int, Contact] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._deciding: dict[tuple[str, int], asyncio.Task[Denial | None]] = {}
        self._over = asyncio.Event()
        self._counted = asyncio.Event()
        self._limits: dict[asyncio.Timeout, float | None] = {}

    def halt(self, limit: asyncio.Timeout) -> None:
        """Let a time limit of the command stand still while it is judged whether a host may be.

        That can take as long as a person takes.
        """
        self._limits[limit] = None
        if self._deciding:
            self._stop_clocks()

    async def measure(self) -> None:
        """Learn how many bytes open connections have moved; later calls begin at their limit."""
        if not self._is_served or not any(each.live for each in self.contacts.values()):
            return
        self._counted.clear()
        counting = {"op": "count", "command": self.number, "max_bytes": self._egress.max_bytes}
        self._egress.tell(counting)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REPORT_LIMIT_S):
                await self._counted.wait()

    def forget(self, names: Iterable[str]) -> None:
        """Forget hosts that nothing leads to now: they do not count as asked for any more."""
        for name in names:
            contact = self.contacts.get(name)
            if contact is not None and not contact.live:
                del self.contacts[name]
            self.refused.pop(name, None)
            self.refusals.pop(name, None)

    def begin(self, init: int) -> None:
        """Take the namespace's init while it is held: it cannot be another process's number."""
        try:
            namespace = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.problem = f"its network namespace cannot be opened: {error.strerror}"
            return
        try:
            if os.fstat(namespace).st_ino == Path("/proc/self/ns/net").stat().st_ino:
                self.problem = "it has no network namespace of its own"
                return
            self._listening = self._egress.enter(namespace)
        finally:
            os.close(namespace)
        self._listening.add_done_callback(self._listen)
        asyncio.get_running_loop().call_later(_HELPER_LIMIT_S, self._give_up)

    @property
    def is_ready(self) -> bool:
        """Whether the command may begin: there is a way out, or there will be none."""
        return bool(self.problem) or self._listening is None or self._listening.done()

    def _give_up(self) -> None:
        if self._listening is not None and not self._listening.done():
            self._listening.set_exception(SandboxUnavailableError("the helper does not answer"))

    def _listen(self, listening: asyncio.Future[socket.socket]) -> None:
        if listening.cancelled():
            return
        error = listening.exception()
        if error is not None:
            self.problem = str(error)
            _log.warning("a command has no way out: %s", self.problem)
            return
        if self._over.is_set():
            listening.result().close()
            return
        self._listener = listening.result()
        self._await_first()

    def _await_first(self) -> None:
        """Have the proxy serve once somebody connects: most commands never ask for anything."""
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._serve)

    def _serve(self) -> None:
        listener = self._listener
        if listener is None:
            return
        asyncio.get_running_loop().remove_reader(listener.fileno())
        self._is_served = True
        try:
            self._egress.serve(self, listener)
        finally:
            if not self._is_lasting:
                self._close_listener()

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener.fileno())
            listener.close()

    def take(self, message: _FromProxy) -> None:
        """Take a message of the proxy about this command."""
        match message.op:
            case "ask":
                task = asyncio.get_running_loop().create_task(self._answer(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case "done" | "moved":
                self._count(message)
            case "counted":
                self._counted.set()
            case "odd":
                self._refuse(visible_line(message.what, 200), visible_line(message.why, 200))
            case "ended":
                self._over.set()
            case _:
                _log.error("the egress proxy said what is not known: %s", message.op[:50])

    def lose(self, why: str) -> None:
        """Go on without the proxy: nothing leads out any more, or not before there is a new one."""
        self.losses += 1
        self._counted.set()
        for contact in self.contacts.values():
            contact.live = 0
        # Its numbers mean nothing to another proxy: an answer that came late would be taken for
        # that to another question.
        self._asked.clear()
        for task in [*self._tasks, *self._deciding.values()]:
            task.cancel()
        if self._is_lasting and self.losses <= _MOST_LOSSES and self._listener is not None:
            self._is_served = False
            self._await_first()
            return
        self.problem = why
        self._over.set()
        self._close_listener()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Close everything at the end of the command, and learn how far its connections got."""
        try:
            yield
        finally:
            self._close_listener()
            tasks = [*self._tasks, *self._deciding.values()]
            for task in tasks:
                task.cancel()
            if self._is_served and not self._over.is_set():
                self._egress.tell({"op": "end", "command": self.number})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REPORT_LIMIT_S):
                        await self._over.wait()
            self._over.set()
            if self._listening is not None and not self._listening.done():
                self._listening.cancel()
            self._egress.forget(self)
            await asyncio.gather(*tasks, return_exceptions=True)

    def _count(self, message: _FromProxy) -> None:
        contact = self._asked.get(message.ask)
        if contact is None:
            return
        contact.up += max(message.up, 0)
        contact.down += max(message.down, 0)
        if message.op == "moved":
            return
        del self._asked[message.ask]
        contact.live -= 1
        if message.why:
            _log.info("a connection was ended", extra={"host": contact.name, "why": message.why})

    def _refuse(self, name: str, why: str) -> None:
        if len(self.refused) < MAX_HOSTS or name in self.refused:
            self.refused.setdefault(name, why)
            self.refusals[name] += 1

    async def _answer(self, message: _FromProxy) -> None:
        """Judge one connection, and give the proxy what it may use."""
        name = f"{message.host}:{message.port}"
        status, reason, hint = 403, "", ""
        try:
            connected, address = await self._connected(message.host, message.port)
        except ForbiddenError as error:
            reason, hint = error.message, error.hint
        except (ClawError, RefusedRequest) as error:
            is_odd = isinstance(error, InvalidRequestError | RefusedRequest)
            status = 400 if is_odd else 502
            reason, hint = (str(error), "") if is_odd else (getattr(error, "message", ""), "")
        except (OSError, TimeoutError) as error:
            status, reason = 502, f"{name} cannot be reached: {str(error) or 'no answer in time'}"
        except Exception as error:  # noqa: BLE001 - a defect in here must never let anything out
            _log.error("a connection could not be judged, it is refused", exc_info=error)
            reason = "it could not be judged"
        else:
            self._allow(message, connected, address)
            return
        if status != 502:
            self._refuse(visible_line(name, 300), visible_line(reason, 300))
        self._egress.tell(
            {"op": "refuse", "ask": message.ask, "status": status, "reason": reason[:1000]}
            | {"hint": hint[:1000]}
        )

    def _allow(self, message: _FromProxy, connected: socket.socket, address: str) -> None:
        name = f"{message.host}:{message.port}"
        contact = self.contacts.get(name)
        if contact is None:
            contact = Contact(host=message.host, port=message.port, address=address)
            self.contacts[name] = contact
        contact.connections += 1
        contact.live += 1
        self._asked[message.ask] = contact
        with connected:
            self._egress.tell({"op": "allow", "ask": message.ask}, connected.fileno())

    async def _connected(self, host: str, port: int) -> tuple[socket.socket, str]:
        """Return a connection to what was asked for, and the address it leads to.

        Raises:
            ForbiddenError: it may not be reached.
            ClawError, Refused, OSError, TimeoutError: it cannot be.
        """
        if parse_authority(f"{host}:{port}", 0) != (host, port):
            raise ForbiddenError(f"{visible_line(host, 100)} is no plain name")
        name = f"{host}:{port}"
        if name not in self.contacts and len(self.contacts) + len(self._deciding) >= MAX_HOSTS:
            raise ForbiddenError(f"{name}: the command has asked for {MAX_HOSTS} hosts already")
        url = f"http://{name}/"
        judge_url(url, self._rules())
        denial = await self._decided(host, port)
        if denial is not None:
            raise ForbiddenError(denial.reason, hint=denial.hint)
        pinned = await resolve_and_judge(url, self._rules(), resolve=self._egress.resolve)
        async with asyncio.timeout(_CONNECT_LIMIT_S):
            return await self._egress.connect(pinned.addresses, port)

    def _rules(self) -> NetworkRules:
        """Return where connections may lead now: the config may have been changed meanwhile."""
        rules = self._egress.rules()
        excepted = (*rules.allowed_addresses, *self._named)
        return msgspec.structs.replace(rules, allowed_addresses=excepted)

    async def _decided(self, host: str, port: int) -> Denial | None:
        """Ask whether a host may be reached; connections that come meanwhile wait for the same."""
        key = (host, port)
        task = self._deciding.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(_as_task(self._decide(host, port)))
            self._deciding[key] = task
            task.add_done_callback(lambda _done: self._settled(key))
            self._stop_clocks()
        return await asyncio.shield(task)

    def _settled(self, key: tuple[str, int]) -> None:
        self._deciding.pop(key, None)
        if self._deciding:
            return
        for limit, left_s in self._limits.items():
            if left_s is not None:
                self._limits[limit] = None
                with contextlib.suppress(RuntimeError):  # the command has ended
                    limit.reschedule(asyncio.get_running_loop().time() + left_s)

    def _stop_clocks(self) -> None:
        for limit, left_s in self._limits.items():
            when = limit.when()
            if when is not None and left_s is None:
                with contextlib.suppress(RuntimeError):
                    limit.reschedule(None)
                    self._limits[limit] = when - asyncio.get_running_loop().time()


def _names_this_machine(entry: str) -> bool:
    host = entry.rpartition(":")[0]
    return host in {"localhost", "[::1]"} or host.startswith("127.")


async def _as_task(decision: Awaitable[Denial | None]) -> Denial | None:
    return await decision


async def _connect(addresses: tuple[str, ...], port: int) -> tuple[socket.socket, str]:
    """Connect to the first address that answers. Raises OSError, TimeoutError."""
    loop, last = asyncio.get_running_loop(), OSError("it has no address")
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)  # noqa: FBT003 - the name of the call says it
        try:
            async with asyncio.timeout(_ADDRESS_LIMIT_S):
                await loop.sock_connect(connection, (address, port))
        except (OSError, TimeoutError) as error:
            connection.close()
            last = OSError(str(error) or "no answer in time")
        except BaseException:
            connection.close()
            raise
        else:
            return connection, address
    raise last


class _Child:
    """One of the two processes, and the socket that is spoken on; started when first spoken to.

    Args:
        role: what `egress_program` is to be.
        python: path of the interpreter.
        take: takes each message with its descriptors; empty at the end.
    """

    def __init__(self, role: str, python: str, take: Callable[[bytes, list[int]], None]) -> None:
        self._role = role
        self._python = python
        self._take = take
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its number; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def send(self, data: bytes, descriptor: int = -1) -> None:
        """Send a message. Raises OSError, also where it does not read what it is sent."""
        if self._control is None:
            self._start()
        assert self._control is not None
        given = [descriptor] if descriptor >= 0 else []
        socket.send_fds(self._control, [data], given, socket.MSG_DONTWAIT)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = str(theirs.fileno())
            argv = [self._python, "-I", "-S", "-E", egress_program.__file__, self._role, number]
            self._process = subprocess.Popen(  # noqa: S603 - our own program, no shell
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    def _read(self) -> None:
        assert self._control is not None
        try:
            data, given, _, _ = socket.recv_fds(
                self._control, MESSAGE_BYTES, 1, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, given = b"", []
        if not data:
            self.close()
        self._take(data, given)

    def close(self) -> None:
        """Kill it, if it lives; idempotent."""
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def proxy_environment(*, reaches_here: bool = False) -> dict[str, str]:
    """Return the variables by which programs find the proxy.

    Private addresses are not left out of it: they would fail as unreachable, not as refused.

    Args:
        reaches_here: whether this machine's own names lead through the proxy, too, and so not to
            what listens in the sandbox.
    """
    address = f"http://127.0.0.1:{PROXY_PORT}"
    found = {"NODE_USE_ENV_PROXY": "1", "npm_config_update_notifier": "false"}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        found[name] = found[name.lower()] = address
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = "sandbox" if reaches_here else "localhost,127.0.0.1,::1,sandbox"
    # Java takes none of these, and says on every start that it was given options.
    if _java_settings():
        options = [
            f"-D{scheme}.proxy{key}"
            for scheme in ("http", "https")
            for key in ("Host=127.0.0.1", f"Port={PROXY_PORT}")
        ]
        found["JDK_JAVA_OPTIONS"] = " ".join(options)
    return found


def shown_for_network(
    environ: Mapping[str, str], hidden: Sequence[Path]
) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Return what programs that reach hosts need to see: variables, and the files that they name.

    Args:
        environ: where a person may have named certificates of their own.
        hidden: what no command may see.
    """
    env: dict[str, str] = {}
    for name in _CERTIFICATES:
        path = Path(environ.get(name, ""))
        is_hidden = any(path.resolve().is_relative_to(each) for each in hidden)
        if path.is_absolute() and path.is_file() and not is_hidden:
            env[name] = str(path)
    return env, tuple(dict.fromkeys([*map(Path, env.values()), *_java_settings()]))


def _java_settings() -> list[Path]:
    """Return the folders without which Debian's Java opens no connection."""
    try:
        return sorted(Path("/etc").glob("java-*"))
    except OSError:  # no descriptor is left; what else needs one says so
        return []
