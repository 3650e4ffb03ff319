"""A first request of the kind that a coding agent sends to /v1/messages; the wording is ours."""

from typing import Any

_CACHED = {"cache_control": {"type": "ephemeral"}}
_TOOLS = 24
QUERY = "?beta=true"
HEADERS = (
    "anthropic-version: 2026-10-21",
    "anthropic-beta: context-management-2025-06-27,interleaved-thinking-2025-05-14",
    "x-stainless-lang: js",
    "x-app: cli",
    "content-type: application/json",
)


def first_request(**fields: Any) -> dict[str, Any]:
    """Return the body."""
    tools = [
        {
            "name": f"Tool{number}",
            "description": f"Does what number {number} does. " * 20,
            "input_schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {"path": {"type": "string", "description": "where"}},
                "required": ["path"],
                "additionalProperties": False,
            },
        }
        for number in range(_TOOLS)
    ]
    tools[-1] |= _CACHED
    return {
        "model": "told-model",
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=0f3a;"},
            {"type": "text", "text": "You help with code."} | _CACHED,
            {"type": "text", "text": "Be careful. " * 100} | _CACHED,
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<reminder>today is a day</reminder>"},
                    {"type": "text", "text": "what is in the file?"} | _CACHED,
                ],
            }
        ],
        "tools": tools,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "user_account_session"},
    } | fields


def second_request(call_id: str) -> dict[str, Any]:
    """Return the body after one of its tools was called and failed."""
    first = first_request()
    return first | {
        "messages": [
            *first["messages"],
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I look.", "signature": ""},
                    {"type": "tool_use", "id": call_id, "name": "Tool3", "input": {"path": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": call_id,
                        "content": "there is no such file",
                        "is_error": True,
                    }
                    | _CACHED
                ],
            },
        ]
    }
