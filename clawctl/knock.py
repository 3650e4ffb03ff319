"""Whether somebody listens at an address of the HTTP gateway. Nothing is sent."""

import ipaddress
import socket
from urllib.parse import urlsplit

TIMEOUT_S = 2.0


def is_answered(address: str) -> bool:
    """Say whether a connection to an address such as http://127.0.0.1:8686 is taken."""
    split = urlsplit(address)
    host = split.hostname or ""
    # Who listens at all addresses listens at this one.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared only
    try:
        with socket.create_connection((host, split.port or 0), timeout=TIMEOUT_S):
            return True
    except OSError:
        return False


def is_loopback(address: str) -> bool:
    """Say whether an address can be reached from this machine alone; a name counts as no."""
    try:
        return ipaddress.ip_address(urlsplit(address).hostname or "").is_loopback
    except ValueError:
        return False
