"""The port of the gateway, where it listens at several addresses."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from clawd.channels.http import binding
from clawd.errors import ClawError

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


class Neighbour:
    """Another program, which takes at the second address what was just had at the first."""

    def __init__(self, stack: contextlib.ExitStack, *, times: int) -> None:
        self._bound = binding._bound
        self._stack = stack
        self._left = times

    def __call__(self, address: str, port: int) -> socket.socket:
        made = self._bound(address, port)
        if address == FIRST and self._left:
            self._left -= 1
            self._stack.enter_context(socket.create_server((SECOND, made.getsockname()[1])))
        return made


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


def test_a_port_that_is_free_at_one_address_alone_is_not_the_one_that_is_chosen(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "_bound", Neighbour(stack, times=3))
    first, second = map(stack.enter_context, binding.bind([FIRST, SECOND], 0))
    assert first.getsockname()[1] == second.getsockname()[1]


def test_a_port_that_was_asked_for_is_refused_where_it_is_taken(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Held, and not listened at: nobody else is given it, and the gateway may have it.
    held = stack.enter_context(socket.socket())
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((FIRST, 0))
    port = held.getsockname()[1]
    monkeypatch.setattr(binding, "_bound", Neighbour(stack, times=1))
    with pytest.raises(ClawError, match=f"cannot listen on {SECOND} port {port}"):
        binding.bind([FIRST, SECOND], port)


def test_a_choice_that_never_comes_to_an_end_is_given_up(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "_bound", Neighbour(stack, times=1000))
    with pytest.raises(ClawError, match="cannot listen on"):
        binding.bind([FIRST, SECOND], 0)
