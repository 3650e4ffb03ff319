"""Codex, opencode and Claude Code against a daemon, set up as the documentation says.

Each runs a tool of its own that the script of the mock provider calls, and shows what came of it.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.places import ROOT, cli
from tests.support.home import Home

pytestmark = [
    pytest.mark.clis,
    pytest.mark.daemon,
    pytest.mark.timeout(900),
]

LIMIT_S = 300.0
PLACE = "http://127.0.0.1:8686"
NOWHERE = "http://127.0.0.1:9"
SECRET = "plover 4711"
QUESTION = "what does note.txt say?"
READ = {
    "when": "note.txt",
    "first_offered": True,
    "tool_calls": [
        {"name": "exec_command", "arguments": {"cmd": "cat note.txt"}},
        {"name": "Bash", "arguments": {"command": "cat note.txt", "description": "reads it"}},
        {"name": "bash", "arguments": {"command": "cat note.txt", "description": "reads it"}},
    ],
}
SAY = {"when": "note.txt", "after": "tool", "text": "The tool said <{{tool_results}}>."}
SUM = "what is 12 times 7?"
CALCULATE = {
    "when": SUM,
    "first_offered": True,
    "tool_calls": [{"name": "mcp__clawd__calculator", "arguments": {"expression": "12 * 7"}}],
}
TOLD = {"when": SUM, "after": "tool", "text": "It is <{{tool_results}}>."}
OTHERS = {"text": "A title"}
GATEWAY = "[channels.http]\nenabled = true\nport = 0"
COUNTED = re.compile(
    r'clawd_http_requests_total\{method="POST",route="(.+?)",status="(\d+)"\} (.+)'
)


class Desk:
    """A daemon, and a folder with a note where command lines of others run in a home of theirs."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.home.configure(READ, SAY, CALCULATE, TOLD, OTHERS, tables=GATEWAY)
        self.home.start()
        self.url = self.home.json("status")["gateway"]
        self.folder = folder / "desk"
        self.folder.mkdir()
        (self.folder / "note.txt").write_text(SECRET)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "theirs"),
            "LANG": "C.UTF-8",
            # Whatever they want of hosts outside fails at once, with and without a network.
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            # For Claude Code: it is run by root, and is to wait for MCP servers before it asks.
            "IS_SANDBOX": "1",
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MCP_CONNECT_TIMEOUT_MS": "240000",
            "MCP_TIMEOUT": "240000",
        }

    def key(self, scope: str = "models") -> str:
        """Make a key, and give it to the programs."""
        key = str(self.home.json("key", "create", "--name", "cli", "--scope", scope)["key"])
        self.environ["CLAWD_API_KEY"] = key
        return key

    def in_home(self, place: str) -> Path:
        """Return a path in the home of the programs."""
        return Path(self.environ["HOME"]) / place

    def file(self, recipe: str, place: str) -> None:
        """Write a file of the documentation into their home."""
        path = self.in_home(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.recipe(recipe))

    def recipe(self, first_line: str) -> str:
        """Return the block of the documentation that begins with this line."""
        pages = "\n".join(page.read_text() for page in (ROOT / "docs").glob("use-with*.md"))
        blocks = re.findall(r"^```\w+\n(.+?)^```$", pages, re.MULTILINE | re.DOTALL)
        (found,) = [block for block in blocks if block.startswith(first_line + "\n")]
        return str(found).replace(PLACE, self.url)

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            [cli(program), *words],
            env=self.environ,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def asked(self) -> dict[tuple[str, str], int]:
        """Return how many requests the gateway had, by route and status."""
        key = self.home.json("key", "create", "--name", "counts", "--scope", "chat")["key"]
        bearer = {"Authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"{self.url}/metrics", headers=bearer)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
            text = response.read().decode()
        return {(route, status): int(float(n)) for route, status, n in COUNTED.findall(text)}

    def kept_nothing(self) -> bool:
        """Return whether the daemon ran no tool of its own and keeps no conversation."""
        return not self.home.receipt_lines() and not self.home.json("conversation", "list")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path)
    yield found
    found.home.close()


def codex(desk: Desk, question: str = QUESTION) -> subprocess.CompletedProcess[str]:
    # Its own sandbox is not under test, and cannot be had in every container.
    free = "--dangerously-bypass-approvals-and-sandbox"
    if not desk.in_home(".codex/config.toml").exists():
        desk.file("# ~/.codex/config.toml", ".codex/config.toml")
    return desk.run("codex", "exec", "--skip-git-repo-check", "--json", free, question)


def opencode(desk: Desk) -> subprocess.CompletedProcess[str]:
    place = ".config/opencode/opencode.jsonc"
    desk.file(f"// ~/{place}", place)
    return desk.run("opencode", "run", "--format", "json", QUESTION)


def claude(desk: Desk, *words: str, question: str = QUESTION) -> subprocess.CompletedProcess[str]:
    desk.in_home("").mkdir(exist_ok=True)
    for line in desk.recipe("# Claude Code").splitlines()[1:]:
        name, _, value = shlex.split(line)[1].partition("=")
        desk.environ[name] = value.replace("$CLAWD_API_KEY", desk.environ["CLAWD_API_KEY"])
    return desk.run("claude", "-p", question, "--output-format", "json", *words)


