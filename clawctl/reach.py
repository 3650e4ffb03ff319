"""Finds the daemon. What starts one is imported only when none answers: most commands need none."""

import os
from collections.abc import Mapping
from pathlib import Path

from clawctl.client import ABSENT, REFUSED, Client, connect_any, reason_of
from clawd.errors import ClawError, UnreachableError
from clawd.paths import candidate_sockets, layout

LOG_BYTES = 10 * 1024 * 1024


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
        client = connect_any(candidate_sockets(explicit_socket, env))
    except UnreachableError as error:
        own = explicit_socket is None or Path(explicit_socket).absolute() == where.socket
        if not may_start or where.is_system or not own or not is_nobody(error):
            raise
        from clawctl import daemon

        return daemon.start(where, env)
    if client.path == where.socket and not where.is_system:
        rotate(where.log)
    return client


def is_nobody(error: ClawError) -> bool:
    """Tell whether an error says that no daemon is there, rather than one that does not serve."""
    return reason_of(error) in {ABSENT, REFUSED}


def rotate(log: Path) -> None:
    """Set a log over 10 MiB aside as `.1`. Its writer appends, so it may be cut under its hands."""
    try:
        if log.stat().st_size <= LOG_BYTES:
            return
        import shutil

        # What is written between the copy and the cut is lost; renaming would lose all the rest,
        # as a running daemon keeps its descriptor.
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        log.with_name(f"{log.name}.1").chmod(0o600)
        os.truncate(log, 0)
    except OSError:
        return
