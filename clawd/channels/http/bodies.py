"""Bodies of clawd's own routes. A field that is unknown is refused: it may have meant much."""

from typing import Any, Literal, TypeVar

import msgspec
from aiohttp import web

from clawd.channels.http.body import read_object
from clawd.errors import InvalidRequestError

_T = TypeVar("_T")


class RunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call.

    Attributes:
        arguments: an object, or its JSON text.
        workspace: absolute; empty for the configured one.
        conversation_id: of a conversation that the call belongs to.
        interactive: whether it may wait for an approval; without, one that needs it is denied.
        stream: events first, the outcome last.
    """

    arguments: Any = {}
    workspace: str = ""
    conversation_id: str = ""
    interactive: bool = True
    stream: bool = False


class ChatBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to clawd.

    Attributes:
        conversation_id: where it belongs; empty for a new conversation.
        interactive: whether calls may wait for an approval; without, those are denied.
        detach: the turn goes on when the client leaves.
        stream: every event as it happens.
    """

    message: str
    conversation_id: str = ""
    workspace: str = ""
    provider: str = ""
    model: str = ""
    agent: str = ""
    preset: str = ""
    interactive: bool = True
    detach: bool = False
    stream: bool = False


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to an approval; `digest` is the one that came with it."""

    answer: Literal["deny", "once", "conversation", "always"]
    digest: str
    days: int = 0


class ReplyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person says to a question of a tool."""

    value: str


class StopBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sets the emergency stop, or clears it."""

    set: bool = True
    reason: str = ""


class PresetBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a sampling preset."""

    preset: str


async def body_as(request: web.Request, kind: type[_T]) -> _T:
    """Return the body of a request as a struct.

    Raises:
        InvalidRequestError: it is none; says which field.
    """
    return as_struct(await read_object(request), kind)


def query_as(request: web.Request, kind: type[_T], **more: str) -> _T:
    """Return what stands after the question mark as a struct; other names are ignored.

    Args:
        request: the request.
        kind: the struct.
        more: fields that are given otherwise.

    Raises:
        InvalidRequestError: a value is of another type.
    """
    return as_struct({**request.query, **more}, kind, is_text=True)


def as_struct(values: dict[str, Any], kind: type[_T], *, is_text: bool = False) -> _T:
    """Return values as a struct; as text, a number may be written in letters.

    Raises:
        InvalidRequestError: they are none.
    """
    try:
        return msgspec.convert(values, kind, strict=not is_text)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"the request is not understood: {error}") from error