def lines_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_codex_makes_a_round_trip_with_a_tool_of_its_own(desk: Desk) -> None:
    desk.key()
    done = codex(desk)
    assert done.returncode == 0, done.stderr
    items = [each["item"] for each in lines_of(done) if each["type"] == "item.completed"]
    (ran,) = [item for item in items if item["type"] == "command_execution"]
    assert (ran["exit_code"], ran["aggregated_output"]) == (0, SECRET)
    (said,) = [item["text"] for item in items if item["type"] == "agent_message"]
    assert said.startswith("The tool said <") and said.endswith(f"{SECRET}>.")
    assert desk.asked() == {("/v1/responses", "200"): 2}
    assert desk.kept_nothing()


def test_opencode_makes_a_round_trip_with_a_tool_of_its_own(desk: Desk) -> None:
    desk.key()
    done = opencode(desk)
    assert done.returncode == 0, done.stderr
    parts = [each["part"] for each in lines_of(done)]
    (ran,) = [part for part in parts if part["type"] == "tool"]
    assert (ran["tool"], ran["state"]["status"]) == ("bash", "completed")
    assert ran["state"]["output"] == SECRET
    (said,) = [part["text"] for part in parts if part["type"] == "text"]
    assert said == f"The tool said <{SECRET}>."
    # One of them is for the title.
    assert desk.asked() == {("/v1/chat/completions", "200"): 3}
    assert desk.kept_nothing()


def test_claude_code_makes_a_round_trip_with_a_tool_of_its_own(desk: Desk) -> None:
    desk.key()
    done = claude(desk, "--allowedTools", "Bash")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["is_error"], told["num_turns"]) == (False, 2)
    assert told["result"] == f"The tool said <{SECRET}>."
    assert list(told["modelUsage"]) == ["clawd"]
    assert desk.asked() == {("/v1/messages", "200"): 2}
    assert desk.kept_nothing()


@pytest.mark.parametrize("program", [codex, claude])
def test_they_tell_that_a_key_is_wrong(desk: Desk, program: Any) -> None:
    desk.key()
    desk.environ |= {"CLAWD_API_KEY": "none of them", "CLAUDE_CODE_MAX_RETRIES": "0"}
    done = program(desk)
    assert done.returncode == 1, done.stderr
    assert "the key is not known, revoked or expired" in done.stdout, done.stderr
    assert desk.kept_nothing()


def test_claude_code_calls_a_tool_of_clawd_over_mcp(desk: Desk) -> None:
    url, key = f"{desk.url}/mcp", desk.key("chat,tools")
    desk.in_home("").mkdir()
    bearer = f"Authorization: Bearer {key}"
    added = desk.run(
        "claude", "mcp", "add", "--transport", "http", "clawd", url, "--header", bearer
    )
    assert added.returncode == 0, added.stderr
    done = claude(desk, "--allowedTools", "mcp__clawd__calculator", question=SUM)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == "It is <84>."
    (receipt,) = desk.home.receipt_lines()
    assert (receipt["tool"], receipt["status"]) == ("calculator", "allowed")


def test_claude_code_calls_a_tool_of_clawd_over_stdio(desk: Desk) -> None:
    desk.key()
    desk.in_home("").mkdir()
    serve = [sys.executable, "-m", "clawctl", "mcp", "serve"]
    names = ("CLAWD_HOME", "PYTHONPATH")
    given = [word for name in names for word in ("-e", f"{name}={desk.home.environ[name]}")]
    added = desk.run("claude", "mcp", "add", "clawd", *given, "--", *serve)
    assert added.returncode == 0, added.stderr
    done = claude(desk, "--allowedTools", "mcp__clawd__calculator", question=SUM)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == "It is <84>."
    (receipt,) = desk.home.receipt_lines()
    assert (receipt["tool"], receipt["status"]) == ("calculator", "allowed")


def test_codex_calls_a_tool_of_clawd_over_mcp(desk: Desk) -> None:
    desk.key("chat,tools")
    desk.file("# ~/.codex/config.toml", ".codex/config.toml")
    url = ["--url", f"{desk.url}/mcp", "--bearer-token-env-var", "CLAWD_API_KEY"]
    added = desk.run("codex", "mcp", "add", "clawd", *url)
    assert added.returncode == 0, added.stderr
    config = desk.in_home(".codex/config.toml")
    table = "[mcp_servers.clawd]\n"
    patient = f"{table}required = true\nstartup_timeout_sec = 240\n"
    config.write_text(config.read_text().replace(table, patient))
    done = codex(desk, SUM)
    assert done.returncode == 0, done.stderr
    items = [each["item"] for each in lines_of(done) if each["type"] == "item.completed"]
    (said,) = [item["text"] for item in items if item["type"] == "agent_message"]
    assert said.startswith("It is <") and "84" in said
    (receipt,) = desk.home.receipt_lines()
    assert (receipt["tool"], receipt["status"]) == ("calculator", "allowed")
