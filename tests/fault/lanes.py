"""The lanes of a storm: each is one client that works until the daemon is gone.

A mark (`mark-r7-tool-3`) stands in the arguments of one call only, and in what the call writes.
"""

import contextlib
import http.client
import json
import random
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from clawctl.client import Client, connect
from clawd.errors import ClawError
from clawd.wire.conversations import (
    CompressConversation,
    OpenConversation,
    RenameConversation,
    WriteSessionFile,
)
from clawd.wire.daemon import ClearEstop, Reload, SetEstop, Status
from clawd.wire.events import McpLine, ToolFinished, TurnFailed
from clawd.wire.mcp import LINE, ListMcpServers, ServeMcp
from clawd.wire.memory import (
    BackUpMemory,
    CheckMemory,
    DeleteKnowledge,
    KnowledgeOutcome,
    SaveKnowledge,
    SearchMemory,
)
from clawd.wire.method import Method
from clawd.wire.models import LoadModel, UnloadModel
from clawd.wire.policy import AnswerApproval, ListApprovals, ListRules
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import SendMessage
from tests.fault.told import Place, Told

TURNS = 12
CALLS = 2
MOST = 400
LIMIT_S = 60.0
ANSWERS: tuple[Literal["once", "deny", "always"], ...] = ("once", "deny", "always")
PAUSE_S = 0.005
MARK = re.compile(r"mark-r\d+-[a-z]+-[a-z0-9]+(?:-c\d)?")
GONE = {"unreachable"}
# What a client may be told in a storm without anything being wrong.
EXPECTED = GONE | {
    "estop",
    "cancelled",
    "busy",
    "worker_died",
    "model_load",
    "invalid_request",
    "not_found",  # of a model that is not loaded
    "stopping",
    "rate_limited",
}

Lane = Callable[[Place, random.Random], None]


def blow(lane: Lane, place: Place, seed: str) -> None:
    """Let a lane work until its daemon is gone; what it may not be told is noted."""
    try:
        lane(place, random.Random(seed))
    except ClawError as error:
        if error.code not in GONE:
            place.told.failures.append(f"{lane.__name__}: {error.code}: {error.message}")
    except (OSError, http.client.HTTPException):
        pass  # of the gateway: gone as well
    except Exception as error:  # noqa: BLE001 - the lane's outermost handler
        place.told.failures.append(f"{lane.__name__}: {error!r}")


def talk(place: Place, dice: random.Random) -> None:
    """Make turns with calls of tools, each in the conversation of the one before."""
    _turns(place, dice, "talk")


def talk_too(place: Place, dice: random.Random) -> None:
    """Do the same beside it."""
    _turns(place, dice, "more")


def talk_to_the_model(place: Place, dice: random.Random) -> None:
    """Make turns with a real model, whose worker dies now and then."""
    if not place.has_model:
        return
    with _client(place) as client:
        for number in range(MOST):
            text = f"what is {number} times 7? (r{place.number})"
            _turn(client, place, SendMessage(text=text, provider="local"))
            _rest(dice)


def run_tools(place: Place, dice: random.Random) -> None:
    """Run single tools: writes, commands, tools of an MCP server, what is refused."""
    with _client(place) as client:
        for number in range(MOST):
            mark = f"mark-r{place.number}-tool-{number}"
            match dice.randrange(5):
                case 0 | 1:
                    _append(client, place, mark, "tool.txt")
                case 2:
                    arguments = {"command": f"echo {mark} >> tool-shell.txt"}
                    _run(client, place, "shell", arguments, mark, "tool-shell.txt")
                case 3:
                    _run(client, place, "hand__echo", {"text": f"said {number}"})
                case _:
                    _run(client, place, "file_read", {"path": "/etc/shadow"})
            _rest(dice)


