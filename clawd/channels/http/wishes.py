"""What clients of any dialect ask of clawd, in headers or in fields of the body.

X-Clawd-Inject: off           without clawd's own system prompt and tools
X-Clawd-Conversation: conv-…  the conversation here that the message belongs to
X-Clawd-Preset: creative      sample as this preset does; or `preset` in the body
X-Clawd-Preset: words         the message may begin with a preset's name
X-Clawd-Store: off            keep nothing of it in memory; or `store: false` in the body
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.answering import CONVERSATION_HEADER
from clawd.channels.http.body import invalid
from clawd.channels.http.clawd_events import wants_events
from clawd.channels.http.exchange import PRESET_WORDS, ModelRequest
from clawd.errors import InvalidRequestError
from clawd.providers.presets import check_preset

INJECT_HEADER = "X-Clawd-Inject"
PRESET_HEADER = "X-Clawd-Preset"
STORE_HEADER = "X-Clawd-Store"


def with_wishes(
    asked: ModelRequest,
    request: web.Request,
    body: Mapping[str, Any],
    *,
    streams: bool = False,
) -> ModelRequest:
    """Return the request with what its headers and its body ask of clawd.

    Args:
        asked: the request.
        request: its headers.
        body: its body.
        streams: whether answers come in pieces where the body does not say.

    Raises:
        InvalidRequestError: there is no such preset; the error names the field.
    """
    options = body.get("stream_options")
    sees_events = wants_events(request) or (
        isinstance(options, Mapping) and options.get("clawd_events") is True
    )
    return msgspec.structs.replace(
        asked,
        inject=not _is_off(request, INJECT_HEADER),
        conversation_id=request.headers.get(CONVERSATION_HEADER, "").strip(),
        preset=_preset(request, body),
        tells_waiting=body.get("stream", streams) is True and not sees_events,
        is_kept=not (_is_off(request, STORE_HEADER) or body.get("store") is False),
    )


def _is_off(request: web.Request, header: str) -> bool:
    return request.headers.get(header, "").strip().lower() == "off"


def _preset(request: web.Request, body: Mapping[str, Any]) -> str:
    named = request.headers.get(PRESET_HEADER, "").strip().lower()
    where = PRESET_HEADER if named else "preset"
    named = named or body.get("preset") or ""
    if not isinstance(named, str):
        raise invalid("preset", "expected the name of a preset")
    if named != PRESET_WORDS:
        try:
            check_preset(named)
        except InvalidRequestError as error:
            raise invalid(where, f"{error.message}, or {PRESET_WORDS}") from error
    return named
