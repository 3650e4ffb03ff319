"""Finds the servers of models that run on this machine, by the ports that they usually have."""

import socket
import threading
import urllib.parse
from typing import Any

import msgspec

from clawd.errors import ClawError

PORTS = {11434: "Ollama", 1234: "LM Studio", 8080: "llama-server", 8000: "vLLM"}
LIMIT_S = 2.0
MAX_MODELS = 200
# What `owned_by` of /v1/models says of who answers.
_OWNERS = {"llamacpp": "llama-server", "vllm": "vLLM", "library": "Ollama"}


class FoundServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that answers; `url` as a config wants it, `models` as it calls them."""

    program: str
    url: str
    models: tuple[str, ...]


def find_servers(ports: dict[int, str] | None = None) -> list[FoundServer]:
    """Return the servers of this machine that list their models; takes LIMIT_S at the most."""
    found: dict[int, FoundServer] = {}
    wanted = PORTS if ports is None else ports

    def ask(port: int, program: str) -> None:
        if server := _server(port, program):
            found[port] = server

    threads = [
        threading.Thread(target=ask, args=pair, daemon=True, name=f"port-{pair[0]}")
        for pair in wanted.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    return [found[port] for port in wanted if port in found]


def answers(url: str, limit_s: float = LIMIT_S) -> bool:
    """Return whether somebody listens at an address."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        # What listens at all addresses listens at this one.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host := parts.hostname or "", host)  # noqa: S104
        with socket.create_connection((host, port), timeout=limit_s):
            return True
    except (OSError, ValueError):
        return False


def _server(port: int, program: str) -> FoundServer | None:
    from clawctl.web import Web  # loads what speaks TLS

    url = f"http://127.0.0.1:{port}/v1"
    if not answers(url, LIMIT_S / 4):
        return None
    try:
        reply = Web(timeout_s=LIMIT_S / 2).json(f"{url}/models")
    except ClawError:
        return None
    listed = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(listed, list):
        return None
    models = [each for each in listed if isinstance(each, dict) and _name(each)]
    owner = str(models[0].get("owned_by", "")) if models else ""
    return FoundServer(
        program=_OWNERS.get(owner, program),
        url=url,
        models=tuple(_name(each) for each in models[:MAX_MODELS]),
    )


def _name(model: dict[str, Any]) -> str:
    name = model.get("id")
    return name if isinstance(name, str) else ""
