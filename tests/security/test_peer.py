"""Who is at the other end of the socket: real sockets, real processes, a real sandbox."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawd.errors import ForbiddenError
from clawd.security.peer import PeerPolicy, group_id, identify
from clawd.security.principal import Principal

LIMIT_S = 60.0
CLIENT = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
SYSTEM = PeerPolicy(mode="system", owner_uid=64_071, user_gid=70_001, admin_gid=70_002)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    (tmp_path / "s").chmod(0o666)
    server.listen()
    server.settimeout(LIMIT_S)
    yield server
    server.close()


@contextmanager
def client(
    listener: socket.socket,
    *before: str,
    groups: tuple[int, ...] | None = None,
    uid: int | None = None,
) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Start a client and yield its accepted connection and its process."""
    command = [*before, "/usr/bin/python3" if before else sys.executable, "-ISc", CLIENT]
    process = subprocess.Popen(
        [*command, listener.getsockname()], user=uid, group=uid, extra_groups=groups
    )
    try:
        connection, _ = listener.accept()
        with connection:
            yield connection, process
    finally:
        process.kill()
        process.wait()


def test_the_owner_is_an_admin(listener: socket.socket) -> None:
    policy = PeerPolicy(mode="user", owner_uid=os.getuid())
    with client(listener) as (connection, process):
        assert identify(connection, policy) == Principal(
            uid=os.getuid(), gid=os.getgid(), pid=process.pid, role="admin"
        )


def as_root() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can start processes of other users")


def reachable(listener: socket.socket) -> None:
    """Let other users through to the socket."""
    for folder in Path(listener.getsockname()).parents:
        if folder.owner() == "root" and folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o001)


def test_a_stranger_is_refused_in_user_mode(listener: socket.socket) -> None:
    as_root()
    reachable(listener)
    policy = PeerPolicy(mode="user", owner_uid=64_071)
    with (
        client(listener, "/usr/bin/env", uid=5001, groups=()) as (connection, _),
        pytest.raises(ForbiddenError, match="belongs to uid 64071, not to uid 5001"),
    ):
        identify(connection, policy)


@pytest.mark.parametrize(
    ("groups", "role"),
    [((70_001,), "user"), ((70_002,), "admin"), ((70_001, 70_002), "admin"), ((), None)],
)
def test_groups_make_the_role_in_system_mode(
    listener: socket.socket, groups: tuple[int, ...], role: str | None
) -> None:
    as_root()
    reachable(listener)
    with client(listener, "/usr/bin/env", uid=5001, groups=groups) as (connection, process):
        if role is None:
            with pytest.raises(ForbiddenError, match="in neither clawd-ctl nor clawd-admin"):
                identify(connection, SYSTEM)
        else:
            who = identify(connection, SYSTEM)
            assert (who.uid, who.pid, who.role) == (5001, process.pid, role)


def test_groups_mean_nothing_in_user_mode(listener: socket.socket) -> None:
    as_root()
    reachable(listener)
    policy = PeerPolicy(mode="user", owner_uid=64_071, user_gid=70_001, admin_gid=70_002)
    with (
        client(listener, "/usr/bin/env", uid=5001, groups=(70_002,)) as (connection, _),
        pytest.raises(ForbiddenError),
    ):
        identify(connection, policy)


@pytest.mark.sandbox
@pytest.mark.parametrize("as_uid", ["0", "1000"])
def test_a_process_in_a_sandbox_is_refused_whatever_it_calls_itself(
    listener: socket.socket, as_uid: str
) -> None:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("bubblewrap is not installed")
    words = [bwrap, "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all"]
    words += ["--uid", as_uid, "--gid", as_uid, "--die-with-parent"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("bubblewrap cannot make namespaces here")
    policy = PeerPolicy(mode="user", owner_uid=os.getuid())
    with (
        client(listener, *words) as (connection, _),
        pytest.raises(ForbiddenError, match="PID namespace of its own") as refused,
    ):
        identify(connection, policy)
    assert "A container is refused for the same reason" in refused.value.hint


def test_a_process_in_the_cgroup_of_the_tools_is_refused(listener: socket.socket) -> None:
    own = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()[-1].split(":", 2)[2]
    inside = PeerPolicy(mode="user", owner_uid=os.getuid(), tools_cgroup=own)
    elsewhere = PeerPolicy(
        mode="user", owner_uid=os.getuid(), tools_cgroup=own.rstrip("/") + "/clawd/tools"
    )
    with client(listener) as (connection, _):
        with pytest.raises(ForbiddenError, match="tools' cgroup"):
            identify(connection, inside)
        assert identify(connection, elsewhere).is_admin


def tools_folder() -> Path:
    """Make a cgroup below our own, or skip."""
    own = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    path = next((line[3:] for line in own if line.startswith("0::")), "")
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    place = next((words[1] for words in map(str.split, mounts) if words[2] == "cgroup2"), "")
    if not path or not place:
        pytest.skip("there is no cgroup2 here")
    folder = Path(place + path) / f"clawd-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    return folder


def test_a_child_that_was_moved_to_the_tools_cgroup_is_refused(listener: socket.socket) -> None:
    folder = tools_folder()
    try:
        with client(listener) as (connection, process):
            (folder / "cgroup.procs").write_text(str(process.pid), encoding="ascii")
            lines = Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8").splitlines()
            tools = next(line[3:] for line in lines if line.startswith("0::"))
            assert tools.endswith(folder.name)
            policy = PeerPolicy(mode="user", owner_uid=os.getuid(), tools_cgroup=tools)
            with pytest.raises(ForbiddenError, match="could approve its own calls"):
                identify(connection, policy)
    finally:
        folder.rmdir()


def test_a_peer_that_has_ended_is_refused(listener: socket.socket) -> None:
    policy = PeerPolicy(mode="user", owner_uid=os.getuid())
    with client(listener) as (connection, process):
        process.kill()
        process.wait()
        with pytest.raises(ForbiddenError):
            identify(connection, policy)


def test_something_that_is_no_unix_socket_is_refused() -> None:
    policy = PeerPolicy(mode="user", owner_uid=os.getuid())
    with socket.socket(socket.AF_INET) as connection, pytest.raises(ForbiddenError):
        identify(connection, policy)


def test_a_group_that_is_not_there_has_no_id() -> None:
    assert group_id("no-such-group-anywhere") is None
    assert group_id("root") == 0
