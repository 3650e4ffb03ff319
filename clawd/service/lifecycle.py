"""The life of the daemon: lock, open, listen, serve, reload, drain, end.

`clawd --checkup`: what can be told of this clawd without starting it.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from clawd import __version__
from clawd.channels.rpc.connection import Identity, RpcServer
from clawd.config.load import Loaded, load
from clawd.engine.models import ASSISTANT
from clawd.engine.supervisor import Engine
from clawd.errors import BusyError, ClawError, ConfigError
from clawd.kernel.concurrency import Pool
from clawd.paths import Layout, has_module, install_line, layout
from clawd.providers.base import Provider
from clawd.runtime.settings import RuntimeSettings
from clawd.security.peer import PeerPolicy, identify
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.security.sandbox.run import Sandbox
from clawd.service.build import Daemon
from clawd.service.control_socket import Door, HomeLock, take_when_free
from clawd.service.handlers.table import handlers_of
from clawd.service.home import make_folders, redactor_of, restored_from
from clawd.service.state import LocalModels, hooks_of, local_default, sandbox_settings_of
from clawd.service.systemd import Reporter, Systemd
from clawd.tools.base import Tool
from clawd.tools.hooks import Hook
from clawd.wire.daemon import Checkup

if TYPE_CHECKING:
    from clawd.channels.http.server import Server

SETTLE_S = 2.0
READY_THREADS = 4

_log = logging.getLogger(__name__)


async def run(
    loaded: Loaded, environ: Mapping[str, str], redactor: Redactor, *, umask: int
) -> None:
    """Run the daemon to its end; `umask` is its owner's, for files that tools make.

    Raises:
        ClawError: it cannot start; the message says why and what to do.
    """
    _lend_threads()
    systemd = Systemd()
    lock = HomeLock(loaded.layout.lock)
    await take_when_free(lock, loaded.layout.socket)
    daemon = Daemon(loaded, environ, umask=umask)
    reporter = Reporter(systemd, daemon)
    try:
        reporter.start()
        await daemon.open(redactor)
        try:
            await _serve(daemon, loaded.layout, systemd, reporter)
        finally:
            reporter.stopping()
            await daemon.close()
    finally:
        await reporter.close()
        lock.release()
    _log.info("clawd ended")


def _lend_threads() -> None:
    """Have a few threads for blocking work now, so that it goes on where none can be begun later.

    Raises:
        ClawError: not even these can be had.
    """
    most = min(32, (os.cpu_count() or 1) + 4)  # as many as asyncio would take
    try:
        pool = Pool(most, "clawd", ready=READY_THREADS)
    except RuntimeError as error:
        raise ClawError(
            f"clawd cannot begin {READY_THREADS} threads: {error}",
            hint="Its user has too many processes: look at `ulimit -u`, or LimitNPROC= and "
            "TasksMax= of the unit.",
        ) from error
    asyncio.get_running_loop().set_default_executor(pool)


async def _serve(daemon: Daemon, layout: Layout, systemd: Systemd, reporter: Reporter) -> None:
    # Before anybody is let in: who was answered may send one, and by default it kills.
    _install_signals(daemon, reporter)
    policy = daemon.peers
    gateway = await _gateway(daemon, policy, systemd)
    try:
        door = await _open_door(daemon, layout, systemd, policy)
        await _serve_socket(daemon, door, reporter, gateway)
    finally:
        if gateway is not None:
            await gateway.close()


async def _gateway(daemon: Daemon, policy: PeerPolicy, systemd: Systemd) -> "Server | None":
    """Start the HTTP gateway, if there is to be one; without it nothing of it is loaded."""
    passed = systemd.http_listeners()
    if not daemon.loaded.config.channels.http.enabled:
        for each in passed:
            _log.warning("systemd passed a socket for the HTTP gateway, which is switched off")
            each.close()
        return None
    from clawd.service.http import start_gateway

    return await start_gateway(daemon, policy, passed=passed)


async def _open_door(daemon: Daemon, layout: Layout, systemd: Systemd, policy: PeerPolicy) -> Door:
    server = RpcServer(
        handlers_of(daemon),
        identify=lambda peer: identify(peer, policy),
        identity=Identity(version=__version__, pid=os.getpid(), home=str(layout.home)),
    )
    door = Door(server, layout.socket, watch=daemon.background.watch)
    await door.open(systemd.control_listeners())
    return door


async def _serve_socket(
    daemon: Daemon, door: Door, reporter: Reporter, gateway: "Server | None"
) -> None:
    _announce(daemon, door)
    reporter.ready()
    daemon.preload()
    daemon.begin_schedules()
    try:
        await daemon.shutdown_wanted.wait()
        _log.info("draining")
    finally:
        reporter.stopping()
        if gateway is not None:
            gateway.stop_listening()
        await door.shut()
    await _drain(daemon, gateway)
    # Of requests that are no turns; who waits for one is told, as for a turn.
    daemon.engine.cancel_all(lambda: BusyError("the daemon is ending", retry_after_s=5))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(door.server.settle(SETTLE_S))
        if gateway is not None:
            tasks.create_task(gateway.settle(SETTLE_S))
    await door.server.close()


async def _drain(daemon: Daemon, gateway: "Server | None") -> None:
    """Give turns and requests over HTTP their grace, together."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(daemon.drain())
        if gateway is not None:
            grace_s = daemon.state.loaded.config.limits.shutdown_grace_s
            tasks.create_task(gateway.settle(grace_s))


