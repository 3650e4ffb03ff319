"""What a daemon needs of its home before it opens: folders, and what knows its secrets."""

from collections.abc import Mapping
from pathlib import Path

from clawd.config.load import Loaded
from clawd.config.secrets import mcp_client_secret, mcp_token, mcp_variables, provider_key
from clawd.errors import ClawError, ConfigError
from clawd.security.redact import Redactor, load_or_create_key
from clawd.tools.external_warnings import is_secret_name


def make_folders(loaded: Loaded) -> None:
    """Make the home, closed to others, and the workspace; what is there stays as it is.

    Raises:
        ClawError: one cannot be made.
    """
    _make_folder(loaded.layout.home, 0o700)
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
        keys += [value for name, value in variables.items() if is_secret_name(name)]
    return Redactor(filter(None, keys), load_or_create_key(loaded.layout.secret_key))


def _make_folder(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ClawError(
            f"the folder {folder} cannot be made: {error.strerror}",
            hint="Correct its permissions, choose another home with CLAWD_HOME, or another "
            "workspace_dir in the config.",
        ) from error
