"""Who is at the other end of a TCP connection over loopback: the kernel's tables, made a principal.

TCP has no peer credentials. The kernel says of a connection which user made the other end
and its inode; the processes that hold that inode are found by their descriptors. All of them are
judged as a peer of the Unix socket is: none may live in a tool's sandbox. Nor may filters of system
calls hold one that do not hold the daemon: a tool behind Landlock is known by them alone. What
cannot be found out is a no.
"""

import ipaddress
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from clawd.errors import ForbiddenError
from clawd.security.peer import PeerPolicy, has_ended, refuse_sandboxed
from clawd.security.principal import Principal
from clawd.security.socket_diag import Address as Address
from clawd.security.socket_diag import Row, rows_of

_PROC = Path("/proc")
_WALKS = 3
_TABLES = ("tcp", "tcp6")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns of /proc/net/tcp


def identify_tcp(peer: Address, ours: Address, policy: PeerPolicy) -> Principal:
    """Return who made a connection from `peer` to `ours`, always in role user; blocks.

    Raises:
        ForbiddenError: it is not the owner or root, it is the daemon itself or a tool's sandbox, or
            nobody can tell.
    """
    (found,) = identify_all([(peer, ours)], policy)
    if isinstance(found, ForbiddenError):
        raise found
    return found


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


class _GoneError(ForbiddenError):
    """Whoever held a connection does not any more, or nobody was seen to hold it."""


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
    # Whoever is refused for what it is has the last word, not one that is gone.
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
