"""Who is at the other end of a Unix socket, or of TCP over loopback, by what the kernel says of it.

A process in a tool's sandbox must never be let in, because it could approve itself. It is told
by its PID namespace, which it cannot leave, and by its cgroup; never by its parent, which it
can change, nor by its mount namespace, in which a hardened unit differs from its clients.
"""

import errno
import grp
import ipaddress
import os
import pwd
import select
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

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
    """Return whether a process is gone; then what was read of its pid may be another's."""
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


# Asks the kernel for single TCP connections (NETLINK_SOCK_DIAG, linux/inet_diag.h).
#
# The table /proc/net/tcp says the same, but the kernel walks through all of its buckets to write
# it: 35 ms on a machine with much memory, where this takes 0.1 ms.

Address = tuple[str, int]
Row = tuple[int, int]
"""The user who made a socket, and its inode; 0 where no process has it any more."""

_SOCK_DIAG = 4  # the netlink family
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST = 1  # NLM_F_REQUEST
_EVERY_STATE = 0xFFFF_FFFF
_NO_COOKIE = (0xFFFF_FFFF, 0xFFFF_FFFF)
_ANSWER_BYTES = 8_192
_LIMIT_S = 1.0
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, sender
_ASKED = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PORTS = struct.Struct(">HH")
_REST = struct.Struct("=III")  # interface, cookie
_TOLD = struct.Struct("=BBBB4s16s16s12sIIIII")  # struct inet_diag_msg


def rows_of(connections: Sequence[tuple[Address, Address]]) -> list[Row | None]:
    """Return the row of each connection as seen from its first address, None for not found; blocks.

    A kernel that does not answer such questions finds none.
    """
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(_LIMIT_S)
            return [
                _row(kernel, number, own, other)
                for number, (own, other) in enumerate(connections, start=1)
            ]
    except (OSError, ValueError, struct.error):
        return [None for _ in connections]


def _row(kernel: socket.socket, number: int, own: Address, other: Address) -> Row | None:
    addresses = [_plain(address) for address, _ in (own, other)]
    if addresses[0].version != addresses[1].version:
        return None
    family = socket.AF_INET if addresses[0].version == 4 else socket.AF_INET6
    ports = _PORTS.pack(own[1], other[1])
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _EVERY_STATE) + ports
    asked += b"".join(address.packed.ljust(16, b"\0") for address in addresses)
    asked += _REST.pack(0, *_NO_COOKIE)
    head = _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, number, 0)
    kernel.sendto(head + asked, (0, 0))
    answer, (sender, _) = kernel.recvfrom(_ANSWER_BYTES)
    _, kind, _, echoed, _ = _HEADER.unpack_from(answer)
    if (sender, echoed, kind) != (0, number, _BY_FAMILY):
        return None
    told = _TOLD.unpack_from(answer, _HEADER.size)
    # Where there is no such connection, the kernel tells of the socket that listens there.
    if told[4] != ports or [_read(told[0], packed) for packed in told[5:7]] != addresses:
        return None
    return told[-2], told[-1]


def _plain(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address; one of four that is written as one of six as itself."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _read(family: int, packed: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(packed[:4])
    return _plain(str(ipaddress.IPv6Address(packed)))


# Who is at the other end of a TCP connection over loopback: the kernel's tables, made a principal.
#
# TCP has no peer credentials. The kernel says of a connection which user made the other end and
# its inode; the processes that hold that inode are found by their descriptors. All of them are
# judged as a peer of the Unix socket is: none may live in a tool's sandbox. Nor may filters of
# system calls hold one that do not hold the daemon: a tool behind Landlock is known by them alone.
# What cannot be found out is a no.

_WALKS = 3
_TABLES = ("tcp", "tcp6")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns of /proc/net/tcp


def identify_all(
    connections: Sequence[tuple[Address, Address]], policy: PeerPolicy
) -> list[Principal | ForbiddenError]:
    """Return the same for many connections, in one walk over the machine's processes; blocks.

    Who held one and was gone when it was judged may have handed it on: then there is another walk.
    """
    found = _identified(connections, policy)
    for _ in range(_WALKS - 1):
        passed_on = [at for at, each in enumerate(found) if isinstance(each, _GoneError)]
        if not passed_on:
            break
        again = _identified([connections[at] for at in passed_on], policy)
        for at, each in zip(passed_on, again, strict=True):
            found[at] = each
    return found


def uid_of(peer: Address, ours: Address) -> int | None:
    """Return the user who holds the other end of a connection on this machine; blocks.

    None where no process of this machine does, or nobody can tell.
    """
    try:
        [row] = _rows([(peer, ours)])
    except (OSError, ValueError, LookupError):
        return None
    return row[0] if row is not None and row[1] else None


class _GoneError(ForbiddenError):
    """The process that held a connection does not any more, or none was seen to."""


def _identified(
    connections: Sequence[tuple[Address, Address]], policy: PeerPolicy
) -> list[Principal | ForbiddenError]:
    try:
        rows = _rows(connections)
        wanted = {row[1] for row in rows if row is not None and row[1]}
        holders = {pid: held for pid in _pids() if (held := _held(pid) & wanted)}
        judged = {pid: _judged(pid, policy) for pid in holders}
    except (OSError, ValueError, LookupError) as error:
        told = f"nobody can tell who the peer is: {error}"
        return [ForbiddenError(told) for _ in connections]
    found: list[Principal | ForbiddenError] = []
    for row in rows:
        of_it = {pid: judged[pid] for pid, held in holders.items() if row and row[1] in held}
        try:
            found.append(_principal(row, of_it, policy))
        except ForbiddenError as error:
            found.append(error)
    return found


def _rows(connections: Sequence[tuple[Address, Address]]) -> list[Row | None]:
    """Return the row of each connection's other end, None where the kernel knows none."""
    rows = rows_of(connections)
    if None not in rows:
        return rows
    table = _table()
    return [
        row or _found(table, peer, ours)
        for row, (peer, ours) in zip(rows, connections, strict=True)
    ]


def _principal(
    row: Row | None, holders: dict[int, "_Judged | ForbiddenError"], policy: PeerPolicy
) -> Principal:
    # Without an inode nobody holds it any more, and the uid is 0, which is not to mean root.
    if row is None or row[1] == 0:
        raise ForbiddenError("the connection is not in the kernel's table")
    uid, inode = row
    if uid not in {0, policy.owner_uid}:
        raise ForbiddenError(f"this daemon belongs to uid {policy.owner_uid}, not to uid {uid}")
    if not holders:
        raise _GoneError("no process that holds the connection can be seen")
    # A refusal for what a process is wins over one that is gone.
    for judged in sorted(holders.values(), key=lambda each: isinstance(each, _GoneError)):
        if isinstance(judged, ForbiddenError):
            raise judged
    for judged in holders.values():
        if isinstance(judged, _Judged) and inode not in judged.held:
            raise _GoneError("the peer ended before anybody could tell who it is")
    pid, first = next(iter(holders.items()))
    assert isinstance(first, _Judged)
    return Principal(uid=uid, gid=first.gid, pid=pid)


def _table() -> dict[tuple[str, str], Row]:
    """Return uid and inode of every connection by its two addresses, as the tables write them."""
    found: dict[tuple[str, str], Row] = {}
    for name in _TABLES:
        table = _PROC / "self" / "net" / name
        if not table.exists():
            continue  # a machine without IPv6
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            found[words[_LOCAL], words[_REMOTE]] = (int(words[_UID]), int(words[_INODE]))
    return found


def _found(table: dict[tuple[str, str], Row], peer: Address, ours: Address) -> Row | None:
    """Return the row of a connection's other end, if there is exactly one."""
    try:
        keys = {(_hex(peer, wide=wide), _hex(ours, wide=wide)) for wide in (False, True)}
    except ValueError:
        return None
    rows = [table[key] for key in keys if key in table]
    return rows[0] if len(rows) == 1 else None


def _hex(address: Address, *, wide: bool) -> str:
    """Return an address as the tables write it: words in the machine's order, and the port."""
    found: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address[0])
    if wide and found.version == 4:
        found = ipaddress.IPv6Address(f"::ffff:{found}")
    packed = found.packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{text}:{address[1]:04X}"