def undo(place: Place, dice: random.Random) -> None:
    """Write files in a conversation and take every second write back."""
    with _client(place) as client:
        conversation = client.call(OpenConversation()).id
        for number in range(MOST):
            mark = f"mark-r{place.number}-undo-{number}"
            path = f"undo-r{place.number}.txt"
            wrote = _append(client, place, mark, path, conversation)
            if wrote and number % 2:
                place.told.marks.pop(mark)
                done = _run(client, place, "undo", {"steps": 1}, conversation=conversation)
                if done is not None and done.status == "allowed":
                    place.told.undone.add(mark)
                    place.told.count("undone")
                elif done is not None and done.status == "denied":
                    place.told.marks[mark] = path
            _rest(dice)


def know(place: Place, dice: random.Random) -> None:
    """Save notes, and delete every third."""
    told: Told = place.told
    with _client(place) as client:
        for number in range(MOST):
            keywords = f"storm r{place.number} n{number}"
            content = f"note {number} of round {place.number}\n"
            save = SaveKnowledge(keywords=keywords, content=content, interactive=True)
            saved = _tried(place, partial(_drained, client, save))
            if _was_done(place, saved):
                told.knowledge[keywords] = content
                told.count("notes")
            if keywords in told.knowledge and number % 3 == 2:
                content = told.knowledge.pop(keywords)
                delete = DeleteKnowledge(keywords=keywords, interactive=True)
                gone = _tried(place, partial(_drained, client, delete))
                if _was_done(place, gone):
                    told.deleted.add(keywords)
                elif gone is not None and gone.call.status == "denied":
                    told.knowledge[keywords] = content
            _rest(dice)


def keep_files(place: Place, dice: random.Random) -> None:
    """Put files to a conversation, give it titles, and compress it."""
    told: Told = place.told
    with _client(place) as client:
        first = _turn(client, place, SendMessage(text=f"files r{place.number} begin"))
        conversation = first or client.call(OpenConversation()).id
        for number in range(MOST):
            name = f"kept-{place.number}-{number % 20}.bin"
            content = dice.randbytes(dice.randrange(1, 20_000))
            told.files.pop((conversation, name), None)
            write = WriteSessionFile(conversation_id=conversation, name=name, content=content)
            if _tried(place, partial(client.call, write)) is not None:
                told.files[conversation, name] = content
                told.count("files")
            title = f"title {number} of round {place.number}"
            told.try_title(conversation, title)
            rename = RenameConversation(conversation_id=conversation, title=title)
            if _tried(place, partial(client.call, rename)) is not None:
                told.note_title(conversation, title)
            _turn(
                client,
                place,
                SendMessage(
                    text=f"files r{place.number} n{number} {'word ' * 300}",
                    conversation_id=conversation,
                ),
            )
            if number % 2:
                _compress(client, place, conversation)
            _rest(dice)


