"""MCP servers in a whole daemon: the control socket, policy, reload, the emergency stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from clawd.mcp.model import Quarantined, RemoteTool
from clawd.mcp.pins import MAX_TOOLS
from clawd.providers.base import Provider
from clawd.security.principal import Principal
from clawd.wire.daemon import Reload
from clawd.wire.mcp import (
    AcceptMcp,
    ConnectMcp,
    DiffMcp,
    DisconnectMcp,
    ListMcpServers,
    ListMcpTools,
    ShowMcpTool,
)
from clawd.wire.policy import ExplainPolicy
from clawd.wire.tools import ListTools, RunTool
from clawd.wire.turns import SendMessage
from tests.channels.rpc.rig import LIMIT_S
from tests.mcp.remote import FakeServers, a_tool
from tests.runtime.models import PlannedModel, calls, says
from tests.support.inprocess import OWNER, Inside, daemon_in
from tests.support.rows import each_row

ADA = Principal(uid=70_010, gid=70_010, pid=1)
TABLES = """
[mcp.servers.files]
url = "http://127.0.0.1:9/mcp"
trusted = true
[mcp.servers.web]
url = "https://mcp.example.org/mcp"
auth_env = "NOT_THERE"
[mcp.servers.off]
command = ["x"]
enabled = false
[mcp.auto_approve]
tools = ["files__write"]
"""
TOOLS = (a_tool("read", read_only=True), a_tool("write"), a_tool("move", destructive=True))


@asynccontextmanager
async def running(
    folder: Path, *tools: RemoteTool, tables: str = TABLES
) -> AsyncIterator[tuple[Inside, FakeServers]]:
    servers = FakeServers({"files": tools or TOOLS})
    async with daemon_in(folder, tables, servers=servers) as inside:
        async with asyncio.timeout(LIMIT_S):
            while not servers.states() and "[mcp.servers" in tables:
                await asyncio.sleep(0)
        yield inside, servers


async def offered(inside: Inside) -> set[str]:
    tools = (await inside.ask(ListTools(), OWNER)).items
    return {tool.name for tool in tools if tool.source == "mcp:files"}


async def test_servers_are_listed_with_health_cost_and_why_they_are_not_started(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (inside, servers):
        servers.put("files", calls=3, failures=1, last_call_ms=7, server_name="s", since=1.0)
        found = await inside.ask(ListMcpServers(), OWNER)
        files, web, off = found.items
        assert (files.alias, files.link, files.tools, files.calls) == ("files", "ready", 3, 3)
        assert (files.failures, files.last_call_ms, files.server) == (1, 7, "s")
        assert files.since == "1970-01-01T00:00:01+00:00"
        assert 0 < files.tokens < 500
        assert files.is_trusted
        assert found.budget_tokens == 4_000
        assert (web.link, off.link) == ("off", "off")
        assert "its token NOT_THERE is neither in the environment" in web.problem
        assert "enabled = false" in off.problem
        assert set(servers.settings) == {"files"}


async def test_a_user_sees_what_is_offered_and_not_why_a_server_fails(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, servers):
        servers.put("files", problem="connection to 10.0.0.7 refused")
        seen = await inside.ask(ListMcpServers(), ADA)
        assert {line.problem for line in seen.items} == {
            "it cannot be used now; an admin can see why"
        }
        assert len((await inside.ask(ListMcpTools(), ADA)).items) == 3


async def test_tools_are_listed_with_risk_and_what_is_left_out(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, servers):
        servers.put("files", quarantined=(Quarantined(name="bad", reason="its schema is no"),))
        found = await inside.ask(ListMcpTools(alias="files"), OWNER)
        assert [(t.name, t.tool, t.risk, t.approval) for t in found.items] == [
            ("files__read", "read", "low", ""),
            ("files__write", "write", "medium", "files__write"),
            ("files__move", "move", "medium", ""),
        ]
        (lost,) = found.left_out
        assert (lost.alias, lost.tool, lost.reason) == ("files", "bad", "its schema is no")
        refused = await inside.refused(ListMcpTools(alias="none"), OWNER)
        assert "configured are: files, web, off" in refused.message


async def test_a_tool_is_shown_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, _):
        found = await inside.ask(ShowMcpTool(alias="files", tool="move"), OWNER)
        assert found.line.name == "files__move"
        assert found.parameters["required"] == ["text"]
        assert found.hints == {"destructive": True}
        assert found.other_names == ("mcp__files__move",)
        refused = await inside.refused(ShowMcpTool(alias="files", tool="none"), OWNER)
        assert refused.code == "not_found"


async def test_disconnecting_takes_the_tools_away_and_connecting_brings_them_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (inside, _):
        assert await offered(inside) == {"files__read", "files__write", "files__move"}
        line = await inside.ask(DisconnectMcp(alias="files"), OWNER)
        assert (line.link, line.tools) == ("off", 0)
        assert await offered(inside) == set()
        await inside.ask(Reload(), OWNER)
        assert await offered(inside) == set()
        line = await inside.ask(ConnectMcp(alias="files"), OWNER)
        assert (line.link, line.tools) == ("ready", 3)
        assert len(await offered(inside)) == 3
        refused = await inside.refused(ConnectMcp(alias="off"), OWNER)
        assert "off is not started" in refused.message


async def test_a_changed_tool_is_shown_and_accepted_by_an_admin(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, servers):
        servers.offer("files", a_tool("write", "Now it sends mail."))
        (line, *_) = (await inside.ask(ListMcpServers(), OWNER)).items
        assert line.changed == ("write",)
        explain = ExplainPolicy(tool="files__write", arguments='{"text":"a"}')
        assert (await inside.ask(explain, OWNER)).verdict == "ask"
        seen = await inside.ask(DiffMcp(alias="files"), OWNER)
        (item,) = seen.items
        assert (item.tool, item.kind) == ("write", "changed")
        assert "Does write." in item.was
        assert "Now it sends mail." in item.now
        line = await inside.ask(ConnectMcp(alias="files", accept=True, offer=seen.offer), OWNER)
        assert line.changed == ()
        assert (await inside.ask(explain, OWNER)).verdict == "allow"
        assert (await inside.ask(DiffMcp(alias="files"), OWNER)).items == ()


async def test_s7_only_what_was_looked_at_is_accepted(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, servers):
        explain = ExplainPolicy(tool="files__write", arguments='{"text":"a"}')
        servers.offer("files", a_tool("write", "Now it sends mail."))
        shown = (await inside.ask(DiffMcp(alias="files"), OWNER)).offer
        # Between the look and the word it becomes something else, also by connecting anew.
        servers.offer("files", a_tool("write", "Now it deletes all."))
        for request in (
            AcceptMcp(alias="files", offer=shown),
            AcceptMcp(alias="files", offer=""),
            ConnectMcp(alias="files", accept=True, offer=shown),
            ConnectMcp(alias="files", accept=True),
        ):
            refused = await inside.refused(request, OWNER)
            assert refused.code == "invalid_request"
            assert "clawctl mcp diff files" in refused.hint
            assert (await inside.ask(explain, OWNER)).verdict == "ask"
        shown = (await inside.ask(DiffMcp(alias="files"), OWNER)).offer
        assert (await inside.ask(AcceptMcp(alias="files", offer=shown), OWNER)).changed == ()
        assert (await inside.ask(explain, OWNER)).verdict == "allow"


async def test_s7_a_tool_that_comes_later_under_a_pattern_waits_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    tables = TABLES.replace('["files__write"]', '["files__*", "files__named"]')
    async with running(tmp_path, tables=tables) as (inside, servers):
        move = ExplainPolicy(tool="files__move", arguments='{"text":"a"}')
        late = ExplainPolicy(tool="files__late", arguments='{"text":"a"}')
        named = ExplainPolicy(tool="files__named", arguments='{"text":"a"}')
        assert (await inside.ask(move, OWNER)).verdict == "allow"
        servers.offer("files", *TOOLS, a_tool("late"), a_tool("named"))
        found = await inside.ask(late, OWNER)
        assert (found.verdict, "came after the server was first seen" in str(found)) == (
            "ask",
            True,
        )
        assert (await inside.ask(move, OWNER)).verdict == "allow"
        # One that a person wrote down by its name is what that person wants, whenever it comes.
        assert (await inside.ask(named, OWNER)).verdict == "allow"
        (line, *_) = (await inside.ask(ListMcpServers(), OWNER)).items
        assert line.waiting == ("late",)
        seen = await inside.ask(DiffMcp(alias="files"), OWNER)
        assert {(each.tool, each.kind) for each in seen.items} == {
            ("late", "new"),
            ("named", "new"),
        }
        await inside.ask(AcceptMcp(alias="files", offer=seen.offer), OWNER)
        assert (await inside.ask(late, OWNER)).verdict == "allow"


async def test_s7_a_name_beyond_those_that_are_kept_is_refused_and_shown(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, servers):
        servers.offer("files", *(a_tool(f"t{i}") for i in range(MAX_TOOLS)))
        servers.offer("files", *TOOLS, a_tool("late"))
        assert "files__late" not in await offered(inside)
        assert "files__write" in await offered(inside)
        (lost,) = (await inside.ask(ListMcpTools(alias="files"), OWNER)).left_out
        assert (lost.tool, "clawctl mcp diff files" in lost.reason) == ("late", True)
        seen = await inside.ask(DiffMcp(alias="files"), OWNER)
        assert [(each.tool, each.kind) for each in seen.items] == [("late", "refused")]


@each_row(
    ("tool", "autonomy", "verdict", "rule"),
    [
        ("files__read", None, "allow", "supervised runs low risk"),
        ("files__write", None, "allow", "[mcp.auto_approve] files__write"),
        ("files__write", "supervised", "allow", "[mcp.auto_approve] files__write"),
        ("files__write", "readonly", "deny", "policy"),
        ("files__move", None, "ask", "a person decides"),
        ("files__move", "full", "allow", "full runs everything that is not blocked"),
    ],
)
async def test_the_policy_explains_itself(
    tmp_path: Path, tool: str, autonomy: Any, verdict: str, rule: str
) -> None:
    async with running(tmp_path) as (inside, _):
        asked = ExplainPolicy(tool=tool, arguments='{"text":"a"}', autonomy=autonomy)
        found = await inside.ask(asked, OWNER)
        assert (found.verdict, found.rule) == (verdict, rule)


async def test_a_call_by_hand_has_a_receipt(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, servers):
        outcome = await inside.ask(RunTool(name="files__write", arguments='{"text":"a"}'), OWNER)
        assert (outcome.status, outcome.output) == ("allowed", 'write {"text":"a"}')
        (receipt,) = inside.receipts()
        assert (receipt.tool, receipt.approval) == ("files__write", "auto")
        assert receipt.id == outcome.receipt_id
        denied = await inside.ask(RunTool(name="files__move", arguments='{"text":"a"}'), OWNER)
        assert denied.status == "denied"
        assert len(inside.receipts()) == 2
        assert len(servers.calls) == 1


async def test_the_emergency_stop_ends_calls_and_allows_none(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, servers):
        begun = asyncio.Event()

        async def hang(*_call: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        servers.act = hang
        call = RunTool(name="files__write", arguments='{"text":"a"}')
        task = asyncio.create_task(inside.ask(call, OWNER))
        async with asyncio.timeout(LIMIT_S):
            await begun.wait()
            inside.daemon.estop.set("test")
            assert (await task).kind == "stopped"
        assert (await inside.ask(call, OWNER)).kind == "stopped"
        assert len(servers.calls) == 1


async def test_a_model_sees_and_calls_tools_and_its_conversation_is_tainted(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (inside, servers):
        model = PlannedModel(calls(("files__read", '{"text":"a"}')), says("done"), name="mock")
        inside.daemon.state.providers = {"mock": cast("Provider", model)}
        finished = await inside.ask(SendMessage(text="go"), OWNER)
        assert finished.text == "done"
        assert "files__read" in {tool.name for tool in model.requests[0].tools}
        assert [part.name for part in finished.ledger.parts if part.name.startswith("mcp:")] == [
            "mcp:files"
        ]
        assert servers.calls == [("files", "read", {"text": "a"})]
        again = await inside.ask(
            RunTool(
                name="files__write",
                arguments='{"text":"b"}',
                conversation_id=finished.conversation_id,
            ),
            OWNER,
        )
        assert again.status == "denied"  # the server is reached over HTTP, so it asks again


async def test_the_daemon_starts_while_servers_hang_and_ends_with_them(tmp_path: Path) -> None:
    servers = FakeServers({"files": TOOLS})
    servers.blocked = asyncio.Event()
    async with asyncio.timeout(LIMIT_S):
        async with daemon_in(tmp_path, TABLES, servers=servers) as inside:
            assert await offered(inside) == set()
            assert (await inside.ask(RunTool(name="time"), OWNER)).status == "allowed"
    assert servers.is_closed


async def test_p11_the_first_turn_waits_for_servers_that_are_being_connected(
    tmp_path: Path,
) -> None:
    servers = FakeServers({"files": TOOLS})
    servers.blocked = asyncio.Event()
    async with asyncio.timeout(LIMIT_S), daemon_in(tmp_path, TABLES, servers=servers) as inside:
        model = PlannedModel(says("done"), name="mock")
        inside.daemon.state.providers = {"mock": cast("Provider", model)}
        sent = asyncio.create_task(inside.ask(SendMessage(text="go"), OWNER))
        for _ in range(100):
            await asyncio.sleep(0)
        assert model.requests == []
        servers.blocked.set()
        await sent
        assert "files__read" in {tool.name for tool in model.requests[0].tools}


async def test_p11_servers_that_are_not_there_in_time_are_named_once(tmp_path: Path) -> None:
    tables = "[mcp]\nfirst_turn_wait_s = 0.0\n" + TABLES
    async with running(tmp_path, tables=tables) as (inside, servers):
        servers.put("files", link="waiting", problem="connection refused", tools=())
        directory = inside.daemon.mcp.directory
        assert await directory.arrived() == (
            "the tools of the MCP server files are not there: connection refused",
        )
        assert await directory.arrived() == ()


async def test_p11_a_tool_that_is_not_there_is_explained_by_its_own_server_alone(
    tmp_path: Path,
) -> None:
    tables = TABLES.replace(
        "[mcp.servers.off]",
        '[mcp.servers.files-b]\nurl = "http://127.0.0.1:9/b"\n[mcp.servers.off]',
    )
    async with running(tmp_path, tables=tables) as (inside, servers):
        servers.put("files-b", link="waiting", problem="HTTP 401", tools=())
        expected = {
            "files-b__read": "the MCP server files-b is not connected: HTTP 401",
            "mcp__files-b__read": "the MCP server files-b is not connected: HTTP 401",
            "web__read": "the MCP server web is not started: ",
            "off__read": "the MCP server off is not started: it is switched off",
            "files__reed": "files has none of this name; the nearest are: files__read",
            "files__zzzzzzzzz": "files has none of this name; it has: files__",
        }
        wrong: dict[str, str] = {}
        for name, words in expected.items():
            outcome = await inside.ask(RunTool(name=name, arguments='{"text":"a"}'), OWNER)
            others = [each for each in ("files__read",) if not name.startswith("files__")]
            if words not in outcome.output or any(each in outcome.output for each in others):
                wrong[name] = outcome.output
        assert not wrong
        assert servers.calls == []
        servers.put("files-b", link="connecting", problem="")
        outcome = await inside.ask(RunTool(name="files-b__read", arguments="{}"), OWNER)
        assert "it is just being connected; try again in a moment" in outcome.output
        await inside.ask(DisconnectMcp(alias="files"), OWNER)
        outcome = await inside.ask(RunTool(name="files__read", arguments="{}"), OWNER)
        assert "is disconnected; a person can connect it" in outcome.output
        outcome = await inside.ask(RunTool(name="nobody__read", arguments="{}"), OWNER)
        assert "MCP server" not in outcome.output


async def test_m4_a_server_at_a_url_is_connected_by_hand_and_survives_a_reload(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (inside, servers):
        servers.offered["extra"] = (a_tool("look"),)
        url = "https://x.example/AbCdEfGhIjKlMnOpQrStUvWxYz01/mcp?key=secret"
        line = await inside.ask(ConnectMcp(alias="extra", url=url, token="t0ken"), OWNER)
        assert (line.link, line.tools) == ("ready", 1)
        assert line.address == "https://x.example/…/mcp"
        assert (servers.settings["extra"].url, servers.settings["extra"].token) == (url, "t0ken")
        assert not servers.settings["extra"].trusted
        await inside.ask(Reload(), OWNER)
        assert set(servers.settings) == {"files", "extra"}
        lines = (await inside.ask(ListMcpServers(), OWNER)).items
        assert [(each.alias, each.address) for each in lines] == [
            ("files", "http://127.0.0.1:9/mcp"),
            ("extra", "https://x.example/…/mcp"),
            ("web", ""),
            ("off", ""),
        ]
        assert {each.address for each in (await inside.ask(ListMcpServers(), ADA)).items} == {""}
        wrong = {
            ("files", url): "there is an MCP server files in the config",
            ("Not An Alias", url): "an alias of a-z",
            ("other", "ftp://x/y"): "a URL like",
            ("other", "https://user:pw@x/y"): "no name or password",
        }
        for (alias, given), words in wrong.items():
            refused = await inside.refused(ConnectMcp(alias=alias, url=given), OWNER)
            assert (refused.code, words in refused.message) == ("invalid_request", True)
            assert "pw@" not in refused.message


async def test_p12_a_schema_that_no_grammar_holds_is_shown_with_its_tool(tmp_path: Path) -> None:
    class Loose(PlannedModel):
        def loose_schemas(self) -> dict[str, str]:
            return {"files__move": "a pattern that is none", "other": "x"}

    async with running(tmp_path) as (inside, _):
        model = Loose(says("done"), name="mock")
        inside.daemon.state.providers = {"mock": cast("Provider", model)}
        tools = (await inside.ask(ListMcpTools(), OWNER)).items
        assert [each.loose for each in tools] == ["", "", "a pattern that is none"]
        (line, *_) = (await inside.ask(ListMcpServers(), OWNER)).items
        assert line.loose == ("move",)


async def test_a_reload_adopts_another_configuration(tmp_path: Path) -> None:
    async with running(tmp_path) as (inside, servers):
        config = tmp_path / "home" / "config.toml"
        text = config.read_text()
        assert (await inside.ask(ListMcpTools(), OWNER)).items[1].approval == "files__write"
        config.write_text(text.replace('["files__write"]', '["files__m*"]'))
        refused = await inside.refused(Reload(), OWNER)
        assert "mcp.auto_approve.tools[0]" in refused.message
        config.write_text(text.replace('["files__write"]', '["files__move"]'))
        await inside.ask(Reload(), OWNER)
        approvals = [tool.approval for tool in (await inside.ask(ListMcpTools(), OWNER)).items]
        assert approvals == ["", "", "files__move"]
        config.write_text(text.partition("[mcp.servers")[0])
        await inside.ask(Reload(), OWNER)
        assert servers.settings == {}
        assert await offered(inside) == set()


async def test_a_reload_that_tightens_holds_before_slow_servers_have_changed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (inside, servers):
        config = tmp_path / "home" / "config.toml"
        config.write_text(config.read_text().replace('["files__write"]', "[]"))
        servers.blocked = asyncio.Event()
        task = asyncio.create_task(inside.ask(Reload(), OWNER))
        explain = ExplainPolicy(tool="files__write", arguments='{"text":"a"}')
        async with asyncio.timeout(LIMIT_S):
            while (await inside.ask(explain, OWNER)).verdict != "ask":
                await asyncio.sleep(0)
            assert not task.done()
            servers.blocked.set()
            await task


async def test_without_servers_nothing_is_there(tmp_path: Path) -> None:
    async with running(tmp_path, tables="") as (inside, servers):
        assert (await inside.ask(ListMcpServers(), OWNER)).items == ()
        assert (await inside.ask(ListMcpTools(), OWNER)).items == ()
        assert servers.settings == {}
        assert not (tmp_path / "home" / "mcp_tools.json").exists()


async def test_a_tool_of_this_machine_keeps_its_name(tmp_path: Path) -> None:
    # An alias cannot be told from the beginning of another tool's name, so the other one wins.
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    manifest = """{"version": 1, "tools": [{"name": "files__read", "description": "Local.",
        "command": "/bin/true", "argv": [], "parameters": {}}]}"""
    (tools / "CLAWD-local.tools").write_text(manifest)
    async with running(tmp_path) as (inside, _):
        tools_ = {tool.name: tool.source for tool in (await inside.ask(ListTools(), OWNER)).items}
        assert tools_["files__read"] == "external"
        (lost,) = (await inside.ask(ListMcpTools(), OWNER)).left_out
        assert (lost.tool, "files__read already" in lost.reason) == ("read", True)
