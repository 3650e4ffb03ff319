"""History in a request: contents that are not there, and turns without the tool role."""

import itertools
from typing import Any

import msgspec
import pytest

from clawd.errors import InvalidRequestError
from clawd.providers.base import (
    ChatRequest,
    Infill,
    InfillFile,
    Message,
    Sampling,
    ToolCall,
    ToolSpec,
    without_tool_role,
)
from clawd.providers.openai import build_body
from tests.support.rows import each_row

CALL = {"id": "c", "name": "f", "arguments": "{}"}


def sent(*messages: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    history = msgspec.convert(messages, tuple[Message, ...])
    body = build_body(ChatRequest(messages=history), model="m", stream=True, **options)
    found: list[dict[str, Any]] = body["messages"]
    return found


@each_row("content", [{"content": None}, {"content": ""}, {}])
@each_row("use_tool_role", [True, False])
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


def test_a_raw_prompt_is_a_body_of_completions() -> None:
    request = ChatRequest(prompt="def f", sampling=Sampling(max_tokens=5, stop=("\n",)))
    assert build_body(request, model="m", stream=False) == {
        "model": "m",
        "prompt": "def f",
        "max_tokens": 5,
        "stop": ["\n"],
        "stream": False,
    }
    body = build_body(ChatRequest(prompt=(1, 2)), model="m", stream=True)
    assert body["prompt"] == [1, 2]
    assert body["stream_options"] == {"include_usage": True}


def test_h7_a_gap_is_a_prompt_with_a_suffix_for_a_server_and_no_more_than_that() -> None:
    gap = Infill(prefix="def f", suffix="end")
    body = build_body(ChatRequest(prompt=gap), model="m", stream=False)
    assert body == {"model": "m", "prompt": "def f", "suffix": "end", "stream": False}
    for more in ({"files": (InfillFile(name="a", text="b"),)}, {"begun": "x"}):
        asked = ChatRequest(prompt=msgspec.structs.replace(gap, **more))
        with pytest.raises(InvalidRequestError, match="this machine"):
            build_body(asked, model="m", stream=False)


@each_row("wanted", [True, False, None])
def test_whether_several_calls_are_welcome_is_passed_on(wanted: bool | None) -> None:
    tool = ToolSpec(name="f", description="", parameters={"type": "object"})
    request = ChatRequest(
        messages=(Message(role="user", content="hi"),), tools=(tool,), parallel_calls=wanted
    )
    assert build_body(request, model="m", stream=True).get("parallel_tool_calls") is wanted
