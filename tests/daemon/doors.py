"""The doors of a daemon, for tests over all of them: each is a coroutine that lets a call be made.

It returns what its caller, or the model, was told. One more door is one more of them in `DOORS`,
`CLIENTS` or `MODELS`.
"""

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import msgspec

from clawd.channels.http.model_api import Caller
from clawd.providers.base import Provider
from clawd.wire.codec import Answer, EventFrame, Result, unpack, unpack_event
from clawd.wire.events import ApprovalRequested, McpLine, QuestionAsked
from clawd.wire.mcp import END, LINE, ServeMcp
from clawd.wire.method import Method
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import SendMessage
from tests.channels.http.rig import EVERYTHING, Served, served
from tests.channels.rpc.rig import LIMIT_S, request
from tests.daemon.test_three_doors import WORDS, Case, Told, facts
from tests.runtime.models import PlannedModel, calls, says
from tests.skills.skill_files import skill
from tests.sop.procedures import procedure, shell
from tests.support.inprocess import OWNER

T = TypeVar("T")


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A call, as every door is given it.

    Attributes:
        arguments: JSON text, or what was to be one.
        conversation_id: where it is made; empty for none, or a new one.
        is_attended: whether somebody can be asked.
    """

    tool: str
    arguments: str
    conversation_id: str = ""
    is_attended: bool = True


class House:
    """A daemon that serves its socket and its gateway, on a loop of its own thread."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._stack = AsyncExitStack()
        self.http: Served = self.run(self._stack.enter_async_context(served(folder)))
        self.inside = self.http.inside
        # A model is offered what is for skills and procedures where there are any, as people
        # always are.
        layout = self.inside.daemon.loaded.layout
        skill(layout.skills / "notes")
        procedure(layout.sops, "check", shell("one", "true"))
        self.numbers = itertools.count()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the daemon's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(6 * LIMIT_S)

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def through(self, door: "Door", case: Case, attempt: Attempt) -> tuple[Told, "Effects"]:
        """Let a call be made by a door, with the case's person about; it leaves one receipt."""
        before = len(self.inside.receipts())
        async with self._person(case):
            told = await door(self, attempt)
        # The time is asked for by doors that must call something first.
        (receipt,) = (each for each in self.inside.receipts()[before:] if each.tool != "time")
        assert (await self.http.get("/approvals"))[1] == {"items": []}
        kept = Told(status=receipt.status, text=told, receipt=facts(receipt))
        return kept, effects(self.inside.workspace)

    @contextlib.asynccontextmanager
    async def _person(self, case: Case) -> AsyncIterator[None]:
        """Answer what is asked at any door, over HTTP."""
        hub = self.inside.daemon.hub
        subscription = hub.subscribe(OWNER)
        answering = asyncio.create_task(self._answer(subscription, case))
        try:
            yield
        finally:
            hub.unsubscribe(subscription)
            await answering

    async def _answer(self, events: Any, case: Case) -> None:
        async for each in events:
            match each.event:
                case ApprovalRequested() as asked:
                    word = "once" if case.person == "approves" else "deny"
                    answer = {"answer": word, "digest": asked.digest}
                    status, _ = await self.http.post(f"/approvals/{asked.approval_id}", answer)
                    assert status == 200
                case QuestionAsked() as question:
                    said = {"value": WORDS[case.person]}
                    status, _ = await self.http.post(f"/questions/{question.question_id}", said)
                    assert status == 200
                case _:
                    pass

    def plan(self, attempt: Attempt) -> PlannedModel:
        """Let the model ask for the call, once."""
        hops = (calls((attempt.tool, attempt.arguments)), says("done"))
        model = PlannedModel(*hops, name="mock")
        self.inside.daemon.state.providers = {"mock": cast("Provider", model)}
        return model

    def taint(self, conversation_id: str) -> None:
        """Let text from outside have come into a conversation."""
        self.inside.daemon.inbox.book._taint.mark(conversation_id, "web example.org")

    def taint_last(self) -> None:
        """Let it have come into that of the last call."""
        self.taint(self.inside.receipts()[-1].conversation_id)

    async def over_socket(self, params: Method[T]) -> T:
        """Make a request by frames, and let others answer what is asked."""
        client = await self.inside.client(OWNER)
        client.send(request(1, params))
        while isinstance(frame := await client.read(), EventFrame):
            pass
        client.close()
        assert isinstance(frame, Result), frame
        kind: Any = ToolOutcome if isinstance(params, RunTool) else Any
        return cast("T", unpack(frame.value, kind))


