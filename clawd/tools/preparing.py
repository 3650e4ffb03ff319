"""From what somebody asked for to an action that can be judged: the tool, its arguments, its risk.

Decides nothing about permission, but for tools that are not offered where the call came from.
"""

import logging
from typing import Any

import msgspec

from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.security.action import NO_SANDBOX, Action
from clawd.security.held_paths import HeldPaths
from clawd.security.risk import Assessment
from clawd.tools.base import Tool, ToolContext
from clawd.tools.facades import ToolMode
from clawd.tools.journal import Entry, Journal
from clawd.tools.offer import Offer
from clawd.tools.outcome import CallRequest, CallScope
from clawd.tools.refusals import Refused
from clawd.tools.registry import Registry
from clawd.tools.resolving import Resolver
from clawd.tools.schema import decode_arguments
from clawd.tools.telling import DispatchSettings
from clawd.wire.events import ToolProgress

_KEPT_OFFERS = 32

_log = logging.getLogger(__name__)


class PreparedCall(msgspec.Struct, kw_only=True):
    """A call that can be judged and run."""

    tool: Tool
    arguments: dict[str, Any]
    action: Action
    context: ToolContext
    offer: Offer

    @property
    def held(self) -> HeldPaths:
        """The paths that it was judged by."""
        assert self.context.held is not None
        return self.context.held


