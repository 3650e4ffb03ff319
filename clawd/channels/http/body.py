"""Request bodies: JSON within a depth, and fields of it with errors that name them."""

import asyncio
from itertools import accumulate
from typing import Any, Literal, TypeVar

import msgspec
from aiohttp import web

from clawd.errors import InvalidRequestError

_MAX_DEPTH = 256
MAX_ITEMS = 20_000
"""Of the messages, tools or other things that a field lists; token ids are no fields of lists."""

_DEPTH_HERE_BYTES = 64 * 1024

_T = TypeVar("_T")
# Editors put it before a text; RFC 8259, section 8.1, lets a parser pass over it.
_BOM = b"\xef\xbb\xbf"
_EXACT = 2.0**53
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the body as a JSON object, whatever its content type says; an empty body is {}.

    Raises:
        InvalidRequestError: it is no JSON object, or nested too deeply.
        HTTPRequestEntityTooLarge: it is too long.
    """
    data = await request.read()
    data = data.removeprefix(_BOM)
    if not data.strip():
        return {}
    if await _depth_beside(data) > _MAX_DEPTH:
        raise InvalidRequestError(f"the body is nested more than {_MAX_DEPTH} levels deep")
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object")
    _check_numbers(value)
    return value


def _check_numbers(value: dict[str, Any]) -> None:
    """Refuse numbers that cannot be handed on: the engine and the control socket take 64 bits."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError as error:
        raise InvalidRequestError("the body has a whole number of more than 64 bits") from error


async def _depth_beside(data: bytes) -> int:
    """Return `depth_of`, off the loop where it would hold it up."""
    if len(data) <= _DEPTH_HERE_BYTES:
        return depth_of(data)
    return await asyncio.to_thread(depth_of, data)


def depth_of(data: bytes) -> int:
    """Return how deeply arrays and objects of a JSON text are nested, without decoding it.

    Escapes go first, then all but quotes and brackets, then what stands between quotes; what is
    left is counted. Whole passes in C instead of a loop over bytes: 8 MiB take 0.1 to 0.5 s.
    """
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    outside = b"".join(bare.replace(b'""', b"").split(b'"')[::2])
    # The bytes become 1 and -1: signed characters.
    steps = memoryview(outside.translate(_STEPS)).cast("b")
    return max(accumulate(steps), default=0)


def field(body: dict[str, Any], name: str, kind: type[_T], default: _T, *, at: str = "") -> _T:
    """Return a field; null counts as absent, and 5.0 is a whole number.

    Args:
        body: what holds it.
        name: of the field.
        kind: what it must be.
        default: what it is where it is absent.
        at: where in the request `body` stands; empty for the request itself.

    Raises:
        InvalidRequestError: it is of another type, or a list that nobody can mean; the error's
            data names the field.
    """
    value = body.get(name)
    if value is None:
        return default
    check_items(f"{at}.{name}" if at else name, value)
    if kind is int and isinstance(value, float) and abs(value) < _EXACT and value.is_integer():
        value = int(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"{at}.{name}" if at else name, str(error)) from error


def check_items(name: str, value: object) -> None:
    """Refuse a list so long that to look at each thing in it would hold up everybody else.

    Raises:
        InvalidRequestError: it is one.
    """
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        raise invalid(name, f"{len(value)} of them; the limit is {MAX_ITEMS}")


def invalid(name: str, problem: str) -> InvalidRequestError:
    """Return the error of one field."""
    return InvalidRequestError(f"{name}: {problem}", data={"param": name})


# Numbers and stop strings of bodies within what an engine can take; which is more is less.

_MAX_COUNT = 2**31 - 1

_MAX_STOPS = 64
_SEEDS = 2**31


def is_token(value: Any) -> bool:
    """Return whether it is the id of a token."""
    return type(value) is int and 0 <= value <= _MAX_COUNT


def count_of(body: dict[str, Any], name: str, *, at: str = "") -> int | None:
    """Return a whole number of 1 or more, the largest there is for larger ones; None for none.

    `at` is where the body stands in the request, here and below.

    Raises:
        InvalidRequestError: it is no whole number.
    """
    value = field(body, name, int, 0, at=at)
    return min(value, _MAX_COUNT) if value > 0 else None


def top_k_of(body: dict[str, Any], *, at: str = "") -> int | None:
    """Return of how many candidates a token is drawn: 0, or less, is of all; None where it is open.

    Raises:
        InvalidRequestError: it is no whole number.
    """
    is_given = body.get("top_k") is not None
    return (count_of(body, "top_k", at=at) or 0) if is_given else None