Door = Callable[[House, Attempt], Awaitable[str]]
Effects = dict[str, bytes | None]


def effects(workspace: Path) -> Effects:
    """Return what is in a workspace."""
    return {
        str(path.relative_to(workspace)): path.read_bytes() if path.is_file() else None
        for path in sorted(workspace.rglob("*"))
    }


def told_to(model: PlannedModel) -> str:
    return model.requests[-1].messages[-1].content or ""


async def by_turn(house: House, attempt: Attempt) -> str:
    model = house.plan(attempt)
    params = SendMessage(
        text="go",
        conversation_id=attempt.conversation_id,
        interactive=attempt.is_attended,
    )
    await house.over_socket(params)
    return told_to(model)


async def by_tool_run(house: House, attempt: Attempt) -> str:
    params = RunTool(
        name=attempt.tool,
        arguments=attempt.arguments,
        conversation_id=attempt.conversation_id,
        interactive=attempt.is_attended,
    )
    return (await house.over_socket(params)).output


def run_body(attempt: Attempt) -> dict[str, Any]:
    return {
        "arguments": attempt.arguments,
        "conversation_id": attempt.conversation_id,
        "interactive": attempt.is_attended,
    }


async def by_http_run(house: House, attempt: Attempt) -> str:
    path = f"/tools/{quote(attempt.tool, safe='')}/run"
    status, told = await house.http.post(path, run_body(attempt))
    assert status == 200, told
    return str(told["output"])


async def by_http_run_stream(house: House, attempt: Attempt) -> str:
    path = f"/tools/{quote(attempt.tool, safe='')}/run"
    status, text = await house.http.stream(path, run_body(attempt) | {"stream": True})
    assert status == 200, text
    return str(json.loads(text.strip().rpartition("data: ")[2])["output"])


def chat_body(attempt: Attempt) -> dict[str, Any]:
    return {
        "message": "go",
        "conversation_id": attempt.conversation_id,
        "interactive": attempt.is_attended,
    }


async def by_http_chat(house: House, attempt: Attempt) -> str:
    model = house.plan(attempt)
    status, told = await house.http.post("/chat", chat_body(attempt))
    assert (status, told["text"]) == (200, "done"), told
    return told_to(model)


async def by_http_chat_stream(house: House, attempt: Attempt) -> str:
    model = house.plan(attempt)
    status, text = await house.http.stream("/chat", chat_body(attempt) | {"stream": True})
    assert status == 200 and "turn_finished" in text, text
    return told_to(model)


async def by_dialect(house: House, attempt: Attempt, path: str, body: dict[str, Any]) -> str:
    """Let clawd's own loop make the call behind the route of a dialect."""
    model = house.plan(attempt)
    headers = {}
    if attempt.conversation_id:
        headers["X-Clawd-Conversation"] = attempt.conversation_id
    status, text = await house.http.stream(path, {"model": "mock"} | body, **headers)
    assert status == 200 and "done" in text, text
    return told_to(model)


GO = {"messages": [{"role": "user", "content": "go"}]}


async def by_chat_completions(house: House, attempt: Attempt) -> str:
    return await by_dialect(house, attempt, "/v1/chat/completions", GO)


async def by_chat_completions_stream(house: House, attempt: Attempt) -> str:
    return await by_dialect(house, attempt, "/v1/chat/completions", GO | {"stream": True})


