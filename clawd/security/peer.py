"""Who is at the other end of a Unix socket: the kernel's word, made a principal.

A process in a tool's sandbox must never be let in, because it could approve itself. It is told
by its PID namespace, which it cannot leave, and by its cgroup; never by its parent, which it
can change, nor by its mount namespace, in which a hardened unit differs from its clients.
"""

import errno
import grp
import os
import pwd
import select
import socket
import struct
from pathlib import Path
from typing import Literal

import msgspec

from clawd.errors import ForbiddenError
from clawd.security.principal import Principal, Role

USER_GROUP = "clawd-ctl"
ADMIN_GROUP = "clawd-admin"

_SO_PEERGROUPS = 59
_SO_PEERPIDFD = 77
_CREDENTIALS = struct.Struct("3i")
_GROUPS_BYTES = 1_024  # as much as getsockopt of Python takes: 256 groups
_PROC = Path("/proc")


class PeerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Who may talk to the daemon.

    Attributes:
        mode: `user`: the owner and root; `system`: members of the two groups as well.
        owner_uid: the owner of the home.
        user_gid: the group whose members are users; None where there is no such group.
        admin_gid: the group whose members are admins.
        tools_cgroup: the subtree of the tools (`/system.slice/clawd.service/tools`), or "".
    """

    mode: Literal["user", "system"]
    owner_uid: int
    user_gid: int | None = None
    admin_gid: int | None = None
    tools_cgroup: str = ""


def group_id(name: str) -> int | None:
    """Return the gid of a group, None when the machine has no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def identify(connection: socket.socket, policy: PeerPolicy) -> Principal:
    """Return who is at the other end of a connected Unix socket.

    Raises:
        ForbiddenError: it may not talk to this daemon, or nobody can tell who it is.
    """
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, gid = _CREDENTIALS.unpack(data)
        if pid <= 0:
            raise ForbiddenError("the peer lives outside this machine's process table")
        groups = {gid, *_groups_unless_sandboxed(connection, pid, policy)}
    except (OSError, ValueError, struct.error) as error:
        raise ForbiddenError(f"nobody can tell who the peer is: {error}") from error
    role = _role(uid, groups, policy)
    return Principal(uid=uid, gid=gid, pid=pid, role=role)


def principal_of(uid: int, policy: PeerPolicy) -> Principal:
    """Return who a user is to this daemon now, by the machine's user database; may block.

    Raises:
        ForbiddenError: the user may not talk to this daemon, or not any more.
    """
    gid, groups = uid, set[int]()
    try:
        entry = pwd.getpwuid(uid)
        gid, groups = entry.pw_gid, set(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except KeyError:
        pass  # a uid without a name, as in a container: it has no groups
    return Principal(uid=uid, gid=gid, pid=0, role=_role(uid, groups, policy))


def _role(uid: int, groups: set[int], policy: PeerPolicy) -> Role:
    if uid in {0, policy.owner_uid}:
        return "admin"
    if policy.mode == "system":
        if policy.admin_gid in groups:
            return "admin"
        if policy.user_gid in groups:
            return "user"
        raise ForbiddenError(
            f"uid {uid} is in neither {USER_GROUP} nor {ADMIN_GROUP}",
            hint=f"an admin runs: usermod -aG {USER_GROUP} <user>; then log in again",
        )
    raise ForbiddenError(f"this daemon belongs to uid {policy.owner_uid}, not to uid {uid}")


def _groups_unless_sandboxed(
    connection: socket.socket, pid: int, policy: PeerPolicy
) -> tuple[int, ...]:
    pidfd = _peer_pidfd(connection, pid)
    try:
        refuse_sandboxed(pid, pidfd, policy)
        groups = _groups(connection, pid)
        if has_ended(pidfd):
            # Its pid may be another's by now: what was read may be that one's.
            raise ForbiddenError("the peer ended before anybody could tell who it is")
        return groups
    finally:
        os.close(pidfd)


def _peer_pidfd(connection: socket.socket, pid: int) -> int:
    """Return a pidfd of the peer: race-free where the kernel has SO_PEERPIDFD (6.5)."""
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
        return int(struct.unpack("i", data)[0])
    except OSError:
        return os.pidfd_open(pid)


def refuse_sandboxed(pid: int, pidfd: int, policy: PeerPolicy) -> None:
    """Refuse a process that lives in a tool's sandbox; whether it `has_ended` is asked after it.

    Raises:
        ForbiddenError: it does.
        OSError: nobody can tell.
        ValueError: the same.
    """
    facts = _PROC / "self" / "fdinfo" / str(pidfd)
    depth = _namespace_depth(facts.read_text(encoding="ascii"))
    if depth > _namespace_depth((_PROC / "self" / "status").read_text(encoding="utf-8")):
        raise ForbiddenError(
            f"process {pid} lives in a PID namespace of its own, as in a tool's sandbox, and "
            "may not talk to the daemon: it could approve its own calls",
            hint="A container is refused for the same reason (flatpak, toolbox, docker): run "
            "clawctl outside of it.",
        )
    if policy.tools_cgroup:
        _refuse_cgroup((_PROC / str(pid) / "cgroup").read_text("utf-8"), policy.tools_cgroup)


def has_ended(pidfd: int) -> bool:
    """Tell whether a process is gone; then what was read of its pid may be another's."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _namespace_depth(facts: str) -> int:
    """Return how many PID namespaces deep a process is, from its `NSpid:` line.

    Raises:
        ValueError: there is no such line, or the process is gone.
    """
    for line in facts.splitlines():
        name, _, value = line.partition(":")
        if name == "NSpid":
            pids = value.split()
            if not pids or int(pids[0]) <= 0:
                raise ValueError("the peer's process is gone or out of sight")
            return len(pids)
    raise ValueError("the kernel does not say which PID namespace the peer is in")


def _refuse_cgroup(text: str, tools_cgroup: str) -> None:
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        if path == tools_cgroup or path.startswith(tools_cgroup.rstrip("/") + "/"):
            raise ForbiddenError(
                "a process in the tools' cgroup may not talk to the daemon: it could approve its "
                "own calls"
            )


def _groups(connection: socket.socket, pid: int) -> tuple[int, ...]:
    """Return the supplementary groups: those at connect time, of very many those of now."""
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        status = (_PROC / str(pid) / "status").read_text("utf-8", "replace")
        line = next(line for line in status.splitlines() if line.startswith("Groups:"))
        return tuple(map(int, line.split()[1:]))
    return struct.unpack(f"{len(data) // 4}I", data)
