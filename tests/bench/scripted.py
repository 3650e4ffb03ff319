"""A daemon in which some tools answer what a script says, and the rest is the product.

Started as `python -c PROGRAM`.

The script is `scripted.json` in the daemon's home, read at each call: `{"web_search": "1. …"}`.
Gate, questions and receipts are as ever; only what would run does not. `error: …` is a failure.
"""

import functools
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from clawd.memory import tools as memory_tools
from clawd.service.main import main as daemon
from clawd.tools.base import Tool, ToolResult, failed, succeeded
from clawd.tools.builtin import catalogue

FILE = "scripted.json"
PROGRAM = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
    "from tests.bench.scripted import main; main()"
)
_TOLD_IN = (catalogue, memory_tools)  # where the built-in tools stand
_Invoke = Callable[..., Awaitable[ToolResult]]


def main() -> None:
    """Run a daemon on the script of its home."""
    script = Path(os.environ["CLAWD_HOME"]) / FILE
    assert all(module.__file__ for module in _TOLD_IN)  # they are loaded
    for kind in set(_kinds(Tool)):
        if "invoke" in vars(kind):
            setattr(kind, "invoke", _scripted(vars(kind)["invoke"], script))  # noqa: B010
    sys.exit(daemon([]))


def _kinds(base: type[Any]) -> Iterator[type[Any]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _scripted(invoke: _Invoke, script: Path) -> _Invoke:
    @functools.wraps(invoke)
    async def answered(tool: Tool, arguments: Any, context: Any) -> ToolResult:
        answers: dict[str, str] = json.loads(script.read_text("utf-8"))
        text = answers.get(tool.name)
        if text is None:
            return await invoke(tool, arguments, context)
        if tool.holds_until_cleared:
            await context.cleared()
        problem = text.removeprefix("error: ")
        return succeeded(text) if problem == text else failed(problem)

    return answered
