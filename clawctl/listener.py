"""Who listens at the other end of a socket: a daemon, or systemd for one that may have to start."""

import _socket
import contextlib
import sys
from pathlib import Path

# Longer than a busy machine lets a daemon wait that is well.
GREETING_LIMIT_S = 15.0
# With systemd: the config is checked, then the daemon starts, on a machine that is just booting.
ACTIVATION_LIMIT_S = 45.0
MANAGER = "systemd"
_CREDENTIALS_BYTES = 12


def greeting_limit_s(connection: _socket.socket) -> float:
    """Return how long to wait for the greeting on a connected socket."""
    return ACTIVATION_LIMIT_S if is_held_by_systemd(connection) else GREETING_LIMIT_S


def is_held_by_systemd(connection: _socket.socket) -> bool:
    """Tell whether a service manager made the listening socket; it says so by its credentials."""
    with contextlib.suppress(OSError):
        credentials = connection.getsockopt(
            _socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS_BYTES
        )
        pid = int.from_bytes(credentials[:4], sys.byteorder)
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == MANAGER
    return False
