"""Finds the daemon. What starts one is imported only when none answers: most commands need none.

The user's own daemon comes first, then the machine's. A user who is not let in to the machine's
gets one of their own, as if there were no other, and a note of it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from clawctl.client import DENIED, LOST, Client, connect_any, is_nobody, reason_of
from clawd.errors import ClawError, UnreachableError
from clawd.paths import SYSTEM_SOCKET, Layout, candidate_sockets, layout

if TYPE_CHECKING:
    from clawd.wire.daemon import OverrideLine

SHUT_OUT = (
    "● the machine's clawd is for members of group clawd-ctl (a user who just joined it logs in "
    "again); starting your own"
)

_TOP_LEVEL = frozenset({"CLAWD_WORKSPACE_DIR", "CLAWD_DEFAULT_PROVIDER", "CLAWD_DEFAULT_MODEL"})


def reach(
    explicit_socket: str | None,
    *,
    may_start: bool,
    environ: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> Client:
    """Connect to the daemon, starting the user's own when none is there and that is allowed.

    Args:
        explicit_socket: what --socket names.
        may_start: whether a daemon may be started.
        environ: of the process if None.
        limit_s: how long a daemon may take to greet; None for as long as a busy one needs.

    Raises:
        ClawError: no daemon answers, it refuses, or the one that was started died.
    """
    env = os.environ if environ is None else environ
    where = layout(env)
    sockets = candidate_sockets(explicit_socket, env)
    try:
        return connect_any(sockets, limit_s)
    except UnreachableError as error:
        shut_out = _is_shut_out(error, sockets)
        own = explicit_socket is None or Path(explicit_socket).absolute() == where.socket
        is_free = is_nobody(error) or shut_out or _is_ending(error, where)
        if not may_start or where.is_system or not own or not is_free:
            raise
        from clawctl import daemon

        if shut_out:
            from clawctl.render import note

            note(SHUT_OUT)
        return daemon.start(where, env)


def holder_of(lock: Path) -> int | None:
    """Return the pid of the process that holds a home's lock, 0 for one unknown, or None."""
    import fcntl

    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.read(descriptor, 32).decode(errors="replace").strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(descriptor)
    return None


def overrides(client: Client, environ: Mapping[str, str]) -> "tuple[OverrideLine, ...]":
    """Return which variables `CLAWD_SECTION__KEY` ask for what this daemon does not have."""
    variables = {
        name: value
        for name, value in environ.items()
        if name.startswith("CLAWD_") and ("__" in name or name in _TOP_LEVEL)
    }
    if not variables:
        return ()
    from clawd.wire.daemon import CompareEnvironment

    return client.call(CompareEnvironment(variables=variables)).items


def require_overrides(client: Client, environ: Mapping[str, str]) -> None:
    """Return when the daemon has all that the environment asks for.

    Raises:
        ClawError: it does not, so that what was asked for would not be in force.
    """
    found = overrides(client, environ)
    if not found:
        return
    first, pid = found[0], client.welcome.pid
    raise ClawError(
        f"the environment asks for what the running daemon (pid {pid}) does not have:\n"
        + "\n".join(f"  {override_text(each)}" for each in found),
        code="config",
        hint="A daemon keeps the environment it was started with. Start it anew with this one: "
        f"clawctl restart\nOr set it for good: clawctl config set {first.key} '{first.wanted}'\n"
        f"Or go on without it: unset {first.variable}",
    )


def override_text(line: "OverrideLine") -> str:
    """Return a sentence's part about one variable that a daemon does not have."""
    there = f"is {line.effective} there" if line.effective else "is not set there"
    return f"{line.variable} asks for {line.key} = {line.wanted}, which {there}"


def _is_ending(error: UnreachableError, where: Layout) -> bool:
    """Return whether the user's own daemon hung up without a word, as one does that just ends."""
    at = (error.data or {}).get("socket")
    return reason_of(error) == LOST and at == str(where.socket)


def _is_shut_out(error: UnreachableError, sockets: list[Path]) -> bool:
    """Return whether nobody is at the own socket and the machine's refuses this user."""
    at = (error.data or {}).get("socket")
    return len(sockets) > 1 and reason_of(error) == DENIED and at == str(SYSTEM_SOCKET)
