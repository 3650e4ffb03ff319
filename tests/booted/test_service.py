"""The unit under a real systemd: started by a knock, restarted when it fails, reloaded, drained."""

import re
import subprocess

import pytest
from bootstrap.package_site import SITE

from tests.support.booted import Machine
from tests.support.machine_clawd import (
    CONFIG,
    SERVICE,
    ask,
    configure,
    ctl,
    drop_in,
    entries,
    is_active,
    journal,
    main_pid,
    of,
    script,
    shown,
)

pytestmark = [pytest.mark.booted, pytest.mark.timeout(300)]

MAX_EXPOSURE = 3.0
WATCHDOG_S = 8  # longer than a busy machine lets the daemon wait


def test_the_first_client_to_knock_starts_the_service(machine: Machine) -> None:
    assert is_active(machine, "clawd.socket")
    assert not is_active(machine)

    answer = ask(machine, "alice", "hello")

    assert "tiny demo model" in answer
    assert is_active(machine)
    assert "serving" in shown(machine, "StatusText")


def test_an_administrator_starts_and_stops_it_by_hand(machine: Machine) -> None:
    machine.out("systemctl", "start", SERVICE)

    assert of(machine, "alice", "status")["pid"] == main_pid(machine)
    machine.out("systemctl", "stop", SERVICE)
    assert shown(machine, "Result") == "success"
    assert shown(machine, "ActiveState") == "inactive"
    assert is_active(machine, "clawd.socket")


def test_without_systemd_python_its_socket_and_its_notices_still_work(machine: Machine) -> None:
    machine.path(f"/{SITE}/systemd").unlink()

    assert "tiny demo model" in ask(machine, "alice", "hello")

    assert is_active(machine)
    assert "serving" in shown(machine, "StatusText")
    assert entries(machine, "CLAWD_EVENT=startup") == []
    assert "clawd started" in journal(machine)


def test_a_killed_daemon_is_started_again_and_has_kept_what_it_was_told(machine: Machine) -> None:
    ask(machine, "alice", "my favourite colour is teal")
    told = of(machine, "alice", "conversation", "list")
    first = main_pid(machine)

    machine.out("kill", "-KILL", str(first))
    machine.wait_until(lambda: main_pid(machine) not in {0, first}, "another main process")

    assert of(machine, "alice", "conversation", "list") == told
    assert of(machine, "alice", "memory", "search", "teal")
    assert of(machine, "alice", "receipt", "verify")["ok"]
    assert shown(machine, "NRestarts") == "1"


