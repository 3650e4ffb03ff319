"""The gateway of a real daemon: who gets in, keys by the real clawctl, where it may listen."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawctl.client import connect
from clawd.wire.daemon import Reload, Status
from tests.support.home import Home
from tests.support.lent_home import LentHome
from tests.support.tls import self_signed

pytestmark = pytest.mark.daemon

ASK = """
import http.client, json, sys
_, port, method, path, headers, body = sys.argv
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
connection.request(method, path, body or None, json.loads(headers))
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


def over_http(*lines: str) -> str:
    return "\n".join(["[channels.http]", "enabled = true", "port = 0", *lines])


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """The home of a gateway for which no key was ever made."""
    made = Home(tmp_path_factory.mktemp("a user "))
    made.configure(tables=over_http())
    made.start()
    try:
        yield made
    finally:
        made.close()


def gateway(home: Home) -> str:
    with connect(home.path / "run" / "clawd.sock") as client:
        return client.call(Status()).gateway


def port_of(home: Home) -> int:
    return int(gateway(home).rpartition(":")[2])


def ask(
    home: Home,
    path: str,
    *before: str,
    method: str = "GET",
    uid: int | None = None,
    **headers: str,
) -> tuple[int, str]:
    """Ask, from a process of its own where it has words before it or a uid."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = "{}" if method == "POST" else ""
    if not before and uid is None:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(home), timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body or None, named)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
    words = [str(port_of(home)), method, path, json.dumps(named), body]
    done = subprocess.run(
        [*before, "/usr/bin/python3", "-ISc", ASK, *words],
        user=uid,
        group=uid,
        extra_groups=[] if uid else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd="/",
    )
    status, _, told = done.stdout.partition(" ")
    return int(status), told


# A path that is nowhere: 404 is for those who were let in, 401 and 403 for the rest.
NOWHERE = "/v1/nowhere"


def test_keys_live_and_end_by_clawctl(home: Home) -> None:
    home.configure(tables=over_http())
    home.start()
    assert ask(home, NOWHERE)[0] == 404
    assert ask(home, NOWHERE, Authorization="Bearer whatever")[0] == 404
    made = home.ctl("key", "create", "--name", "laptop")
    key = made.stdout.strip()
    assert made.returncode == 0
    assert "not shown again" in made.stderr
    assert ask(home, NOWHERE)[0] == 401
    assert ask(home, NOWHERE, Authorization="Bearer whatever")[0] == 401
    assert ask(home, NOWHERE, Authorization=f"Bearer {key}")[0] == 404
    assert ask(home, NOWHERE, x_api_key=key)[0] == 404
    assert ask(home, f"{NOWHERE}?key={key}")[0] == 401
    listed = home.ctl("key", "list").stdout
    assert "laptop" in listed
    assert key not in listed
    (line,) = home.json("key", "list")
    assert line["scopes"] == ["models"]
    assert line["used_at"]
    home.close()
    home.start()
    assert ask(home, NOWHERE, Authorization=f"Bearer {key}")[0] == 404
    admin = home.json("key", "create", "--scope", "chat, admin", "--expires-days", "1")
    assert admin["line"]["scopes"] == ["chat", "admin"]
    assert admin["line"]["expires_at"] > admin["line"]["created_at"]
    assert home.ctl("key", "revoke", "laptop").returncode == 0
    assert ask(home, NOWHERE, Authorization=f"Bearer {key}")[0] == 401
    last = home.ctl("key", "revoke", admin["line"]["id"])
    assert "no key is left" in last.stdout
    assert ask(home, NOWHERE)[0] == 401
    home.close()
    home.configure(tables=over_http('keyless = "on"'))
    home.start()
    assert ask(home, NOWHERE)[0] == 404
    assert ask(home, NOWHERE, Authorization=f"Bearer {key}")[0] == 401
    for secret in (key, admin["key"]):
        kept = [path for path in home.path.rglob("*") if path.is_file()]
        assert not [path for path in kept if secret[20:].encode() in path.read_bytes()]


def test_many_programs_at_once_are_all_let_in(keyless: Home) -> None:
    address = ("127.0.0.1", port_of(keyless))
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(100)]
        for each in made:
            each.sendall(f"GET {NOWHERE} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        assert sum(b" 404 " in each.recv(100) for each in made) == 100


def test_bad_words_about_keys_are_refused_with_a_sentence(lent_home: LentHome) -> None:
    lent_home.configure()
    for words in (
        ("create", "--scope", "root"),
        ("create", "--scope", ""),
        ("create", "--expires-days", "99999"),
        ("create", "--expires-days", "0"),
        ("revoke", "nobodys"),
    ):
        done = lent_home.ctl("key", *words)
        assert done.returncode != 0, words
        assert "Traceback" not in done.stderr, words
        assert done.stderr.strip(), words
    assert lent_home.ctl("key", "list").stdout.strip() == "No keys."


@pytest.mark.sandbox
def test_a_tool_with_network_does_not_get_in_without_a_key(keyless: Home) -> None:
    sandboxed = ("bwrap", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc")
    status, told = ask(keyless, NOWHERE, *sandboxed)
    assert (status, "PID namespace" in told) == (401, True)
    assert ask(keyless, "/health", *sandboxed)[0] != 401
    assert ask(keyless, NOWHERE)[0] == 404


OWN_PAGE = {"X_Clawd_Page": "1", "Sec_Fetch_Site": "same-origin"}


def as_page(home: Home, *before: str, **headers: str) -> tuple[int, str]:
    """Read the log as the page does, or almost."""
    named: dict[str, Any] = OWN_PAGE | headers
    return ask(home, "/methods/tail_log", *before, method="POST", **named)


def test_the_gateways_own_page_may_what_a_terminal_may_and_nothing_else_may(
    keyless: Home,
) -> None:
    assert as_page(keyless)[0] == 200
    for headers in ({"X_Clawd_Page": "0"}, {"Sec_Fetch_Site": "none"}):
        status, told = as_page(keyless, **headers)
        assert (status, "scope admin" in told) == (403, True), headers
    for site in ("same-site", "cross-site"):
        assert as_page(keyless, Sec_Fetch_Site=site)[0] == 403


@pytest.mark.sandbox
def test_a_sandboxed_program_that_calls_itself_the_page_does_not_get_in(keyless: Home) -> None:
    sandboxed = ("bwrap", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc")
    status, told = as_page(keyless, *sandboxed)
    assert (status, "PID namespace" in told) == (401, True)


def test_a_page_that_is_switched_off_is_none(home: Home) -> None:
    home.configure(tables=over_http("page = false"))
    home.start()
    assert as_page(home)[0] == 403
    assert ask(home, "/", Accept="text/html") == (200, "Ollama is running")
    assert ask(home, "/page/icon.svg")[0] == 404


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start processes of other users")
def test_another_user_needs_a_key(keyless: Home) -> None:
    status, told = ask(keyless, NOWHERE, uid=70_011)
    assert (status, "not to uid 70011" in told) == (401, True)


def test_a_reload_says_that_a_restart_is_needed(keyless: Home) -> None:
    keyless.configure(tables=over_http("max_connections = 7"))
    with connect(keyless.path / "run" / "clawd.sock") as client:
        told = client.call(Reload())
    assert "a restart is needed for: channels" in told.message


def refused(home: Home, *lines: str) -> str:
    """Try to start the daemon; return what it says of why it does not."""
    before = len(home.log())
    home.configure(tables="\n".join(["[channels.http]", "enabled = true", *lines]))
    home.spawn()
    assert home.daemon is not None
    assert home.daemon.wait(timeout=60) not in {0, -9}
    told = home.log()[before:]
    assert "Traceback" not in told
    assert not list(home.path.rglob("clawd.sock"))
    return told


def test_other_machines_are_not_listened_to_without_tls_or_a_key(home: Home) -> None:
    home.configure(tables=over_http())
    home.start()
    path = "/approvals/none"
    assert ask(home, path, method="POST")[0] == 403  # let in without a key, but no admin
    key = home.ctl("key", "create").stdout.strip()
    assert ask(home, path, method="POST", x_api_key=key)[0] == 403
    admin = home.ctl("key", "create", "--scope", "tools,admin").stdout.strip()
    assert ask(home, path, method="POST", x_api_key=admin)[0] in {400, 404}
    if os.getuid() == 0:
        assert ask(home, NOWHERE, uid=70_011)[0] == 401
        assert ask(home, NOWHERE, uid=70_011, Authorization=f"Bearer {key}")[0] == 404
    home.close()
    told = refused(home, 'host = "0.0.0.0"', "port = 0")
    assert "insecure_bind" in told
    home.configure(tables=over_http('host = "0.0.0.0"', "insecure_bind = true"))
    home.start()
    assert gateway(home).startswith("http://0.0.0.0:")
    assert ask(home, NOWHERE, Authorization=f"Bearer {key}")[0] == 404
    # However it listens, names are judged.
    assert ask(home, NOWHERE, Host="evil.example", Authorization=f"Bearer {key}")[0] == 403
    assert ask(home, NOWHERE, Host="0.0.0.0", Authorization=f"Bearer {key}")[0] == 403
    assert "without TLS" in home.log()
    for each in (key, admin):
        assert home.ctl("key", "revoke", each.split("_")[1]).returncode == 0
    assert ask(home, NOWHERE)[0] == 401
    home.close()
    told = refused(home, 'host = "0.0.0.0"', "insecure_bind = true", "port = 0")
    assert "there is no key in force" in told
    assert "clawctl key create" in told
    # That the last key was taken away lets nobody in again.
    home.configure(tables=over_http())
    home.start()
    assert ask(home, NOWHERE)[0] == 401


def test_localhost_listens_on_both_families(home: Home) -> None:
    home.configure(tables=over_http('host = "localhost"'))
    home.start()
    addresses = gateway(home).split(", ")
    loopback = {info[4][0] for info in socket.getaddrinfo("localhost", 0)}
    assert len({address.rpartition(":")[2] for address in addresses}) == 1
    assert len(addresses) <= len(loopback)
    for address in addresses:
        host = address.removeprefix("http://").rpartition(":")[0].strip("[]")
        with socket.create_connection((host, port_of(home)), timeout=60) as made:
            name = f"[{host}]" if ":" in host else host
            made.sendall(f"GET {NOWHERE} HTTP/1.0\r\nHost: {name}\r\n\r\n".encode())
            # The test is no descendant of the daemon, and the owner's: it is let in.
            assert b" 404 " in made.recv(100)


def test_tls_is_spoken_from_1_2_up(home: Home, tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    home.configure(tables=over_http(f'tls_cert = "{cert}"', f'tls_key = "{key}"'))
    home.start()
    assert gateway(home).startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(cert))

    def first_line(context: ssl.SSLContext) -> bytes:
        plain = socket.create_connection(("127.0.0.1", port_of(home)), timeout=60)
        with plain, context.wrap_socket(plain, server_hostname="localhost") as made:
            made.sendall(f"GET {NOWHERE} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            return made.recv(100)

    assert b" 404 " in first_line(context)
    old = ssl.create_default_context(cafile=str(cert))
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1_1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        first_line(old)
    with socket.create_connection(("127.0.0.1", port_of(home)), timeout=60) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in plain.recv(100)


def test_a_daemon_without_gateway_loads_nothing_of_it(home: Home) -> None:
    home.configure()
    code = """
import asyncio, os, sys
from clawd.config.load import load
from clawd.security.redact import Redactor
from clawd.service import lifecycle
from clawd.service.build import Daemon
from clawd.service.systemd import Systemd

async def main():
    daemon = Daemon(load(None, os.environ), os.environ)
    await daemon.open(Redactor([], b"k" * 32))
    assert await lifecycle._gateway(daemon, daemon.peers, Systemd()) is None
    await daemon.close()

asyncio.run(main())
print(sorted(n for n in sys.modules if n.startswith(("aiohttp.web_", "clawd.channels.http."))))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=home.environ,
        cwd=home.workspace,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]", done.stderr
