"""OpenAI's endpoints of a whole daemon with the scripted provider: loop, errors, models."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.channels.http.openai.recorded import CODEX_FIRST, OPENCODE_FIRST, WEATHER
from tests.channels.http.openai.rig import Answer, raw_post
from tests.channels.http.rig import Served, served

USER = {"role": "user", "content": "what is there?"}
READING: tuple[dict[str, Any], ...] = (
    {"tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]},
    {"text": "There is: {{last_tool_result}}"},
)
CALLING = {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Zürich"}}]}


@asynccontextmanager
async def at(folder: Path, *replies: dict[str, Any], tables: str = "") -> AsyncIterator[Served]:
    (folder / "project").mkdir()
    (folder / "project" / "plan.txt").write_text("x")
    async with served(folder, *replies, tables=tables) as found:
        yield found


async def post(found: Served, path: str, body: dict[str, Any], **headers: str) -> Answer:
    return await raw_post(int(found.url.rsplit(":", 1)[1]), path, body, **headers)


async def test_a_request_without_tools_is_answered_by_clawds_own_loop_with_receipts(
    tmp_path: Path,
) -> None:
    async with at(tmp_path, *READING) as found:
        answer = await post(found, "/v1/chat/completions", {"messages": [USER]})
        told = answer.json()
        (receipt,) = found.inside.receipts()
    assert told["choices"][0]["finish_reason"] == "stop"
    assert told["choices"][0]["message"]["content"] == "There is: plan.txt"
    assert "tool_calls" not in told["choices"][0]["message"]
    (call,) = told["clawd"]["tool_calls"]
    assert (call["name"], call["status"], call["receipt_id"]) == (
        "file_list",
        "allowed",
        receipt.id,
    )
    assert told["clawd"]["conversation_id"] == answer.headers["x-clawd-conversation"]


async def test_the_loop_streams_its_answer_and_its_doings_to_who_asks(tmp_path: Path) -> None:
    body = {"messages": [USER], "stream": True, "stream_options": {"clawd_events": True}}
    async with at(tmp_path, *READING) as found:
        answer = await post(found, "/v1/chat/completions", body)
        (receipt,) = found.inside.receipts()
    chunks = answer.data()
    beside = {chunk["clawd"]["event"]: chunk["clawd"] for chunk in chunks if "clawd" in chunk}
    assert beside["clawd.tool_call"]["tool"] == "file_list"
    assert beside["clawd.tool_result"]["receipt_id"] == receipt.id
    text = "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )
    assert text == "There is: plan.txt"


async def test_tools_of_the_client_are_called_by_the_client_in_every_dialect(
    tmp_path: Path,
) -> None:
    flat = {"type": "function", **WEATHER["function"]}
    async with at(tmp_path, CALLING) as found:
        chat = await post(found, "/v1/chat/completions", {"messages": [USER], "tools": [WEATHER]})
        response = await post(found, "/v1/responses", {"input": "weather?", "tools": [flat]})
        assert found.inside.receipts() == []
    choice = chat.json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Zürich"}'}
    (item,) = response.json()["output"]
    assert (item["type"], item["name"]) == ("function_call", "get_weather")
    assert "clawd" not in chat.json()


async def test_a_tool_round_trip_of_a_client_ends_in_text(tmp_path: Path) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
    }
    history = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    reply = {"text": "It says {{last_tool_result}}.", "after": "tool"}
    async with at(tmp_path, reply) as found:
        body = {"messages": history, "tools": [WEATHER]}
        told = (await post(found, "/v1/chat/completions", body)).json()
    assert told["choices"][0]["message"]["content"] == "It says rain."
    assert told["choices"][0]["finish_reason"] == "stop"


async def test_the_first_requests_of_agents_are_answered(tmp_path: Path) -> None:
    async with at(tmp_path, {"text": "Done."}) as found:
        body = {**CODEX_FIRST, "model": "mock"}
        codex = await post(found, "/v1/responses", body)
        opencode = await post(found, "/v1/chat/completions", {**OPENCODE_FIRST, "model": "mock"})
    assert codex.events()[-1][0] == "response.completed"
    assert codex.events()[-1][1]["response"]["output"][0]["content"][0]["text"] == "Done."
    assert opencode.data()[-1]["usage"]["total_tokens"] > 0


async def test_a_result_of_a_call_that_nobody_made_is_refused(tmp_path: Path) -> None:
    async with at(tmp_path, {"text": "x"}) as found:
        body = {"messages": [USER, {"role": "tool", "tool_call_id": "c9", "content": "r"}]}
        answer = await post(found, "/v1/chat/completions", body)
    assert answer.status == 400
    assert answer.json()["error"]["param"] == "messages[1]"


async def test_a_model_that_is_not_there_is_a_404_at_every_endpoint(tmp_path: Path) -> None:
    async with at(tmp_path, {"text": "x"}) as found:
        for path, body in (
            ("/v1/chat/completions", {"messages": [USER]}),
            ("/v1/completions", {"prompt": "a"}),
            ("/v1/responses", {"input": "a"}),
            ("/v1/chat/completions/input_tokens", {"messages": [USER]}),
        ):
            for stream in (False, True):
                asked = {**body, "model": "gone", "stream": stream}
                answer = await post(found, path, asked)
                assert answer.status == 404, path
                error = answer.json()["error"]
                assert (error["type"], error["code"]) == ("not_found_error", "model_not_found")
                assert "clawd" in error["message"]


async def test_a_provider_that_fails_is_a_status_before_the_answer(tmp_path: Path) -> None:
    failing = {"error": {"kind": "http", "status": 500}}
    async with at(tmp_path, failing) as found:
        for stream in (False, True):
            body = {"messages": [USER], "tools": [WEATHER], "stream": stream}
            answer = await post(found, "/v1/chat/completions", body)
            assert (answer.status, answer.json()["error"]["code"]) == (502, "provider")


async def test_a_provider_that_fails_in_the_middle_breaks_the_stream_off(tmp_path: Path) -> None:
    failing = {"text": "Half an", "error": {"kind": "network"}}
    async with at(tmp_path, failing) as found:
        body = {"messages": [USER], "tools": [WEATHER], "stream": True}
        answer = await post(found, "/v1/chat/completions", body)
    assert "error" in answer.events()[-1][1]
    assert b"[DONE]" not in answer.body


async def test_a_stream_says_what_the_whole_answer_says(tmp_path: Path) -> None:
    async with at(tmp_path) as found:
        for path, body in (
            ("/v1/chat/completions", {"messages": [USER], "tools": [WEATHER]}),
            ("/v1/responses", {"input": "echo this", "tool_choice": "none"}),
        ):
            whole = (await post(found, path, body)).json()
            streamed = await post(found, path, {**body, "stream": True})
            if "choices" in whole:
                text = "".join(
                    choice["delta"].get("content") or ""
                    for chunk in streamed.data()
                    for choice in chunk["choices"]
                )
                assert text == whole["choices"][0]["message"]["content"]
            else:
                last = streamed.events()[-1][1]["response"]
                assert last["output"][0]["content"] == whole["output"][0]["content"]


async def test_models_are_listed_in_the_form_that_every_dialect_reads(tmp_path: Path) -> None:
    async with at(tmp_path) as found:
        status, told = await found.get("/v1/models")
        names = [model["id"] for model in told["data"]]
        assert status == 200
        assert told["object"] == "list"
        assert (told["has_more"], told["first_id"], told["last_id"]) == (
            False,
            names[0],
            names[-1],
        )
        assert names[0] == "clawd" and "embedded" in names
        for model in told["data"]:
            assert model["object"] == model["type"] == "model"
            assert isinstance(model["created"], int)
            assert model["owned_by"] and model["display_name"] == model["id"]
            assert (await found.get(f"/v1/models/{model['id']}")) == (200, model)
        assert (await found.get("/models"))[1] == told
        config = tmp_path / "home" / "config.toml"
        config.write_text(config.read_text().replace('provider = "mock"', 'provider = "local"'))
        await found.inside.daemon.reload()
        default = (await found.get("/v1/models"))[1]["data"][0]
        assert (default["id"], default["aliases"]) == ("clawd", ["embedded"])


async def test_one_model_is_found_by_any_name_that_it_may_be_asked_for(tmp_path: Path) -> None:
    async with at(tmp_path) as found:
        status, told = await found.get("/v1/models/mock/any/slashes")
        assert (status, told["id"], told["owned_by"]) == (200, "mock/any/slashes", "mock")
        status, told = await found.get("/v1/models/gone/too")
        assert (status, told["error"]["type"]) == (404, "not_found_error")
