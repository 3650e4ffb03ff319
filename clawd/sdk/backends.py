"""What a session is to be made of, before anything is loaded, and what every kind of it can do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict

import msgspec

from clawd.errors import InvalidRequestError
from clawd.sdk.client import Client
from clawd.sdk.session_config import Prompt
from clawd.tools.base import Tool

AnyPath = str | Path


class LocalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon inside of this program.

    Attributes:
        model: `embedded`, a file or its name; empty is what the configuration says.
        config: its file; None is `config.toml` of the home, which need not be there.
        home: where memory and receipts lie; None is a temporary one that goes with the session.
        workspace: the folder that tools work in; None is the configured one.
        settings: further keys of the configuration, dotted.
    """

    model: str = ""
    config: Path | None = None
    home: Path | None = None
    workspace: Path | None = None
    settings: dict[str, Any] = {}


class DaemonPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that runs already; None and empty are those that clawctl would take."""

    home: Path | None = None
    socket: Path | None = None
    agent: str = ""
    workspace: str = ""


class Where(TypedDict, total=False):
    """Where a local session lives; see `LocalPlan`."""

    config: AnyPath | None
    home: AnyPath | None
    workspace: AnyPath | None
    settings: Mapping[str, Any] | None


class SessionBackend(Protocol):
    """What answers a session. Opened once; everything is called on one event loop."""

    async def open(self) -> Client:
        """Open it and return the client of it; on failure nothing stays open."""
        ...

    async def adopt(self, prompt: Prompt, tools: tuple[Tool, ...], *, alone: bool) -> None:
        """Put a prompt and the session's tools in force, beside clawd's own or `alone`.

        Raises:
            InvalidRequestError: a tool's name is taken; nothing was changed.
        """
        ...

    async def close(self) -> None:
        """Close everything; idempotent."""
        ...

    @property
    def engine(self) -> Any:
        """The engine of local models."""
        ...

    @property
    def provider(self) -> Any:
        """The provider that answers."""
        ...


def local_plan(model: AnyPath | None, where: Where) -> LocalPlan:
    """Return the plan of a local session.

    Raises:
        InvalidRequestError: a name that is no place to say.
    """
    if unknown := set(where) - set(Where.__annotations__):
        raise InvalidRequestError(
            f"a local session takes no {', '.join(sorted(unknown))}",
            hint=f"It takes {', '.join(Where.__annotations__)}.",
        )
    settings: dict[Any, Any] = dict(where.get("settings") or {})
    if wrong := [key for key in settings if not isinstance(key, str) or not all(key.split("."))]:
        raise InvalidRequestError(
            f"{wrong[0]!r} is no key of the configuration",
            hint='A dotted name, as in settings={"security.autonomy": "readonly"}.',
        )
    return LocalPlan(
        model=str(model or ""),
        config=_path(where.get("config")),
        home=_path(where.get("home")),
        workspace=_path(where.get("workspace")),
        settings=settings,
    )


def remote_plan(url: str, model: str, *, key: str, key_env: str, where: Where) -> LocalPlan:
    """Return the plan of a session whose model is on another machine.

    Raises:
        InvalidRequestError: a name that is no place to say.
    """
    plan, at = local_plan(None, where), "providers.models.remote"
    settings: dict[str, Any] = {
        f"{at}.kind": "openai-compatible",
        f"{at}.base_url": url,
        f"{at}.model": model,
        "default_provider": "remote",
        "default_model": model,
    }
    if key:
        settings[f"{at}.api_key"] = key
    elif key_env:
        settings[f"{at}.api_key_env"] = key_env
    return msgspec.structs.replace(plan, settings=plan.settings | settings)


def daemon_plan(
    home: AnyPath | None, socket: AnyPath | None, *, agent: str, workspace: AnyPath | None
) -> DaemonPlan:
    """Return the plan of a session with a daemon that runs already."""
    folder = _path(workspace)
    return DaemonPlan(
        home=_path(home), socket=_path(socket), agent=agent, workspace=str(folder or "")
    )


def _path(given: AnyPath | None) -> Path | None:
    return Path(given).expanduser().absolute() if given else None