async def by_responses(house: House, attempt: Attempt) -> str:
    return await by_dialect(house, attempt, "/v1/responses", {"input": "go"})


async def by_responses_stream(house: House, attempt: Attempt) -> str:
    return await by_dialect(house, attempt, "/v1/responses", {"input": "go", "stream": True})


async def by_messages(house: House, attempt: Attempt) -> str:
    return await by_dialect(house, attempt, "/v1/messages", GO | {"max_tokens": 100})


async def by_messages_stream(house: House, attempt: Attempt) -> str:
    body = GO | {"max_tokens": 100, "stream": True}
    return await by_dialect(house, attempt, "/v1/messages", body)


async def by_api_chat(house: House, attempt: Attempt) -> str:
    return await by_dialect(house, attempt, "/api/chat", GO | {"stream": False})


async def by_api_chat_stream(house: House, attempt: Attempt) -> str:
    return await by_dialect(house, attempt, "/api/chat", GO)


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def calling(attempt: Attempt) -> dict[str, Any]:
    arguments = json.loads(attempt.arguments)
    return message("tools/call", name=attempt.tool, arguments=arguments)


TIME = message("tools/call", name="time", arguments={})
HELLO = message(
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
)
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def by_mcp(house: House, attempt: Attempt) -> str:
    # Each key has a conversation of its own, so each attempt comes with a new one.
    key = f"key-{next(house.numbers)}"
    house.http.callers["/mcp"] = Caller(principal=OWNER, scopes=EVERYTHING, key_id=key)
    if attempt.conversation_id:
        await house.http.post("/mcp", TIME)
        house.taint_last()
    status, answer = await house.http.post("/mcp", calling(attempt))
    assert status == 200, answer
    return text_of(answer)


async def by_mcp_serve(house: House, attempt: Attempt) -> str:
    """Speak as `clawctl mcp serve` passes on what its client says."""
    client = await house.inside.client(OWNER)
    client.send(request(1, ServeMcp()))

    async def say(line: dict[str, Any]) -> Any:
        client.send(Answer(id=1, question=LINE, value=json.dumps(line)))
        if "id" not in line:
            return None
        while True:
            frame = await client.read()
            assert isinstance(frame, EventFrame), frame
            event = unpack_event(frame.event)
            if isinstance(event, McpLine) and "id" in (answer := json.loads(event.text)):
                return answer

    await say(HELLO)
    await say(READY)
    if attempt.conversation_id:
        await say(TIME)
        house.taint_last()
    answer = await say(calling(attempt))
    client.send(Answer(id=1, question=END, value=""))
    while isinstance(await client.read(), EventFrame):
        pass
    client.close()
    return text_of(answer)


def text_of(answer: dict[str, Any]) -> str:
    (block,) = answer["result"]["content"]
    return str(block["text"])


DOORS: dict[str, Door] = {
    "a turn over the socket": by_turn,
    "tool run": by_tool_run,
    "POST /tools/{name}/run": by_http_run,
    "POST /tools/{name}/run as a stream": by_http_run_stream,
    "POST /chat": by_http_chat,
    "POST /chat as a stream": by_http_chat_stream,
}
# At these somebody can always be asked: a client has no way to say that nobody is there.
MODELS: dict[str, Door] = {
    "POST /v1/chat/completions": by_chat_completions,
    "POST /v1/chat/completions as a stream": by_chat_completions_stream,
    "POST /v1/responses": by_responses,
    "POST /v1/responses as a stream": by_responses_stream,
    "POST /v1/messages": by_messages,
    "POST /v1/messages as a stream": by_messages_stream,
    "POST /api/chat": by_api_chat,
    "POST /api/chat as a stream": by_api_chat_stream,
}
# At these as well, and arguments that are no object do not get through the protocol.
CLIENTS: dict[str, Door] = {"POST /mcp": by_mcp, "clawctl mcp serve": by_mcp_serve}
