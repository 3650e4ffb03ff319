"""Asks the kernel for single TCP connections (NETLINK_SOCK_DIAG, linux/inet_diag.h).

The table /proc/net/tcp says the same, but the kernel walks through all of its buckets to write it:
35 ms on a machine with much memory, where this takes 0.1 ms.
"""

import ipaddress
import socket
import struct
from collections.abc import Sequence

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
