"""History in a request: contents that are not there, and turns without the tool role."""

import itertools
from typing import Any

import msgspec
import pytest

from clawd.providers.base import ChatRequest, Message, ToolCall
from clawd.providers.openai_request import build_body
from clawd.providers.tool_text import without_tool_role

CALL = {"id": "c", "name": "f", "arguments": "{}"}


def sent(*messages: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    history = msgspec.convert(messages, tuple[Message, ...])
    body = build_body(ChatRequest(messages=history), model="m", stream=True, **options)
    found: list[dict[str, Any]] = body["messages"]
    return found


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
@pytest.mark.parametrize("use_tool_role", [True, False])
def test_a_content_that_is_null_empty_or_missing_is_one(
    content: dict[str, Any], use_tool_role: bool
) -> None:
    history = [
        {"role": "user", **content},
        {"role": "assistant", "tool_calls": [CALL], **content},
        {"role": "tool", "tool_call_id": "c", "name": "f", **content},
        {"role": "assistant", **content},
    ]
    user, asked, result, answer = sent(*history, use_tool_role=use_tool_role)
    assert user == {"role": "user", "content": ""}
    assert answer == {"role": "assistant", "content": ""}
    if use_tool_role:
        assert asked["content"] is None
        assert result == {"role": "tool", "tool_call_id": "c", "content": ""}
    else:
        assert asked == {"role": "assistant", "content": "[call: f]\n{}"}
        assert result == {"role": "user", "content": "[tool: f]\n"}


def test_without_the_tool_role_each_hop_extends_the_one_before() -> None:
    history: list[Message] = [Message(role="user", content="a")]
    requests = [tuple(history)]
    for number in range(4):
        calls = tuple(ToolCall(id=f"{number}{n}", name="f") for n in range(2))
        history.append(Message(role="assistant", content="see", tool_calls=calls))
        history += [Message(role="tool", content="r", tool_call_id=call.id) for call in calls]
        requests.append(tuple(history))
    for earlier, later in itertools.pairwise(map(without_tool_role, requests)):
        assert later[: len(earlier)] == earlier
        assert {message.role for message in later} == {"user", "assistant"}
