"""A dispatcher with its real parts, and servers without connections."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clawd.mcp.catalogue import CatalogueRules, Maker
from clawd.mcp.model import RemoteTool, ServerSettings
from clawd.mcp.pins import PinFile
from clawd.mcp.tools import McpTool
from clawd.memory.rows import Conversation
from clawd.security.sandbox import long_lived as sandbox_long_lived
from tests.mcp.remote import FakeServers
from tests.security.fakes import ADA
from tests.support.dispatching import Bench, bench_in


class Shop:
    """One server, `files`, with tools, as a catalogue has them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.servers = FakeServers()
        self.pins = PinFile(bench.log.with_name("mcp_tools.json"))
        self.maker = Maker(self.servers, self.pins, bench.memory.session_files)
        self.rules = CatalogueRules()

    async def stock(self, server: ServerSettings, *tools: RemoteTool) -> tuple[McpTool, ...]:
        """Let a server have tools, and return them as clawd's."""
        self.servers.offered[server.alias] = tools
        self.rules = CatalogueRules(servers={server.alias: server})
        await self.servers.adopt((server,))
        return self.tools()

    def tools(self) -> tuple[McpTool, ...]:
        """Return the tools as they are now, and keep what is seen for the first time."""
        self.maker.note(self.rules)
        return self.maker.catalogue(self.rules).tools


@pytest.fixture(autouse=True)
def _short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server that does not leave be asked, and ended, soon."""
    monkeypatch.setattr(sandbox_long_lived, "EOF_GRACE_S", 0.5)
    monkeypatch.setattr(sandbox_long_lived, "TERM_GRACE_S", 0.3)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_in(tmp_path) as made:
        conversation = Conversation(id="conv-1", owner=ADA.uid, workspace="/w")
        await made.memory.conversations.create(conversation)
        yield made


@pytest.fixture
def shop(bench: Bench) -> Shop:
    return Shop(bench)
