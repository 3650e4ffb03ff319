"""What a person does with clawctl and the real daemon, told with the scripted provider."""

import json
import pathlib
import re
import sys

import pexpect
import pytest

from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon

WRITE = {
    "when": "write",
    "tool_calls": [{"name": "file_write", "arguments": {"path": "a.txt", "content": "hello"}}],
}
TOLD = {"after": "tool", "text": "The tool said: {{last_tool_result}}"}


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def test_init_makes_config_memory_and_workspace(own_home: Home) -> None:
    done = own_home.ctl("init")
    assert done.returncode == 0, done.stderr
    assert own_home.config.is_file()
    assert (own_home.path / "memory.sqlite").is_file()
    assert (own_home.path / "workspace").is_dir()
    assert own_home.path.stat().st_mode & 0o777 == 0o700
    again = own_home.ctl("init")
    assert again.returncode == 0
    assert "kept" in again.stdout


def test_two_config_mistakes_are_both_reported_with_the_allowed_values(own_home: Home) -> None:
    own_home.configure(
        tables='[security]\nautonomy = "godmode"\n[limits]\nshell_timeout_s = "soon"'
    )
    done = own_home.ctl("config", "validate")
    told = done.stdout + done.stderr
    assert done.returncode == 1
    assert "godmode" in told
    assert re.search(r"readonly.*supervised.*full", told)
    assert "shell_timeout_s" in told
    refused = own_home.ctl("status")
    assert refused.returncode != 0
    assert "godmode" in refused.stdout + refused.stderr


def test_hello_is_printed_and_both_messages_are_in_memory(home: Home) -> None:
    home.configure({"text": "hello there"})
    done = home.ctl("agent", "-m", "hello")
    assert (done.returncode, done.stdout.strip()) == (0, "hello there"), done.stderr
    (conversation,) = home.json("memory", "list")
    shown = home.json("memory", "show", conversation["id"])
    assert [(m["role"], m["content"]) for m in shown["messages"]] == [
        ("user", "hello"),
        ("assistant", "hello there"),
    ]


