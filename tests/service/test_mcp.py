"""From the configuration to the settings of MCP servers, and who learns of their secrets."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawd.config.load import Loaded, load
from clawd.mcp.model import ServerSettings
from clawd.mcp.pins import PinFile
from clawd.service.home import redactor_of
from clawd.service.mcp import DISABLED, McpTools, wanted_of
from tests.mcp.remote import FakeServers

SECRET = "correct-horse-battery"
TEXT = """
[mcp]
schema_budget_tokens = 7
max_result_bytes = 2048
[mcp.auto_approve]
tools = ["files__*"]
[mcp.servers.files]
command = ["server", "~/notes"]
env = { PLAIN = "p" }
env_passthrough = ["API_TOKEN"]
workspace_access = "write"
readonly_paths = ["/notes"]
network = true
call_timeout_s = 3
[mcp.servers.web]
url = "http://mcp.example.org/mcp"
auth_env = "WEB_TOKEN"
oauth = true
oauth_client_id = "by-hand"
oauth_client_env = "WEB_SECRET"
mode = "legacy"
allow = ["a*"]
deny = ["ab"]
trusted = true
[mcp.servers.off]
command = ["x"]
enabled = false
"""


def loaded_from(home: Path, text: str = TEXT) -> Loaded:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f'workspace_dir = "{home}"\n{text}')
    return load(environ={"CLAWD_HOME": str(home), "HOME": "/home/ada"})


def test_every_key_reaches_its_server(tmp_path: Path) -> None:
    loaded = loaded_from(tmp_path)
    wanted = wanted_of(loaded, {"API_TOKEN": SECRET, "WEB_TOKEN": "w", "WEB_SECRET": "s"})
    assert wanted.rules.budget_tokens == 7
    assert wanted.problems == {"off": DISABLED}
    common: dict[str, Any] = {
        "workspace": str(tmp_path),
        "auto_approve": ("files__*",),
        "max_result_bytes": 2048,
    }
    assert wanted.rules.servers["files"] == ServerSettings(
        alias="files",
        command=("server", "/home/ada/notes"),
        env={"PLAIN": "p", "API_TOKEN": SECRET},
        workspace_access="write",
        readonly_paths=("/notes",),
        hosts=("*",),
        call_timeout_s=3,
        **common,
    )
    assert wanted.rules.servers["web"] == ServerSettings(
        alias="web",
        url="http://mcp.example.org/mcp",
        token="w",
        oauth=True,
        oauth_client_id="by-hand",
        oauth_client_secret="s",
        mode="legacy",
        allow=("a*",),
        deny=("ab",),
        trusted=True,
        **common,
    )


def test_a_missing_secret_is_a_problem_of_its_server_alone(tmp_path: Path) -> None:
    wanted = wanted_of(loaded_from(tmp_path), {"WEB_TOKEN": "w", "WEB_SECRET": "s"})
    assert set(wanted.rules.servers) == {"web"}
    assert "MCP server files: its variable API_TOKEN" in wanted.problems["files"]
    assert "LoadCredential" in wanted.problems["files"]


async def test_a_token_that_crosses_the_network_unencrypted_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for url, warned in (
        ("http://mcp.example.org/mcp", True),
        ("https://mcp.example.org/mcp", False),
        ("http://127.0.0.1:8080/mcp", False),
    ):
        caplog.clear()
        text = f'[mcp.servers.web]\nurl = "{url}"\nauth_env = "WEB_TOKEN"'
        loaded = loaded_from(tmp_path, text)
        tools = McpTools(
            FakeServers(), layout=loaded.layout, environ={"WEB_TOKEN": SECRET}, sessions=None
        )
        await tools.adopt(loaded)
        await tools.close()
        assert ("unencrypted" in caplog.text) is warned
        assert SECRET not in caplog.text


async def test_the_old_key_of_the_network_is_told_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for keys, warned in (("network = true", True), ("hosts = ['*']", False)):
        caplog.clear()
        loaded = loaded_from(tmp_path, f"[mcp.servers.a]\ncommand = ['x']\n{keys}")
        tools = McpTools(FakeServers(), layout=loaded.layout, environ={}, sessions=None)
        await tools.adopt(loaded)
        await tools.close()
        assert ("network = true of an MCP server is old" in caplog.text) is warned


def test_secrets_of_servers_are_taken_out_of_what_is_kept(tmp_path: Path) -> None:
    redactor = redactor_of(
        loaded_from(tmp_path), {"API_TOKEN": SECRET, "WEB_TOKEN": "another-long-secret"}
    )
    told = redactor.text(f"a {SECRET} b another-long-secret c")
    assert SECRET not in told
    assert "another-long-secret" not in told


def test_what_was_seen_of_tools_lies_in_the_home(tmp_path: Path) -> None:
    layout = loaded_from(tmp_path).layout
    assert layout.mcp_pins == tmp_path / "mcp_tools.json"
    pins = PinFile(layout.mcp_pins)
    pins.load()
    assert pins.problem == ""


def test_a_daemon_does_not_load_the_library_before_a_server_is_connected() -> None:
    code = "import sys, clawd.service.lifecycle; sys.exit('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0