def speak_mcp(place: Place, dice: random.Random) -> None:
    """Be an MCP client on standard input and output, as `clawctl mcp serve` passes it on."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "storm", "version": "1"},
    }
    with _client(place) as client:
        stream = client.stream(ServeMcp())

        def ask(number: int, method: str, params: dict[str, Any]) -> Any:
            line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            stream.answer(LINE, json.dumps(line))
            deadline = time.monotonic() + LIMIT_S
            while time.monotonic() < deadline:
                event = stream.wait(LIMIT_S)
                if isinstance(event, McpLine) and json.loads(event.text).get("id") == number:
                    return json.loads(event.text)
            raise AssertionError("no answer of the MCP server")

        ask(1, "initialize", hello)
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        stream.answer(LINE, json.dumps(ready))
        for number in range(2, MOST):
            mark = f"mark-r{place.number}-mcp-{number}"
            arguments = {"path": "mcp.txt", "content": f"{mark}\n"}
            call = {"name": "file_append", "arguments": arguments}
            answer = ask(number, "tools/call", call)
            if "result" in answer and not answer["result"].get("isError"):
                place.told.marks[mark] = "mcp.txt"
                place.told.count("mcp")
            _rest(dice)


def ask_over_http(place: Place, dice: random.Random) -> None:
    """Chat through the gateway, with calls of tools."""
    parts = urlsplit(place.gateway)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT_S)
    headers = {"Authorization": f"Bearer {place.key}", "Content-Type": "application/json"}
    with contextlib.closing(connection):
        for number in range(MOST):
            text = f"r{place.number} http {number % TURNS}." if dice.random() < 0.5 else "hello"
            text += f" ask {place.number}-{number}"
            body = {"messages": [{"role": "user", "content": text}]}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            data = json.loads(answer.read())
            if answer.status == 200:
                place.told.answers.append(("", text, data["choices"][0]["message"]["content"]))
                place.told.count("http")
            elif data["error"].get("code") not in EXPECTED:
                place.told.failures.append(f"http: {answer.status} {data}")
            _rest(dice)


def administer(place: Place, dice: random.Random) -> None:
    """Reload, stop and let go, back up, search, load and unload models."""
    told: Told = place.told
    with _client(place) as client:
        for number in range(MOST):
            match dice.randrange(12):
                case 0:
                    told.try_stop(is_set=True)
                    client.call(SetEstop(reason="a storm"))
                    told.note_stop(is_set=True)
                    time.sleep(dice.uniform(0, 0.03))
                    told.try_stop(is_set=False)
                    client.call(ClearEstop())
                    told.note_stop(is_set=False)
                case 1 | 2:
                    client.call(Reload())
                    told.count("reloads")
                case 3:
                    _back_up(client, place, number)
                case 4:
                    assert client.call(CheckMemory()).problems == ()
                case 5 | 6 if place.has_model:
                    _tried(place, lambda: client.call(LoadModel(name="embedded")))
                case 7 if place.has_model and dice.random() < 0.3:
                    _tried(place, lambda: client.call(UnloadModel(name="embedded")))
                case 8:
                    client.call(ListMcpServers())
                    client.call(Status())
                case _:
                    client.call(SearchMemory(query="answer"))
            time.sleep(dice.uniform(0, 0.05))


def approve(place: Place, dice: random.Random) -> None:
    """Answer what is asked: mostly yes, sometimes no, now and then for always."""
    if not place.is_asking:
        return
    told: Told = place.told
    with _client(place) as client:
        while True:
            for asked in client.call(ListApprovals()).items:
                answer = dice.choices(ANSWERS, (12, 3, 1))[0]
                say = AnswerApproval(approval_id=asked.id, digest=asked.digest, answer=answer)
                try:
                    client.call(say)
                except ClawError as error:
                    if error.code in GONE:
                        raise
                    continue  # it was cancelled or stopped meanwhile
                told.count("approvals")
                if answer == "deny":
                    told.denied.update(word for word in _marks_in(asked.arguments))
                elif answer == "always":
                    told.rules.update(rule.id for rule in client.call(ListRules()).items)
            time.sleep(dice.uniform(0, 0.01))


LANES: tuple[Lane, ...] = (
    talk,
    talk_too,
    talk_to_the_model,
    run_tools,
    undo,
    know,
    keep_files,
    speak_mcp,
    ask_over_http,
    administer,
    approve,
)


def script(number: int) -> list[dict[str, Any]]:
    """Return what the scripted model says in a round: to each turn of a lane its own calls."""
    replies: list[dict[str, Any]] = []
    for lane in ("talk", "more", "http"):
        for turn in range(TURNS):
            calls = [
                _scripted(f"mark-r{number}-{lane}-t{turn}-c{call}", lane) for call in range(CALLS)
            ]
            # Over HTTP a turn may be made several times, and a mark is for one call.
            made = [{"name": "calculator", "arguments": {"expression": f"{turn}+1"}}]
            when = f"r{number} {lane} {turn}."
            replies.append({"when": when, "tool_calls": made if lane == "http" else calls})
    return [*replies, {"text": "answer to {{last_user}}"}]


def _scripted(mark: str, lane: str) -> dict[str, Any]:
    if mark.endswith("c1"):
        command = {"command": f"echo {mark} >> {lane}.txt"}
        return {"name": "shell", "arguments": command}
    append = {"path": f"{lane}.txt", "content": f"{mark}\n"}
    return {"name": "file_append", "arguments": append}


def _turns(place: Place, dice: random.Random, lane: str) -> None:
    with _client(place) as client:
        conversation = ""
        for turn in range(MOST):
            text = f"r{place.number} {lane} {turn}." if turn < TURNS else f"chat {lane} {turn}"
            text += f" ask {place.number}-{turn}"
            conversation = (
                _turn(
                    client,
                    place,
                    SendMessage(text=text, conversation_id=conversation, interactive=True),
                )
                or conversation
            )
            _rest(dice)


def _turn(client: Client, place: Place, request: SendMessage) -> str:
    """Make a turn; return its conversation when it was answered, else ""."""
    stream = client.stream(request)

    def follow() -> Any:
        for event in stream:
            if isinstance(event, ToolFinished):
                place.told.receipts.add(event.receipt_id)
                place.told.count("calls")
            if isinstance(event, TurnFailed) and event.code not in EXPECTED:
                place.told.failures.append(f"a turn: {event.code}: {event.message}")
        return stream.result

    finished = _tried(place, follow)
    if finished is None:
        return ""
    place.told.answers.append((finished.conversation_id, request.text, finished.text))
    place.told.count("turns")
    return str(finished.conversation_id)


def _append(
    client: Client, place: Place, mark: str, path: str, conversation: str = ""
) -> ToolOutcome | None:
    arguments = {"path": path, "content": f"{mark}\n"}
    return _run(client, place, "file_append", arguments, mark, path, conversation=conversation)


def _run(
    client: Client,
    place: Place,
    tool: str,
    arguments: dict[str, Any],
    mark: str = "",
    path: str = "",
    *,
    conversation: str = "",
) -> ToolOutcome | None:
    """Run a tool; return how it went, None where it is not known."""
    request = RunTool(
        name=tool,
        arguments=json.dumps(arguments),
        conversation_id=conversation,
        interactive=True,
    )
    outcome: ToolOutcome | None = _tried(place, lambda: _drained(client, request))
    if outcome is None:
        return None
    place.told.receipts.add(outcome.receipt_id)
    place.told.count("calls")
    if mark and outcome.status == "allowed":
        place.told.marks[mark] = path
        return outcome
    return outcome if not mark else None


def _compress(client: Client, place: Place, conversation: str) -> None:
    request = CompressConversation(conversation_id=conversation)
    done = _tried(place, lambda: client.call(request))
    if done is not None and done.messages_replaced:
        place.told.compressed.add(conversation)
        place.told.count("compressions")


def _back_up(client: Client, place: Place, number: int) -> None:
    target = Path(place.socket).parents[1] / f"backup-{place.number}-{number}.sqlite"
    client.call(BackUpMemory(path=str(target)))
    place.told.backups.append(str(target))
    place.told.count("backups")


def _was_done(place: Place, outcome: KnowledgeOutcome | None) -> bool:
    if outcome is None:
        return False
    if outcome.call.receipt_id:
        place.told.receipts.add(outcome.call.receipt_id)
    return outcome.call.status == "allowed"


def _drained(client: Client, request: Method[Any]) -> Any:
    stream = client.stream(request)
    for _event in stream:
        pass
    return stream.result


def _tried(place: Place, act: Callable[[], Any]) -> Any:
    """Return what came of it; None for a failure that may be. One that may not is noted."""
    try:
        return act()
    except ClawError as error:
        if error.code in GONE:
            raise
        if error.code not in EXPECTED:
            place.told.failures.append(f"{error.code}: {error.message}")
        return None


def _marks_in(text: str) -> set[str]:
    return set(MARK.findall(text))


def _client(place: Place) -> Client:
    return connect(Path(place.socket))


def _rest(dice: random.Random) -> None:
    time.sleep(dice.uniform(0, PAUSE_S))
