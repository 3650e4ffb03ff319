"""What the tests of built-in tools share: tools in a workspace, called as dispatch calls them."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.config.sections import WebSection
from clawd.security.network import NetworkRules
from clawd.security.policy import PolicySettings
from clawd.security.principal import Principal
from clawd.security.risk import Assessment
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.arguments import Form, decode_arguments
from clawd.tools.base import Tool, ToolContext, ToolResult, traits_of
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.reader import MAX_CHARS, Reader, Reading


class Bench:
    """The built-in tools over a workspace of their own."""

    def __init__(self, base: Path) -> None:
        self.workspace = base / "ws"
        self.workspace.mkdir()
        self.home = base / "home"
        self.home.mkdir()
        self.policy = PolicySettings(forbidden_paths=("/etc", str(self.workspace / "keys")))
        self.network = NetworkRules()
        self.sandbox = Sandbox(SandboxSettings(home=self.home))
        self.reported: list[str] = []
        self.heard: Callable[[str], None] = self.reported.append
        self.ask: Callable[[str, tuple[str, ...]], Awaitable[str | None]] | None = None
        self.open_page: Callable[[str], Awaitable[str | None]] | None = None
        self.changes: dict[str, Any] = {}
        self.is_answered = False

    def tool(self, name: str) -> Tool:
        deps = BuiltinDeps(
            policy=self.policy,
            home=self.home,
            sandbox=self.sandbox,
            network=self.network,
            http_timeout_s=100,
            shell_timeout_s=100,
            web=WebSection(extract_timeout_s=100, search_timeout_s=100),
        )
        tools = builtin_tools(msgspec.structs.replace(deps, **self.changes))
        return next(tool for tool in tools if tool.name == name)

    def context(self) -> ToolContext:
        return ToolContext(
            conversation_id="c1",
            call_id="k1",
            principal=Principal(uid=1000, gid=1000, pid=1),
            workspace=self.workspace,
            report=self.heard,
            ask=self.ask,
            open_page=self.open_page,
            is_answered=self.is_answered,
        )

    def risk(self, name: str, /, **arguments: Any) -> Assessment:
        tool = self.tool(name)
        decoded = decoded_for(tool, arguments)
        return tool.risk(decoded, self.context())

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        tool = self.tool(name)
        decoded = decoded_for(tool, arguments)
        return await tool.invoke(decoded, self.context())

    def put(self, path: str, text: str) -> Path:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


def decoded_for(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    form = Form(schema=tool.parameters, documents=traits_of(tool).documents)
    return decode_arguments(json.dumps(arguments), tool.parameters, form)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in this process what a process of the reader would: for what is read, not where."""
    from clawd.tools.readers import page, search

    async def read(_self: Reader, job: dict[str, Any], data: bytes) -> Reading:
        answers: list[dict[str, Any]] = []
        try:
            reader = {"page": page.read, "search": search.read}[job["kind"]]
            for answer in reader(job | {"max_chars": MAX_CHARS}, data):
                answers.append(json.loads(json.dumps(answer)))
        except Exception as error:  # noqa: BLE001 - would end the process
            return Reading(answers=answers, problem=type(error).__name__)
        return Reading(answers=answers)

    monkeypatch.setattr(Reader, "read", read)