def _pids() -> Iterator[int]:
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            yield int(folder.name)


def _held(pid: int) -> set[int]:
    """Return the inodes of the sockets that a process holds; none where we may not look."""
    folder = f"/proc/{pid}/fd"
    held: set[int] = set()
    try:
        names = os.listdir(folder)  # noqa: PTH208 - over every process: a Path for each is too slow
    except OSError:
        return held
    for name in names:
        try:
            link = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - see above
        except OSError:
            continue
        if link.startswith("socket:["):
            held.add(int(link[8:-1]))
    return held


class _Judged(NamedTuple):
    """A process that may ask: its group, and what it held while it was judged."""

    gid: int
    held: set[int]


def _judged(pid: int, policy: PeerPolicy) -> _Judged | ForbiddenError:
    try:
        return _judge(pid, policy)
    except ForbiddenError as error:
        return error
    except (FileNotFoundError, ProcessLookupError) as error:
        return _GoneError(f"nobody can tell who the peer is: {error}")
    except (OSError, ValueError) as error:
        return ForbiddenError(f"nobody can tell who the peer is: {error}")


def _judge(pid: int, policy: PeerPolicy) -> _Judged:
    if pid == os.getpid():
        raise ForbiddenError("the daemon does not talk to itself: a tool of its would be asking")
    pidfd = os.pidfd_open(pid)
    try:
        refuse_sandboxed(pid, pidfd, policy)
        _refuse_filtered(pid)
        if not set(_ids(pid, "Uid")) <= {0, policy.owner_uid}:
            raise ForbiddenError(f"process {pid} is another user's")
        # Looked at again: between the walk and the pidfd the pid may have become another's.
        judged = _Judged(_ids(pid, "Gid")[0], _held(pid))
        if has_ended(pidfd):
            raise _GoneError("the peer ended before anybody could tell who it is")
    finally:
        os.close(pidfd)
    return judged


def _refuse_filtered(pid: int) -> None:
    """Refuse a process that more system call filters hold than this one: what a tool speaks by.

    The egress proxy holds the connections of sandboxed commands, and a tool behind Landlock has no
    namespace of its own to be known by; filters can neither be taken off nor kept from children.
    """
    if _numbers(pid, "Seccomp_filters") > _numbers("self", "Seccomp_filters"):
        raise ForbiddenError(
            f"process {pid} is held by the filters of a sandbox, and may not talk to the daemon "
            "without a key: it could be a tool"
        )


def _ids(pid: int, name: str) -> tuple[int, ...]:
    """Return the real, effective, saved and file system id of a process."""
    ids = _numbers(pid, name)
    if not ids:
        raise ValueError(f"process {pid} has no {name}")
    return ids


def _numbers(pid: int | str, name: str) -> tuple[int, ...]:
    """Return the numbers in a line of a process's status; none where the kernel has no such line.

    Kernels that do not count filters have no Landlock that would do for a sandbox, either.
    """
    status = (_PROC / str(pid) / "status").read_text("utf-8", "replace")
    line = next((line for line in status.splitlines() if line.startswith(f"{name}:")), "")
    return tuple(map(int, line.split()[1:]))
