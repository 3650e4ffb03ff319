"""Requests that are one pass to a provider, and messages that no model can be asked with."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from clawd.channels.http.catalogue import ModelChoice
from clawd.channels.http.generations import (
    AGENT_S,
    MAX_AGENTS,
    Agents,
    Forwarded,
    Offered,
    chat_request,
    checked,
)
from clawd.channels.http.model_api import Caller, ModelRequest
from clawd.errors import InvalidRequestError, StoppedError
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
    Sampling,
    ToolCall,
    ToolSpec,
)
from clawd.providers.scripted import ScriptedProvider
from clawd.runtime.activity import DeltaMeter, ModelCounts
from clawd.runtime.prompt import BASE, PromptSettings
from clawd.wire.events import TextDelta
from tests.channels.http.plain import ROUTES
from tests.channels.http.rig import EVERYTHING, served
from tests.support.inprocess import OWNER
from tests.support.rows import each_row

CALLER = Caller(principal=OWNER, scopes=EVERYTHING)
THEIRS = ToolSpec(name="theirs", description="", parameters={"type": "object"})


def user(text: str) -> Message:
    return Message(role="user", content=text)


def calls(*ids: str) -> Message:
    made = tuple(ToolCall(id=each, name="theirs") for each in ids)
    return Message(role="assistant", tool_calls=made)


def result(call_id: str) -> Message:
    return Message(role="tool", content=f"of {call_id}", tool_call_id=call_id)


def asked(own: PromptSettings | None = None, **fields: Any) -> Any:
    provider = ScriptedProvider()
    request = ModelRequest(**{"messages": (user("hello"),), **fields})
    choice = ModelChoice(name="m", provider=provider, model="m")
    return chat_request(request, choice, CALLER, own or PromptSettings())


def test_the_clients_system_prompt_goes_before_clawds_base() -> None:
    own = PromptSettings(base="I am here.", operator="By order.", agent="no agent")
    assert asked().system == BASE
    assert asked(own).system == "I am here.\n\nBy order."
    assert asked(own, system="theirs").system == "theirs"
    assert asked(own, system="").system == ""
    assert asked(own, inject=False).system == ""
    assert asked(own, inject=False, system="theirs").system == "theirs"
    assert asked(own, messages=(), prompt="raw").system == ""


def test_what_a_client_says_reaches_the_model() -> None:
    request = asked(
        tools=(THEIRS,),
        tool_choice="required",
        parallel_calls=False,
        response_format={"type": "json_object"},
        sampling=Sampling(temperature=0.1),
        metadata={"user_id": "somebody"},
    )
    assert request.tools == (THEIRS,)
    assert (request.tool_choice, request.parallel_calls) == ("required", False)
    assert request.response_format == {"type": "json_object"}
    assert request.sampling == Sampling(temperature=0.1)
    assert request.metadata == {}
    assert asked(tool_choice="none").tool_choice == "auto"


WORDY = (user("wild one"), Message(role="assistant", content="precise two"), user("three"))


def test_h3_a_users_words_stay_unless_the_client_asks_for_preset_words() -> None:
    for inject in (True, False):
        untouched = asked(messages=WORDY, inject=inject)
        assert untouched.messages == WORDY
        assert untouched.sampling == Sampling()
    named = asked(messages=WORDY, preset="creative", sampling=Sampling(temperature=0.1))
    assert named.messages == WORDY
    assert named.sampling == Sampling(preset="creative", temperature=0.1)


def test_a_preset_word_counts_for_the_last_message_and_is_shown_in_none() -> None:
    request = asked(messages=WORDY, preset="words")
    assert [each.content for each in request.messages] == ["one", "precise two", "three"]
    assert request.sampling == Sampling()
    more = (*WORDY[:2], user("creative 0.9 three"), calls("a"), result("a"))
    request = asked(messages=more, preset="words")
    assert request.sampling == Sampling(preset="creative", temperature=0.9)
    assert request.messages[2].content == "three"


def test_hints_are_refused_where_no_router_is() -> None:
    with pytest.raises(InvalidRequestError, match="no router"):
        asked(metadata={"privacy": "local"})


@each_row(
    ("messages", "problem"),
    [
        ((), "at least one"),
        ((user("a"), result("x")), "no assistant message"),
        ((user("a"), calls("x"), result("y")), "result of y"),
        ((user("a"), calls("x"), result("x"), result("x")), "result of x"),
        ((user("a"), calls("x"), user("b"), result("x")), "result of x"),
        ((user("a"), calls("x", "y"), result("x")), "no results"),
        ((user("a"), calls("x")), "no results"),
        (
            (user("a"), Message(role="assistant", content="b"), Message(role="assistant")),
            "last two",
        ),
        ((Message(role="system", content="s"), user("a")), "system"),
        ((user("a"), Message(role="tool", content="r")), "no call at all"),
    ],
)
def test_messages_that_cannot_be_meant_are_refused(
    messages: tuple[Message, ...], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem) as caught:
        checked(ModelRequest(messages=messages))
    assert caught.value.data and "messages" in caught.value.data["param"]


def test_results_come_in_the_order_of_their_calls_and_none_is_missing() -> None:
    messages = (user("a"), calls("x", "y"), result("y"), result("x"), user("b"))
    found = checked(ModelRequest(messages=messages)).messages
    assert [each.tool_call_id for each in found] == ["", "", "x", "y", ""]
    found = checked(ModelRequest(messages=(user("a"), calls("x"), user("b")))).messages
    assert [each.role for each in found] == ["user", "assistant", "tool", "user"]


def test_a_raw_prompt_stands_alone() -> None:
    raw = ModelRequest(prompt="once upon")
    assert checked(raw) is raw
    with pytest.raises(InvalidRequestError, match="prompt"):
        checked(ModelRequest(prompt="once upon", messages=(user("a"),)))


@each_row(
    "fields",
    [
        {"tools": ["file_list"]},
        {"tools": ["theirs"]},
        {"is_plain": True},
        {"tool_choice": "none"},
        {"inject": False},
        {"messages": [["user", "a"], ["assistant", "b"]]},
    ],
)
async def test_what_is_forwarded_uses_no_tool_and_leaves_no_conversation(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    look = {"tool_calls": [{"name": "file_list", "arguments": {}}], "text": "I look."}
    async with served(tmp_path, look, routes=ROUTES) as door:
        status, told = await door.post("/say", {"messages": [["user", "look"]], **fields})
        theirs = fields.get("tools") == ["file_list"]
        seen = (["file_list"], "tool_calls") if theirs else ([], "stop")
        assert (status, told["text"], (told["calls"], told["end"])) == (200, "I look.", seen)
        assert door.inside.receipts() == []
        counts = await door.inside.daemon.memory.conversations.counts(owner=None)
        assert counts.conversations == 0


async def test_messages_that_cannot_be_meant_are_a_status(tmp_path: Path) -> None:
    async with served(tmp_path, routes=ROUTES) as door:
        orphan = {"role": "tool", "content": "x", "tool_call_id": "c"}
        for stream in (False, True):
            body = {"messages": [["user", "a"], orphan], "stream": stream}
            status, told = await door.post("/say", body)
            assert status == 400
            assert told["error"]["param"] == "messages[1]"
        status, told = await door.post("/say", {"messages": [["user", "a"]], "model": "gpt-4o"})
        assert (status, told["error"]["code"]) == (404, "model_not_found")


KENYA = [{"role": "user", "content": "wild animals of Kenya"}]
KENYA_IN: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": KENYA},
    "/v1/messages": {"messages": KENYA, "max_tokens": 99},
    "/api/chat": {"messages": KENYA, "stream": False},
    "/api/generate": {"prompt": "wild animals of Kenya", "stream": False},
    "/v1/responses": {"input": "wild animals of Kenya"},
}


async def test_h3_every_dialect_leaves_the_users_words_alone_unless_it_is_asked(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as door:
        for path, body in KENYA_IN.items():
            asked = {"model": "clawd"} | body
            assert "wild animals of Kenya" in str(await door.post(path, asked)), path
            for way in ({"preset": "words"}, {}):
                headers = {} if way else {"X-Clawd-Preset": "words"}
                told = str(await door.post(path, asked | way, **headers))
                assert "animals of Kenya" in told and "wild animals" not in told, path
            named = str(await door.post(path, asked, **{"X-Clawd-Preset": "creative"}))
            assert "wild animals of Kenya" in named, path
            status, told_wrong = await door.post(path, asked | {"preset": "tame"})
            assert status == 400 and "tame" in str(told_wrong), path


async def test_r9_a_long_message_reaches_the_model_whole_by_either_way(tmp_path: Path) -> None:
    said = " ".join(f"word{number}" for number in range(15_000))  # twice 64 KiB
    asked = {"model": "clawd", "messages": [{"role": "user", "content": said}]}
    async with served(tmp_path) as door:
        for headers in ({}, {"X-Clawd-Inject": "off"}):
            status, told = await door.post("/v1/chat/completions", asked, **headers)
            assert status == 200
            assert told["choices"][0]["message"]["content"] == said


STORE_OFF: tuple[tuple[dict[str, bool], dict[str, str]], ...] = (
    ({"store": False}, {}),
    ({}, {"X-Clawd-Store": "off"}),
)


async def test_h5_what_is_not_to_be_stored_is_gone_after_the_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        memory = door.inside.daemon.memory
        for path, body in KENYA_IN.items():
            asked = {"model": "clawd"} | body
            for more, headers in STORE_OFF:
                status, told = await door.post(path, asked | more, **headers)
                assert status == 200 and "Kenya" in str(told), path
                counts = await memory.conversations.counts(owner=None)
                assert (counts.conversations, counts.messages) == (0, 0), path
        kept = {"model": "clawd"} | KENYA_IN["/v1/chat/completions"]
        assert (await door.post("/v1/chat/completions", kept))[0] == 200
        (line,) = (await memory.conversations.list(owner=None)).conversations
        answer = {"role": "assistant", "content": "wild animals of Kenya"}
        again = kept | {"messages": [*KENYA, answer, *KENYA], "store": False}
        assert (await door.post("/v1/chat/completions", again))[0] == 200
        assert (await memory.conversations.counts(owner=None)).conversations == 1
        assert (await memory.conversations.get(line.id, owner=None)).updated_at == line.updated_at
        named = {"X-Clawd-Conversation": line.id}
        assert (await door.post("/v1/chat/completions", again, **named))[0] == 400


LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
NAMING = [{"role": "system", "content": "You name chats."}, {"role": "user", "content": "title"}]


class Slow(ScriptedProvider):
    """Echoes; what is to be named waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    @override
    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        if (request.messages[-1].content or "").endswith("title"):
            self.begun.set()
            await self.go_on.wait()
        async for delta in super().chat(request):
            yield delta


