"""The emergency stop over HTTP: nothing new is begun, whatever dialect asks."""

from pathlib import Path
from typing import Any

from clawd.channels.http.routes_table import ROWS, starts_work
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
    "/chat": {"message": "hello"},
}
# These make no model work; tool calls are refused by dispatch, each with its receipt.
IDLE = {
    "/tools/{name}/run", "/v1/preset", "/conversations/{id}/cancel", "/approvals/{id}",
    "/questions/{id}", "/estop", "/v1/chat/completions/input_tokens",
    "/chat/completions/input_tokens", "/v1/responses/input_tokens", "/responses/input_tokens",
    "/tokenize", "/detokenize", "/apply-template", "/v1/messages/count_tokens", "/api/show", "/mcp",
}  # fmt: skip


def test_h2_each_route_says_whether_it_sets_a_model_to_work() -> None:
    posts = {row.path for row in ROWS if row.method == "POST"}
    assert posts == set(ASKED) | IDLE
    assert {path for path in posts if starts_work("POST", path)} == set(ASKED)


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