def test_file_list_runs_in_the_workspace_and_the_answer_uses_it(home: Home) -> None:
    (home.workspace / "notes.md").write_text("x")
    call = {"tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]}
    home.configure(call, {"text": "I see {{last_tool_result}}"})
    done = home.ctl("agent", "-m", "what is here?")
    assert done.returncode == 0, done.stderr
    assert "notes.md" in done.stdout
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"]) == ("file_list", "allowed")
    assert receipt["workspace"] == str(home.workspace)


def test_reading_outside_the_workspace_is_denied_with_a_receipt(home: Home) -> None:
    call = {"tool_calls": [{"name": "file_read", "arguments": {"path": "/etc/passwd"}}]}
    home.configure(call, TOLD)
    done = home.ctl("agent", "-m", "read it")
    assert done.returncode == 0, done.stderr
    assert "The tool said: denied:" in done.stdout
    assert "root:" not in done.stdout
    (receipt,) = home.receipt_lines()
    assert (receipt["status"], receipt["risk"]) == ("denied", "high")


def test_write_without_a_terminal_is_denied_and_exits_with_4(home: Home) -> None:
    home.configure(WRITE, TOLD)
    done = home.ctl("agent", "-m", "write it")
    assert done.returncode == 4, done.stderr
    assert not (home.workspace / "a.txt").exists()
    (receipt,) = home.receipt_lines()
    assert (receipt["status"], receipt["approval"]) == ("denied", "none")


@pytest.mark.parametrize(("answer", "is_written"), [("", False), ("n", False), ("y", True)])
def test_the_terminal_decides_about_a_write(home: Home, answer: str, is_written: bool) -> None:
    home.configure(WRITE, TOLD)
    home.start()
    child = pexpect.spawn(
        sys.executable,
        ["-m", "clawctl", "agent", "-m", "write it"],
        env=dict(home.environ, TERM="xterm"),
        cwd=str(home.workspace),
        encoding="utf-8",
        timeout=60,
    )
    child.expect(r"Approve\? \[y/N\]")
    assert "a.txt" in str(child.before)
    child.sendline(answer)
    child.expect(pexpect.EOF)
    child.wait()  # its terminal goes a moment before it does
    child.close()
    assert child.exitstatus == 0
    assert (home.workspace / "a.txt").exists() is is_written
    (receipt,) = home.receipt_lines()
    expected = ("allowed", "user") if is_written else ("denied", "none")
    assert (receipt["status"], receipt["approval"]) == expected


def test_piped_input_does_not_answer_an_approval(home: Home) -> None:
    home.configure(WRITE, TOLD)
    done = home.ctl("agent", "-m", "write it", stdin="y\ny\ny\n")
    assert done.returncode == 4
    assert not (home.workspace / "a.txt").exists()


def test_a_destructive_command_is_blocked_even_in_full_autonomy(home: Home) -> None:
    keep = home.workspace / "keep.txt"
    keep.write_text("x")
    call = {"tool_calls": [{"name": "shell", "arguments": {"command": "rm -rf /"}}]}
    home.configure(call, TOLD, tables='[security]\nautonomy = "full"')
    done = home.ctl("agent", "-m", "clean up")
    assert "denied:" in done.stdout
    assert keep.exists()
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"], receipt["risk"]) == ("shell", "denied", "high")
    assert receipt["sandbox"] in {"", "bwrap"}


@pytest.mark.sandbox
def test_an_allowed_command_runs_in_the_sandbox(home: Home) -> None:
    (home.workspace / "one.txt").write_text("1")
    call = {"tool_calls": [{"name": "shell", "arguments": {"command": "ls; cat /etc/shadow"}}]}
    home.configure(call, TOLD, tables='[security]\nautonomy = "full"\nforbidden_paths = ["/boot"]')
    home.ctl("agent", "-m", "look around")
    call2 = {"tool_calls": [{"name": "shell", "arguments": {"command": "ls"}}]}
    home.configure(call2, TOLD, tables='[security]\nautonomy = "full"')
    done = home.ctl("agent", "-m", "look around")
    assert "one.txt" in done.stdout, done.stderr
    receipt = home.receipt_lines()[-1]
    assert (receipt["status"], receipt["sandbox"], receipt["exit_code"]) == ("allowed", "bwrap", 0)


def test_an_edited_receipt_is_found_by_number_with_the_daemon_and_without(own_home: Home) -> None:
    own_home.configure()
    for _ in range(3):
        assert own_home.ctl("tool", "run", "time", "--json", "{}").returncode == 0
    assert own_home.ctl("receipt", "verify").returncode == 0
    assert [line["seq"] for line in own_home.receipt_lines()] == [1, 2, 3]
    whole = own_home.receipts.read_text()
    assert whole.count('"tool":"time"') == 3
    for with_daemon in (True, False):
        if not with_daemon:
            own_home.receipts.write_text(whole)
            own_home.close()
        lines = own_home.receipts.read_text().splitlines()
        lines[1] = lines[1].replace('"tool":"time"', '"tool":"Time"')
        own_home.receipts.write_text("\n".join(lines) + "\n")
        done = own_home.ctl("receipt", "verify")
        assert done.returncode == 1
        assert "invalid chain at receipt 2" in done.stdout + done.stderr
        shown = own_home.ctl("receipt", "verify", "--json")
        assert json.loads(shown.stdout)["first_bad"] == 2


def test_a_chain_that_the_config_puts_elsewhere_is_verified_without_a_daemon(
    own_home: Home,
) -> None:
    elsewhere = own_home.workspace.parent / "chain.log"
    own_home.configure(tables=f'[receipts]\npath = "{elsewhere}"\n')
    assert own_home.ctl("tool", "run", "time").returncode == 0
    own_home.close()
    done = own_home.ctl("receipt", "verify")
    assert done.returncode == 0, done.stderr
    assert f"valid chain of 1 receipt ({elsewhere}" in done.stdout


def test_reliable_falls_back_and_says_so_in_the_log(home: Home) -> None:
    home.configure(
        {"text": "from the mock"},
        provider="safe",
        tables='[providers.models.bad]\nkind = "openai-compatible"\n'
        'base_url = "http://127.0.0.1:9/v1"\nmodel = "x"\n'
        '[providers.models.safe]\nkind = "reliable"\nproviders = ["bad", "mock"]\n',
    )
    done = home.ctl("agent", "-m", "hello")
    assert (done.returncode, done.stdout.strip()) == (0, "from the mock"), done.stderr
    assert re.search(r"WARNING.*bad.*mock", home.log())


def test_memory_search_ignores_case(home: Home) -> None:
    home.configure({"text": "The Aardvark adapter is in the drawer."})
    home.ctl("agent", "-m", "where is it?")
    done = home.ctl("memory", "search", "aardvark")
    assert done.returncode == 0
    assert "Aardvark adapter" in done.stdout


def test_tool_run_is_denied_with_exit_3_and_stopped_with_7(home: Home) -> None:
    home.configure()
    arguments = '{"path":"a.txt","content":"x"}'
    assert home.ctl("tool", "run", "file_write", "--json", arguments).returncode == 3
    assert home.ctl("estop").returncode == 0
    assert home.ctl("tool", "run", "time", "--json", "{}").returncode == 7
    assert home.ctl("estop", "--clear").returncode == 0
    assert home.ctl("tool", "run", "time", "--json", "{}").returncode == 0
    assert [r["status"] for r in home.receipt_lines()] == ["denied", "denied", "allowed"]


def test_no_daemon_and_no_start_exits_with_6(own_home: Home) -> None:
    own_home.configure()
    done = own_home.ctl("--no-start", "status")
    assert done.returncode == 6
    assert done.stderr.strip()


def test_two_clients_at_once_start_one_daemon(own_home: Home) -> None:
    own_home.configure()
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: own_home.ctl("status", "--json"), range(4)))
    assert {d.returncode for d in done} == {0}, [d.stderr for d in done]
    assert len({json.loads(d.stdout)["pid"] for d in done}) == 1


def test_status_json_names_pid_home_socket_and_version(home: Home) -> None:
    home.configure()
    status = home.json("status")
    assert status["pid"] == home.pid()
    assert status["home"] == str(home.path)
    assert pathlib.Path(status["socket"]).exists()
    assert status["version"]
