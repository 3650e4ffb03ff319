"""What clawd's own loop does beside an answer, as events for clients that ask to see it.

    X-Clawd-Events: on

    clawd.tool_call        call_id, tool, arguments (JSON text)
    clawd.tool_result      call_id, tool, status, output, receipt_id, duration_ms
    clawd.prompt_progress  processed, cached, total
    clawd.prompt_eval      tokens, cached, elapsed_ms, context_used, context_size

and more of that kind; other clients see none of them.
"""

from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.exchange import GatewayEvent
from clawd.providers.base import (
    CallDelta,
    Evaluated,
    Failed,
    Finished,
    Loading,
    Progress,
    Reasoning,
    Text,
)
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    HopReset,
    Notice,
    PlanChanged,
    QuestionAsked,
    ToolFinished,
    ToolProgress,
    ToolRequested,
    ToolStarted,
)

EVENTS_HEADER = "X-Clawd-Events"

_NAMES: dict[type, str] = {
    Loading: "clawd.model_loading",
    Progress: "clawd.prompt_progress",
    Evaluated: "clawd.prompt_eval",
    ToolRequested: "clawd.tool_call",
    ToolStarted: "clawd.tool_started",
    ToolProgress: "clawd.tool_progress",
    ToolFinished: "clawd.tool_result",
    ApprovalRequested: "clawd.approval_requested",
    ApprovalResolved: "clawd.approval_resolved",
    QuestionAsked: "clawd.question",
    PlanChanged: "clawd.plan",
    HopReset: "clawd.hop_reset",
    Notice: "clawd.notice",
}


def wants_events(request: web.Request) -> bool:
    """Say whether the client asks to see them."""
    return request.headers.get(EVENTS_HEADER, "").strip().lower() == "on"


def shown(event: GatewayEvent) -> tuple[str, dict[str, Any]] | None:
    """Return an event's name and its fields; None for what is part of the answer itself."""
    if isinstance(event, Text | Reasoning | CallDelta | Finished | Failed):
        return None
    fields = msgspec.to_builtins(event)
    fields.pop("type", None)
    return _NAMES[type(event)], fields
