"""Handlers about the daemon itself: status, config, emergency stop, providers."""

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import NOT_SHOWN, Handler
from clawd.config.render import REDACTED
from clawd.errors import NotFoundError
from clawd.wire.methods import (
    CheckProvider,
    ClearEstop,
    CompareEnvironment,
    EstopState,
    ListProviders,
    Ping,
    Reload,
    SetEstop,
    ShowConfig,
    Shutdown,
    Status,
)
from clawd.wire.reports import (
    ConfigText,
    Done,
    EnvironmentReport,
    EstopReport,
    ProviderList,
    StatusReport,
)
from clawd.wire.status_reports import ServerLine


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
