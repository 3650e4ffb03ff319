"""The scripted provider: every key of the script format, and scripts that are none."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.errors import ConfigError, ProviderError
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Failed,
    Finished,
    Message,
    ToolCall,
    ToolSpec,
    strip_context_block,
)
from clawd.providers.scripted import (
    ScriptedCall,
    ScriptedProvider,
    ScriptedReplies,
    ScriptedReply,
    load_script,
    parse_script,
)
from clawd.wire.events import TextDelta
from tests.support.collecting import ChatResponse, collect
from tests.support.rows import each_row

BLOCK = "<context>\nIt is Monday.\n</context>\n\n"


def scripted(*replies: dict[str, Any]) -> ScriptedProvider:
    return ScriptedProvider("mock", parse_script(json.dumps({"replies": replies})))


def said(text: str, *after: Message, **fields: Any) -> ChatRequest:
    return ChatRequest(messages=(Message(role="user", content=text), *after), **fields)


def result(text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id="c", name="t")


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=name, parameters={"type": "object"})


async def answer(provider: ScriptedProvider, request: ChatRequest) -> ChatResponse:
    return await collect(provider.chat(request))


async def text(provider: ScriptedProvider, request: ChatRequest) -> str:
    return (await answer(provider, request)).final_text


async def test_without_a_script_it_echoes_what_the_user_wrote() -> None:
    provider = ScriptedProvider()
    assert await text(provider, said(BLOCK + "Hello,  you\nthere ")) == "Hello,  you\nthere "
    assert await text(provider, said("again", result("x"))) == "again"
    assert await text(provider, ChatRequest(messages=())) == ""


async def test_replies_come_in_order_per_conversation_and_the_last_repeats() -> None:
    provider = scripted({"text": "one"}, {"text": "two"})
    a = said("x", metadata={"conversation_id": "a"})
    b = said("x", metadata={"conversation_id": "b"})
    texts = [await text(provider, request) for request in (a, b, a, a, b, b)]
    assert texts == ["one", "one", "two", "two", "two", "two"]


async def test_when_is_chosen_by_match_and_does_not_use_up_the_order() -> None:
    provider = scripted({"text": "first"}, {"when": "files", "text": "found"}, {"text": "second"})
    assert await text(provider, said("list files")) == "found"
    assert await text(provider, said("hello")) == "first"
    assert await text(provider, said("files again")) == "found"
    assert await text(provider, said("hello")) == "second"


async def test_when_looks_behind_the_context_block() -> None:
    provider = scripted({"when": "Monday", "text": "wrong"}, {"text": "right"})
    assert await text(provider, said(BLOCK + "which day")) == "right"
    assert await text(provider, said(BLOCK + "is it Monday")) == "wrong"


async def test_after_is_the_role_of_the_last_message() -> None:
    provider = scripted(
        {"when": "go", "tool_calls": [{"name": "t"}]},
        {"when": "go", "after": "tool", "text": "done"},
        {"when": "stay", "after": "any", "text": "stayed"},
    )
    assert (await answer(provider, said("go"))).tool_calls != ()
    assert await text(provider, said("go", result("ok"))) == "done"
    assert await text(provider, said("stay", result("ok"))) == "stayed"
    assert await text(provider, said("stay")) == "stayed"


async def test_a_reply_in_order_may_wait_for_a_tool_result() -> None:
    provider = scripted({"after": "tool", "text": "after a tool"}, {"text": "plain"})
    assert await text(provider, said("x")) == "plain"
    assert await text(provider, said("x", result("r"))) == "after a tool"
    assert await text(provider, said("x", result("r"))) == "plain"


async def test_placeholders_are_filled_in_once() -> None:
    provider = scripted({"text": "{{last_user}}|{{last_tool_result}}|{{tool_results}}|{{other}}"})
    request = ChatRequest(
        messages=(
            Message(role="user", content="old"),
            result("before"),
            Message(role="user", content=BLOCK + "{{tool_results}}"),
            result("r1"),
            result("r2"),
        )
    )
    assert await text(provider, request) == "{{tool_results}}|r2|r1\nr2|{{other}}"


async def test_calls_reasoning_and_text_stream_in_several_deltas() -> None:
    provider = scripted(
        {
            "text": "I will look now.",
            "reasoning": "Two words.",
            "tool_calls": [
                {"name": "a", "arguments": {"path": "ä", "n": 1}},
                {"name": "b", "arguments": "{not json"},
                {"name": "c"},
            ],
        }
    )
    deltas = [delta async for delta in provider.chat(said("x"))]
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) == 4
    assert all(d.name == "" for d in deltas[1:] if isinstance(d, CallDelta) and d.arguments)
    response = await answer(provider, said("x"))
    assert response.final_text == "I will look now."
    assert response.reasoning == "Two words."
    assert response.stop_reason == "tool_calls"
    assert [(call.name, call.arguments) for call in response.tool_calls] == [
        ("a", '{"path": "ä", "n": 1}'),
        ("b", "{not json"),
        ("c", "{}"),
    ]
    assert len({call.id for call in response.tool_calls}) == 3
    assert isinstance(response.tool_calls[0], ToolCall)


async def test_first_offered_keeps_only_the_first_call_that_is_offered() -> None:
    reply = {
        "text": "t",
        "first_offered": True,
        "tool_calls": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
    }
    provider = scripted(reply)
    offered = await answer(provider, said("x", tools=(tool("c"), tool("b"))))
    assert [call.name for call in offered.tool_calls] == ["b"]
    nothing = await answer(provider, said("x"))
    assert (nothing.tool_calls, nothing.stop_reason) == ((), "stop")


@each_row(
    ("error", "kind", "status"),
    [
        ({"kind": "network"}, "network", 0),
        ({"kind": "auth"}, "auth", 0),
        ({"kind": "timeout"}, "timeout", 0),
        ({"kind": "http"}, "http", 500),
        ({"kind": "http", "status": 429}, "http", 429),
    ],
)
async def test_an_error_is_the_last_delta(error: dict[str, Any], kind: str, status: int) -> None:
    deltas = [delta async for delta in scripted({"error": error}).chat(said("x"))]
    (failed,) = deltas
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ProviderError)
    assert (failed.error.kind, failed.error.status, failed.partial) == (kind, status, False)
    if kind == "http":
        assert failed.error.message.startswith(f"HTTP {status}: ")


async def test_an_error_after_text_breaks_the_answer_off() -> None:
    provider = scripted({"text": "half an", "error": {"kind": "network"}})
    deltas = [delta async for delta in provider.chat(said("x"))]
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].partial
    assert not any(isinstance(delta, Finished) for delta in deltas)


async def test_delay_is_waited_before_the_first_delta() -> None:
    started = time.monotonic()
    await anext(scripted({"text": "x", "delay_s": 0.05}).chat(said("x")))
    assert time.monotonic() - started >= 0.05


async def test_nothing_that_fits_is_said_and_not_made_up() -> None:
    with pytest.raises(ProviderError, match=r"no reply of the script fits.*'hello'"):
        await text(scripted({"when": "files", "text": "x"}), said("hello"))


async def test_check_says_what_it_answers_from() -> None:
    assert "echoes" in await ScriptedProvider().check()
    assert "2 replies" in await scripted({"text": "a"}, {"text": "b"}).check()


def test_every_problem_of_a_script_is_named() -> None:
    document = {
        "repleis": [],
        "replies": [
            {"text": 5, "txt": "x", "after": "never"},
            "text",
            {"delay_s": -1},
            {"error": {"kind": "odd"}},
            {"tool_calls": [{"arguments": {}}]},
            {"text": "fine"},
        ],
    }
    with pytest.raises(ConfigError) as caught:
        parse_script(json.dumps(document), source="mock.json")
    problems = caught.value.problems
    assert len(problems) == 8
    for expected in (
        "'repleis'",
        "replies[0].text",
        "'txt'",
        "replies[0].after",
        "replies[1]: expected an object",
        "replies[2].delay_s",
        "replies[3].error",
        "replies[4].tool_calls",
    ):
        assert any(expected in problem for problem in problems), expected
    assert caught.value.message.startswith("mock.json is no script")


@each_row("document", ["", "[]", '{"replies": {}}', '{"replies": []}', "[" * 99999])
def test_what_is_no_script_is_refused(document: str) -> None:
    with pytest.raises(ConfigError):
        parse_script(document)


def test_a_script_file_is_read_and_a_missing_one_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    with pytest.raises(ConfigError, match="cannot be read"):
        load_script(path)
    path.write_text('{"replies": [{"text": "hi"}]}', "utf-8")
    assert load_script(path).replies[0].text == "hi"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_script(path)


@each_row(
    ("given", "expected"),
    [
        (BLOCK + "x", "x"),
        (BLOCK, ""),
        ("x", "x"),
        ("x " + BLOCK, "x " + BLOCK),
        ("<context>\nopen", "<context>\nopen"),
        (BLOCK + BLOCK + "x", BLOCK + "x"),
    ],
)
def test_only_the_first_context_block_is_stripped(given: str, expected: str) -> None:
    assert strip_context_block(given) == expected


async def test_a_raw_prompt_counts_as_what_the_user_said() -> None:
    script = ScriptedReplies(
        replies=(ScriptedReply(when="def ", text="pass"), ScriptedReply(text="{{last_user}}!"))
    )
    provider = ScriptedProvider(script=script)
    first = await collect(provider.chat(ChatRequest(prompt="def f():")))
    assert (first.final_text, first.usage.prompt_tokens) == ("pass", 2)
    tokens = await collect(provider.chat(ChatRequest(prompt=(5, 6, 7))))
    assert (tokens.final_text, tokens.usage.prompt_tokens) == ("5 6 7!", 3)


async def test_of_scripted_calls_the_first_alone_comes_where_several_are_unwelcome() -> None:
    calls = (ScriptedCall(name="a"), ScriptedCall(name="b"))
    provider = ScriptedProvider(script=ScriptedReplies(replies=(ScriptedReply(tool_calls=calls),)))
    ask = ChatRequest(messages=(Message(role="user", content="go"),))
    both = await collect(provider.chat(ask))
    assert [call.name for call in both.tool_calls] == ["a", "b"]
    one = await collect(provider.chat(msgspec.structs.replace(ask, parallel_calls=False)))
    assert [call.name for call in one.tool_calls] == ["a"]
