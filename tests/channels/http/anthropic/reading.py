"""Reads a stream of Anthropic's as its clients do, and as strictly as the strictest of them."""

import json
from typing import Any

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def message_of(events: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the message that a stream tells; its order must be the one that clients rely on."""
    assert all(name == value["type"] for name, value in events), events
    told = [(name, value) for name, value in events if name != "ping"]
    assert told[0][0] == "message_start"
    assert [name for name, _ in told[-2:]] == ["message_delta", "message_stop"]
    message: dict[str, Any] = told[0][1]["message"] | {"content": []}
    for name, value in told[1:-2]:
        _take(message["content"], name, value)
    assert not any("open" in block for block in message["content"])
    end = told[-2][1]
    usage: dict[str, Any] = {"usage": message["usage"] | end["usage"]}
    return message | dict(end["delta"]) | usage


def _take(content: list[dict[str, Any]], name: str, value: dict[str, Any]) -> None:
    if name == "content_block_start":
        assert value["index"] == len(content)
        assert not content or "open" not in content[-1]
        content.append(value["content_block"] | {"open": True, "json": ""})
        return
    block = content[-1]
    assert value["index"] == len(content) - 1
    assert "open" in block
    if name == "content_block_stop":
        pieces = block.pop("json")
        del block["open"]
        if block["type"] == "tool_use":
            block["input"] = json.loads(pieces)
        return
    assert name == "content_block_delta"
    delta = value["delta"]
    if delta["type"] == "input_json_delta":
        assert block["type"] == "tool_use"
        block["json"] += delta["partial_json"]
    else:
        block[_TEXTS[delta["type"]]] += delta[_TEXTS[delta["type"]]]
