"""What the kernel says of single connections: real sockets; it agrees with the kernel's table."""

import os
import socket
from collections.abc import Iterator

import pytest

from clawd.security.socket_diag import rows_of
from clawd.security.tcp_peer import _found, _table
from tests.support.rows import each_row


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
