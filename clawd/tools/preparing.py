"""From what somebody asked for to an action that can be judged: the tool, its arguments, its risk.

Decides nothing about permission, but for tools that are not offered where the call came from.
"""

import logging
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.security.action import NO_SANDBOX, Action
from clawd.security.risk import Assessment
from clawd.tools.base import Tool, ToolContext
from clawd.tools.journal import Entry, Journal
from clawd.tools.outcome import CallRequest, CallScope
from clawd.tools.refusals import Refused
from clawd.tools.registry import Registry
from clawd.tools.schema import decode_arguments
from clawd.tools.telling import DispatchSettings
from clawd.wire.events import ToolProgress

_log = logging.getLogger(__name__)


class PreparedCall(msgspec.Struct, kw_only=True):
    """A call that can be judged and run."""

    tool: Tool
    arguments: dict[str, Any]
    action: Action
    context: ToolContext


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

    def prepare(
        self, request: CallRequest, scope: CallScope, entry: Entry
    ) -> PreparedCall | Refused:
        """Return the call, or why it cannot be made; the entry learns what it is."""
        try:
            tool = self._registry.get(request.tool)
        except NotFoundError as error:
            return Refused(kind="unknown_tool", reason="unknown tool", text=f"error: {error}")
        entry.tool = tool.name
        if scope.offered is not None and tool.name not in scope.offered:
            reason = f"{tool.name} is not offered on this channel"
            return Refused(kind="denied", reason=reason, text=f"denied: {reason}")
        try:
            arguments = decode_arguments(request.arguments, tool.parameters)
        except InvalidRequestError as error:
            text = f"error: {error.message}" + (f"\n{error.hint}" if error.hint else "")
            return Refused(kind="bad_arguments", reason="bad arguments", text=text)
        action = self._action(tool, arguments, request, scope)
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
        )
        return PreparedCall(tool=tool, arguments=arguments, action=action, context=context)

    def action(self, request: CallRequest, scope: CallScope) -> Action:
        """Return what would be judged, without a trail.

        Raises:
            NotFoundError, InvalidRequestError: no such tool, or arguments that cannot be meant.
        """
        tool = self._registry.get(request.tool)
        arguments = decode_arguments(request.arguments, tool.parameters)
        return self._action(tool, arguments, request, scope)

    def renew(self, prepared: PreparedCall, request: CallRequest, scope: CallScope) -> None:
        """Prepare a call again in place; its entry stays as it was approved.

        Raises:
            NotFoundError, InvalidRequestError: it cannot be meant any more.
        """
        tool = self._registry.get(prepared.tool.name)
        arguments = decode_arguments(request.arguments, tool.parameters)
        prepared.tool, prepared.arguments = tool, arguments
        prepared.action = self._action(tool, arguments, request, scope)

    def _action(
        self, tool: Tool, arguments: dict[str, Any], request: CallRequest, scope: CallScope
    ) -> Action:
        context = ToolContext(
            conversation_id=scope.conversation_id,
            call_id=request.id,
            principal=scope.principal,
            workspace=scope.workspace,
        )
        try:
            assessment = tool.risk(arguments, context)
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
            environment={"TOOL_HASH": tool.identity[:32]} if tool.identity else {},
            starts_process=tool.starts_process,
            sandbox_level=self._settings.sandbox_level,
            outward=self._outward(tool, assessment),
        )

    def _outward(self, tool: Tool, assessment: Assessment) -> bool | None:
        if tool.starts_process and self._settings.sandbox_level == NO_SANDBOX:
            return None
        return tool.outward if assessment.outward is None else assessment.outward
