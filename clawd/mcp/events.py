"""What servers tell unasked: that a resource or a list changed, and lines of their log.

A pattern names what somebody wants to hear: `resource note://today`, `resources`, `tools`,
`log warning`, `log error disk`. An ear keeps the patterns of one server over all its connections,
and hands on what one of them takes. Whatever a server tells is untrusted text.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from clawd.errors import InvalidRequestError
from clawd.mcp.connection_end import StderrLog
from clawd.wire.safe_text import visible_line

EventKind = Literal["resource", "resources", "tools", "log"]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
MAX_URI = 2_000
MAX_WORDS = 500
_MAX_DATA = 16_384
_MAX_LOGGER = 100
_KINDS: dict[str, EventKind] = {
    "notifications/resources/updated": "resource",
    "notifications/resources/list_changed": "resources",
    "notifications/tools/list_changed": "tools",
    "notifications/message": "log",
}


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a server told; `text` is a line of its log, safe to display."""

    kind: EventKind
    uri: str = ""
    level: str = ""
    logger: str = ""
    text: str = ""

    def line(self) -> str:
        """Return it as one line."""
        match self.kind:
            case "resource":
                return f"the resource {visible_line(self.uri, MAX_WORDS)} was updated"
            case "resources" | "tools":
                return f"its {self.kind} are others now"
            case "log":
                return " ".join(filter(None, ("log", self.level, self.logger))) + f": {self.text}"


class EventPattern(msgspec.Struct, frozen=True, kw_only=True):
    """What of a server is listened to.

    Attributes:
        uri: of a resource; what lies below it counts, too.
        level: the lowest of its log that counts.
        logger: the only one that counts; "" for all.
    """

    kind: EventKind
    uri: str = ""
    level: str = ""
    logger: str = ""

    def takes(self, event: ServerEvent) -> bool:
        """Return whether an event is meant."""
        if self.kind != event.kind:
            return False
        match self.kind:
            case "resource":
                return event.uri == self.uri or event.uri.startswith(self.uri.rstrip("/") + "/")
            case "resources" | "tools":
                return True
            case "log":
                is_grave = LEVELS.index(event.level) >= LEVELS.index(self.level)
                return is_grave and self.logger in {"", event.logger}


def read_pattern(text: str) -> EventPattern:
    """Return what words such as `resource note://today` or `log warning disk` name.

    Raises:
        InvalidRequestError: they name nothing.
    """
    match text.split():
        case ["resource", uri] if ":" in uri and len(uri) <= MAX_URI:
            return EventPattern(kind="resource", uri=uri)
        case ["resources"]:
            return EventPattern(kind="resources")
        case ["tools"]:
            return EventPattern(kind="tools")
        case ["log", level, *rest] if level in LEVELS and len(rest) <= 1:
            logger = rest[0][:_MAX_LOGGER] if rest else ""
            return EventPattern(kind="log", level=level, logger=logger)
    raise InvalidRequestError(
        f"{visible_line(text, 80)!r} is nothing that a server tells",
        hint="Such are: resource URI, resources, tools, log LEVEL, log LEVEL LOGGER; levels are "
        f"{', '.join(LEVELS)}.",
    )


class EventListener(Protocol):
    """Who hears what servers tell."""

    def heard(self, alias: str, event: ServerEvent) -> None:
        """Take an event, on the loop; never blocks, never raises."""
        ...


class Ear:
    """What of one server is listened to, over all its connections. Used on the loop only.

    Args:
        log: of the server, whose secrets are replaced here, too.

    Attributes:
        wanted: the patterns; () for nothing.
        changed: set when they have become others.
        problem: why the server does not tell what is wanted; "" while nothing says so.
    """

    def __init__(self, log: StderrLog) -> None:
        self.wanted: tuple[EventPattern, ...] = ()
        self.changed = asyncio.Event()
        self.problem = ""
        self._log = log
        self._alias = ""
        self._listener: EventListener | None = None

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that the server is to tell of, each once."""
        return tuple(dict.fromkeys(each.uri for each in self.wanted if each.kind == "resource"))

    @property
    def level(self) -> str:
        """The lowest level of the log that is wanted; "" for none."""
        return min((each.level for each in self.wanted if each.level), key=LEVELS.index, default="")

    def wants(self, kind: EventKind) -> bool:
        """Return whether any such event is wanted."""
        return any(each.kind == kind for each in self.wanted)

    def want(
        self, alias: str, wanted: tuple[EventPattern, ...], listener: EventListener | None
    ) -> None:
        """Listen to these from now on, and to nothing else."""
        self._alias, self._listener = alias, listener
        if wanted != self.wanted:
            self.wanted, self.problem = wanted, ""
            self.changed.set()

    def hear(self, method: str, params: Mapping[str, Any]) -> None:
        """Hand on a notification if it is wanted; what cannot be read is none."""
        kind = _KINDS.get(method)
        if kind is None or self._listener is None or not self.wants(kind):
            return
        event = _event(kind, params)
        if event is None or not any(each.takes(event) for each in self.wanted):
            return
        if kind == "log":
            text = visible_line(self._log.redact(_words(params.get("data"))), MAX_WORDS)
            event = msgspec.structs.replace(event, text=text)
        self._listener.heard(self._alias, event)


def _event(kind: EventKind, params: Mapping[str, Any]) -> ServerEvent | None:
    if kind == "resource":
        uri = params.get("uri")
        if not isinstance(uri, str) or len(uri) > MAX_URI:
            return None
        return ServerEvent(kind=kind, uri=uri)
    if kind != "log":
        return ServerEvent(kind=kind)
    level, logger = params.get("level"), params.get("logger")
    if level not in LEVELS:
        return None
    name = visible_line(logger, _MAX_LOGGER) if isinstance(logger, str) else ""
    return ServerEvent(kind=kind, level=level, logger=name)


def _words(data: Any) -> str:
    """Return what a line of a log says, without its end where it is long."""
    if isinstance(data, str):
        return data[:_MAX_DATA]
    try:
        return json.dumps(data, ensure_ascii=False)[:_MAX_DATA]
    except (ValueError, RecursionError):
        return "data that cannot be displayed"