def seed_of(body: dict[str, Any], *, at: str = "") -> int | None:
    """Return the seed; None where there is none, or a negative one, for a new one each time.

    Raises:
        InvalidRequestError: it is no whole number.
    """
    value = field(body, "seed", int, -1, at=at)
    return value % _SEEDS if value >= 0 else None


def number_of(
    body: dict[str, Any], name: str, *, least: float = 0.0, most: float, at: str = ""
) -> float | None:
    """Return a number between these; None where there is none.

    Raises:
        InvalidRequestError: it is no number, or not between them.
    """
    if body.get(name) is None:
        return None
    value = field(body, name, float, 0.0, at=at)
    if not least <= value <= most:
        raise invalid(
            f"{at}.{name}" if at else name, f"expected a number from {least:g} to {most:g}"
        )
    return value


def stops_of(body: dict[str, Any], name: str, *, at: str = "") -> tuple[str, ...]:
    """Return the stop strings that are not empty.

    Raises:
        InvalidRequestError: they are no list of texts, or too many.
    """
    stops = tuple(stop for stop in field(body, name, list[str], [], at=at) if stop)
    if len(stops) > _MAX_STOPS:
        raise invalid(
            f"{at}.{name}" if at else name,
            f"{len(stops)} of them, at most {_MAX_STOPS} are watched for",
        )
    return stops


# Bodies of clawd's own routes, and of some that others have, for the document of all routes.
#
# A field that is unknown is refused in clawd's own: it may have meant much.


class _InfillExtra(msgspec.Struct, frozen=True, kw_only=True):
    """Another file that helps to fill in a gap."""

    text: str
    filename: str = "tmp"


class InfillBody(msgspec.Struct, frozen=True, kw_only=True):
    """A gap to be filled in; what /v1/completions takes of sampling is taken as well.

    Attributes:
        input_prefix: what stands before the gap.
        input_suffix: what stands behind it.
        prompt: what is written in it already.
        n_predict: tokens at most; 0 reads the prompt alone.
    """

    input_prefix: str
    input_suffix: str
    input_extra: tuple[_InfillExtra, ...] = ()
    prompt: str = ""
    model: str = ""
    n_predict: int = -1
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False


class InfillReport(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the gap."""

    index: int
    content: str
    tokens: tuple[int, ...]
    stop: bool
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool
    stop_type: Literal["eos", "limit", "word"]
    stopping_word: str
    timings: dict[str, float] | None


class RankedText(msgspec.Struct, frozen=True, kw_only=True):
    """A document as an object."""

    text: str


class RerankBody(msgspec.Struct, frozen=True, kw_only=True):
    """Documents that are to be ranked by how well they answer a query.

    Attributes:
        top_n: so many of the best; all without.
        return_documents: with the texts.
    """

    query: str
    documents: tuple[str | RankedText, ...]
    model: str = ""
    top_n: int | None = None
    return_documents: bool = False


class RankedDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A document by its number in the request, and the model's own score of it."""

    index: int
    relevance_score: float
    document: RankedText | None = None


class RerankUsage(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens were read, the query anew with each document."""

    prompt_tokens: int
    total_tokens: int


class RerankAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Documents, the best first."""

    model: str
    results: tuple[RankedDocument, ...]
    usage: RerankUsage
    object: str = "list"


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
        max_rounds: after how many rounds of calls the turn ends; 0 is as configured.
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
    max_rounds: int = 0
    stream: bool = False


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to an approval; `digest` is the one that came with it."""

    answer: Literal["deny", "once", "conversation", "project", "always"]
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


# JSON Schemas of clients: what in them is not there although it is written. Pure.

OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_MEANT = frozenset({"const", "default", "example"})


def without_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without keywords that are null: clients in Go write empty lists so.

    Values stay what they are: `const`, `default`, `example`, members of an `enum`.
    """
    return {
        name: _inner(name, value)
        for name, value in schema.items()
        if value is not None or name in _MEANT
    }


def _inner(name: str, value: Any) -> Any:
    if name in OF_SCHEMAS and isinstance(value, dict):
        return {each: _schema(inner) for each, inner in value.items()}
    if name in LISTS and isinstance(value, list):
        return [_schema(inner) for inner in value]
    if name in SINGLE:
        return [*map(_schema, value)] if isinstance(value, list) else _schema(value)
    return value


def _schema(value: Any) -> Any:
    return without_nulls(value) if isinstance(value, dict) else value
