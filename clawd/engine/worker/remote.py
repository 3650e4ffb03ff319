"""Devices of other machines: llama.cpp's RPC servers, which a model's layers are spread over too.

The binding knows nothing of them. A llama.cpp built with GGML_RPC names the way in by its registry
of backends (ggml-backend.h, ggml-rpc.h); any other build has none, which is an error here.
"""

import ctypes
import socket
from collections.abc import Callable, Sequence
from typing import Any

from clawd.engine.worker.files import LoadError

CONNECT_LIMIT_S = 5.0

_ADD_SERVER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)


def add_rpc_servers(library: Any, servers: Sequence[str]) -> None:
    """Make the devices of RPC servers known to llama.cpp, before a model is loaded.

    Args:
        library: the binding's low-level module.
        servers: `host:port` each; none changes nothing.

    Raises:
        LoadError: this build cannot, or a server does not answer.
    """
    if not servers:
        return
    add, register = _entry_points(library, servers)
    for server in servers:
        _check_reachable(server)
        devices = add(server.encode())
        if not devices:
            raise LoadError(f"the RPC server {server} offers no device")
        register(devices)


def _entry_points(
    library: Any, servers: Sequence[str]
) -> tuple[Callable[[bytes], int | None], Callable[[int], None]]:
    refusal = LoadError(
        f"rpc_servers ({', '.join(servers)}) cannot be used: this build of llama.cpp has no RPC. "
        'Install llama-cpp-python built with CMAKE_ARGS="-DGGML_RPC=on", or take rpc_servers '
        "out of the config"
    )
    if not library.llama_supports_rpc():
        raise refusal
    name, pointer = ctypes.c_char_p, ctypes.c_void_p
    try:
        by_name = _function(library, "ggml_backend_reg_by_name", [name], pointer)
        lookup = _function(library, "ggml_backend_reg_get_proc_address", [pointer, name], pointer)
        register = _function(library, "ggml_backend_register", [pointer], None)
    except AttributeError as error:
        raise refusal from error
    address = lookup(by_name(b"RPC"), b"ggml_backend_rpc_add_server")
    if not address:
        raise refusal
    return _ADD_SERVER(address), register


def _function(library: Any, name: str, arguments: list[Any], result: Any) -> Any:
    """Return a function of the library, or of one that it was linked with."""
    return library.ctypes_function(name, arguments, result)(lambda: None)


def _check_reachable(server: str) -> None:
    """Say what is wrong before llama.cpp, which ends the process when there is no server."""
    host, _, port = server.rpartition(":")
    try:
        # llama.cpp's own connection is IPv4 too.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_LIMIT_S)
            connection.connect((host, int(port)))
    except (OSError, ValueError) as error:
        raise LoadError(
            f"the RPC server {server} cannot be reached: {error}. Start rpc-server there, or take "
            "it out of rpc_servers"
        ) from None
