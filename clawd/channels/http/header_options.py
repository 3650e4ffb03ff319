"""What clients of any dialect ask of clawd, in headers or in fields of the body.

X-Clawd-Inject: off           without clawd's own system prompt and tools
X-Clawd-Conversation: conv-…  the conversation here that the message belongs to
X-Clawd-Preset: creative      sample as this preset does; or `preset` in the body
X-Clawd-Preset: words         the message may begin with a preset's name
X-Clawd-Store: off            keep nothing of it in memory; or `store: false` in the body
X-Clawd-Max-Rounds: 20        end the turn after so many rounds of calls, 1 to 100
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.answering import CONVERSATION_HEADER
from clawd.channels.http.body import invalid
from clawd.channels.http.model_api import PRESET_WORDS, GatewayEvent, ModelRequest
from clawd.errors import InvalidRequestError
from clawd.providers.base import CallDelta, Failed, Finished
from clawd.providers.presets import check_preset
from clawd.wire import events
from clawd.wire.safe_text import shortened
from clawd.wire.turns import MAX_ROUNDS

# What clawd's own loop does beside an answer, as events for clients that ask to see it.
#
#     X-Clawd-Events: on
#
#     clawd.tool_call        call_id, tool, arguments (JSON text)
#     clawd.tool_result      call_id, tool, status, output, receipt_id, duration_ms
#     clawd.prompt_progress  processed, cached, total
#     clawd.prompt_eval      tokens, cached, new, reevaluated, elapsed_ms, context_used,
#                            context_size
#
# and more of that kind; other clients see none of them.

_EVENTS_HEADER = "X-Clawd-Events"

_NAMES: dict[type, str] = {
    events.ModelLoading: "clawd.model_loading",
    events.PromptProgress: "clawd.prompt_progress",
    events.PromptEvaluated: "clawd.prompt_eval",
    events.ToolRequested: "clawd.tool_call",
    events.ToolStarted: "clawd.tool_started",
    events.ToolProgress: "clawd.tool_progress",
    events.ToolFinished: "clawd.tool_result",
    events.ApprovalRequested: "clawd.approval_requested",
    events.ApprovalResolved: "clawd.approval_resolved",
    events.QuestionAsked: "clawd.question",
    events.PlanChanged: "clawd.plan",
    events.HopReset: "clawd.hop_reset",
    events.Notice: "clawd.notice",
}


def wants_events(request: web.Request) -> bool:
    """Return whether the client asks to see them."""
    return request.headers.get(_EVENTS_HEADER, "").strip().lower() == "on"


def shown(event: GatewayEvent) -> tuple[str, dict[str, Any]] | None:
    """Return an event's name and its fields; None for what is part of the answer itself."""
    if isinstance(event, events.TextDelta | events.ReasoningDelta | CallDelta | Finished | Failed):
        return None
    fields = msgspec.to_builtins(event)
    fields.pop("type", None)
    return _NAMES[type(event)], fields


_INJECT_HEADER = "X-Clawd-Inject"
_PRESET_HEADER = "X-Clawd-Preset"
_STORE_HEADER = "X-Clawd-Store"
_ROUNDS_HEADER = "X-Clawd-Max-Rounds"
_MAX_PROGRAM = 200
_DIGITS = 5


def with_header_options(
    asked: ModelRequest, request: web.Request, body: Mapping[str, Any], *, streams: bool = False
) -> ModelRequest:
    """Return the request with what its headers and its body ask of clawd.

    Args:
        asked: the request.
        request: its headers.
        body: its body.
        streams: whether answers come in pieces where the body does not say.

    Raises:
        InvalidRequestError: there is no such preset, or no such number of rounds; the error names
            the field.
    """
    options = body.get("stream_options")
    sees_events = wants_events(request) or (
        isinstance(options, Mapping) and options.get("clawd_events") is True
    )
    return msgspec.structs.replace(
        asked,
        inject=not _is_off(request, _INJECT_HEADER),
        conversation_id=request.headers.get(CONVERSATION_HEADER, "").strip(),
        preset=_preset(request, body),
        tells_waiting=body.get("stream", streams) is True and not sees_events,
        program=request.headers.get("User-Agent", "")[:_MAX_PROGRAM],
        is_kept=not (_is_off(request, _STORE_HEADER) or body.get("store") is False),
        max_rounds=_rounds(request),
    )


def _is_off(request: web.Request, header: str) -> bool:
    return request.headers.get(header, "").strip().lower() == "off"


def _rounds(request: web.Request) -> int:
    given = request.headers.get(_ROUNDS_HEADER, "").strip()
    if not given:
        return 0
    # Not int(): it takes signs, blanks, underscores and digits of other scripts.
    rounds = int(given) if given.isascii() and given.isdigit() and len(given) < _DIGITS else 0
    if not 0 < rounds <= MAX_ROUNDS:
        raise invalid(_ROUNDS_HEADER, f"expected 1 to {MAX_ROUNDS}, found {shortened(given, 20)!r}")
    return rounds


def _preset(request: web.Request, body: Mapping[str, Any]) -> str:
    named = request.headers.get(_PRESET_HEADER, "").strip().lower()
    where = _PRESET_HEADER if named else "preset"
    named = named or body.get("preset") or ""
    if not isinstance(named, str):
        raise invalid("preset", "expected the name of a preset")
    if named != PRESET_WORDS:
        try:
            check_preset(named)
        except InvalidRequestError as error:
            raise invalid(where, f"{error.message}, or {PRESET_WORDS}") from error
    return named
