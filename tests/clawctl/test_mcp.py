"""`clawctl mcp`: servers, tools, one tool shown and called, over a fake daemon."""

import json

import msgspec
import pytest

from clawctl.main import main
from clawd.wire.daemon import ServerLine
from clawd.wire.mcp import (
    AcceptMcp,
    ConnectMcp,
    DisconnectMcp,
    ListMcpTools,
    McpDiff,
    McpDifference,
    McpLeftOut,
    McpServerLine,
    McpServerList,
    McpToolDetail,
    McpToolLine,
    McpToolList,
    ShowMcpTool,
)
from clawd.wire.tools import RunTool, ToolOutcome
from tests.clawctl.conftest import Capture
from tests.support.fake_daemon import FakeDaemon

READY = McpServerLine(
    alias="files", link="ready", transport="stdio", tools=3, tokens=321, is_trusted=True
)
SHUT = msgspec.structs.replace(READY, alias="shut", reach_problem="it was refused a.test:443")
AWAY = McpServerLine(
    alias="web",
    link="waiting",
    transport="http",
    problem="HTTP 401",
    left_out=2,
    changed=("get",),
)
LINE = McpToolLine(
    name="files__read",
    alias="files",
    tool="read",
    short="Reads.",
    risk="medium",
    approval="files__*",
    is_deferred=True,
)
DETAIL = McpToolDetail(
    line=LINE,
    description="Reads a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
    example={"path": "notes.txt"},
    hints={"read_only": True},
)

pytestmark = pytest.mark.usefixtures("own_home")