class CallPreparer:
    """Prepares calls.

    Args:
        registry: the tools.
        journal: writes arguments as they are kept.
        settings: the sandbox level in force.
    """

    def __init__(self, registry: Registry, journal: Journal, settings: DispatchSettings) -> None:
        self._registry = registry
        self._journal = journal
        self._settings = settings
        self._resolver = Resolver(registry)
        self._offers: dict[tuple[int, frozenset[str] | None, ToolMode], Offer] = {}

    def prepare(
        self, request: CallRequest, scope: CallScope, entry: Entry
    ) -> PreparedCall | Refused:
        """Return the call, or why it cannot be made; the entry learns what it is."""
        offer = self._offer(scope)
        try:
            meant = self._resolver.resolve(request, offer)
            tool = meant.tool
            if meant.asked:
                entry.asked = self._journal.name_of(meant.asked)
            entry.tool = tool.name
            if scope.offered is not None and tool.name not in scope.offered:
                reason = f"{tool.name} is not offered on this channel"
                return Refused(kind="denied", reason=reason, text=f"denied: {reason}")
            arguments = meant.arguments()
        except NotFoundError as error:
            return Refused(kind="unknown_tool", reason="unknown tool", text=_told(error))
        except InvalidRequestError as error:
            return Refused(kind="bad_arguments", reason="bad arguments", text=_told(error))
        held = HeldPaths()
        action = self._judged(tool, arguments, request, scope, held)
        entry.arguments = action.arguments
        entry.risk = action.assessment.risk
        if tool.starts_process:
            entry.sandbox = self._settings.sandbox_level
        context = ToolContext(
            conversation_id=scope.conversation_id,
            call_id=request.id,
            principal=scope.principal,
            workspace=scope.workspace,
            receipt_id=entry.id,
            report=lambda text: scope.emit(ToolProgress(call_id=request.id, text=text)),
            emit=scope.emit,
            ask=scope.ask,
            open_page=scope.open_page,
            tools=offer,
            held=held,
        )
        return PreparedCall(
            tool=tool, arguments=arguments, action=action, context=context, offer=offer
        )

    def action(self, request: CallRequest, scope: CallScope) -> Action:
        """Return what would be judged, without a trail.

        Raises:
            NotFoundError, InvalidRequestError: no such tool, or arguments that cannot be meant.
        """
        meant = self._resolver.resolve(request, self._offer(scope))
        held = HeldPaths()
        try:
            return self._action(meant.tool, meant.arguments(), request, scope, held)
        finally:
            held.close()

    def renew(self, prepared: PreparedCall, request: CallRequest, scope: CallScope) -> None:
        """Prepare a call again in place, with the tool and the arguments that were approved.

        What the caller wrote is not read once more: tools may have come that it would mean now.

        Raises:
            NotFoundError, InvalidRequestError: it cannot be meant any more as it was approved.
            ForbiddenError: a path of it leads elsewhere by now.
        """
        tool = self._registry.get(prepared.tool.name)
        arguments = decode_arguments(prepared.arguments, tool.parameters)
        held = prepared.held
        held.check()
        action = msgspec.structs.replace(
            self._action(tool, arguments, request, scope, held), outcome=prepared.action.outcome
        )
        # Whether it is the same program is for the caller to compare, by the digest.
        if action.arguments != prepared.action.arguments:
            raise InvalidRequestError("it takes these arguments in another way now")
        prepared.tool, prepared.arguments, prepared.action = tool, arguments, action

    def edit(
        self,
        prepared: PreparedCall,
        arguments: str,
        request: CallRequest,
        scope: CallScope,
        entry: Entry,
    ) -> None:
        """Give a call other arguments, in place: those that a person wrote, as JSON.

        Raises:
            NotFoundError, InvalidRequestError: it cannot be meant so; it stays as it was.
        """
        try:
            values = msgspec.json.decode(arguments, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequestError(
                f"the edited arguments are no JSON object: {error}"
            ) from error
        tool = self._registry.get(prepared.tool.name)
        decoded = decode_arguments(values, tool.parameters)
        held = HeldPaths()
        action = self._judged(tool, decoded, request, scope, held)
        prepared.held.close()
        prepared.tool, prepared.arguments, prepared.action = tool, decoded, action
        prepared.context = msgspec.structs.replace(prepared.context, held=held, preview=None)
        entry.arguments, entry.risk = action.arguments, action.assessment.risk

    def _offer(self, scope: CallScope) -> Offer:
        """Return what the session of a call is offered; kept until the tools change."""
        key = (self._registry.generation, scope.offered, scope.mode)
        if key not in self._offers:
            if len(self._offers) >= _KEPT_OFFERS:
                self._offers.clear()
            tools = self._registry.all()
            if scope.offered is not None:
                tools = [tool for tool in tools if tool.name in scope.offered]
            self._offers[key] = Offer(tools, scope.mode)
        return self._offers[key]

    def _judged(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        request: CallRequest,
        scope: CallScope,
        held: HeldPaths,
    ) -> Action:
        """Return the action of a call that is to run; what it holds is let go if that fails."""
        try:
            return self._action(tool, arguments, request, scope, held)
        except BaseException:
            held.close()
            raise

    def _action(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        request: CallRequest,
        scope: CallScope,
        held: HeldPaths,
    ) -> Action:
        context = ToolContext(
            conversation_id=scope.conversation_id,
            call_id=request.id,
            principal=scope.principal,
            workspace=scope.workspace,
            held=held,
        )
        try:
            assessment = tool.risk(arguments, context)
        except OSError as error:
            why = f"{tool.name} could not be assessed: {error.strerror}"
            assessment = Assessment(risk="high", blocked=why)
        except Exception as error:  # noqa: BLE001 - a tool that cannot judge itself is blocked
            _log.error("%s could not assess its arguments", tool.name, exc_info=error)
            assessment = Assessment(risk="high", blocked=f"{tool.name} could not be assessed")
        if assessment.blocked and assessment.risk != "high":
            assessment = msgspec.structs.replace(assessment, risk="high")
        return Action(
            tool=tool.name,
            arguments=self._journal.canonical(arguments),
            assessment=assessment,
            conversation_id=scope.conversation_id,
            call_id=request.id,
            principal=scope.principal,
            workspace=scope.workspace,
            places=held.places,
            environment={"TOOL_HASH": tool.identity[:32]} if tool.identity else {},
            starts_process=tool.starts_process,
            sandbox_level=self._settings.sandbox_level,
            outward=self._outward(tool, assessment),
        )

    def _outward(self, tool: Tool, assessment: Assessment) -> bool | None:
        if tool.starts_process and self._settings.sandbox_level == NO_SANDBOX:
            return None
        return tool.outward if assessment.outward is None else assessment.outward


def _told(error: ClawError) -> str:
    return f"error: {error.message}" + (f"\n{error.hint}" if error.hint else "")
