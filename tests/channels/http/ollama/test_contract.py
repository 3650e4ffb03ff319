"""The contract of Ollama's answers, raw: what its clients cannot do without."""

import asyncio
from pathlib import Path
from typing import Any

from clawd import __version__
from clawd.errors import ContextFullError, ProviderError
from clawd.providers.base import CallDelta, Failed, Message
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.channels.http.rig import served
from tests.channels.http.told import EVALUATED, Told, finished, raw, reread_lines

ANSWER = (
    EVALUATED,
    ReasoningDelta(text="hm"),
    TextDelta(text="Grüße "),
    TextDelta(text="🙂"),
    finished(),
)
CALL = (
    CallDelta(index=0, id="call_9", name="look"),
    CallDelta(index=0, arguments='{"at": "a'),
    CallDelta(index=0, arguments=' b"}'),
)
HI = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "told-model", "messages": [HI]} | fields


def text_of(lines: list[dict[str, Any]]) -> str:
    return "".join(line["message"]["content"] for line in lines)


async def test_an_answer_is_a_stream_of_lines_unless_told_otherwise(tmp_path: Path) -> None:
    async with served(tmp_path, generations=Told(*ANSWER)) as door:
        # No content type, as some clients ask.
        streamed = await raw(door.url, "/api/chat", asked())
        whole = await raw(door.url, "/api/chat", asked(stream=False, tools=[]))
    assert streamed.status == 200
    assert streamed.headers["content-type"] == "application/x-ndjson"
    lines = reread_lines(streamed.body)
    assert text_of(lines) == "Grüße 🙂"
    assert [line["done"] for line in lines] == [False, False, False, True]
    assert all(line["model"] == "told-model" and line["created_at"] for line in lines)
    last = lines[-1]
    assert (last["done_reason"], last["prompt_eval_count"], last["eval_count"]) == ("stop", 30, 7)
    assert whole.headers["content-type"].startswith("application/json")
    message = whole.json()["message"]
    assert message == {"role": "assistant", "content": "Grüße 🙂", "thinking": "hm"}
    assert whole.json()["done"] is True


async def test_generate_streams_its_response(tmp_path: Path) -> None:
    body = {"model": "told-model", "prompt": "hi"}
    async with served(tmp_path, generations=Told(*ANSWER)) as door:
        lines = reread_lines((await raw(door.url, "/api/generate", body)).body)
        whole = (await raw(door.url, "/api/generate", body | {"stream": False})).json()
    assert "".join(line["response"] for line in lines) == whole["response"] == "Grüße 🙂"
    assert whole["thinking"] == "hm"


async def test_a_call_has_its_arguments_as_an_object(tmp_path: Path) -> None:
    told = Told(EVALUATED, *CALL, finished("tool_calls"))
    async with served(tmp_path, generations=told) as door:
        lines = reread_lines((await raw(door.url, "/api/chat", asked(tools=[TOOL]))).body)
        whole = (await raw(door.url, "/api/chat", asked(tools=[TOOL], stream=False))).json()
    (call,) = whole["message"]["tool_calls"]
    assert call["function"] == {"index": 0, "name": "look", "arguments": {"at": "a b"}}
    assert [line["message"].get("tool_calls") for line in lines] == [[call], None]
    assert told.requests[0].tools[0].name == "look"


async def test_litellms_ways_of_asking_are_understood(tmp_path: Path) -> None:
    told = Told(*ANSWER)
    body = asked(
        stream=False,
        options={"num_predict": 5, "temperature": 0.1, "stop": ["END"]},
        format="json",
        messages=[
            HI,
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look"}}]},
            {"role": "tool", "content": "warm", "tool_name": "look"},
        ],
    )
    async with served(tmp_path, generations=told) as door:
        assert (await raw(door.url, "/api/chat", body)).status == 200
        shown = await raw(door.url, "/api/show", {"name": "mock"})
    assert told.requests[0].messages[-1] == Message(
        role="tool", content="warm", tool_call_id="call_1", name="look"
    )
    assert told.requests[0].response_format == {"type": "json_object"}
    assert shown.status == 200
    assert "tools" in shown.json()["capabilities"]


