"""Handlers about the daemon itself: status, config, stop, providers, log, keys, caches."""

import asyncio
import logging
import os
import time
from pathlib import Path

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import NOT_SHOWN, Handler
from clawd.config.render import REDACTED
from clawd.errors import NotFoundError
from clawd.security.keys import ApiKey
from clawd.security.sandbox_home import ProjectCache
from clawd.wire.daemon import (
    CacheLine,
    CacheList,
    CachesCleared,
    ClearCaches,
    ClearEstop,
    CompareEnvironment,
    ConfigText,
    CreateKey,
    EnvironmentReport,
    EstopReport,
    EstopState,
    KeyLine,
    KeyList,
    ListCaches,
    ListKeys,
    LogPage,
    MetricsReport,
    NewKey,
    Ping,
    Reload,
    RevokeKey,
    ServerLine,
    SetEstop,
    ShowConfig,
    ShowMetrics,
    Shutdown,
    Status,
    StatusReport,
    TailLog,
)
from clawd.wire.memory import BackUpMemory, CheckMemory, MemoryCheck
from clawd.wire.method import Done
from clawd.wire.models import CheckProvider, ListProviders, ProviderList
from clawd.wire.turns import ListTurns, TurnList

_log = logging.getLogger(__name__)


class ServiceHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def status(self, _params: Status, call: Call) -> StatusReport:
        """Report on the daemon, and on what the caller may see of it."""
        report = await self.parts.status(call.principal)
        mcp, is_admin = self.parts.mcp, call.principal.is_admin
        servers = tuple(
            ServerLine(
                alias=each.alias,
                link=each.link,
                tools=len(mcp.catalogue.of(each.alias)),
                problem=each.problem if is_admin or not each.problem else NOT_SHOWN,
            )
            for each in mcp.states()
        )
        return msgspec.structs.replace(report, servers=servers)

    async def ping(self, _params: Ping, _call: Call) -> Done:
        """Answer at once."""
        return Done(message="pong")

    async def reload(self, _params: Reload, _call: Call) -> Done:
        """Read the config again."""
        return Done(message=await self.parts.reload())

    async def shutdown(self, _params: Shutdown, _call: Call) -> Done:
        """Begin the end."""
        self.parts.shutdown()
        return Done(message="clawd is shutting down")

    async def show_config(self, _params: ShowConfig, _call: Call) -> ConfigText:
        """Show the effective configuration."""
        path, values = self.parts.effective_config()
        return ConfigText(path=path, values=values)

    async def compare_environment(
        self, params: CompareEnvironment, call: Call
    ) -> EnvironmentReport:
        """Return which variables ask for what is not in force; for admins, what is in force, too.

        About a secret nobody else is answered, because the answer would tell a right guess.
        """
        found = self.parts.overridden(params.variables)
        if not call.principal.is_admin:
            found = tuple(
                msgspec.structs.replace(each, effective=REDACTED)
                for each in found
                if each.wanted != REDACTED
            )
        return EnvironmentReport(items=found)

    async def list_providers(self, _params: ListProviders, _call: Call) -> ProviderList:
        """List the configured providers."""
        return ProviderList(items=self.parts.provider_lines())

    async def check_provider(self, params: CheckProvider, _call: Call) -> Done:
        """Reach a provider with the smallest request."""
        lines = self.parts.provider_lines()
        name = params.name or next((line.name for line in lines if line.is_default), "")
        provider = self.parts.providers().get(name)
        if provider is None:
            known = ", ".join(line.name for line in lines)
            raise NotFoundError(f"there is no provider {name!r}; configured: {known}")
        return Done(message=await provider.check())

    async def estop_state(self, _params: EstopState, _call: Call) -> EstopReport:
        """Report the emergency stop."""
        return self._report()

    async def set_estop(self, params: SetEstop, call: Call) -> EstopReport:
        """Set the emergency stop: anyone who may talk may stop."""
        await self.parts.estop.set_from_loop(params.reason, by=f"uid {call.principal.uid}")
        return self._report()

    async def clear_estop(self, _params: ClearEstop, _call: Call) -> EstopReport:
        """Clear the emergency stop; the connection has checked that the caller is an admin."""
        self.parts.estop.clear()
        return self._report()

    def _report(self) -> EstopReport:
        state = self.parts.estop.state()
        reason = state.reason
        if state.by:
            reason = f"{reason or 'no reason given'} (by {state.by}, {state.at})"
        return EstopReport(is_set=state.is_set, reason=reason)

    async def tail_log(self, params: TailLog, _call: Call) -> LogPage:
        """Return lines of the log; the connection has checked that the caller is an admin."""
        return self.parts.log(params)

    async def show_metrics(self, _params: ShowMetrics, _call: Call) -> MetricsReport:
        """Show what the daemon counts and measures."""
        return await self.parts.metrics()

    async def list_turns(self, _params: ListTurns, call: Call) -> TurnList:
        """List the turns that run."""
        return self.parts.turns(call.principal)

    async def back_up_memory(self, params: BackUpMemory, _call: Call) -> Done:
        """Write a copy of memory."""
        size = await self.parts.memory.upkeep.backup(Path(params.path))
        return Done(message=f"{params.path} ({size} bytes)")

    async def check_memory(self, params: CheckMemory, _call: Call) -> MemoryCheck:
        """Check memory, and make bad search indexes anew if asked to."""
        upkeep = self.parts.memory.upkeep
        problems = await upkeep.check()
        is_repaired = False
        if problems and params.repair:
            await upkeep.rebuild_indexes()
            problems = await upkeep.check()
            is_repaired = not problems
        return MemoryCheck(
            path=str(self.parts.memory.path),
            used_bytes=await upkeep.size(),
            problems=problems,
            is_repaired=is_repaired,
        )

    async def list_caches(self, _params: ListCaches, _call: Call) -> CacheList:
        """List what commands keep between them."""
        caches = self.parts.caches
        kept = await asyncio.to_thread(caches.all) if caches is not None else []
        return CacheList(items=tuple(map(_cache_line, kept)), limit_bytes=self.parts.cache_bytes())

    async def clear_caches(self, params: ClearCaches, _call: Call) -> CachesCleared:
        """Remove what commands keep, of one project or of all."""
        caches = self.parts.caches
        if caches is None:
            return CachesCleared(removed=())

        def act() -> tuple[list[ProjectCache], list[ProjectCache]]:
            wanted = str(Path(params.workspace).resolve()) if params.workspace else ""
            meant = [each for each in caches.all() if wanted in {"", each.workspace}]
            removed = [each for each in meant if caches.remove(each.id)]
            return removed, [each for each in meant if each not in removed]

        removed, in_use = await asyncio.to_thread(act)
        return CachesCleared(
            removed=tuple(map(_cache_line, removed)), in_use=tuple(map(_cache_line, in_use))
        )

    async def create_key(self, params: CreateKey, call: Call) -> NewKey:
        """Make a key that acts as the caller."""
        key, text = await self.parts.keys.create(
            call.principal, name=params.name, scopes=params.scopes, days=params.days
        )
        extra = {"key": key.id, "uid": key.owner, "scopes": ",".join(key.scopes)}
        _log.info("a key was made", extra=extra)
        return NewKey(key=text, line=self._key_line(key))

    async def list_keys(self, _params: ListKeys, call: Call) -> KeyList:
        """List the caller's keys."""
        return KeyList(items=tuple(map(self._key_line, self.parts.keys.visible_to(call.principal))))

    async def revoke_key(self, params: RevokeKey, call: Call) -> Done:
        """Take a key out of force."""
        key = await self.parts.keys.revoke(params.key, call.principal)
        _log.info("a key was revoked", extra={"key": key.id, "by": call.principal.uid})
        told = f"revoked {key.id}"
        if not len(self.parts.keys):
            told += (
                "; no key is left, and the gateway goes on asking for one: make one with "
                'clawctl key create, or set keyless = "on" in [channels.http] for programs of '
                "the owner on this machine"
            )
        return Done(message=told)

    def _key_line(self, key: ApiKey) -> KeyLine:
        return KeyLine(
            id=key.id,
            name=key.name,
            owner=key.owner,
            scopes=key.scopes,
            created_at=key.created_at,
            expires_at=key.expires_at,
            used_at=key.used_at,
            is_expired=self.parts.keys.is_expired(key),
        )


def _cache_line(cache: ProjectCache) -> CacheLine:
    used_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(cache.used_at))
    workspace = os.fsencode(cache.workspace).decode(errors="replace")
    return CacheLine(workspace=workspace, size_bytes=cache.size_bytes, used_at=used_at)
