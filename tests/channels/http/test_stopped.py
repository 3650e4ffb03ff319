"""The emergency stop over HTTP: nothing new is begun, whatever dialect asks."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from typing_extensions import override

from clawd.channels.http.routes_table import ROWS, starts_work
from clawd.providers.base import ChatRequest, Delta, Described, SlotState
from clawd.providers.scripted import ScriptedProvider
from tests.channels.http.rig import served

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "tools": [TOOL]},
    "/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/responses": {"input": "hello"},
    "/v1/embeddings": {"input": "hello"},
    "/embeddings": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
    "/api/chat": {"messages": HELLO},
    "/api/generate": {"prompt": "hello"},
    "/api/embed": {"input": "hello"},
    "/api/embeddings": {"prompt": "hello"},
    "/api/pull": {"model": "llama3.2:3b"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    **{
        path: {"query": "hello", "documents": ["a"]}
        for path in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")
    },
    "/chat": {"message": "hello"},
}
HOOK = "/hook"  # has secrets of its own: tests/daemon/test_schedules.py
# These make no model work; tool calls are refused by dispatch, each with its receipt.
IDLE = {
    "/tools/{name}/run", "/v1/preset", "/conversations/{id}/cancel", "/approvals/{id}",
    "/questions/{id}", "/estop", "/v1/chat/completions/input_tokens",
    "/chat/completions/input_tokens", "/v1/responses/input_tokens", "/responses/input_tokens",
    "/tokenize", "/detokenize", "/apply-template", "/v1/messages/count_tokens", "/api/show", "/mcp",
    "/methods/{name}",  # page.py refuses those that do: test_page.py
    "/clawctl/{act}", "/page/login",
}  # fmt: skip


def test_h2_each_route_says_whether_it_sets_a_model_to_work() -> None:
    posts = {row.path for row in ROWS if row.method == "POST"}
    assert posts == {*ASKED, *IDLE, HOOK}
    assert {path for path in posts if starts_work("POST", path)} == {*ASKED, HOOK}


async def test_h2_under_the_emergency_stop_every_dialect_refuses_in_its_own_form(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as door:
        assert (await door.get("/health"))[0] == 200
        await door.post("/estop", {"reason": "enough"})
        status, told = await door.get("/health")
        assert (status, told["status"]) == (503, "unavailable")
        assert "the emergency stop is set" in told["error"]["message"]
        assert "enough" not in str(told)
        for path, body in ASKED.items():
            for more in (dict[str, bool](), {"stream": True}):
                status, told = await door.post(path, {"model": "clawd", **body, **more})
                assert status == 403, path
                if path.startswith("/api/"):
                    assert "the emergency stop is set" in told["error"], path
                    continue
                assert told["error"]["type"] == "permission_error", path
                assert "the emergency stop is set" in told["error"]["message"], path
                assert told.get("type", "") == ("error" if path == "/v1/messages" else "")
        assert (await door.get("/v1/models"))[0] == 200
        assert (await door.post("/estop", {"set": False}))[0] == 200
        body = {"model": "clawd"} | ASKED["/v1/chat/completions"]
        assert (await door.post("/v1/chat/completions", body))[0] == 200
        assert (await door.get("/health"))[0] == 200


class StoppedWhileLoading(ScriptedProvider):
    """Somebody sets the emergency stop while its model is loaded."""

    def __init__(self, stop: Callable[[], object]) -> None:
        super().__init__()
        self.stop = stop
        self.asked = 0

    @override
    def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        return super().chat(request)

    async def describe(self, model: str) -> Described:
        self.stop()
        return Described(
            name=model, path="", n_ctx=9, n_parallel=1, chat_template="", bos_token="",
            eos_token="", sampling={}, embedding_size=0, generates=True,
        )  # fmt: skip

    async def slots(self, model: str) -> tuple[SlotState, ...]:
        return ()


async def test_h2_a_stop_that_comes_while_a_model_is_loaded_begins_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        daemon = door.inside.daemon
        provider = StoppedWhileLoading(lambda: daemon.estop.set("enough"))
        daemon.state.providers["mock"] = provider
        for more in ({"tools": [TOOL]}, {}):
            status, told = await door.post("/v1/chat/completions", {"messages": HELLO, **more})
            assert (status, told["error"]["type"]) == (403, "permission_error")
            assert (await door.post("/estop", {"set": False}))[0] == 200
        assert provider.asked == 0
