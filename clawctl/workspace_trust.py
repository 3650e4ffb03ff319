"""Which folder `agent` works in: the one it is started in, once the person trusts that."""

import contextlib
import json
import os
import tomllib
from pathlib import Path

import msgspec

from clawctl.agent_options import Choice
from clawctl.app import App, current_folder
from clawctl.approve import Terminal
from clawctl.client import Client
from clawctl.render import note
from clawd.errors import ClawError
from clawd.kernel.files import replace_file
from clawd.paths import expanded, layout
from clawd.wire.policy import ShowPolicy
from clawd.wire.safe_text import visible_line

TRUSTED = "trusted_folders.json"
MAX_TRUSTED = 1_000
_QUESTION = (
    "Work in {folder}? The model may then read what is in it, and change it when you say so.\n"
    "Without your trust it works {otherwise}. [y/N] "
)


def placed(
    app: App, choice: Choice, client: Client, terminal: Terminal | None, folder: Path | None = None
) -> Choice:
    """Return the choice with the folder that it works in.

    It is `folder`, by default the current one, where none was chosen; one that nobody trusts, in
    mode readonly. A home, what lies above it, and the folders of another user's clawd are no
    workspace: there it is the configured one.
    """
    found, remark = _placed(app, choice, client, terminal, folder)
    if remark and not choice.quiet:
        note(remark)
    return found


def _placed(
    app: App, choice: Choice, client: Client, terminal: Terminal | None, folder: Path | None
) -> tuple[Choice, str]:
    """Return the choice with its folder, and what the person is to know of that."""
    if not choice.here or not is_own(client):
        return choice, ""
    home, folder = layout().home, folder or current_folder()
    boundary = client.call(ShowPolicy())
    named, configured = visible_line(str(folder)), Path(boundary.workspace)
    is_within = any(folder.is_relative_to(Path(r).expanduser()) for r in boundary.workspace_roots)
    remark, used = "", visible_line(boundary.workspace)
    if folder in {configured, Path.home()}:  # where a terminal opens is no project
        return choice, ""
    if folder.is_relative_to(configured):
        choice = msgspec.structs.replace(choice, workspace=str(folder))
    elif _is_no_workspace(folder, home):
        remark = f"● {named} is not a workspace; this works in {used}"
    elif _is_trusted(app, folder, terminal, "" if is_within else used):
        choice = msgspec.structs.replace(choice, workspace=str(folder))
    elif is_within:
        choice = msgspec.structs.replace(choice, workspace=str(folder), mode="readonly")
        remark = f"● mode readonly: nobody said yet that {named} is trusted; --here trusts it once"
    else:
        remark = f"● {named} is not trusted; this works in {used}"
    return choice, remark


def workspace_here(app: App, directory: str | None) -> str:
    """Return the folder -C names, else the one that a message sent from here would work in."""
    if directory:
        return str(expanded(directory).absolute())
    with app.client() as client:
        found, remark = _placed(app, Choice(here=True), client, None, None)
    if remark and not found.mode:  # in which mode a message would go on is another matter
        note(remark)
    return found.workspace


def is_own(client: Client) -> bool:
    """Return whether a daemon is the one whose home is here."""
    return Path(client.welcome.home) == layout().home


def _is_trusted(app: App, folder: Path, terminal: Terminal | None, instead: str) -> bool:
    """Return whether a person trusts a folder: said so before, or says so now.

    Without it the work goes on `instead`, or in the folder where that may be a workspace ("").
    """
    home = layout().home
    if not instead and any(folder.is_relative_to(each) for each in trusted(home)):
        return True
    if not _is_text(folder) or terminal is None or not _agrees(terminal, folder, instead):
        return False
    if instead:
        _widen(app, folder)
    trust(home, folder)
    return True


def _is_text(folder: Path) -> bool:
    """Return whether a folder's name can be written down; one of other bytes is never trusted."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        return False
    return True


def real_folder(named: str) -> str:
    """Return the folder that is meant, links resolved; what is no path stays as it is."""
    try:
        return os.path.realpath(named)
    except (OSError, ValueError):
        return named


def trusted(home: Path) -> tuple[Path, ...]:
    """Return the folders that were trusted so far; none where that cannot be read."""
    try:
        return tuple(map(Path, msgspec.json.decode((home / TRUSTED).read_bytes(), type=list[str])))
    except (OSError, msgspec.DecodeError):
        return ()


def trust(home: Path, folder: Path) -> None:
    """Remember that a folder is trusted, with all that lies in it.

    Raises:
        ClawError: it cannot be written.
    """
    known = [str(each) for each in trusted(home) if each != folder]
    text = json.dumps([*known[-MAX_TRUSTED + 1 :], str(folder)], indent=1)
    try:
        replace_file(home / TRUSTED, text.encode())
    except OSError as error:
        raise ClawError(f"{home / TRUSTED} cannot be written: {error.strerror}") from error


def _is_no_workspace(folder: Path, home: Path) -> bool:
    """Return whether a folder holds more than a project: a home, the root, clawd's own home."""
    with contextlib.suppress(RuntimeError):  # there is no home
        if Path.home().is_relative_to(folder):
            return True
    return folder == Path("/") or folder.is_relative_to(home) or home.is_relative_to(folder)


def _agrees(terminal: Terminal, folder: Path, instead: str) -> bool:
    """Ask the person; what is not a clear yes is a no."""
    otherwise = f"in {instead}" if instead else "there in mode readonly"
    question = _QUESTION.format(folder=visible_line(str(folder)), otherwise=otherwise)
    line = terminal.ask_alone(question)
    return (line or "").lower() in {"y", "yes"}


def _widen(app: App, folder: Path) -> None:
    """Add a folder to `[security] workspace_roots` of the config.

    Raises:
        ClawError: the config cannot be changed.
    """
    from clawctl.config_edit import config_of, put, read_config, with_toml

    path = config_of(None)
    before = read_config(path)
    section = tomllib.loads(before.decode()).get("security", {})
    roots = [*section.get("workspace_roots", ["~"]), str(folder)]
    key = "security.workspace_roots"
    after = with_toml(before.decode(), key, json.dumps(roots, ensure_ascii=False)).encode()
    note(f"● {put(app, path, before, after, wanted=True).message}")
