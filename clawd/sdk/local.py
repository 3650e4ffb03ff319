"""A session's own daemon, in this process: its home, its configuration, its prompt and tools.

Imported when a session begins and not before: it brings every library of the daemon.
"""

import asyncio
import logging
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from clawd.config.load import Loaded, load
from clawd.engine.models import EMBEDDED, ModelFolder
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError, InvalidRequestError, ModelNotFoundError, StorageError
from clawd.paths import expanded, layout
from clawd.providers.base import Provider
from clawd.runtime.settings import RuntimeSettings
from clawd.sdk.client import Client
from clawd.sdk.session_config import LocalPlan, Prompt, SessionBackend
from clawd.service.lifecycle import InProcessDaemon
from clawd.tools.base import Tool

ALREADY_RUNNING = "already_running"

# The program says what of these logs is shown; else Python would print their warnings.
for _each in ("clawd", "stamina"):
    logging.getLogger(_each).addHandler(logging.NullHandler())


class LocalBackend(SessionBackend):
    """A daemon inside of this program."""

    def __init__(self, plan: LocalPlan) -> None:
        self._plan = plan
        self._daemon: InProcessDaemon | None = None
        self._remove_home: weakref.finalize[Any, Any] | None = None

    @override
    async def open(self) -> Client:
        home = self._plan.home or self._temporary_home()
        try:
            environ = os.environ | {"CLAWD_HOME": str(home)}
            environ.pop("CLAWD_SOCKET", None)
            loaded = await asyncio.to_thread(_loaded, self._plan, environ)
            daemon = InProcessDaemon(loaded, environ)
            await daemon.open()
        except ClawError as error:
            self._forget_home()
            raise _in_use(error, home) if error.code == ALREADY_RUNNING else error from error
        except BaseException:
            self._forget_home()
            raise
        self._daemon = daemon
        return Client(daemon.connect)

    @override
    async def adopt(self, prompt: Prompt, tools: tuple[Tool, ...], *, alone: bool) -> None:
        daemon = self._opened
        daemon.hold_tools(tools, alone=alone)
        names = tuple(tool.name for tool in tools)
        daemon.adjust(lambda runtime: _adjusted(runtime, prompt, names))

    @override
    async def close(self) -> None:
        daemon, self._daemon = self._daemon, None
        try:
            if daemon is not None:
                await daemon.close()
        finally:
            await asyncio.to_thread(self._forget_home)

    @property
    @override
    def engine(self) -> Engine:
        return self._opened.engine

    @property
    @override
    def provider(self) -> Provider:
        return self._opened.provider

    @property
    def _opened(self) -> InProcessDaemon:
        if self._daemon is None:
            raise InvalidRequestError("the session has not begun, or has ended")
        return self._daemon

    def _temporary_home(self) -> Path:
        try:
            home = Path(tempfile.mkdtemp(prefix="clawd-session-"))
        except OSError as error:
            raise StorageError(
                f"no temporary home can be made: {error}",
                hint="Give the session a home of its own: Session.local(home=...).",
            ) from error
        # Not TemporaryDirectory: it warns when a program ends without having closed its session.
        self._remove_home = weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        return home

    def _forget_home(self) -> None:
        if self._remove_home is not None:
            self._remove_home()


def _loaded(plan: LocalPlan, environ: dict[str, str]) -> Loaded:
    settings = dict(plan.settings)
    if plan.workspace is not None:
        settings["workspace_dir"] = str(plan.workspace)
    if plan.model:
        model = _model(plan.model, environ)
        settings |= {
            "default_provider": "local",
            "default_model": model,
            "providers.models.local.kind": "local",
            "providers.models.local.model": model,
        }
    return load(plan.config, environ, settings)


def _model(name: str, environ: dict[str, str]) -> str:
    """Return what the configuration calls a model: `embedded` or an absolute path.

    Raises:
        ModelNotFoundError: there is no such file, nor a model of this name.
    """
    if name.lower() == EMBEDDED:
        return EMBEDDED
    path = expanded(name).absolute()
    if path.is_file():
        return str(path)
    own, users = layout(environ).models, layout(dict(os.environ)).models
    try:
        return str(ModelFolder(own).find(name))
    except ModelNotFoundError:
        return str(ModelFolder(users).find(name))


def _adjusted(runtime: RuntimeSettings, prompt: Prompt, tools: tuple[str, ...]) -> RuntimeSettings:
    before = runtime.prompt
    parts = before.parts
    base = prompt.base or before.base
    if prompt.own_text_only:
        parts = parts.without_built_in_text().model_copy(update={"base": bool(base)})
    configured = before.operator if isinstance(before.operator, str) else before.operator()
    told = msgspec.structs.replace(
        before,
        base=base,
        operator="\n\n".join(filter(None, (configured, prompt.appended))),
        parts=parts.model_copy(update=prompt.flags),
    )
    # Whether it is enabled is about the socket, and this program is not at it.
    allowed = (*runtime.channels.cli.tools_allow, *tools)
    cli = runtime.channels.cli.model_copy(update={"tools_allow": allowed, "enabled": True})
    channels = runtime.channels.model_copy(update={"cli": cli})
    return msgspec.structs.replace(runtime, prompt=told, channels=channels)


def _in_use(error: ClawError, home: Path) -> ClawError:
    return ClawError(
        error.message,
        code=error.code,
        hint=f"If it is a daemon, join it with Session.daemon(home={str(home)!r}). Another session "
        "must be closed first, or take another home: one home has one writer of receipts.",
    )