def test_the_list_says_health_cost_and_what_to_do(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["list_mcp_servers"] = McpServerList(
        items=(READY, AWAY, msgspec.structs.replace(SHUT, tokens=0)), budget_tokens=4_000
    )
    assert main(["mcp", "list"]) == 0
    shown = capsys.readouterr()
    assert all(word in shown.out for word in ("files", "ready", "321", "trusted", "waiting"))
    assert "web: HTTP 401" in shown.err
    assert "shut: it was refused a.test:443" in shown.err
    assert "clawctl mcp tools web" in shown.err
    assert "clawctl mcp diff web" in shown.err
    assert "about 321 tokens of each request; schemas may take 4000" in shown.err
    assert main(["mcp", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["tokens"] == 321


def test_m4_p12_the_list_shows_where_servers_are_and_what_no_grammar_holds(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    there = msgspec.structs.replace(READY, address="https://x.example/mcp", loose=("read",))
    daemon.handlers["list_mcp_servers"] = McpServerList(items=(there,))
    assert main(["mcp", "list"]) == 0
    shown = capsys.readouterr()
    assert "https://x.example/mcp" in shown.out
    assert "no grammar holds the schemas of read" in shown.err
    loose = msgspec.structs.replace(LINE, loose="a pattern that is none")
    daemon.handlers["list_mcp_tools"] = McpToolList(items=(loose,))
    assert main(["mcp", "tools"]) == 0
    assert "loose: files__read" in capsys.readouterr().err


def test_no_servers_is_said(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["list_mcp_servers"] = McpServerList(items=())
    assert main(["mcp", "list"]) == 0
    assert "No MCP servers are configured" in capsys.readouterr().out


def test_status_shows_at_a_glance_how_servers_stand(daemon: FakeDaemon, capsys: Capture) -> None:
    lines = [ServerLine(alias=each.alias, link=each.link, tools=3) for each in (READY, AWAY)]
    daemon.handlers["status"] = daemon.status(servers=tuple(lines))
    assert main(["status"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("mcp ")]
    assert line.split(maxsplit=2)[2] == "files ready (3 tools), web waiting"
    daemon.handlers["status"] = daemon.status()
    assert main(["status"]) == 0
    assert "mcp servers  none" in capsys.readouterr().out


def test_tools_are_listed_with_those_that_cannot_be_used(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    lost = McpLeftOut(alias="files", tool="bad", reason="no schema")
    daemon.handlers["list_mcp_tools"] = McpToolList(items=(LINE,), left_out=(lost,))
    assert main(["mcp", "tools", "files"]) == 0
    shown = capsys.readouterr()
    assert all(word in shown.out for word in ("files__read", "medium", "approved deferred"))
    assert "left out: files bad: no schema" in shown.err
    (asked,) = daemon.calls_of(ListMcpTools)
    assert asked.alias == "files"
    assert main(["mcp", "tools", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"][0]["tool"] == "bad"


def test_a_tool_is_shown_and_not_called_without_arguments(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    daemon.handlers["show_mcp_tool"] = DETAIL
    assert main(["mcp", "tool", "files", "read"]) == 0
    shown = capsys.readouterr()
    assert all(word in shown.out for word in ("files__read", "read_only: yes", "Reads a file."))
    assert '"type": "string"' in shown.out
    assert """clawctl mcp tool files read --json '{"path":"notes.txt"}'""" in shown.err
    assert daemon.calls_of(RunTool) == []
    assert main(["mcp", "tool", "files", "read", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["line"]["name"] == "files__read"


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [("allowed", "ok", 0), ("failed", "failed", 1), ("denied", "denied", 3)],
)
def test_a_tool_is_called_by_its_name_here(
    daemon: FakeDaemon, capsys: Capture, status: str, kind: str, code: int
) -> None:
    daemon.handlers["show_mcp_tool"] = DETAIL
    daemon.handlers["run_tool"] = ToolOutcome(
        status=status,  # type: ignore[arg-type]
        kind=kind,
        output="words",
        receipt_id="receipt-1",
        risk="medium",
        duration_ms=3,
    )
    command = ["mcp", "tool", "files", "read", "--json", '{"path":"a"}', "--no-input"]
    assert main(command) == code
    (asked,) = daemon.calls_of(ShowMcpTool)
    (run,) = daemon.calls_of(RunTool)
    assert (asked.alias, asked.tool) == ("files", "read")
    assert (run.name, run.arguments, run.interactive) == ("files__read", '{"path":"a"}', False)
    assert "receipt-1" in capsys.readouterr().err


def test_arguments_that_are_no_object_never_reach_the_daemon(daemon: FakeDaemon) -> None:
    for arguments in ("x", "[]", "{", "[" * 100_000):
        assert main(["mcp", "tool", "files", "read", "--json", arguments]) == 2
    assert daemon.calls_of(ShowMcpTool) == []


def test_connecting_says_what_came_of_it(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["connect_mcp"] = READY
    assert main(["mcp", "connect", "files", "--accept", "ab12"]) == 0
    (asked,) = daemon.calls_of(ConnectMcp)
    assert (asked.alias, asked.accept, asked.offer) == ("files", True, "ab12")
    assert "files is ready, 3 tools" in capsys.readouterr().out
    daemon.handlers["connect_mcp"] = AWAY
    assert main(["mcp", "connect", "web"]) == 1
    assert "HTTP 401" in capsys.readouterr().err


def test_s7_what_changed_is_shown_and_accepted_by_its_hash(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    was, now = (
        '{"name":"get","description":"Gets."}',
        '{"name":"get","description":"\\u001b[2JSends."}',
    )
    changed = McpDifference(tool="get", kind="changed", was=was, now=now)
    lost = McpDifference(tool="old", kind="changed", now='{"name":"old"}')
    late = McpDifference(tool="late", kind="new", now='{"name":"late"}')
    diff = McpDiff(alias="web", offer="ab12", items=(changed, lost, late))
    daemon.handlers["diff_mcp"] = diff
    assert main(["mcp", "diff", "web"]) == 0
    shown = capsys.readouterr()
    assert '-  "description": "Gets."' in shown.out
    assert "Sends." in shown.out
    assert "\x1b" not in shown.out
    assert "what it was is not kept" in shown.out
    assert "late: new" in shown.out
    assert "clawctl mcp accept web ab12" in shown.err
    daemon.handlers["accept_mcp"] = AWAY
    assert main(["mcp", "accept", "web", "ab12"]) == 0
    assert daemon.calls_of(AcceptMcp) == [AcceptMcp(alias="web", offer="ab12")]
    daemon.handlers["connect_mcp"] = READY
    assert main(["mcp", "connect", "web", "--accept", "ab12"]) == 0
    asked = ConnectMcp(alias="web", accept=True, offer="ab12")
    assert daemon.calls_of(ConnectMcp) == [asked]
    daemon.handlers["diff_mcp"] = McpDiff(alias="web", offer="ab12")
    assert main(["mcp", "diff", "web"]) == 0
    assert "web offers what was first seen of it (ab12)" in capsys.readouterr().out


def test_disconnecting_says_that_it_is_off(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["disconnect_mcp"] = McpServerLine(alias="files", link="off", transport="stdio")
    assert main(["mcp", "disconnect", "files"]) == 0
    assert len(daemon.calls_of(DisconnectMcp)) == 1
    assert "files is off, 0 tools" in capsys.readouterr().out
    assert main(["mcp", "disconnect", "files", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["link"] == "off"
