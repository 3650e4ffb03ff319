"""What the page lets clawctl do: recommend a model, choose the one that answers, change servers.

A command of clawctl runs as a process beside the daemon, so that a config has one way to be
changed: what the command refuses is refused here. Its words are made from checked parameters, none
of which can be read as an option. Not to be had this way are files of the machine, variables of the
environment and hidden values of any kind: those take a terminal.
"""

import asyncio
import contextlib
import os
import sys
from typing import Annotated, ClassVar, Literal

import msgspec
from aiohttp import web
from typing_extensions import override

from clawd.channels.http.app import GATEWAY, Gateway, caller_of
from clawd.channels.http.body import as_struct, read_object
from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.paths import layout
from clawd.wire.daemon import ShowConfig

_LIMIT_S = 300.0
Alias = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,31}\Z")]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]


class _Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command; its fields are the parameters."""

    changes_config: ClassVar[bool] = True

    def words(self) -> tuple[str, ...]:
        """Return the command and its arguments."""
        raise NotImplementedError


class RecommendModels(_Act, frozen=True):
    """Return which models of the catalogue fit this machine; measures for two seconds."""

    changes_config: ClassVar[bool] = False

    @override
    def words(self) -> tuple[str, ...]:
        return "model", "recommend", "--json"


class UseModel(_Act, frozen=True):
    """Answer from a model of the folder from now on, where nothing else is asked for."""

    name: Annotated[str, msgspec.Meta(pattern=r"\A[^-./\x00][^/\x00]{0,254}\Z")]

    @override
    def words(self) -> tuple[str, ...]:
        return "model", "use", "--json", "--", self.name


class AddServer(_Act, frozen=True):
    """Add an MCP server: an address without a secret, or a program with its arguments."""

    alias: Alias
    url: str = ""
    command: Annotated[tuple[Word, ...], msgspec.Meta(max_length=100)] = ()
    hosts: Annotated[tuple[Word, ...], msgspec.Meta(max_length=100)] = ()
    workspace: Literal["none", "read", "write"] = "read"

    @override
    def words(self) -> tuple[str, ...]:
        if bool(self.url) == bool(self.command):
            raise InvalidRequestError("a server has either an address or a program")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise InvalidRequestError("an address begins with http:// or https://")
        own = [f"--host={each}" for each in self.hosts]
        if self.command:
            own.append(f"--workspace={self.workspace}")
        return "mcp", "add", "--json", *own, "--", self.alias, *(self.command or (self.url,))


class SwitchServer(_Act, frozen=True):
    """Switch an MCP server of the config on or off, for good."""

    alias: Alias
    on: bool

    @override
    def words(self) -> tuple[str, ...]:
        key = f"mcp.servers.{self.alias}.enabled"
        return "config", "set", "--json", "--", key, "true" if self.on else "false"


class RemoveServer(_Act, frozen=True):
    """Take an MCP server out of the config."""

    alias: Alias

    @override
    def words(self) -> tuple[str, ...]:
        return "mcp", "remove", "--json", "--", self.alias


ACTS: dict[str, type[_Act]] = {
    "recommend_models": RecommendModels,
    "use_model": UseModel,
    "add_server": AddServer,
    "switch_server": SwitchServer,
    "remove_server": RemoveServer,
}


async def _post(request: web.Request) -> web.Response:
    """Run a command of clawctl and return its report."""
    name = request.match_info["act"]
    kind = ACTS.get(name)
    if kind is None:
        raise NotFoundError(f"there is no act {name[:64]!r}")
    act = as_struct(await read_object(request), kind)
    if act.changes_config:
        await _check_config(request.app[GATEWAY], request)
    return web.Response(body=await _run(act.words()), content_type="application/json")


async def _check_config(gateway: Gateway, request: web.Request) -> None:
    """Make sure that a command would change the config in force, and no other.

    Raises:
        InvalidRequestError: the daemon was started with another one than clawctl would find.
    """
    in_force = await gateway.invoke(ShowConfig(), caller_of(request).principal)
    if in_force.path != str(layout().config):
        raise InvalidRequestError(
            f"the config in force is {in_force.path}, which clawctl would not find",
            hint="Change it with an editor, then: kill -HUP the daemon.",
        )


async def _run(words: tuple[str, ...]) -> bytes:
    """Return what a command prints as JSON.

    Raises:
        ClawError: it failed; says what it said.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", "clawctl", "--no-start", "--quiet", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env=dict(os.environ),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            printed, errors = await process.communicate()
    except TimeoutError as error:
        raise ClawError(f"the command took more than {_LIMIT_S:g} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.returncode == 0:
        return printed
    raise _failure(printed, errors.decode("utf-8", "replace"))


def _failure(printed: bytes, errors: str) -> ClawError:
    try:
        error = msgspec.json.decode(printed)["error"]
        return ClawError(error["message"], code=error["code"], hint=error["hint"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return InvalidRequestError(errors.strip()[-500:] or "the command failed")


ACT_ROUTES = [web.post("/clawctl/{act}", _post)]