async def test_errors_are_a_status_at_first_and_a_line_later(tmp_path: Path) -> None:
    full = Failed(error=ContextFullError("too much"))
    async with served(tmp_path, generations=Told(full)) as door:
        answer = await raw(door.url, "/api/chat", asked())
    assert (answer.status, answer.json()) == (400, {"error": "too much"})
    broken = Failed(error=ProviderError("it broke", kind="network"), partial=True)
    async with served(tmp_path, generations=Told(EVALUATED, TextDelta(text="He"), broken)) as door:
        answer = await raw(door.url, "/api/chat", asked())
    assert answer.status == 200
    assert reread_lines(answer.body)[-1] == {"error": "it broke"}


async def test_a_client_that_leaves_ends_the_work(tmp_path: Path) -> None:
    told = Told(EVALUATED, TextDelta(text="Good "), asyncio.Event())
    async with served(tmp_path, generations=told) as door:
        async with door.session.post(door.url + "/api/chat", json=asked()) as response:
            await response.content.readuntil(b"\n")
        async with asyncio.timeout(60):
            await told.closed.wait()


async def test_bad_requests_are_told_in_the_dialects_envelope(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        for path, body, status, problem in (
            ("/api/chat", b"{", 400, "not valid JSON"),
            ("/api/chat", {"messages": [HI]}, 400, "model"),
            ("/api/chat", asked(messages=[HI | {"images": ["hi!"]}]), 400, "images"),
            ("/api/chat", asked(model="nobody-has-this"), 404, "nobody-has-this"),
            ("/api/chat", {"model": "nobody-has-this"}, 404, "nobody-has-this"),
            ("/api/generate", {"model": "nobody", "prompt": "p"}, 404, "nobody"),
            ("/api/generate", {"model": "mock", "prompt": "p", "suffix": 5}, 400, "suffix"),
            ("/api/generate", {"model": "mock", "prompt": "p", "template": "x"}, 400, "template"),
            ("/api/show", {"model": "nobody-has-this"}, 404, "nobody-has-this"),
            ("/api/embed", {"model": "mock", "input": "x"}, 501, "no embeddings"),
            ("/api/pull", {"model": "https://example.org/m.gguf"}, 400, "not pulled over HTTP"),
            ("/api/pull", {"model": "other.example/a/b:c"}, 400, "not pulled over HTTP"),
            ("/api/pull", {"model": "llama", "stream": 1}, 400, "stream must be"),
            ("/api/create", {"model": "llama"}, 501, "not supported"),
            ("/api/copy", {"source": "a", "destination": "b"}, 501, "not supported"),
            ("/api/push", {"model": "llama"}, 501, "not supported"),
            ("/api/nothing", {}, 404, "/api/nothing"),
            ("/api/tags", {}, 405, "POST"),
        ):
            answer = await raw(door.url, path, body)
            assert answer.status == status, (path, answer)
            value = answer.json()
            assert set(value) == {"error"}
            assert problem in value["error"]
        gone = await raw(door.url, "/api/delete", {"model": "x"}, method="DELETE")
        assert (gone.status, set(gone.json())) == (404, {"error"})


async def test_somebody_is_there(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        for path in ("/", "/api/version", "/api/tags", "/api/ps"):
            answer = await raw(door.url, path)
            head = await raw(door.url, path, method="HEAD")
            assert (answer.status, head.status, head.body) == (200, 200, b"")
            assert head.headers["content-length"] == str(len(answer.body))
        assert (await raw(door.url, "/")).body == b"Ollama is running"
        assert (await raw(door.url, "/api/version")).json() == {
            "version": "0.6.4",  # the first that many clients take
            "clawd": __version__,
            "server": f"clawd/{__version__}",
        }
