"""An MCP server on standard input and output, written by hand: lines of JSON-RPC, no library."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

REVISION = "2025-06-18"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()

tools: list[dict[str, Any]] = [
    {
        "name": "echo",
        "description": "Say a text again.",
        "inputSchema": TEXT,
        "annotations": {"readOnlyHint": True},
    },
    {"name": "write", "description": "Write a text to note.txt.", "inputSchema": TEXT},
    {"name": "picture", "description": "Give a picture.", "inputSchema": {"type": "object"}},
    {"name": "grow", "description": "Have one more tool.", "inputSchema": {"type": "object"}},
    {"name": "die", "description": "End at once.", "inputSchema": {"type": "object"}},
    {"name": "fail", "description": "Fail.", "inputSchema": {"type": "object"}},
]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": is_error}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "echo" | "late":
            return text(arguments["text"])
        case "write":
            try:
                Path("note.txt").write_text(arguments["text"], encoding="utf-8")
            except OSError as error:
                return text(str(error), is_error=True)
            return text("written")
        case "picture":
            return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
        case "grow":
            if all(tool["name"] != "late" for tool in tools):
                tools.append({"name": "late", "description": "Came late.", "inputSchema": TEXT})
            send(method="notifications/tools/list_changed")
            return text("there is one more tool")
        case "die":
            os._exit(3)
        case _:
            return text("it is broken, try echo", is_error=True)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None for a method that is unknown."""
    match method:
        case "initialize":
            return {
                "protocolVersion": REVISION,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "by-hand", "version": "1.0"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": tools}
        case "tools/call":
            return called(params["name"], params.get("arguments") or {})
        case _:
            return None


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request["method"], request.get("params") or {})
        if result is None:
            send(id=request["id"], error={"code": -32601, "message": "no such method"})
        else:
            send(id=request["id"], result=result)


if __name__ == "__main__":
    main()
