"""The handler of each method of the control socket, by the method's name."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from clawd.channels.rpc.connection import Call
from clawd.service.build import Daemon
from clawd.service.handlers import (
    conversations,
    daemon,
    mcp,
    memory,
    models,
    policy,
    receipts,
    schedules,
    skills,
    sops,
    tools,
    turns,
)
from clawd.wire.methods import METHODS

RESOURCES = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        conversations,
        daemon,
        mcp,
        memory,
        models,
        policy,
        receipts,
        schedules,
        skills,
        sops,
        tools,
        turns,
    )
}

HANDLERS: dict[str, Callable[[Daemon, Any, Call], Awaitable[Any]]] = {
    name: vars(RESOURCES[kind.__module__.rpartition(".")[2]])[name]
    for name, kind in METHODS.items()
}
"""Functions of the daemon, a method's parameters and the request, which return its report."""


def handlers_of(daemon: Daemon) -> dict[str, Callable[[Any, Call], Awaitable[Any]]]:
    """Return the handlers of one daemon."""
    return {name: partial(handler, daemon) for name, handler in HANDLERS.items()}