async def test_h5_what_helps_an_agent_is_the_model_alone_and_is_not_kept(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        path, memory = "/v1/chat/completions", door.inside.daemon.memory

        async def kept(messages: Any, program: str, **more: Any) -> int:
            asked = {"model": "clawd", "messages": messages} | more
            status, told = await door.post(path, asked, **{"User-Agent": program})
            assert status == 200, told
            return (await memory.conversations.counts(owner=None)).conversations

        assert await kept(NAMING, "opencode/1") == 1  # nobody knows yet what it is
        assert await kept(KENYA, "opencode/1", tools=[LOOK]) == 1
        assert await kept(NAMING, "opencode/1") == 1
        assert await kept(NAMING, "another/1") == 2
        assert await kept(KENYA, "opencode/1") == 3
        assert await kept(NAMING, "") == 4
        other = Caller(principal=OWNER, scopes=EVERYTHING, key_id="second")
        door.callers[path] = other
        assert await kept(NAMING, "opencode/1") == 5


async def test_h5_a_title_that_is_asked_for_right_before_the_work_is_not_kept_either(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as door:
        slow = Slow()
        door.inside.daemon.state.providers["mock"] = slow
        path, agent = "/v1/chat/completions", {"User-Agent": "opencode/1"}
        asked = {"model": "clawd", "messages": NAMING}
        naming = asyncio.create_task(door.post(path, asked, **agent))
        async with asyncio.timeout(60):
            await slow.begun.wait()
            work = {"model": "clawd", "messages": KENYA, "tools": [LOOK]}
            assert (await door.post(path, work, **agent))[0] == 200
            slow.go_on.set()
            assert (await naming)[0] == 200
        counts = await door.inside.daemon.memory.conversations.counts(owner=None)
        assert counts.conversations == 0


def test_h5_programs_that_brought_tools_are_forgotten_in_time() -> None:
    now = 0.0
    agents = Agents(lambda: now)
    brings = ModelRequest(messages=(user("a"),), tools=(THEIRS,), program="p")
    helps = ModelRequest(messages=(user("a"),), system="name it", program="p")
    agents.note(brings, CALLER)
    assert agents.is_helped_by(helps, CALLER)
    for change in ({"system": None}, {"conversation_id": "conv-1"}, {"program": "q"}):
        assert not agents.is_helped_by(msgspec.structs.replace(helps, **change), CALLER)
    now = AGENT_S
    assert not agents.is_helped_by(helps, CALLER)
    agents.note(brings, CALLER)
    for number in range(MAX_AGENTS):
        agents.note(msgspec.structs.replace(brings, program=f"p{number}"), CALLER)
    assert not agents.is_helped_by(helps, CALLER)


async def test_h5_the_agent_and_memory_can_be_switched_off_for_the_gateway(
    tmp_path: Path,
) -> None:
    call = {"tool_calls": [{"name": "file_list", "arguments": {"path": "."}}], "text": "I look."}
    asked = {"model": "clawd", "messages": KENYA}
    off = {"agent = false": [], "keep_conversations = false": ["file_list"]}
    for number, (key, tools) in enumerate(off.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        tables = f"[channels.http]\n{key}\n"
        async with served(folder, call, {"text": "One file."}, tables=tables) as door:
            assert (await door.post("/v1/chat/completions", asked))[0] == 200
            assert [receipt.tool for receipt in door.inside.receipts()] == tools
            counts = await door.inside.daemon.memory.conversations.counts(owner=None)
            assert counts.conversations == 0, key


async def test_tokens_are_counted_for_both_ways(tmp_path: Path) -> None:
    async with served(tmp_path, routes=ROUTES) as door:
        plain = await door.post("/count", {"messages": [["user", "hello"]], "inject": False})
        looped = await door.post("/count", {"messages": [["user", "hello"]]})
        assert plain == (200, {"tokens": 2})
        assert looped[1]["tokens"] > 500
        assert (await door.post("/count", {"messages": []}))[0] == 400


def test_calls_of_tools_that_a_client_did_not_offer_are_left_out() -> None:
    offered = Offered(ChatRequest(messages=(), tools=(THEIRS,)))
    said: list[Delta] = [
        CallDelta(index=0, id="a", name="calculator"),
        CallDelta(index=0, arguments="{}"),
        CallDelta(index=1, id="b", name=THEIRS.name),
        CallDelta(index=1, arguments="{}"),
        Finished(reason="tool_calls"),
    ]
    told = [offered.told(delta) for delta in said]
    assert told == [
        None,
        None,
        CallDelta(index=0, id="b", name=THEIRS.name),
        CallDelta(index=0, arguments="{}"),
        Finished(reason="tool_calls"),
    ]
    none = Offered(ChatRequest(messages=(), tools=(THEIRS,)))
    assert none.told(said[0]) is None
    assert none.told(said[-1]) == Finished(reason="stop")


class _Silent(ScriptedProvider):
    """Begins an answer, and says no more of it."""

    @override
    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        yield TextDelta(text="It")
        await asyncio.Event().wait()


async def test_a_pass_that_is_stopped_while_it_waits_says_so_and_cancels_nothing_else() -> None:
    passed = Forwarded(
        _Silent(),
        asked(),
        model="m",
        ended=lambda _passed: None,
        meter=DeltaMeter(ModelCounts(), "mock"),
    )
    events = aiter(passed)
    assert await anext(events) == TextDelta(text="It")
    loop = asyncio.get_running_loop()
    loop.call_soon(passed.stop)
    loop.call_soon(passed.stop)
    ending = await anext(events)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, StoppedError)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