def test_a_daemon_that_hangs_is_killed_by_the_watchdog_and_started_again(machine: Machine) -> None:
    drop_in(machine, f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
    machine.out("systemctl", "start", SERVICE)
    first = main_pid(machine)

    machine.out("kill", "-STOP", str(first))
    machine.wait_until(lambda: main_pid(machine) not in {0, first}, "another main process")

    assert "tiny demo model" in ask(machine, "alice", "hello")
    assert "watchdog" in machine.out("journalctl", "-u", SERVICE, "--no-pager").lower()


def test_a_healthy_daemon_outlives_its_watchdog(machine: Machine) -> None:
    drop_in(machine, f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
    machine.out("systemctl", "start", SERVICE)
    first = main_pid(machine)
    answered = int(shown(machine, "WatchdogTimestampMonotonic"))
    outlived_us = (WATCHDOG_S + 1) * 1_000_000

    machine.wait_until(
        lambda: int(shown(machine, "WatchdogTimestampMonotonic")) > answered + outlived_us,
        "signs of life for longer than the watchdog waits",
    )

    assert main_pid(machine) == first
    assert shown(machine, "NRestarts") == "0"


def test_a_reload_takes_a_good_config_and_keeps_the_process(machine: Machine) -> None:
    machine.out("systemctl", "start", SERVICE)
    first = main_pid(machine)
    configure(machine, tables='[security]\nautonomy = "readonly"')

    machine.out("systemctl", "reload", SERVICE)

    machine.wait_until(
        lambda: of(machine, "alice", "status")["autonomy"] == "readonly", "the new config"
    )
    assert main_pid(machine) == first
    assert len(entries(machine, "CLAWD_EVENT=config_reloaded")) == 1
    assert re.search(r"autonomy +readonly", ctl(machine, "alice", "status").stdout)
    machine.wait_until(lambda: shown(machine, "ActiveState") == "active", "an end of reloading")
    assert shown(machine, "StatusText").startswith("serving")
    assert "RELOAD" not in shown(machine, "StatusText")


def test_a_reload_refuses_a_bad_config_with_all_its_errors(machine: Machine) -> None:
    configure(machine, tables='[security]\nautonomy = "readonly"')
    machine.out("systemctl", "start", SERVICE)
    first = main_pid(machine)
    configure(machine, top="colour = 1", tables='[security]\nautonomy = "godmode"')

    machine.run("systemctl", "reload", SERVICE)

    machine.wait_until(lambda: "the old one stays" in journal(machine), "the refusal")
    refusal = journal(machine)
    assert "colour" in refusal
    assert "godmode" in refusal
    assert main_pid(machine) == first
    assert of(machine, "alice", "status")["autonomy"] == "readonly"
    machine.wait_until(lambda: shown(machine, "ActiveState") == "active", "an end of reloading")
    assert entries(machine, "CLAWD_EVENT=config_reloaded") == []
    assert "RELOAD REFUSED" in machine.run("systemctl", "status", "--no-pager", SERVICE).stdout
    assert shown(machine, "Result") == "success"
    told = ctl(machine, "alice", "status").stdout
    assert "the old one stays" in told
    assert "godmode" in told

    configure(machine)
    machine.out("systemctl", "reload", SERVICE)

    machine.wait_until(lambda: "RELOAD" not in shown(machine, "StatusText"), "a good config")
    assert of(machine, "alice", "status")["reload_refused"] == ""


def test_a_bad_config_fails_the_start_and_says_why(machine: Machine) -> None:
    configure(machine, tables='[security]\nautonomy = "godmode"')

    assert machine.run("systemctl", "start", SERVICE).returncode != 0

    assert "readonly, supervised, edits, full" in journal(machine)
    configure(machine)
    machine.out("systemctl", "reset-failed", SERVICE)
    machine.out("systemctl", "start", SERVICE)
    assert of(machine, "alice", "status")["autonomy"] == "supervised"


def test_a_stop_lets_the_running_turn_end(machine: Machine) -> None:
    # So long that it is seen to run, and well within the grace.
    grace = "[limits]\nshutdown_grace_s = 20\n"
    script(machine, {"text": "at last", "delay_s": 8}, tables=grace)
    machine.out("systemctl", "start", SERVICE)
    words = machine.words("clawctl", "agent", "-q", "-m", "slow", user="alice")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as turn:
        machine.wait_until(
            lambda: of(machine, "alice", "status")["turns_running"] == 1, "a running turn"
        )

        machine.out("systemctl", "stop", SERVICE)

        assert turn.stdout is not None
        assert turn.stdout.read().decode().strip() == "at last"
    assert turn.returncode == 0
    assert shown(machine, "Result") == "success"


def test_a_credential_is_a_providers_key_and_shows_nowhere(machine: Machine) -> None:
    secret = "credential-of-the-provider-0815"
    machine.put("/root/key", secret + "\n", 0o600)
    drop_in(machine, "[Service]\nLoadCredential=MODEL_KEY:/root/key\n")
    machine.put("/srv/model.py", MODEL_SERVER)
    machine.out("systemd-run", "--unit=model", "python3", "/srv/model.py")
    provider = "[providers.models.remote]\n" + (
        'kind = "openai-compatible"\nmodel = "m"\nbase_url = "http://127.0.0.1:8001/v1"\n'
        'api_key_env = "MODEL_KEY"\n'
    )
    machine.put(CONFIG, f'default_provider = "remote"\n{provider}')
    machine.wait_until(lambda: "ready" in machine.out("journalctl", "-u", "model"), "the model")

    answer = ask(machine, "alice", "whose key is it?")

    assert answer == f"Bearer with {len(secret)} letters"
    pid = main_pid(machine)
    places = [
        f"/proc/{pid}/environ",
        f"/proc/{pid}/cmdline",
        "/var/lib/private/clawd",
        "/etc/clawd",
    ]
    found = machine.run("grep", "-r", "-l", "-a", secret, *places, "/run/log", "/tmp")
    assert found.stdout == ""
    everything = machine.out("journalctl", "--no-pager", "-o", "json")
    assert secret not in everything
    assert secret not in str(of(machine, "root", "config", "show"))
    assert machine.run("cat", "/root/key", user="alice").returncode != 0


def test_systemd_has_nothing_to_say_against_the_units(machine: Machine) -> None:
    units = ("clawd.service", "clawd.socket")
    for whose in ("--system", "--user"):
        words = ["systemd-analyze", "verify", whose, *units]
        done = machine.run(*words, environ={"XDG_RUNTIME_DIR": "/tmp"})

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_exposes_little(machine: Machine) -> None:
    said = machine.out("systemd-analyze", "security", "--no-pager", SERVICE)

    level = re.search(r"Overall exposure level for clawd\.service: ([\d.]+)", said)
    assert level is not None
    assert float(level[1]) <= MAX_EXPOSURE


MODEL_SERVER = '''
import http.server, json

class Model(http.server.BaseHTTPRequestHandler):
    """Answers every chat with what it was sent as a key, but for the key."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        scheme, _, key = self.headers["Authorization"].partition(" ")
        choice = {"index": 0, "delta": {"content": f"{scheme} with {len(key)} letters"}}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for each in (choice, {"index": 0, "delta": {}, "finish_reason": "stop"}):
            self.wfile.write(f"data: {json.dumps({'choices': [each]})}\\n\\n".encode())
        self.wfile.write(b"data: [DONE]\\n\\n")

    def log_message(self, *words):
        pass

server = http.server.HTTPServer(("127.0.0.1", 8001), Model)
print("ready", flush=True)
server.serve_forever()
'''
