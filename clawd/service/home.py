"""What a daemon needs of its home before it opens: folders, and what knows its secrets."""

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from clawd.config.load import Loaded
from clawd.config.secrets import mcp_client_secret, mcp_token, mcp_variables, provider_key
from clawd.errors import ClawError, ConfigError, ForbiddenError
from clawd.security.redact import Redactor, load_or_create_key
from clawd.wire.secrets import is_secret_variable

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)


def make_folders(loaded: Loaded) -> None:
    """Make the home, closed to others, and the workspace; what is there stays as it is.

    Raises:
        ClawError: one cannot be made.
    """
    _make_folder(loaded.layout.home, 0o700)
    _close_home(loaded.layout.home)
    _make_folder(loaded.config.workspace_dir, 0o777)


def redactor_of(loaded: Loaded, environ: Mapping[str, str]) -> Redactor:
    """Return what takes the configured keys out of all that is kept; makes the home's own key."""
    keys: list[str] = []
    for name, section in loaded.config.providers.models.items():
        try:
            keys.append(provider_key(name, section, environ) or "")
        except ConfigError:
            continue  # the provider itself says so when it is built
    for alias, server in loaded.config.mcp.servers.items():
        try:
            keys.append(mcp_token(alias, server, environ))
            keys.append(mcp_client_secret(alias, server, environ))
            variables = mcp_variables(alias, server, environ)
        except ConfigError:
            continue  # the server itself says so where it is listed
        keys += [value for name, value in variables.items() if is_secret_variable(name)]
    return Redactor(filter(None, keys), load_or_create_key(loaded.layout.secret_key))


def _close_home(home: Path) -> None:
    """Make sure that nobody else can put anything into the home, or take anything out of it.

    Raises:
        ClawError: it belongs to somebody else, or cannot be closed.
    """
    try:
        about = home.stat()
        if about.st_uid != os.geteuid():
            raise ForbiddenError(
                f"the home {home} belongs to uid {about.st_uid}, and clawd runs as uid "
                f"{os.geteuid()}: its owner could change what clawd keeps there",
                hint=f"chown -R {os.geteuid()} {home}, run clawd as its owner, or choose another "
                "home with CLAWD_HOME.",
            )
        if about.st_mode & OTHERS_MAY_WRITE:
            home.chmod(stat.S_IMODE(about.st_mode) & ~(stat.S_IRWXG | stat.S_IRWXO))
            _log.warning(
                "the home %s could be written by others (mode %04o): it was closed (0700). Look "
                "at what lies there; somebody may have changed it",
                home,
                stat.S_IMODE(about.st_mode),
            )
    except OSError as error:
        raise ClawError(
            f"the home {home} cannot be closed to others: {error.strerror}",
            hint=f"Close it with: chmod 700 {home}",
        ) from error


def _make_folder(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ClawError(
            f"the folder {folder} cannot be made: {error.strerror}",
            hint="Correct its permissions, choose another home with CLAWD_HOME, or another "
            "workspace_dir in the config.",
        ) from error
