"""Servers for the config: from a command line, and from the files of other programs."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clawctl.commands.mcp import read_foreign, with_server
from clawctl.main import main
from clawd.errors import InvalidRequestError
from tests.clawctl.conftest import Capture
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("own_home", "clawd_inside")


CLAUDE = {
    "mcpServers": {
        "Files & more": {
            "command": "npx",
            "args": ["-y", "server-filesystem", "."],
            "env": {"API_KEY": "sk-secret", "TOKEN": "${TOKEN}", "DEBUG": "1"},
        },
        "web": {"type": "http", "url": "https://x.example/mcp", "disabled": True},
    }
}
CODE = """{
  // VS Code writes comments
  "inputs": [],
  "servers": {
    "web": {"type": "http", "url": "https://x.example/mcp", /* so */
            "headers": {"Authorization": "Bearer ${input:web-token}", "X-Other": "1"},},
    "lit": {"url": "https://y.example//mcp", "headers": {"Authorization": "Bearer abc123"}}
  },
}"""
OPENCODE = {"mcp": {"files": {"type": "local", "command": ["x", "."], "environment": {"A": "b"}}}}
ZED = {"context_servers": {"z": {"command": {"path": "/usr/bin/z", "args": ["1"], "env": {}}}}}
SSE = {"mcpServers": {"old": {"type": "sse", "url": "https://x.example/sse"}}}


def read(folder: Path, given: Any) -> tuple[dict[str, Any], list[str]]:
    path = folder / "servers.json"
    path.write_text(given if isinstance(given, str) else json.dumps(given), encoding="utf-8")
    text, notes = "", list[str]()
    for server in read_foreign(path):
        text = with_server(text, server)
        notes += server.notes
    return tomllib.loads(text)["mcp"]["servers"], notes


@each_row(
    ("given", "expected", "notes"),
    [
        (
            CLAUDE,
            {
                "files-more": {
                    "command": ["npx", "-y", "server-filesystem", "."],
                    "env_passthrough": ["API_KEY", "TOKEN"],
                    "env": {"DEBUG": "1"},
                },
                "web": {"url": "https://x.example/mcp", "enabled": False},
            },
            ["the value of API_KEY was not copied", "npx fetches what it runs"],
        ),
        (
            CODE,
            {
                "web": {"url": "https://x.example/mcp", "auth_env": "web_token"},
                "lit": {"url": "https://y.example//mcp", "auth_env": "LIT_TOKEN"},
            },
            ["the header X-Other was left out", "the token was not copied: export LIT_TOKEN"],
        ),
        (OPENCODE, {"files": {"command": ["x", "."], "env": {"A": "b"}}}, []),
        (ZED, {"z": {"command": ["/usr/bin/z", "1"]}}, []),
        (SSE, {"old": {"url": "https://x.example/sse"}}, ["the old SSE transport"]),
    ],
)
def test_p11_servers_of_other_programs_are_read_and_secrets_are_not(
    tmp_path: Path, given: Any, expected: dict[str, Any], notes: list[str]
) -> None:
    found, said = read(tmp_path, given)
    assert found == expected
    assert [note for note in notes if not any(note in each for each in said)] == []
    assert not any(secret in str(found) for secret in ("sk-secret", "abc123"))


@each_row("given", ["{", "[]", '{"other": {}}', "\x00"])
def test_what_names_no_servers_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(InvalidRequestError):
        read(tmp_path, given)


def test_p11_servers_are_added_to_the_config_where_it_is_valid_with_them(
    home: Path, tmp_path: Path, capsys: Capture
) -> None:
    config = home / "config.toml"
    config.write_text("# mine\n[mcp.servers.there]\nurl = 'https://x.example/mcp'\n")
    assert main(["mcp", "add", "web", "https://w.example/mcp", "--token-env", "WEB"]) == 0
    shown = capsys.readouterr()
    assert "added web" in shown.out
    words = ["mcp", "add", "files", "--env", "A=b", "--env", "KEY", "--network", "--read", "/srv"]
    assert main([*words, "--", "srv", "--flag"]) == 0
    hosts = ["--host", "Api.example.org", "--host", "*.example.org:8443"]
    assert main(["mcp", "add", "api", *hosts, "--", "srv"]) == 0
    assert main(["mcp", "add", "no", "--host", "*:443", "--", "srv"]) == 1
    path = tmp_path / ".mcp.json"
    path.write_text(
        json.dumps({"mcpServers": {"there": {"command": "x"}, "new": {"command": "y"}}})
    )
    capsys.readouterr()
    assert main(["mcp", "import", str(path), "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["changed"] is True
    assert "left out: there is there" in shown.err
    text = config.read_text()
    assert text.startswith("# mine\n")
    assert tomllib.loads(text)["mcp"]["servers"] == {
        "there": {"url": "https://x.example/mcp"},
        "web": {"url": "https://w.example/mcp", "auth_env": "WEB"},
        "files": {
            "command": ["srv", "--flag"],
            "env": {"A": "b"},
            "env_passthrough": ["KEY"],
            "hosts": ["*"],
            "readonly_paths": ["/srv"],
        },
        "api": {"command": ["srv"], "hosts": ["api.example.org:443", "*.example.org:8443"]},
        "new": {"command": ["y"]},
    }
    # What would not be valid is not written, and a name that is there is not written twice.
    assert main(["mcp", "add", "bad", "ftp://x"]) == 1
    assert main(["mcp", "add", "web", "https://w.example/mcp"]) == 1
    assert main(["mcp", "add", "tok", "https://w.example/", "--header", "X: y"]) == 1
    assert config.read_text() == text


def test_m4_a_url_needs_a_name_and_sends_a_token_of_the_callers(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    for words, told in (
        (["https://x.example/mcp"], "--alias NAME"),
        (["files", "--alias", "x"], "go with a URL"),
        (["https://x.example/mcp", "--alias", "x", "--token-env", "NOT_THERE"], "no variable"),
    ):
        assert main(["mcp", "connect", *words]) == 2
        assert told in capsys.readouterr().err
