"""External tools through the real daemon and clawctl: found, run, refused, reloaded, stopped."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import DEADLINE_S, Home
from tests.support.lent_home import LentHome
from tests.tools.external_files import ECHOES_ARGV, entry, manifest, program

pytestmark = pytest.mark.sandbox

HOSTILE = "; rm -rf / $(touch owned)\n-rf"


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def install(home: Home, name: str, *tools: dict[str, Any]) -> Path:
    folder = home.path / "tools"
    folder.mkdir(exist_ok=True)
    file = folder / f"CLAWD-{name}.tools"
    file.write_text(manifest(*tools), encoding="utf-8")
    file.chmod(0o600)
    return file


def echo_entry(home: Home, **changes: Any) -> dict[str, Any]:
    path = program(home.path.parent / "echo-argv", ECHOES_ARGV)
    fields = {"argv": ["--", "{value}"], "parameters": {"value": {"type": "string"}}}
    return entry(**{"name": "echo_argv", "command": path, **fields, **changes})


def tools(home: Home) -> dict[str, str]:
    return {each["name"]: each["source"] for each in home.json("tool", "list")}


def test_a_tool_of_a_manifest_runs_and_leaves_a_receipt(home: Home) -> None:
    home.configure(tables='[security]\nautonomy = "full"')
    install(home, "good", echo_entry(home))
    broken = install(home, "broken", entry(name="never", timeout_ms=1))
    install(home, "taken", entry(name="shell"))
    home.start()
    assert tools(home)["echo_argv"] == "external"
    assert tools(home)["shell"] == "builtin"
    assert "never" not in tools(home)
    done = home.ctl("tool", "run", "echo_argv", "--json", json.dumps({"value": HOSTILE}))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["--", HOSTILE]
    assert list(home.workspace.iterdir()) == []
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"], receipt["risk"]) == (
        "echo_argv",
        "allowed",
        "medium",
    )
    assert receipt["sandbox"] == "bwrap"
    found = home.ctl("tool", "problems")
    assert found.returncode == 1
    assert f"{broken}:8" in found.stdout
    assert "expected 100 to 300000" in found.stdout
    assert "a tool of clawd is called `shell` already" in found.stdout
    assert "2 more could not be loaded" in home.ctl("tool", "list").stderr
    doctor = home.ctl("doctor")
    assert doctor.returncode == 1
    assert "2 left out" in doctor.stdout
    broken.unlink()
    (home.path / "tools" / "CLAWD-taken.tools").unlink()
    assert home.ctl("tool", "problems").returncode == 1  # nothing is read again before a reload


def test_a_tool_named_like_a_unified_one_is_left_out_and_the_daemon_starts(home: Home) -> None:
    home.configure()
    install(home, "good", echo_entry(home))
    install(home, "taken", echo_entry(home, name="fs"), echo_entry(home, name="web"))
    home.start()
    found = tools(home)
    assert "echo_argv" in found
    assert not {"fs", "web"} & found.keys()
    assert "is called `fs` already" in home.ctl("tool", "problems").stdout


def test_the_model_calls_it_like_any_tool(home: Home) -> None:
    call = {"tool_calls": [{"name": "echo_argv", "arguments": {"value": HOSTILE}}]}
    tables = '[security]\nautonomy = "full"'
    home.configure(call, {"text": "It said {{last_tool_result}}"}, tables=tables)
    install(home, "good", echo_entry(home))
    done = home.ctl("agent", "-m", "try it")
    assert done.returncode == 0, done.stderr
    assert json.dumps(["--", HOSTILE]) in done.stdout
    assert [line["tool"] for line in home.receipt_lines()] == ["echo_argv"]


def test_supervised_it_asks_and_read_only_it_is_refused(home: Home) -> None:
    home.configure()
    install(home, "good", echo_entry(home))
    home.start()
    asked = home.ctl("tool", "run", "echo_argv", "--json", '{"value": "x"}', "--no-input")
    assert asked.returncode == 3
    assert "approval" in asked.stderr + asked.stdout
    home.configure(tables='[security]\nautonomy = "readonly"')
    assert home.ctl("tool", "reload").returncode == 0
    refused = home.ctl("tool", "run", "echo_argv", "--json", '{"value": "x"}')
    assert refused.returncode == 3
    assert [line["status"] for line in home.receipt_lines()] == ["denied", "denied"]


def test_the_policy_is_asked_about_it_like_about_any_tool(home: Home) -> None:
    home.configure()
    runs = {"argv": ["-c", "{value}"], "parameters": {"value": {"type": "string"}}}
    install(home, "a", echo_entry(home), entry(name="runs_text", command="/bin/sh", **runs))
    home.start()
    long = "x" * 5000
    cases = [
        ("echo_argv", "x", "medium", ("deny", "ask", "allow")),
        ("echo_argv", long, "high", ("deny", "deny", "deny")),
        ("echo_argv", "a\0b", "high", ("deny", "deny", "deny")),
        ("runs_text", "date", "high", ("deny", "deny", "allow")),
    ]
    for name, value, risk, verdicts in cases:
        arguments = json.dumps({"value": value})
        for autonomy, verdict in zip(("readonly", "supervised", "full"), verdicts, strict=True):
            found = home.json("policy", "explain", name, arguments, "--autonomy", autonomy)
            assert (found["risk"], found["verdict"]) == (risk, verdict), (name, autonomy)


def test_a_reload_reads_the_folder_again(home: Home) -> None:
    home.configure(tables='[security]\nautonomy = "full"')
    home.start()
    assert "echo_argv" not in tools(home)
    file = install(home, "good", echo_entry(home))
    assert home.ctl("tool", "reload").returncode == 0
    assert "echo_argv" in tools(home)
    assert "Everything was loaded" in home.ctl("tool", "problems").stdout
    file.unlink()
    assert home.ctl("tool", "reload").returncode == 0
    assert "echo_argv" not in tools(home)


def test_the_folder_can_be_elsewhere_or_nowhere(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "manifests"
    elsewhere.mkdir()
    (elsewhere / "CLAWD-a.tools").write_text(manifest(entry(name="far")), encoding="utf-8")
    roots = f'[security]\nworkspace_roots = ["{home.workspace}"]\n'
    home.configure(tables=f'{roots}[external_tools]\ndir = "{elsewhere}"')
    home.start()
    assert "far" in tools(home)
    home.configure(tables=f'[external_tools]\nenabled = false\ndir = "{elsewhere}"')
    assert home.ctl("tool", "reload").returncode == 0
    assert "far" not in tools(home)
    inside = home.workspace / "tools"
    Path(elsewhere).rename(inside)
    home.configure(tables=f'[external_tools]\ndir = "{inside}"')
    assert home.ctl("tool", "reload").returncode == 0
    assert "far" not in tools(home)
    assert "the model could write it" in home.ctl("tool", "problems").stdout


def test_the_emergency_stop_kills_a_tool_that_runs(home: Home) -> None:
    home.configure(tables='[security]\nautonomy = "full"')
    path = program(
        home.path.parent / "sleeper",
        f"#!/bin/sh\ntrap '' TERM\ntouch begun\nsleep 300\ntouch {home.workspace}/ended\n",
    )
    install(home, "slow", entry(name="sleeper", command=path, timeout_ms=300_000))
    home.start()
    command = [sys.executable, "-m", "clawctl", "tool", "run", "sleeper"]
    with subprocess.Popen(
        command, env=home.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + DEADLINE_S
        while not (home.workspace / "begun").exists():
            assert time.monotonic() < deadline, home.log()
            time.sleep(0.02)
        assert home.ctl("estop").returncode == 0
        assert process.wait(timeout=DEADLINE_S) == 7
    assert not (home.workspace / "ended").exists()
    assert home.receipt_lines()[-1]["status"] == "failed"