def _install_signals(daemon: Daemon, reporter: Reporter) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.shutdown_wanted.set)
    reloads: set[asyncio.Task[None]] = set()
    one_at_a_time = asyncio.Lock()

    def reload() -> None:
        task = loop.create_task(_reload(daemon, reporter, one_at_a_time))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)


async def _reload(daemon: Daemon, reporter: Reporter, one_at_a_time: asyncio.Lock) -> None:
    async with one_at_a_time:
        reporter.reloading()
        try:
            await daemon.reload()
        except ClawError as error:
            daemon.state.refuse_reload(error.message)
            _log.error("the new configuration is refused, the old one stays: %s", error.message)
        except Exception as error:  # noqa: BLE001 - the outermost handler of a signal
            daemon.state.refuse_reload(f"a defect: {type(error).__name__}; the log has it")
            _log.error("a reload failed by a defect", exc_info=error)
        finally:
            reporter.reloaded()


def _announce(daemon: Daemon, door: Door) -> None:
    config = daemon.loaded.config
    _log.info("clawd started", extra={"version": __version__, "pid": os.getpid()})
    restored = restored_from(daemon.loaded.layout.home)
    if restored:
        _log.warning("this home was restored", extra={"from": restored})
    _log.info("config path", extra={"path": str(daemon.loaded.path)})
    _log.info("workspace path", extra={"path": str(config.workspace_dir)})
    _log.info("provider selected", extra={"provider": config.default_provider})
    _log.info(
        "channel started",
        extra={"channel": "cli", "socket": str(door.path), "from_systemd": door.is_systemds},
    )


