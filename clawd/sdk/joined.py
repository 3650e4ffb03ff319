"""A session with a daemon that runs already: its prompt and its tools are that daemon's."""

import os
from pathlib import Path
from typing import Any, NoReturn

from typing_extensions import override

from clawd.errors import InvalidRequestError
from clawd.paths import candidate_sockets
from clawd.sdk.client import Client, connect_any
from clawd.sdk.plans import Backend, DaemonPlan
from clawd.sdk.wishes import Prompt
from clawd.tools.base import Tool
from clawd.wire.methods import Ping


class JoinedBackend(Backend):
    """A daemon that others started, and that stays when the session ends."""

    def __init__(self, plan: DaemonPlan) -> None:
        self._plan = plan

    @override
    async def open(self) -> Client:
        paths = _sockets(self._plan)
        client = Client(lambda: connect_any(paths))
        await client.call(Ping())
        return client

    @override
    async def adopt(self, prompt: Prompt, tools: tuple[Tool, ...], *, alone: bool) -> None:
        if tools or alone or prompt != Prompt():
            refuse_wish("its prompt and its tools")

    @override
    async def close(self) -> None:
        return

    @property
    @override
    def engine(self) -> Any:
        return refuse_wish("its engine")

    @property
    @override
    def provider(self) -> Any:
        return refuse_wish("its provider")


def refuse_wish(what: str) -> NoReturn:
    """Say that something of a daemon is not to be had from here.

    Raises:
        InvalidRequestError: always.
    """
    raise InvalidRequestError(
        f"this session joins a daemon, and {what} are that daemon's own",
        hint="Set them in the daemon's config, or use Session.local(): it holds a daemon of its "
        "own.",
    )


def _sockets(plan: DaemonPlan) -> list[Path]:
    environ = dict(os.environ)
    if plan.home is not None:
        environ["CLAWD_HOME"] = str(plan.home)
        environ.pop("CLAWD_SOCKET", None)
    return candidate_sockets(str(plan.socket) if plan.socket else None, environ)
