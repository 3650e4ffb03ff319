"""Handlers about the daemon itself: its state, stop, config, log, keys, caches."""

import asyncio
import ipaddress
import logging
import os
import re
import time
from pathlib import Path

import msgspec

from clawd import __version__
from clawd.channels.rpc.connection import Call
from clawd.config.render import REDACTED, overridden, redacted
from clawd.errors import InvalidRequestError, StorageError
from clawd.memory.rows import Counts, visible_to
from clawd.security.keys import LINK_S, ApiKey
from clawd.security.principal import Principal
from clawd.security.sandbox.home import ProjectCache
from clawd.service.build import Daemon
from clawd.service.handlers.shared import NOT_SHOWN
from clawd.service.home import restored_from
from clawd.service.logs import ring
from clawd.wire import daemon as wire
from clawd.wire.codec import mirror
from clawd.wire.method import Done
from clawd.wire.safe_text import single_line

_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104
_PAGE_AT = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?/?"
)

_log = logging.getLogger(__name__)


async def status(daemon: Daemon, _params: wire.Status, call: Call) -> wire.StatusReport:
    """Report on the daemon; of what has an owner, what the caller may see."""
    config, layout = daemon.state.loaded.config, daemon.state.loaded.layout
    problem = daemon.memory.failure or daemon.background.problem
    try:
        counts = await daemon.memory.conversations.counts(owner=visible_to(call.principal))
    except StorageError as error:  # the one who asks wants to know what is wrong
        counts, problem = Counts(conversations=0, messages=0), problem or error.message
    stop, sandbox = daemon.estop.state(), daemon.sandbox.status
    running, queued = daemon.inbox.turns
    head = daemon.chain.head() if daemon.chain is not None else None
    model, model_note = await asyncio.to_thread(daemon.state.answering)
    return wire.StatusReport(
        pid=os.getpid(),
        version=__version__,
        home=str(layout.home),
        socket=str(layout.socket),
        gateway=daemon.gateway_address,
        workspace=str(config.workspace_dir),
        config=str(daemon.state.loaded.path),
        started_at=daemon.began_at,
        found_at_start=daemon.last_run.found,
        uptime_s=round(time.monotonic() - daemon.began_s, 3),
        autonomy=config.security.autonomy,
        sandbox=sandbox.level if sandbox is not None else "none",
        sandbox_reason=sandbox.reason if sandbox is not None else "",
        sandbox_layers=sandbox.layers if sandbox is not None else (),
        sandbox_unbounded=sandbox.unbounded if sandbox is not None else (),
        estop=stop.is_set,
        estop_reason=stop.reason,
        default_provider=config.default_provider,
        default_model=config.default_model,
        model=model,
        model_note=model_note,
        receipts_enabled=daemon.chain is not None,
        receipts=head.seq if head is not None else 0,
        receipts_head=head.receipt_hash if head is not None else "",
        receipts_problem=_receipts_problem(daemon),
        problem=problem,
        restored=restored_from(layout.home),
        reload_refused=daemon.state.reload_refused,
        conversations=counts.conversations,
        meaning=await _meaning(daemon, call.principal),
        turns_running=running,
        turns_queued=queued,
        jobs_running=sum(job.state == "running" for job in daemon.jobs.seen_by(call.principal)),
        approvals_pending=len(daemon.approvals.pending(call.principal)),
        rules=len(daemon.rules.rules(call.principal)),
        rules_problem=daemon.rules.problem,
        workers=_workers(daemon),
        servers=_servers(daemon, call.principal),
    )


async def ping(_daemon: Daemon, _params: wire.Ping, _call: Call) -> Done:
    """Answer at once."""
    return Done(message="pong")


async def reload(daemon: Daemon, _params: wire.Reload, _call: Call) -> Done:
    """Read the config again."""
    return Done(message=await daemon.reload())


async def shutdown(daemon: Daemon, _params: wire.Shutdown, _call: Call) -> Done:
    """Begin the end."""
    daemon.shutdown_wanted.set()
    return Done(message="clawd is shutting down")


async def show_config(daemon: Daemon, _params: wire.ShowConfig, _call: Call) -> wire.ConfigText:
    """Show the effective configuration."""
    loaded = daemon.state.loaded
    return wire.ConfigText(path=str(loaded.path), values=redacted(loaded))


