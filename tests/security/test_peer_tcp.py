"""Who is at the other end of a TCP connection: real sockets, real processes, a real sandbox."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawd.errors import ForbiddenError
from clawd.security import peer
from clawd.security.peer import (
    Address,
    PeerPolicy,
    _found,
    _table,
    identify_all,
    principal_of,
    rows_of,
)
from clawd.security.principal import Principal
from tests.support.rows import each_row

LIMIT_S = 60.0
OWN = PeerPolicy(mode="user", owner_uid=os.getuid())
CLIENT = """
import os, socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])))
how = sys.argv[3]
if how == "half":
    made.shutdown(socket.SHUT_WR)
if how == "mapped":
    made.close()
    made = socket.socket(socket.AF_INET6)
    made.connect(("::ffff:127.0.0.1", int(sys.argv[2])))
print("connected", flush=True)
if how == "twice" and (second := os.fork()):
    print(second, flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    server = socket.socket(family)
    try:
        server.bind((request.param, 0))
    except OSError:
        server.close()
        pytest.skip("this machine has no such loopback address")
    server.listen()
    server.settimeout(LIMIT_S)
    yield server
    server.close()


@contextmanager
def client(
    listener: socket.socket, *before: str, how: str = "", uid: int | None = None
) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    host, port = listener.getsockname()[:2]
    python = "/usr/bin/python3" if before or uid else sys.executable
    process = subprocess.Popen(
        [*before, python, "-ISc", CLIENT, host, str(port), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=uid,
        group=uid,
        extra_groups=[] if uid else None,
        cwd="/",
    )
    try:
        connection, _ = listener.accept()
        if how == "mapped":
            connection.close()
            connection, _ = listener.accept()
        assert process.stdout is not None
        assert process.stdout.readline() == b"connected\n"
        with connection:
            yield connection, process
    finally:
        process.kill()
        process.communicate()


def who(connection: socket.socket, policy: PeerPolicy = OWN) -> Principal:
    peer, ours = connection.getpeername()[:2], connection.getsockname()[:2]
    return identified(peer, ours, policy)


def identified(peer: Address, ours: Address, policy: PeerPolicy) -> Principal:
    """The other end of one connection; ForbiddenError where it may not come in."""
    (found,) = identify_all([(peer, ours)], policy)
    if isinstance(found, ForbiddenError):
        raise found
    return found


@each_row("how", ["", "half"])
def test_a_program_of_the_owner_is_known_and_never_an_admin(
    listener: socket.socket, how: str
) -> None:
    with client(listener, how=how) as (connection, process):
        expected = Principal(uid=os.getuid(), gid=os.getgid(), pid=process.pid)
        assert who(connection) == expected
        assert not who(connection).is_admin


def test_an_address_of_six_that_stands_for_one_of_four_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT_S)
        with client(server, how="mapped") as (connection, process):
            assert who(connection).pid == process.pid


def test_the_daemon_itself_is_refused(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    with socket.create_connection((host, port)):
        connection, _ = listener.accept()
        with connection, pytest.raises(ForbiddenError, match="does not talk to itself"):
            who(connection)


def test_a_client_that_has_ended_is_nobody_and_not_root(listener: socket.socket) -> None:
    with client(listener) as (connection, process):
        process.kill()
        process.wait()
        with pytest.raises(ForbiddenError):
            who(connection, PeerPolicy(mode="user", owner_uid=0))


def test_one_that_held_a_connection_and_is_gone_when_it_is_judged_refuses_nobody(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a program that starts others holds its connections twice for a moment."""
    judged = peer._judged

    with client(listener, how="twice") as (connection, process):
        assert process.stdout is not None
        second = int(process.stdout.readline())

        def late(pid: int, policy: PeerPolicy) -> peer._Judged | ForbiddenError:
            if pid == second:
                ended = os.pidfd_open(second)
                os.kill(second, signal.SIGKILL)
                assert select.select([ended], [], [], LIMIT_S)[0]
                os.close(ended)
            return judged(pid, policy)

        monkeypatch.setattr(peer, "_judged", late)
        assert who(connection).pid == process.pid


def test_what_nobody_is_seen_to_hold_is_looked_for_again_and_then_refused(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []
    pids = peer._pids

    def counted() -> Iterator[int]:
        walks.append(1)
        return pids()

    monkeypatch.setattr(peer, "_pids", counted)
    monkeypatch.setattr(peer, "_held", lambda _pid: set())
    refused = pytest.raises(ForbiddenError, match="no process that holds")
    with client(listener) as (connection, _), refused:
        who(connection)
    assert len(walks) == 3


def test_many_connections_are_judged_in_one_walk_and_each_for_itself(
    listener: socket.socket,
) -> None:
    host, port = listener.getsockname()[:2]
    with socket.create_connection((host, port)):
        own, _ = listener.accept()
        with own, client(listener) as (first, one), client(listener) as (second, two):
            pairs = [(c.getpeername()[:2], c.getsockname()[:2]) for c in (first, own, second)]
            missing = (("127.0.0.1", 1), ("127.0.0.1", 2))
            found = identify_all([*pairs, missing], OWN)
    pids = [each.pid if isinstance(each, Principal) else 0 for each in found]
    assert pids == [one.pid, 0, two.pid, 0]


def test_a_connection_that_is_not_there_is_nobodys() -> None:
    for address in (("127.0.0.1", 1), ("::1", 1), ("10.0.0.1", 70_000), ("nonsense", 1)):
        with pytest.raises(ForbiddenError):
            identified(address, ("127.0.0.1", 2), OWN)


@pytest.mark.sandbox
def test_a_process_in_a_sandbox_with_network_is_refused(listener: socket.socket) -> None:
    bwrap = ("bwrap", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc")
    started = client(listener, *bwrap)
    refused = pytest.raises(ForbiddenError, match="PID namespace of its own")
    with started as (connection, _), refused:
        who(connection)


@pytest.mark.sandbox
def test_a_connection_that_a_sandbox_holds_too_is_refused(listener: socket.socket) -> None:
    """A program outside that hands its connection on vouches for nobody."""
    host, port = listener.getsockname()[:2]
    code = f"""
import socket, subprocess, sys
made = socket.create_connection(({host!r}, {port}))
inside = ["bwrap", "--unshare-pid", "--ro-bind", "/", "/", "/bin/sh", "-c", "echo in; exec cat"]
made.set_inheritable(True)
subprocess.run(inside, close_fds=False)
"""
    process = subprocess.Popen(
        ["/usr/bin/python3", "-ISc", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        connection, _ = listener.accept()
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        with connection, pytest.raises(ForbiddenError, match="PID namespace of its own"):
            who(connection)
    finally:
        process.communicate()


def test_a_process_in_the_cgroup_of_the_tools_is_refused(listener: socket.socket) -> None:
    own = Path("/proc/self/cgroup").read_text("utf-8").splitlines()[-1].split(":", 2)[-1]
    policy = PeerPolicy(mode="user", owner_uid=os.getuid(), tools_cgroup=own)
    refused = pytest.raises(ForbiddenError, match="tools' cgroup")
    with client(listener) as (connection, _), refused:
        who(connection, policy)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start processes of other users")
def test_another_user_of_the_machine_is_refused_and_root_is_not(listener: socket.socket) -> None:
    with client(listener, uid=70_011) as (connection, _):
        with pytest.raises(ForbiddenError, match="not to uid 70011"):
            who(connection)
        owner = PeerPolicy(mode="user", owner_uid=70_011)
        assert who(connection, owner).uid == 70_011
    with client(listener) as (connection, _):
        assert who(connection, PeerPolicy(mode="user", owner_uid=70_011)).uid == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start processes of other users")
def test_a_connection_of_the_owner_in_the_hands_of_another_user_is_refused(
    listener: socket.socket,
) -> None:
    host, port = listener.getsockname()[:2]
    code = f"""
import os, socket, sys
made = socket.create_connection(({host!r}, {port}))
os.setuid(70011)
print("changed", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        ["/usr/bin/python3", "-ISc", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        connection, _ = listener.accept()
        assert process.stdout is not None
        assert process.stdout.readline() == b"changed\n"
        with connection, pytest.raises(ForbiddenError, match="another user's"):
            who(connection)
    finally:
        process.communicate()


def test_what_a_user_is_now_is_asked_of_the_machine() -> None:
    assert principal_of(os.getuid(), OWN).is_admin
    assert principal_of(0, OWN).is_admin
    nobody = 70_011 if os.getuid() != 70_011 else 70_012
    for mode in (OWN, PeerPolicy(mode="system", owner_uid=1, user_gid=70_001, admin_gid=70_002)):
        with pytest.raises(ForbiddenError):
            principal_of(nobody, mode)
    group = PeerPolicy(mode="system", owner_uid=70_099, user_gid=1, admin_gid=70_002)
    assert principal_of(1, group).role == "user"  # daemon:daemon of every Debian
    admins = PeerPolicy(mode="system", owner_uid=70_099, user_gid=70_002, admin_gid=1)
    assert principal_of(1, admins).role == "admin"


@pytest.mark.parametrize("role", ["egress_proxy", "egress_enter"])
def test_what_a_process_of_egress_holds_is_refused(listener: socket.socket, role: str) -> None:
    """It shares the namespaces of its user; its filters are what it cannot leave."""
    host, port = listener.getsockname()[:2]
    root = str(Path(__file__).parents[2])
    code = f"""
import socket, sys
sys.path.append({root!r})
from clawd.security.sandbox.{role} import raise_fence
made = socket.create_connection(({host!r}, {port}))
raise_fence()
print("fenced", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-E", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        connection, _ = listener.accept()
        assert process.stdout is not None
        assert process.stdout.readline() == b"fenced\n"
        with connection, pytest.raises(ForbiddenError, match="filters of a sandbox"):
            who(connection)
    finally:
        process.communicate()


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        server = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip("this machine has no such loopback address")
    with (
        server,
        socket.create_connection(server.getsockname()[:2]) as made,
        server.accept()[0] as taken,
    ):
        if rows_of([(made.getsockname()[:2], taken.getsockname()[:2])]) == [None]:
            pytest.skip("this kernel does not tell of single connections")
        yield made, taken


def test_it_says_what_the_table_says(pair: tuple[socket.socket, socket.socket]) -> None:
    made, taken = pair
    peer, ours = taken.getpeername()[:2], taken.getsockname()[:2]
    expected = (os.getuid(), os.fstat(made.fileno()).st_ino)
    assert rows_of([(peer, ours)]) == [expected] == [_found(_table(), peer, ours)]
    assert rows_of([(ours, peer)]) == [(os.getuid(), os.fstat(taken.fileno()).st_ino)]


def test_the_socket_that_listens_is_no_connection(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    _, taken = pair
    address, port = taken.getsockname()[:2]
    known = (taken.getpeername()[:2], (address, port))
    with socket.create_server((address, 0), family=taken.family) as other:
        listening = other.getsockname()[:2]
        assert rows_of([(listening, (address, port)), known])[0] is None
        assert rows_of([(listening, (address, port)), known])[1] is not None


def test_a_client_that_has_ended_has_no_inode(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    made, taken = pair
    peer, ours = taken.getpeername()[:2], taken.getsockname()[:2]
    made.close()
    (row,) = rows_of([(peer, ours)])
    assert row is None or row[1] == 0


@each_row("address", ["localhost", "", "127.0.0.1\0", "::1%lo"])
def test_what_is_no_address_is_not_found(address: str) -> None:
    assert rows_of([((address, 1), ("127.0.0.1", 2))]) == [None]


@each_row("port", [-1, 65_536])
def test_what_is_no_port_is_not_found(port: int) -> None:
    assert rows_of([(("127.0.0.1", port), ("127.0.0.1", 2))]) == [None]
