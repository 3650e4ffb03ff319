"""`clawctl estop`: the emergency stop. Works without a daemon, on the file that means it."""

import os
import pwd
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from clawctl.app import App, json_command
from clawctl.client import Client, is_nobody
from clawctl.daemon_finder import holder_of
from clawctl.render import emit, note
from clawctl.views import estop_line
from clawd.errors import ClawError, ForbiddenError, NotFoundError
from clawd.kernel.files import replace_file
from clawd.paths import Layout, expanded, layout
from clawd.wire.daemon import ClearEstop, EstopReport, EstopState, SetEstop

MAX_NOTE_BYTES = 4_096

_ANSWER_LIMIT_S = 2.0
"""So long a daemon may take to confirm a stop that its file has set already."""


_HELD = (
    "Every tool is stopped, and stays so until the daemon ends. Let that file be written "
    "(df, mount, dmesg), then set it again."
)
_NOT_STOPPED = "NOTHING WAS STOPPED. Kill the daemon, or create that file by other means."


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    by: str = ""
    at: str = ""


@click.command()
@click.option("--clear", "action", flag_value="clear", help="Allow tools again.")
@click.option("--status", "action", flag_value="status", help="Say whether it is set.")
@click.option("--reason", default="", metavar="TEXT", help="Why; shown to everybody who asks.")
@json_command(EstopReport)
def command(app: App, action: str | None, reason: str, *, as_json: bool) -> None:
    """Stop every tool at once: running ones are killed, no new one starts.

    Answers without tools still work. It stays set until `clawctl estop --clear`, also after a
    restart.
    """
    if action == "clear":
        report = _clear(app)
    elif action == "status":
        report = _status(app)
    else:
        report = _set(app, reason)
    emit(report, estop_line(report), as_json=as_json)


def _set(app: App, reason: str) -> EstopReport:
    where = _served_home(app)
    if where is None:
        return _set_by_call(app, reason)
    try:
        report = _write(where, reason)
    except OSError:
        return _set_by_call(app, reason)
    # The file is what stops; the daemon that answers only says that it has done so.
    try:
        with app.running_client(_ANSWER_LIMIT_S) as client:
            return client.call(SetEstop(reason=reason), limit_s=_ANSWER_LIMIT_S)
    except ClawError as error:
        note(f"{where.estop} was written; the daemon did not take the call ({error.message}).")
        return report


def _served_home(app: App) -> Layout | None:
    """Return the home if a daemon serves it; None where only a call can find out."""
    if app.socket or (os.environ.get("CLAWD_SOCKET") and not os.environ.get("CLAWD_HOME")):
        return None
    where = layout()
    return where if holder_of(where.lock) is not None else None


def _set_by_call(app: App, reason: str) -> EstopReport:
    home = ""
    try:
        with app.running_client() as client:
            home = client.welcome.home
            return client.call(SetEstop(reason=reason), limit_s=5)
    except ClawError as error:
        where = _home_of(app)
        if home and Path(home) != where.home:
            raise
        # A daemon that hangs or refuses must not keep anybody from stopping it: the file works
        # in every case in which we may write it.
        try:
            report = _write(where, reason)
        except OSError as problem:
            raise ClawError(
                f"{error.message}; and {where.estop} cannot be written: {problem.strerror}",
                code=error.code,
                hint=_HELD if _is_held(app) else _NOT_STOPPED,
            ) from problem
        if not is_nobody(error):
            note(f"The daemon did not take the call ({error.message}); {where.estop} was written.")
        return report


def _is_held(app: App) -> bool:
    """Return whether the daemon says that it is set, though it could not be written down."""
    try:
        with app.running_client() as client:
            return client.call(EstopState(), limit_s=5).is_set
    except ClawError:
        return False


def _clear(app: App) -> EstopReport:
    client = _running(app)
    if client is not None:
        with client:
            return client.call(ClearEstop())
    where = _home_of(app)
    owner = where.home.stat().st_uid if where.home.exists() else os.geteuid()
    if os.geteuid() not in {0, owner}:
        raise ForbiddenError(
            f"{where.estop} may be removed by its owner only (uid {owner}, you are uid "
            f"{os.geteuid()})",
            hint="Ask an administrator to clear it.",
        )
    try:
        where.estop.unlink(missing_ok=True)
    except OSError as error:
        raise ClawError(
            f"{where.estop} cannot be removed: {error.strerror}",
            hint="The emergency stop stays set as long as it is there.",
        ) from error
    return EstopReport(is_set=False)


def _status(app: App) -> EstopReport:
    client = _running(app)
    if client is not None:
        with client:
            return client.call(EstopState())
    file = _home_of(app).estop
    try:
        data = file.read_bytes()[:MAX_NOTE_BYTES]
    except FileNotFoundError:
        return EstopReport(is_set=False)
    except OSError as error:
        # Nobody can tell that it is not set, and so it counts as set.
        return EstopReport(is_set=True, reason=f"{file} cannot be read: {error.strerror}")
    try:
        reason = msgspec.json.decode(data, type=_Note).reason
    except (msgspec.DecodeError, RecursionError):
        reason = ""
    return EstopReport(is_set=True, reason=reason)


def _running(app: App) -> Client | None:
    try:
        return app.running_client()
    except ClawError as error:
        if is_nobody(error):
            return None
        raise


def _home_of(app: App) -> Layout:
    where = layout()
    if app.socket and expanded(app.socket).absolute() != where.socket:
        raise NotFoundError(
            f"no daemon answers on {app.socket}, and nothing says whose home it serves",
            hint="Name the home instead: CLAWD_HOME=DIR clawctl estop",
        )
    return where


def _write(where: Layout, reason: str) -> EstopReport:
    """Put the file in place in one step, so that nobody ever reads half of it."""
    where.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    by = f"uid {os.geteuid()} ({_user_name()})"
    content = _Note(reason=reason, by=by, at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    replace_file(where.estop, msgspec.json.encode(content) + b"\n")
    return EstopReport(is_set=True, reason=reason)


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "?"