async def compare_environment(
    daemon: Daemon, params: wire.CompareEnvironment, call: Call
) -> wire.EnvironmentReport:
    """Return which variables ask for what is not in force; for admins, what is in force, too.

    About a secret nobody else is answered, because the answer would tell a right guess.
    """
    found = overridden(daemon.state.loaded, params.variables)
    if not call.principal.is_admin:
        found = tuple(
            msgspec.structs.replace(each, effective=REDACTED)
            for each in found
            if each.wanted != REDACTED
        )
    return wire.EnvironmentReport(items=found)


async def estop_state(daemon: Daemon, _params: wire.EstopState, _call: Call) -> wire.EstopReport:
    """Report the emergency stop."""
    return _report(daemon)


async def set_estop(daemon: Daemon, params: wire.SetEstop, call: Call) -> wire.EstopReport:
    """Set the emergency stop: anyone who may talk may stop."""
    await daemon.estop.set_from_loop(params.reason, by=f"uid {call.principal.uid}")
    return _report(daemon)


async def clear_estop(daemon: Daemon, _params: wire.ClearEstop, _call: Call) -> wire.EstopReport:
    """Clear the emergency stop; the connection has checked that the caller is an admin."""
    daemon.estop.clear()
    return _report(daemon)


async def tail_log(_daemon: Daemon, params: wire.TailLog, _call: Call) -> wire.LogPage:
    """Return lines of the log; the connection has checked that the caller is an admin."""
    return ring().page(params)


async def show_metrics(
    daemon: Daemon, _params: wire.ShowMetrics, _call: Call
) -> wire.MetricsReport:
    """Show what the daemon counts and measures."""
    return await daemon.metrics.report()


async def list_caches(daemon: Daemon, _params: wire.ListCaches, _call: Call) -> wire.CacheList:
    """List what commands keep between them."""
    caches = daemon.sandbox.caches
    kept = await asyncio.to_thread(caches.all) if caches is not None else []
    return wire.CacheList(
        items=tuple(map(_cache_line, kept)),
        limit_bytes=daemon.state.loaded.config.sandbox.cache_mb << 20,
    )


async def clear_caches(daemon: Daemon, params: wire.ClearCaches, _call: Call) -> wire.CachesCleared:
    """Remove what commands keep, of one project or of all."""
    caches = daemon.sandbox.caches
    if caches is None:
        return wire.CachesCleared(removed=())

    def act() -> tuple[list[ProjectCache], list[ProjectCache]]:
        wanted = str(Path(params.workspace).resolve()) if params.workspace else ""
        meant = [each for each in caches.all() if wanted in {"", each.workspace}]
        removed = [each for each in meant if caches.remove(each.id)]
        return removed, [each for each in meant if each not in removed]

    removed, in_use = await asyncio.to_thread(act)
    return wire.CachesCleared(
        removed=tuple(map(_cache_line, removed)), in_use=tuple(map(_cache_line, in_use))
    )


async def create_key(daemon: Daemon, params: wire.CreateKey, call: Call) -> wire.NewKey:
    """Make a key that acts as the caller."""
    key, text = await daemon.keys.create(
        call.principal, name=params.name, scopes=params.scopes, days=params.days
    )
    extra = {"key": key.id, "uid": key.owner, "scopes": ",".join(key.scopes)}
    _log.info("a key was made", extra=extra)
    return wire.NewKey(key=text, line=_key_line(daemon, key))


async def list_keys(daemon: Daemon, _params: wire.ListKeys, call: Call) -> wire.KeyList:
    """List the caller's keys."""
    return wire.KeyList(
        items=tuple(_key_line(daemon, key) for key in daemon.keys.visible_to(call.principal))
    )


async def revoke_key(daemon: Daemon, params: wire.RevokeKey, call: Call) -> Done:
    """Take a key out of force."""
    key = await daemon.keys.revoke(params.key, call.principal)
    _log.info("a key was revoked", extra={"key": key.id, "by": call.principal.uid})
    told = f"revoked {key.id}"
    if not len(daemon.keys):
        told += (
            "; no key is left, and the gateway goes on asking for one: make one with "
            'clawctl key create, or set keyless = "on" in [channels.http] for programs of '
            "the owner on this machine"
        )
    return Done(message=told)


