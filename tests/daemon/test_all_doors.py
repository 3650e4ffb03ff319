"""One policy, every door: the same verdict, words, receipt and effects, whichever way a call comes.

A door is one coroutine that lets a call be made and returns what its caller was told. One more
door is one more of them in `DOORS`.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import example, given, settings

from clawd.providers.base import Provider
from clawd.service.http import routes_of
from clawd.wire.codec import unpack
from clawd.wire.events import ApprovalRequested, QuestionAsked
from clawd.wire.messages import EventFrame, Result
from clawd.wire.method import Method
from clawd.wire.methods import OpenConversation, RunTool, SendMessage
from clawd.wire.reports import ToolOutcome
from tests.channels.http.rig import Served, served
from tests.channels.rpc.rig import LIMIT_S, request
from tests.daemon.test_three_doors import CASES, WORDS, Case, Told, arrange, case_of, facts
from tests.runtime.models import PlannedModel, calls, says
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
        (receipt,) = self.inside.receipts()[before:]
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


async def by_openai_chat(house: House, attempt: Attempt) -> str:
    model = house.plan(attempt)
    body = {"messages": [{"role": "user", "content": "go"}]}
    headers = {}
    if attempt.conversation_id:
        headers["X-Clawd-Conversation"] = attempt.conversation_id
    status, told = await house.http.post("/v1/chat/completions", body, **headers)
    assert status == 200, told
    return told_to(model)


DOORS: dict[str, Door] = {
    "a turn over the socket": by_turn,
    "tool run": by_tool_run,
    "POST /tools/{name}/run": by_http_run,
    "POST /tools/{name}/run as a stream": by_http_run_stream,
    "POST /chat": by_http_chat,
    "POST /chat as a stream": by_http_chat_stream,
}
# At these somebody can always be asked: a client has no way to say that nobody is there.
ATTENDED: dict[str, Door] = {}
if any(route.path == "/v1/chat/completions" for route in routes_of()):
    ATTENDED["POST /v1/chat/completions"] = by_openai_chat


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.close()


def doors_for(case: Case) -> dict[str, Door]:
    return DOORS if case.person == "absent" else DOORS | ATTENDED


def by_every_door(house: House, case: Case, attempt: Attempt, *, tainted: bool = False) -> Told:
    """Make the call at every door, each time in the same circumstances; return what all said."""
    found: dict[str, tuple[Told, Effects]] = {}
    for name, door in doors_for(case).items():
        arrange(house.inside, case)
        before = effects(house.inside.workspace)
        there = msgspec.structs.replace(
            attempt, conversation_id=tainted_conversation(house) if tainted else ""
        )
        told, after = found[name] = house.run(house.through(door, case, there))
        if told.status == "denied" or told.receipt["reason"] in {"unknown tool", "bad arguments"}:
            assert after == before, (name, "something ran that should not")
    ((first, effect), *others) = found.values()
    for name, other in zip(list(found)[1:], others, strict=True):
        assert msgspec.structs.asdict(other[0]) == msgspec.structs.asdict(first), name
        assert other[1] == effect, name
    return first


def attempt_of(case: Case) -> Attempt:
    return Attempt(
        tool=case.tool,
        arguments=json.dumps(case.arguments),
        is_attended=case.person != "absent",
    )


def tainted_conversation(house: House) -> str:
    line = house.run(house.inside.ask(OpenConversation(), OWNER))
    house.inside.daemon.inbox.book._taint.mark(line.id, "web example.org")
    return line.id


by_doors = settings(max_examples=25, deadline=None)
STOPPED = Case(
    tool="shell", arguments={"command": "ls"}, autonomy="full", person="approves", is_stopped=True
)


@by_doors
@given(case=CASES)
@example(case=case_of("calculator", "readonly", "absent", expression="6*7"))
@example(case=case_of("file_write", "supervised", "approves", path="b", content="x"))
@example(case=case_of("file_write", "supervised", "denies", path="b", content="x"))
@example(case=case_of("file_write", "supervised", "absent", path="b", content="x"))
@example(case=case_of("file_write", "readonly", "approves", path="b", content="x"))
@example(case=case_of("shell", "full", "approves", command="rm -rf /"))
@example(case=case_of("nope", "full", "approves", x="y"))
@example(case=case_of("file_read", "full", "approves", x="y"))
@example(case=case_of("ask_user", "supervised", "approves", question="Shall I?"))
@example(case=STOPPED)
def test_a_call_is_the_same_by_every_door(house: House, case: Case) -> None:
    told = by_every_door(house, case, attempt_of(case))
    if told.status != "allowed":
        assert told.text.startswith("denied: " if told.status == "denied" else "error: ")
    if case.is_stopped and told.receipt["reason"] not in {"unknown tool", "bad arguments"}:
        assert told.text.startswith("denied: emergency stop is set")


@pytest.mark.parametrize(
    ("case", "status", "wrote"),
    [
        (case_of("file_write", "supervised", "approves", path="b", content="x"), "allowed", True),
        (case_of("file_write", "supervised", "denies", path="b", content="x"), "denied", False),
        (case_of("file_write", "readonly", "approves", path="b", content="x"), "denied", False),
        (case_of("file_write", "full", "absent", path="b", content="x"), "allowed", True),
        (case_of("file_write", "full", "approves", path="../b", content="x"), "denied", False),
        (case_of("file_write", "full", "approves", path="b"), "failed", False),
    ],
)
def test_what_every_door_must_do(house: House, case: Case, status: str, *, wrote: bool) -> None:
    told = by_every_door(house, case, attempt_of(case))
    assert told.status == status
    assert (house.inside.workspace / "b").exists() is wrote


@pytest.mark.parametrize("raw", ["not json", "[1]", '{"path":', "null", '{"a":1}x'])
def test_arguments_that_are_no_object_are_the_same_by_every_door(house: House, raw: str) -> None:
    case = case_of("file_read", "full", "approves")
    told = by_every_door(house, case, Attempt(tool="file_read", arguments=raw))
    assert (told.status, told.receipt["reason"]) == ("failed", "bad arguments")


@pytest.mark.parametrize("person", ["denies", "absent"])
def test_an_outward_call_asks_at_every_door_once_untrusted_text_is_about(
    house: House, person: Any
) -> None:
    case = case_of("http", "full", person, url="http://example.org/", method="POST")
    told = by_every_door(house, case, attempt_of(case), tainted=True)
    assert told.status == "denied" and told.receipt["approval"] == "none"


@by_doors
@given(case=CASES)
def test_untrusted_text_counts_the_same_at_every_door(house: House, case: Case) -> None:
    if case.person == "approves":
        case = msgspec.structs.replace(case, person="denies")
    by_every_door(house, case, attempt_of(case), tainted=True)
