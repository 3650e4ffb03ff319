"""The manifest of a plugin, `manifest.toml`: what it is called, what it may do, which tools it has.

name = "notes"
version = "1.0.0"
capabilities = ["workspace-read"]

[[tools]]
name = "note_titles"
description = "List the titles of the notes."
command = "titles.py"
schema = { type = "object", properties = { folder = { type = "string" } } }
"""

import re
import tomllib
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec

from clawd.errors import InvalidRequestError
from clawd.plugins.files import PluginTree
from clawd.security.risk import Risk
from clawd.tools.base import NAME_PATTERN
from clawd.wire.policy import ANY_HOST, is_listed_form

MANIFEST = "manifest.toml"
MAX_MANIFEST_BYTES = 1 << 20
MAX_TOOLS = 32
MAX_DESCRIPTION = 4096
MAX_SCHEMA_BYTES = 64 << 10
MAX_SCHEMA_DEPTH = 16
MAX_PARAMETERS = 64
MAX_HOSTS = 64
TIMEOUT_MS = (100, 300_000)

Capability = Literal["tool", "workspace-read", "workspace-write", "network"]
"""What a plugin asks for; `tool` says that it brings tools, and allows nothing."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,31}")
_EFFECTS: tuple[Capability, ...] = ("workspace-write", "network")


class PluginToolSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool of a plugin.

    Attributes:
        name: what the model calls it.
        description: the manual; its first line is what every request says of it.
        command: the program, relative to the plugin's folder.
        schema: JSON Schema of type object.
        risk: how risky a call is.
        timeout_ms: how long a call may take.
    """

    name: str
    description: str
    command: str
    schema: dict[str, Any] = {}
    risk: Risk = "medium"
    timeout_ms: int = 30_000


class PluginManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a plugin says of itself.

    Attributes:
        hosts: what it may reach with the capability `network`: `host:port` or `*.domain:port`;
            every public host where none is listed.
    """

    name: str
    version: str
    description: str = ""
    capabilities: tuple[Capability, ...] = ()
    hosts: tuple[str, ...] = ()
    tools: tuple[PluginToolSpec, ...]

    @property
    def reached(self) -> tuple[str, ...]:
        """The hosts that it may reach; `*` for every public one."""
        if "network" not in self.capabilities:
            return ()
        return tuple(host.lower() for host in self.hosts) or (ANY_HOST,)


def manifest_of(tree: PluginTree) -> PluginManifest:
    """Return the manifest of a plugin, sound and fitting to its files.

    Raises:
        InvalidRequestError: it is not there or not as it must be; the message says what.
    """
    file = tree.file(MANIFEST)
    if file is None or file.data is None:
        raise InvalidRequestError(f"there is no {MANIFEST}", hint="A plugin is a folder with one.")
    if len(file.data) > MAX_MANIFEST_BYTES:
        raise _wrong(f"it is longer than {MAX_MANIFEST_BYTES} bytes")
    try:
        raw = tomllib.loads(file.data.decode("utf-8"))
        _read_schemas(raw)
        manifest = msgspec.convert(raw, PluginManifest)
        _check(manifest, tree)
    # A ValueError is also what tomllib lets out of a date or a number that cannot be.
    except (ValueError, msgspec.ValidationError) as error:
        raise _wrong(str(error)) from error
    except RecursionError as error:
        raise _wrong(f"it is nested too deeply: at most {MAX_SCHEMA_DEPTH} levels") from error
    tools = tuple(
        msgspec.structs.replace(
            each, schema=_completed(each), command=str(PurePosixPath(each.command))
        )
        for each in manifest.tools
    )
    return msgspec.structs.replace(manifest, tools=tools)


def _read_schemas(raw: dict[str, Any]) -> None:
    """Read the schemas that are JSON text, in place."""
    tools = raw.get("tools")
    for each in tools if isinstance(tools, list) else ():
        if isinstance(each, dict) and isinstance(each.get("schema"), str):
            try:
                each["schema"] = msgspec.json.decode(each["schema"], type=dict[str, Any])
            except msgspec.DecodeError as error:
                name = str(each.get("name"))[:64]
                raise _wrong(f"tool {name}: its schema is no JSON object: {error}") from error


def _check(manifest: PluginManifest, tree: PluginTree) -> None:
    if not _NAME.fullmatch(manifest.name):
        raise _wrong(f"name {manifest.name!r:.80} must match {_NAME.pattern}")
    if not _VERSION.fullmatch(manifest.version):
        raise _wrong(f"version {manifest.version!r:.80} must match {_VERSION.pattern}")
    if len(manifest.description) > MAX_DESCRIPTION:
        raise _wrong(f"description has more than {MAX_DESCRIPTION} characters")
    if len(set(manifest.capabilities)) != len(manifest.capabilities):
        raise _wrong("a capability is named twice")
    _check_hosts(manifest)
    if not 1 <= len(manifest.tools) <= MAX_TOOLS:
        raise _wrong(f"it has {len(manifest.tools)} tools, expected 1 to {MAX_TOOLS}")
    names = [each.name for each in manifest.tools]
    if len(set(names)) != len(names):
        raise _wrong("two of its tools have the same name")
    for each in manifest.tools:
        _check_tool(each, manifest, tree)


def _check_hosts(manifest: PluginManifest) -> None:
    if manifest.hosts and "network" not in manifest.capabilities:
        raise _wrong("it lists hosts, and lacks the capability network")
    if len(manifest.hosts) > MAX_HOSTS:
        raise _wrong(f"it lists {len(manifest.hosts)} hosts, expected at most {MAX_HOSTS}")
    for host in manifest.hosts:
        if not is_listed_form(host, any_host=True):
            raise _wrong(f"{host!r:.80} is no host: expected host:port, *.domain:port or *")


def _check_tool(tool: PluginToolSpec, manifest: PluginManifest, tree: PluginTree) -> None:
    def wrong(reason: str) -> InvalidRequestError:
        return _wrong(f"tool {tool.name[:64]}: {reason}")

    if not re.fullmatch(NAME_PATTERN, tool.name):
        raise wrong("its name has letters, digits, _ and -, a letter first, at most 64")
    if not tool.description.strip() or len(tool.description) > MAX_DESCRIPTION:
        raise wrong(f"its description has 1 to {MAX_DESCRIPTION} characters")
    if not TIMEOUT_MS[0] <= tool.timeout_ms <= TIMEOUT_MS[1]:
        raise wrong(f"timeout_ms is {tool.timeout_ms}, expected {TIMEOUT_MS[0]} to {TIMEOUT_MS[1]}")
    path = PurePosixPath(tool.command)
    program = tree.file(str(path))
    if path.is_absolute() or ".." in path.parts or program is None or not program.is_program:
        raise wrong(f"its command {tool.command!r:.80} is no executable file of the plugin")
    effects = [each for each in _EFFECTS if each in manifest.capabilities]
    if tool.risk == "low" and effects:
        raise wrong(f"a tool with {' and '.join(effects)} is of medium risk at least")
    _check_schema(tool, wrong)


def _check_schema(tool: PluginToolSpec, wrong: Any) -> None:
    schema = tool.schema
    try:
        written = msgspec.json.encode(schema)
        msgspec.msgpack.encode(schema)  # as it crosses the control socket
    except (OverflowError, ValueError) as error:
        raise wrong(f"its schema cannot be passed on: {error}") from error
    if msgspec.json.decode(written) != schema:
        raise wrong("its schema holds only what JSON has: no dates, no inf and no nan")
    size = len(written)
    if size > MAX_SCHEMA_BYTES or _depth(schema) > MAX_SCHEMA_DEPTH:
        raise wrong(
            f"its schema has at most {MAX_SCHEMA_BYTES} bytes and {MAX_SCHEMA_DEPTH} levels"
        )
    if schema.get("type", "object") != "object":
        raise wrong('its schema is of type "object"')
    properties = schema.get("properties", {})
    is_sound = isinstance(properties, dict) and all(
        isinstance(rule, dict) for rule in properties.values()
    )
    required = schema.get("required", [])
    if not is_sound or len(properties) > MAX_PARAMETERS:
        raise wrong(f"its schema has at most {MAX_PARAMETERS} properties, a table each")
    if not isinstance(required, list) or not all(
        isinstance(name, str) and name in properties for name in required
    ):
        raise wrong("`required` of its schema lists names of properties")


def _completed(tool: PluginToolSpec) -> dict[str, Any]:
    """Return the schema with what it leaves unsaid: one that names no properties takes any."""
    is_open = "properties" not in tool.schema
    base = {"type": "object", "properties": {}, "required": [], "additionalProperties": is_open}
    return base | tool.schema


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _wrong(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"{MANIFEST}: {reason}")
