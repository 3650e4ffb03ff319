"""Who is at the other end of a TCP connection over loopback: the kernel's tables, made a principal.

TCP has no peer credentials. The kernel's table of connections says which user made the other end
and its inode; the processes that hold that inode are found by their descriptors. All of them are
judged as a peer of the Unix socket is: none may live in a tool's sandbox. What cannot be found out
is a no.
"""

import ipaddress
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from clawd.errors import ForbiddenError
from clawd.security.peer import PeerPolicy, has_ended, refuse_sandboxed
from clawd.security.principal import Principal

Address = tuple[str, int]

_PROC = Path("/proc")
_TABLES = ("tcp", "tcp6")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns of /proc/net/tcp


def identify_tcp(peer: Address, ours: Address, policy: PeerPolicy) -> Principal:
    """Return who made a connection from `peer` to `ours`, always in role user; blocks.

    Raises:
        ForbiddenError: it is not the owner or root, it is the daemon itself or a tool's sandbox, or
            nobody can tell.
    """
    try:
        uid, inode = _row(peer, ours)
        if uid not in {0, policy.owner_uid}:
            raise ForbiddenError(f"this daemon belongs to uid {policy.owner_uid}, not to uid {uid}")
        holders = list(_holders(inode))
        if not holders:
            raise ForbiddenError("no process that holds the connection can be seen")
        for pid in holders:
            _judge(pid, inode, policy)
        gid = _ids(holders[0], "Gid")[0]
    except (OSError, ValueError, LookupError) as error:
        raise ForbiddenError(f"nobody can tell who the peer is: {error}") from error
    return Principal(uid=uid, gid=gid, pid=holders[0])


def _row(peer: Address, ours: Address) -> tuple[int, int]:
    """Return uid and inode of the other end."""
    pairs = {(_hex(peer, wide=wide), _hex(ours, wide=wide)) for wide in (False, True)}
    found: list[tuple[int, int]] = []
    for name in _TABLES:
        table = _PROC / "self" / "net" / name
        if not table.exists():
            continue  # a machine without IPv6
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if (words[_LOCAL], words[_REMOTE]) in pairs:
                found.append((int(words[_UID]), int(words[_INODE])))
    # Without an inode nobody holds it any more, and the uid is 0, which is not to mean root.
    if len(found) != 1 or found[0][1] == 0:
        raise ForbiddenError("the connection is not in the kernel's table")
    return found[0]


def _hex(address: Address, *, wide: bool) -> str:
    """Return an address as the tables write it: words in the machine's order, and the port."""
    found: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address[0])
    if wide and found.version == 4:
        found = ipaddress.IPv6Address(f"::ffff:{found}")
    packed = found.packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{text}:{address[1]:04X}"


def _holders(inode: int) -> Iterator[int]:
    for folder in _PROC.iterdir():
        if folder.name.isdecimal() and _holds(int(folder.name), inode):
            yield int(folder.name)


def _holds(pid: int, inode: int) -> bool:
    wanted = f"socket:[{inode}]"
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - over every process: a Path for each is too slow
    except OSError:
        return False  # it is gone, or not ours to look into
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") == wanted:  # noqa: PTH115 - see above
                return True
        except OSError:
            continue
    return False


def _judge(pid: int, inode: int, policy: PeerPolicy) -> None:
    if pid == os.getpid():
        raise ForbiddenError("the daemon does not talk to itself: a tool of its would be asking")
    pidfd = os.pidfd_open(pid)
    try:
        refuse_sandboxed(pid, pidfd, policy)
        if not set(_ids(pid, "Uid")) <= {0, policy.owner_uid}:
            raise ForbiddenError(f"process {pid} is another user's")
        if not _holds(pid, inode) or has_ended(pidfd):
            raise ForbiddenError("the peer ended before anybody could tell who it is")
    finally:
        os.close(pidfd)


def _ids(pid: int, name: str) -> tuple[int, ...]:
    """Return the real, effective, saved and file system id of a process."""
    status = (_PROC / str(pid) / "status").read_text("utf-8", "replace")
    line = next((line for line in status.splitlines() if line.startswith(f"{name}:")), "")
    ids = tuple(map(int, line.split()[1:]))
    if not ids:
        raise ValueError(f"process {pid} has no {name}")
    return ids
