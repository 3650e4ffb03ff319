"""Bodies in the shape that agents send first: sizes, keys and item types as seen of them."""

from typing import Any

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
_RULES = "Keep to the project. Say what was done. " * 400


def _tool(name: str) -> dict[str, Any]:
    parameters = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "An absolute path"},
            "limit": {"type": "number", "description": "How many lines"},
            "mode": {"enum": ["fast", "whole"], "default": "fast"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    return {"name": name, "description": f"{name} something. " * 30, "parameters": parameters}


OPENCODE_FIRST: dict[str, Any] = {
    "model": "embedded",
    "max_tokens": 32000,
    "temperature": 0,
    "messages": [
        {"role": "system", "content": _RULES},
        {"role": "system", "content": "<env>\n  Platform: linux\n</env>"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "list the files"},
                {"type": "text", "text": "Use the tools."},
            ],
        },
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "list", "arguments": '{"path":"/"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "one\ntwo"},
        {"role": "user", "content": "and now?"},
    ],
    "tools": [
        {"type": "function", "function": _tool(name)}
        for name in (
            *("bash", "edit", "glob", "grep", "list"),
            *("read", "task", "todo", "webfetch", "write"),
        )
    ],
    "tool_choice": "auto",
    "stream": True,
    "stream_options": {"include_usage": True},
}

LITELLM_HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "weather in Oslo?"},
    {
        "role": "assistant",
        "tool_calls": [
            {
                "index": 0,
                "id": "call_b",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
            }
        ],
        "function_call": None,
        "provider_specific_fields": {"refusal": None},
    },
    {"role": "tool", "tool_call_id": "call_b", "name": "get_weather", "content": "rain"},
    {"role": "user", "content": "and tomorrow?"},
]

_CODEX_MESSAGES: list[dict[str, Any]] = [
    {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": _RULES}],
    },
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "<environment_context>…</environment_context>"}],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "user",
        "content": [{"type": "input_text", "text": "list the files"}],
    },
]

CODEX_FIRST: dict[str, Any] = {
    "model": "embedded",
    "stream": True,
    "input": _CODEX_MESSAGES,
    "tools": [
        {"type": "function", "strict": False, **_tool("exec_command")},
        {"type": "function", "strict": False, **_tool("update_plan")},
        {
            "type": "namespace",
            "name": "collaboration",
            "tools": [{"type": "function", **_tool("spawn")}],
        },
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0193-cache",
    "client_metadata": {"installation": "x"},
}

CODEX_SECOND: dict[str, Any] = {
    **CODEX_FIRST,
    "input": [
        *_CODEX_MESSAGES,
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "I should list."}],
            "encrypted_content": None,
        },
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_2",
            "content": [{"type": "output_text", "text": "Listing.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "status": "completed",
            "name": "exec_command",
            "arguments": '{"path":"/"}',
            "call_id": "call_1",
        },
        {
            "type": "function_call_output",
            "id": "fco_1",
            "call_id": "call_1",
            "output": "Exit code: 0\nOutput:\none",
        },
    ],
}
