"""RPC servers: what is told to a build of llama.cpp that can, and the refusal of all others."""

import ctypes
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clawd.engine.worker.files import LoadError, add_rpc_servers
from tests.support.rows import each_row

_ADD = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
REGISTRY, DEVICES = 11, 22


class FakeLibrary:
    """The binding over a llama.cpp with or without RPC."""

    def __init__(self, *, has_rpc: bool = True, has_entry: bool = True, devices: int = DEVICES):
        self.has_rpc = has_rpc
        self.added: list[bytes] = []
        self.registered: list[int] = []
        self._devices = devices
        self._add = _ADD(self._take)
        entry = ctypes.cast(self._add, ctypes.c_void_p).value if has_entry else None
        self.functions: dict[str, Callable[..., Any]] = {
            "ggml_backend_reg_by_name": lambda name: {b"RPC": REGISTRY}[name],
            "ggml_backend_reg_get_proc_address": lambda registry, name: (
                entry if (registry, name) == (REGISTRY, b"ggml_backend_rpc_add_server") else None
            ),
            "ggml_backend_register": self.registered.append,
        }

    def llama_supports_rpc(self) -> bool:
        return self.has_rpc

    def ctypes_function(
        self, name: str, _arguments: list[Any], _result: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        if name not in self.functions:
            raise AttributeError(name)
        return lambda _stub: self.functions[name]

    def _take(self, server: bytes) -> int:
        self.added.append(server)
        return self._devices


@pytest.fixture
def server() -> Iterator[str]:
    """Something that listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_no_servers_ask_nothing_of_the_build() -> None:
    library = FakeLibrary(has_rpc=False)
    add_rpc_servers(library, ())
    assert library.registered == []


def test_each_server_that_answers_is_added_and_registered(server: str) -> None:
    library = FakeLibrary()
    add_rpc_servers(library, (server,))
    assert library.added == [server.encode()]
    assert library.registered == [DEVICES]


def _without(name: str) -> FakeLibrary:
    library = FakeLibrary()
    del library.functions[name]
    return library


@each_row(
    "library",
    [
        FakeLibrary(has_rpc=False),
        FakeLibrary(has_entry=False),
        _without("ggml_backend_reg_by_name"),
        _without("ggml_backend_register"),
    ],
    fresh=["server"],
)
def test_a_build_without_rpc_is_refused_with_what_to_do(library: FakeLibrary, server: str) -> None:
    with pytest.raises(LoadError, match="has no RPC") as caught:
        add_rpc_servers(library, (server,))
    assert server in caught.value.message
    assert "DGGML_RPC=on" in caught.value.message
    assert library.added == []


def test_a_server_that_is_not_there_is_named_and_llama_cpp_is_not_asked() -> None:
    library = FakeLibrary()
    with socket.socket() as silent:
        # Bound and not listening: nobody answers there, and nobody else can take it.
        silent.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(LoadError, match=f"{gone} cannot be reached: .*refused"):
            add_rpc_servers(library, (gone,))
    assert library.added == []


def test_a_server_without_devices_is_named(server: str) -> None:
    library = FakeLibrary(devices=0)
    with pytest.raises(LoadError, match=f"{server} offers no device"):
        add_rpc_servers(library, (server,))
    assert library.registered == []
