"""The life of the daemon: lock, open, listen, serve, reload, drain, end."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from clawd import __version__
from clawd.channels.rpc.connection import Identity
from clawd.channels.rpc.server import RpcServer
from clawd.config.load import Loaded
from clawd.errors import ClawError
from clawd.paths import Layout
from clawd.security.peer import ADMIN_GROUP, USER_GROUP, PeerPolicy, group_id, identify
from clawd.security.redact import Redactor
from clawd.security.sandbox_cgroup import ToolsCgroup
from clawd.service.build import Daemon
from clawd.service.sockets import HomeLock, listen, remove, take_when_free
from clawd.service.systemd import Systemd

if TYPE_CHECKING:
    from clawd.channels.http.server import Server

SETTLE_S = 2.0

_log = logging.getLogger(__name__)


async def run(loaded: Loaded, environ: Mapping[str, str], redactor: Redactor) -> None:
    """Run the daemon to its end.

    Raises:
        ClawError: it cannot start; the message says why and what to do.
    """
    systemd = Systemd(environ)
    lock = HomeLock(loaded.layout.lock)
    await take_when_free(lock, loaded.layout.socket)
    daemon = Daemon(loaded, environ)
    try:
        await daemon.open(redactor)
        try:
            await _serve(daemon, loaded.layout, systemd)
        finally:
            systemd.notify("STOPPING=1", "STATUS=draining")
            await daemon.close()
    finally:
        lock.release()
    _log.info("clawd ended")


async def _serve(daemon: Daemon, layout: Layout, systemd: Systemd) -> None:
    policy = _peer_policy(layout, daemon.tools_cgroup)
    gateway = await _gateway(daemon, policy)
    try:
        await _serve_socket(daemon, layout, systemd, policy, gateway)
    finally:
        if gateway is not None:
            await gateway.close()


async def _gateway(daemon: Daemon, policy: PeerPolicy) -> "Server | None":
    """Start the HTTP gateway, if there is to be one; without it nothing of it is loaded."""
    if not daemon.loaded.config.channels.http.enabled:
        return None
    from clawd.service.http import start_gateway

    return await start_gateway(daemon, policy)


async def _serve_socket(
    daemon: Daemon,
    layout: Layout,
    systemd: Systemd,
    policy: PeerPolicy,
    gateway: "Server | None",
) -> None:
    passed = systemd.listeners()
    listener = passed[0] if passed else listen(layout.socket)
    made = None if passed else layout.socket.lstat()
    server = RpcServer(
        daemon.handlers,
        identify=lambda peer: identify(peer, policy),
        identity=Identity(version=__version__, pid=os.getpid(), home=str(layout.home)),
    )
    await server.start(listener)
    _install_signals(daemon, systemd)
    _announce(daemon, layout, from_systemd=bool(passed))
    systemd.notify("READY=1", f"STATUS=serving {layout.socket}")
    watchdog = asyncio.create_task(_feed_watchdog(daemon, systemd))
    try:
        await daemon.shutdown_wanted.wait()
        _log.info("draining")
    finally:
        watchdog.cancel()
        if gateway is not None:
            gateway.stop_listening()
        await server.stop_listening()
        if made is not None:
            remove(layout.socket, made)
    await _drain(daemon, gateway)
    await server.settle(SETTLE_S)
    await server.close()


async def _drain(daemon: Daemon, gateway: "Server | None") -> None:
    """Give turns and requests over HTTP their grace, together."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(daemon.drain())
        if gateway is not None:
            grace_s = daemon.state.loaded.config.limits.shutdown_grace_s
            tasks.create_task(gateway.settle(grace_s))


def _peer_policy(layout: Layout, tools: ToolsCgroup | None) -> PeerPolicy:
    return PeerPolicy(
        mode="system" if layout.is_system else "user",
        owner_uid=os.geteuid(),
        user_gid=group_id(USER_GROUP),
        admin_gid=group_id(ADMIN_GROUP),
        tools_cgroup=tools.name if tools is not None else "",
    )


def _install_signals(daemon: Daemon, systemd: Systemd) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.shutdown_wanted.set)
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(_reload(daemon, systemd))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)


async def _reload(daemon: Daemon, systemd: Systemd) -> None:
    systemd.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
    try:
        await daemon.reload()
    except ClawError as error:
        _log.error("the new configuration is refused, the old one stays: %s", error.message)
    systemd.notify("READY=1")


async def _feed_watchdog(daemon: Daemon, systemd: Systemd) -> None:
    """Send a sign of life from the main loop for as long as the daemon can do its work."""
    interval = systemd.watchdog_interval_s()
    while interval is not None:
        if not daemon.problem:
            systemd.notify("WATCHDOG=1")
        await asyncio.sleep(interval)


def _announce(daemon: Daemon, layout: Layout, *, from_systemd: bool) -> None:
    config = daemon.loaded.config
    _log.info("clawd started", extra={"version": __version__, "pid": os.getpid()})
    _log.info("config path", extra={"path": str(daemon.loaded.path)})
    _log.info("workspace path", extra={"path": str(config.workspace_dir)})
    _log.info("provider selected", extra={"provider": config.default_provider})
    _log.info(
        "channel started",
        extra={"channel": "cli", "socket": str(layout.socket), "from_systemd": from_systemd},
    )