def _workers(daemon: Daemon) -> tuple[wire.WorkerLine, ...]:
    return tuple(
        wire.WorkerLine(
            alias=each.alias,
            pid=each.pid,
            state=each.state,
            running=each.running,
            context_size=each.info.n_ctx if each.info is not None else 0,
            fence=each.info.fence if each.info is not None else "",
        )
        for each in daemon.engine.status()
    )


async def _meaning(daemon: Daemon, principal: Principal) -> wire.MeaningLine | None:
    if daemon.meaning is None:
        return None
    problem = daemon.meaning.indexer.problem
    try:
        counted = await daemon.meaning.counts(owner=visible_to(principal))
    except StorageError as error:
        return wire.MeaningLine(model=daemon.meaning.named, problem=error.message)
    return wire.MeaningLine(
        model=daemon.meaning.named,
        indexed=counted.indexed,
        messages=counted.wanted,
        problem=problem,
    )


def _receipts_problem(daemon: Daemon) -> str:
    failure = daemon.chain.failure if daemon.chain is not None else ""
    return failure or (daemon.anchor.problem if daemon.anchor is not None else "")


def _servers(daemon: Daemon, principal: Principal) -> tuple[wire.ServerLine, ...]:
    mcp = daemon.mcp.directory
    return tuple(
        wire.ServerLine(
            alias=each.alias,
            link=each.link,
            tools=len(mcp.catalogue.of(each.alias)),
            problem=NOT_SHOWN if each.problem and not principal.is_admin else each.problem,
        )
        for each in mcp.states()
    )


def _report(daemon: Daemon) -> wire.EstopReport:
    state = daemon.estop.state()
    reason = state.reason
    if state.by:
        reason = f"{reason or 'no reason given'} (by {state.by}, {state.at})"
    return wire.EstopReport(is_set=state.is_set, reason=reason)


async def link_page(daemon: Daemon, params: wire.LinkPage, call: Call) -> wire.PageLink:
    """Return an address that opens the page, with a one-time login where it asks for a key."""
    address, is_here = _page_address(daemon, params.at)
    if is_here and daemon.needs_no_key() and not params.always:
        return wire.PageLink(url=f"{address}/")
    text = daemon.keys.links.make(call.principal, is_here=is_here)
    _log.info("a one-time link to the page was made", extra={"uid": call.principal.uid})
    return wire.PageLink(url=f"{address}/#login={text}", expires_in_s=LINK_S)


def _page_address(daemon: Daemon, at: str) -> tuple[str, bool]:
    """Return scheme, host and port of the page, and whether only this machine can mean them.

    Raises:
        InvalidRequestError: there is no page, or the name is none of the gateway's.
    """
    http = daemon.loaded.config.channels.http
    if not (daemon.gateway_address and http.page):
        raise InvalidRequestError(
            "the page is switched off",
            hint="Set enabled = true and page = true in [channels.http] of "
            f"{daemon.loaded.path}, and restart clawd.",
        )
    scheme, _, bound = daemon.gateway_address.partition(", ")[0].partition("://")
    own = http.host
    if own in _EVERYWHERE:
        own = next(iter(http.allowed_hosts), "127.0.0.1")
    match = _PAGE_AT.fullmatch(at or (f"[{own}]" if ":" in own else own))
    host = match["host"].lower() if match is not None else ""
    address = _ip(host)
    if match is None or (address is None and host not in {*http.allowed_hosts, own, "localhost"}):
        raise InvalidRequestError(
            f"{single_line(at)!r} is no name of this gateway",
            hint="An admin can add one to [channels.http] allowed_hosts.",
        )
    port = match["port"] or ("" if match["scheme"] else bound.rpartition(":")[2])
    is_here = host == "localhost" or (address is not None and address.is_loopback)
    return f"{match['scheme'] or scheme}://{host}{port and f':{port}'}", is_here


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _key_line(daemon: Daemon, key: ApiKey) -> wire.KeyLine:
    return mirror(wire.KeyLine, key, is_expired=daemon.keys.is_expired(key))


def _cache_line(cache: ProjectCache) -> wire.CacheLine:
    used_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(cache.used_at))
    workspace = os.fsencode(cache.workspace).decode(errors="replace")
    return wire.CacheLine(workspace=workspace, size_bytes=cache.size_bytes, used_at=used_at)
