"""Handlers about plugins: inspect, install, approve, remove, reload."""

import logging
from pathlib import Path

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.errors import InvalidRequestError
from clawd.plugins.loader import Installed, Review
from clawd.tools.base import first_line, in_thread
from clawd.wire.extension_reports import (
    PluginFileLine,
    PluginLine,
    PluginList,
    PluginReview,
    PluginToolLine,
)
from clawd.wire.plugin_methods import (
    ApprovePlugin,
    InspectPlugin,
    InstallPlugin,
    ListPlugins,
    ReloadPlugins,
    RemovePlugin,
)
from clawd.wire.reports import Done

_FROM_WORKSPACE = "it lies in the workspace: the model may have written it, read its files first"

_log = logging.getLogger(__name__)


class PluginHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def list_plugins(self, _params: ListPlugins, _call: Call) -> PluginList:
        """List the installed plugins."""
        return PluginList(items=tuple(map(_line, await in_thread(self.parts.plugins.installed))))

    async def inspect_plugin(self, params: InspectPlugin, _call: Call) -> PluginReview:
        """Say what a plugin is and may do."""
        store = self.parts.plugins
        if bool(params.path) == bool(params.name):
            raise InvalidRequestError("either a path or a name is wanted")
        if params.name:
            return _shown(await in_thread(lambda: store.review(params.name)))
        source = _source(params.path)
        found = await in_thread(lambda: store.inspect(source))
        if source.resolve().is_relative_to(self.parts.calls.workspace("")):
            found = msgspec.structs.replace(found, reach=(*found.reach, _FROM_WORKSPACE))
        return _shown(found)

    async def install_plugin(self, params: InstallPlugin, call: Call) -> Done:
        """Install a plugin."""
        store, by, source = self.parts.plugins, call.principal.uid, _source(params.path)
        found = await in_thread(lambda: store.install(source, digest=params.digest, by=by))
        _log.info("plugin installed", extra=_facts(found, by))
        return await self._took_effect(found, "is installed")

    async def approve_plugin(self, params: ApprovePlugin, call: Call) -> Done:
        """Approve a plugin as it is now."""
        store, by = self.parts.plugins, call.principal.uid
        found = await in_thread(lambda: store.approve(params.name, digest=params.digest, by=by))
        _log.info("plugin approved", extra=_facts(found, by))
        return await self._took_effect(found, "is approved")

    async def remove_plugin(self, params: RemovePlugin, call: Call) -> Done:
        """Remove a plugin."""
        await in_thread(lambda: self.parts.plugins.remove(params.name))
        await self.parts.reload_tools()
        _log.info("plugin removed", extra={"plugin": params.name, "by": call.principal.uid})
        return Done(message=f"{params.name} is removed")

    async def reload_plugins(self, _params: ReloadPlugins, _call: Call) -> Done:
        """Read plugins and external tools again."""
        await self.parts.reload_tools()
        refused = sum(each.severity == "refused" for each in self.parts.tool_problems())
        added = sum(tool.source in {"plugin", "external"} for tool in self.parts.registry.all())
        rest = f"; {refused} left out, see clawctl tool problems" if refused else ""
        return Done(message=f"{added} tools of plugins and manifests are loaded{rest}")

    async def _took_effect(self, found: Review, what: str) -> Done:
        await self.parts.reload_tools()
        name = found.manifest.name
        wanted = {each.name for each in found.manifest.tools}
        loaded = {tool.name for tool in self.parts.registry.all() if tool.source == "plugin"}
        text = f"{name} {found.manifest.version} {what}"
        if left := sorted(wanted - loaded):
            text += f"; not loaded: {', '.join(left)} (see clawctl tool problems)"
        return Done(message=text)


def _source(path: str) -> Path:
    if "\0" in path or not Path(path).is_absolute():
        raise InvalidRequestError(f"{path[:80]!r} is no absolute path")
    return Path(path)


def _facts(found: Review, by: int) -> dict[str, object]:
    return {"plugin": found.manifest.name, "digest": found.digest, "by": by}


def _line(plugin: Installed) -> PluginLine:
    manifest = plugin.manifest
    return PluginLine(
        name=plugin.name,
        state=plugin.state,
        version=manifest.version if manifest is not None else "",
        capabilities=manifest.capabilities if manifest is not None else (),
        tools=tuple(each.name for each in manifest.tools) if manifest is not None else (),
        digest=plugin.digest,
        approved_at=plugin.approved_at,
        reason=plugin.reason,
    )


def _shown(found: Review) -> PluginReview:
    manifest = found.manifest
    return PluginReview(
        name=manifest.name,
        version=manifest.version,
        description=manifest.description,
        digest=found.digest,
        tools=tuple(
            PluginToolLine(name=each.name, risk=each.risk, description=first_line(each.description))
            for each in manifest.tools
        ),
        files=tuple(
            PluginFileLine(path=path, size_bytes=size, is_program=is_program)
            for path, size, is_program in found.files
        ),
        reach=found.reach,
        secrets=found.secrets,
        replaces=found.replaces,
        changes=found.changes,
    )
