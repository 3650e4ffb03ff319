"""Finds keys and tokens: environment, systemd credential, 0600 file, 0600 config."""

from collections.abc import Mapping
from pathlib import Path

from clawd.config.load import is_private
from clawd.config.mcp import McpServerSection
from clawd.config.schema import NotifySection, ProviderSection
from clawd.config.sections import SchedulesSection
from clawd.errors import ConfigError

CREDENTIALS = "CREDENTIALS_DIRECTORY"


def provider_key(name: str, section: ProviderSection, environ: Mapping[str, str]) -> str | None:
    """Return the provider's key, or None when none is configured.

    Raises:
        ConfigError: one is configured and not to be had; the message never holds the key.
    """
    if section.api_key_env:
        return _from_environment(f"provider {name}", "key", section.api_key_env, environ)
    if section.api_key_file is not None:
        return _from_file(name, section.api_key_file)
    return section.api_key.get_secret_value() if section.api_key is not None else None


def mcp_token(alias: str, section: McpServerSection, environ: Mapping[str, str]) -> str:
    """Return the bearer token of an MCP server, or "" when none is configured.

    Raises:
        ConfigError: one is configured and not to be had; the message never holds it.
    """
    if section.auth_token is not None and section.auth_token.get_secret_value():
        return section.auth_token.get_secret_value()
    if section.auth_env:
        return _from_environment(f"MCP server {alias}", "token", section.auth_env, environ)
    return ""


def mcp_client_secret(alias: str, section: McpServerSection, environ: Mapping[str, str]) -> str:
    """Return the secret of the client registered at an MCP server, or "" when there is none.

    Raises:
        ConfigError: one is configured and not to be had; the message never holds it.
    """
    if section.oauth_client_env:
        name = section.oauth_client_env
        return _from_environment(f"MCP server {alias}", "client secret", name, environ)
    return ""


def webhook_address(section: NotifySection, environ: Mapping[str, str]) -> str:
    """Return the address that notifications are posted to, "" for none.

    Raises:
        ConfigError: it is configured and not to be had; the message never holds it.
    """
    if section.webhook_env:
        return _from_environment("[notify]", "webhook", section.webhook_env, environ)
    return section.webhook


def schedules_secret(section: SchedulesSection, environ: Mapping[str, str]) -> str:
    """Return the secret by which results are signed that are posted, "" for none.

    Raises:
        ConfigError: it is configured and not to be had; the message never holds it.
    """
    if not section.webhook_secret_env:
        return ""
    return _from_environment("[schedules]", "secret", section.webhook_secret_env, environ)


def mcp_variables(
    alias: str, section: McpServerSection, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that a server's program gets from outside the config.

    Raises:
        ConfigError: one of them is not to be had.
    """
    return {
        name: _from_environment(f"MCP server {alias}", "variable", name, environ)
        for name in section.env_passthrough
    }


def _from_environment(who: str, what: str, variable: str, environ: Mapping[str, str]) -> str:
    if environ.get(variable):
        return environ[variable]
    folder = environ.get(CREDENTIALS)
    # Only a plain name: a credential is a file of that folder and of no other.
    if folder and "/" not in variable:
        try:
            return (Path(folder) / variable).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{who}: credential {variable} cannot be read: {error}") from error
    raise ConfigError(
        f"{who}: its {what} {variable} is neither in the environment nor a systemd credential",
        hint=f"Set {variable} for the daemon, which keeps the environment it began with: export it "
        f"and clawctl restart. In a unit: LoadCredential={variable}:/path.",
    )


def _from_file(name: str, file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"provider {name}: key file {file} cannot be read: {error}") from error
    if not is_private(file):
        raise ConfigError(
            f"provider {name}: key file {file} may be read by others; expected mode 0600",
            hint=f"chmod 600 {file}",
        )
    if not text:
        raise ConfigError(f"provider {name}: key file {file} is empty")
    return text