class InProcessDaemon:
    """A daemon on the loop of the program that holds it, for that program alone.

    It has a home, its lock and all parts, and neither socket nor signals. The program is a client
    like any other, over a pair of connected sockets that has no name, so the gate, the sandbox,
    memory and receipts are those of every daemon.

    Args:
        loaded: its configuration.
        environ: what it sees of the environment.
    """

    def __init__(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        self._loaded = loaded
        self._environ = environ
        self._stack = AsyncExitStack()
        self._daemon: Daemon
        self._server: RpcServer

    async def open(self) -> None:
        """Open everything; on failure what was opened is closed again.

        Raises:
            ClawError: the home is in use (`already_running`), or a part cannot be had.
        """
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise

    async def close(self) -> None:
        """Cancel what runs and close everything, highest first."""
        await self._stack.aclose()

    async def connect(self) -> socket.socket:
        """Return a connected socket at whose other end the daemon serves."""
        theirs, ours = socket.socketpair()
        theirs.setblocking(False)  # noqa: FBT003 - the signature of socket
        ours.setblocking(False)  # noqa: FBT003 - the signature of socket
        try:
            await self._server.take(theirs)
        except BaseException:
            theirs.close()
            ours.close()
            raise
        return ours

    def adjust(self, change: Callable[[RuntimeSettings], RuntimeSettings]) -> None:
        """Have what the configuration says to the runtime changed, from the next message on."""
        self._daemon.state.overlay(change)

    def hold_tools(self, tools: Sequence[Tool], *, alone: bool) -> None:
        """Offer tools of the program beside those of the configuration, or `alone`.

        Raises:
            InvalidRequestError: a name is no tool name or is taken; nothing was changed.
        """
        self._daemon.hold_tools(tools, alone=alone)

    @property
    def engine(self) -> Engine:
        """The local models."""
        return self._daemon.engine

    @property
    def provider(self) -> Provider:
        """The provider that answers unless a message names another one.

        Raises:
            ClawError: the configured one is not there.
        """
        state = self._daemon.state
        name = state.runtime.default_provider
        if name not in state.providers:
            raise ClawError(f"there is no provider {name!r}", code="not_found")
        return state.providers[name]

    async def _open(self) -> None:
        loaded = self._loaded
        make_folders(loaded)
        lock = HomeLock(loaded.layout.lock)
        lock.take()
        self._stack.callback(lock.release)
        self._daemon = Daemon(loaded, self._environ, owns_process=False, umask=_umask())
        await self._daemon.open(redactor_of(loaded, self._environ))
        self._stack.push_async_callback(self._daemon.close)
        principal = Principal(uid=os.geteuid(), gid=os.getegid(), pid=os.getpid(), role="admin")
        self._server = RpcServer(
            handlers_of(self._daemon),
            identify=lambda _peer: principal,
            identity=Identity(version=__version__, pid=os.getpid(), home=str(loaded.layout.home)),
        )
        self._stack.push_async_callback(self._server.close)
        self._stack.push_async_callback(self._end_turns)

    async def _end_turns(self) -> None:
        await self._daemon.inbox.close(grace_s=0.0)


def _umask() -> int:
    """Return the umask of this process; setting it in order to read it would show in threads."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077


async def checkup(config: Path | None, environ: Mapping[str, str]) -> Checkup:
    """Read the config, try the sandbox, look for the model; nothing is written."""
    path = config or layout(environ).config
    try:
        loaded = load(config, environ)
    except ConfigError as error:
        problems = error.problems or (error.message,)
        return Checkup(
            config=str(path), config_exists=path.exists(), problems=problems, hint=error.hint
        )
    settings = sandbox_settings_of(loaded, mode=loaded.config.security.sandbox, tools_cgroup=None)
    sandbox = Sandbox(settings)
    found, toolchains = await sandbox.probe(), await sandbox.toolchains()
    model, model_problem, model_hint = _model(loaded)
    form = LocalModels(loaded).form() if model == ASSISTANT and not model_problem else ""
    values = loaded.config
    section = values.providers.models.get(values.default_provider)
    http = values.channels.http
    return Checkup(
        config=str(loaded.path),
        config_exists=loaded.path.exists(),
        sandbox=found.level,
        sandbox_reason=found.reason,
        sandbox_layers=found.layers,
        sandbox_unbounded=found.unbounded,
        toolchains=tuple(map(str, toolchains.shown)),
        toolchains_left_out=toolchains.left_out,
        old_networks=tuple(alias for alias, server in values.mcp.servers.items() if server.network),
        hooks=tuple(f"{hook.event}: {hook.name} ({hook.where})" for hook in hooks_of(loaded)),
        hooks_missing=tuple(_missing_programs(hooks_of(loaded))),
        workspace=str(values.workspace_dir),
        memory=str(values.memory.path),
        receipts=str(values.receipts.path),
        receipts_enabled=values.receipts.enabled,
        provider=values.default_provider,
        provider_kind=section.kind if section is not None else "",
        provider_url=section.base_url if section is not None else "",
        key_variable=_missing_key(section.api_key_env if section is not None else "", environ),
        model=model,
        model_problem=model_problem,
        model_hint=model_hint,
        model_form=form,
        gateway=(str(http.host), http.port) if http.enabled else ("", 0),
    )


def _model(loaded: Loaded) -> tuple[str, str, str]:
    """Return the local model of the default provider, what is wrong with it and what to do."""
    name = local_default(loaded)
    if not name:
        return "", "", ""
    if not has_module("llama_cpp"):
        told = f"provider {loaded.config.default_provider} cannot answer: llama-cpp-python is not "
        line = install_line("local")
        return name, f"{told}installed", f"Install it with: {line}, or name a server as provider."
    try:
        LocalModels(loaded).find(name)
    except ClawError as error:
        return name, error.message, ""
    return name, "", ""


def _missing_programs(hooks: tuple[Hook, ...]) -> Iterator[str]:
    """Return the programs of hooks that are named by a path where no program is."""
    for hook in hooks:
        program = Path(hook.command[0])
        if program.is_absolute() and not (program.is_file() and os.access(program, os.X_OK)):
            yield f"{hook.event}: {program}"


def _missing_key(variable: str, environ: Mapping[str, str]) -> str:
    """Return the name of a variable that should hold a key and does not."""
    if not variable or environ.get(variable):
        return ""
    credentials = environ.get("CREDENTIALS_DIRECTORY", "")
    if credentials and os.access(Path(credentials) / variable, os.R_OK):
        return ""
    return variable
