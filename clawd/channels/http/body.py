"""Request bodies: JSON within a depth, and fields of it with errors that name them."""

from typing import Any, TypeVar

import msgspec
from aiohttp import web

from clawd.errors import InvalidRequestError

MAX_DEPTH = 256

_T = TypeVar("_T")
_OPENERS, _CLOSERS = frozenset(b"[{"), frozenset(b"]}")


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the body as a JSON object, whatever its content type says; an empty body is {}.

    Raises:
        InvalidRequestError: it is no JSON object, or nested too deeply.
        HTTPRequestEntityTooLarge: it is too long.
    """
    data = await request.read()
    if not data.strip():
        return {}
    if depth_of(data) > MAX_DEPTH:
        raise InvalidRequestError(f"the body is nested more than {MAX_DEPTH} levels deep")
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return value


def depth_of(data: bytes) -> int:
    """Return how deeply arrays and objects of a JSON text are nested, without decoding it."""
    depth = deepest = 0
    in_string = is_escaped = False
    for byte in data:
        if in_string:
            if is_escaped:
                is_escaped = False
            elif byte == 0x5C:
                is_escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in _OPENERS:
            depth += 1
            deepest = max(deepest, depth)
        elif byte in _CLOSERS:
            depth -= 1
    return deepest


def field(body: dict[str, Any], name: str, kind: type[_T], default: _T) -> _T:
    """Return a field; null counts as absent.

    Raises:
        InvalidRequestError: it is of another type; the error's data names the field.
    """
    value = body.get(name)
    if value is None:
        return default
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise invalid(name, str(error)) from error


def invalid(name: str, problem: str) -> InvalidRequestError:
    """Return the error of one field."""
    return InvalidRequestError(f"{name}: {problem}", data={"param": name})
