"""Finds the daemon. What starts one is imported only when none answers: most commands need none."""

import os
from collections.abc import Mapping
from pathlib import Path

from clawctl.client import Client, connect_any, is_nobody
from clawd.errors import UnreachableError
from clawd.paths import candidate_sockets, layout


def reach(
    explicit_socket: str | None, *, may_start: bool, environ: Mapping[str, str] | None = None
) -> Client:
    """Connect to the daemon, starting the user's own when none is there and that is allowed.

    Raises:
        ClawError: no daemon answers, it refuses, or the one that was started died.
    """
    env = os.environ if environ is None else environ
    where = layout(env)
    try:
        return connect_any(candidate_sockets(explicit_socket, env))
    except UnreachableError as error:
        own = explicit_socket is None or Path(explicit_socket).absolute() == where.socket
        if not may_start or where.is_system or not own or not is_nobody(error):
            raise
        from clawctl import daemon

        return daemon.start(where, env)
