"""Sessions over a scripted model, in homes of the test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import ClawError
from clawd.sdk import Session
from clawd.sdk.session_config import Where

ECHO = {"text": "{{last_user}}"}


def scripted(folder: Path, *replies: dict[str, Any], **settings: Any) -> Where:
    """Return where a session lives whose model says these replies."""
    script = folder / "script.json"
    script.write_text(json.dumps({"replies": list(replies) or [ECHO]}))
    provider = {
        "default_provider": "mock",
        "providers.models.mock.kind": "mock",
        "providers.models.mock.script": str(script),
    }
    plain = {name.replace("__", "."): value for name, value in settings.items()}
    return {"home": folder / "home", "settings": provider | plain}


def calling(tool: str, arguments: Any, text: str = "{{last_tool_result}}") -> list[dict[str, Any]]:
    """Return replies that call a tool and then tell its result."""
    return [{"tool_calls": [{"name": tool, "arguments": arguments}]}, {"text": text}]


def receipt_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the receipts in the home of such a session."""
    lines = (folder / "home" / "tool_receipts.log").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "type" not in line]


def told_by(folder: Path, function: Callable[..., Any], arguments: Any, **options: Any) -> str:
    """Return what a model is told that calls a function with these arguments."""
    name = options.get("name") or function.__name__
    with Session.local(**scripted(folder, *calling(name, arguments))) as session:
        return session.add_tool(function, **options).chat("go").text


def error_of(act: Callable[[], object]) -> ClawError:
    """Return the error that something raises."""
    with pytest.raises(ClawError) as caught:
        act()
    return caught.value
