"""Where the gateway listens and where it refuses to, its port at several addresses, and TLS."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.channels.http import server
from clawd.config.sections import HttpSection
from clawd.errors import ClawError
from tests.support.rows import each_row
from tests.support.tls import self_signed

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


class Neighbour:
    """Another program, which takes at the second address what was just had at the first."""

    def __init__(self, stack: contextlib.ExitStack, *, times: int) -> None:
        self._bound = server._bound
        self._stack = stack
        self._left = times

    def __call__(self, address: str, port: int) -> socket.socket:
        made = self._bound(address, port)
        if address == FIRST and self._left:
            self._left -= 1
            with contextlib.suppress(OSError):  # a third program was quicker, which does as well
                self._stack.enter_context(socket.create_server((SECOND, made.getsockname()[1])))
        return made


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


def test_a_port_that_is_free_at_one_address_alone_is_not_the_one_that_is_chosen(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_bound", Neighbour(stack, times=3))
    first, second = map(stack.enter_context, server.bind([FIRST, SECOND], 0))
    assert first.getsockname()[1] == second.getsockname()[1]


def test_a_port_that_was_asked_for_is_refused_where_it_is_taken(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Held, and not listened at: nobody else is given it, and the gateway may have it.
    held = stack.enter_context(socket.socket())
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((FIRST, 0))
    port = held.getsockname()[1]
    monkeypatch.setattr(server, "_bound", Neighbour(stack, times=1))
    with pytest.raises(ClawError, match=f"cannot listen on {SECOND} port {port}"):
        server.bind([FIRST, SECOND], port)


def test_a_choice_that_never_comes_to_an_end_is_given_up(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_bound", Neighbour(stack, times=1000))
    with pytest.raises(ClawError, match="cannot listen on"):
        server.bind([FIRST, SECOND], 0)


@each_row("host", ["0.0.0.0", "::", "192.0.2.7"])
async def test_other_machines_are_not_listened_to_without_a_key_and_tls(host: str) -> None:
    addresses = await server.addresses_of(host)
    bare = HttpSection(enabled=True, host=host, insecure_bind=True)
    with pytest.raises(ClawError, match="there is no key in force") as caught:
        server.check_exposure(bare, addresses, keys=0)
    assert "clawctl key create" in caught.value.hint
    server.check_exposure(bare, addresses, keys=1)
    with pytest.raises(ClawError, match="TLS is not set up") as caught:
        server.check_exposure(HttpSection(enabled=True, host=host), addresses, keys=1)
    assert "insecure_bind" in caught.value.hint


async def test_a_name_that_is_nowhere_is_refused() -> None:
    with pytest.raises(ClawError, match="does not resolve"):
        await server.addresses_of("no-such-name.invalid")


def test_a_port_that_is_taken_says_how_to_find_by_whom(stack: contextlib.ExitStack) -> None:
    other = stack.enter_context(socket.create_server((FIRST, 0)))
    port = other.getsockname()[1]
    with pytest.raises(ClawError, match=f"{FIRST} port {port}") as caught:
        server.bind([FIRST], port)
    assert "ss -ltnp" in caught.value.hint


def test_files_that_are_no_certificate_are_refused(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    (tmp_path / "other").mkdir()
    _, foreign = self_signed(tmp_path / "other")

    def told(cert: Path, key: str = "") -> str:
        section = HttpSection(enabled=True, tls_cert=str(cert), tls_key=key)
        with pytest.raises(ClawError) as caught:
            server.tls_of(section)
        return f"{caught.value.message} {caught.value.hint}"

    assert "cannot be used" in told(tmp_path / "none.pem")
    assert "belongs to the certificate" in told(cert, str(foreign))
    key.chmod(0o644)
    assert f"chmod o= {key}" in told(cert, str(key))
