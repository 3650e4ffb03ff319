"""The base of the methods of the control socket, and their names on the wire."""

import re
import typing
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

PAGE_LIMIT = 1000
R = TypeVar("R")


class Method(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """The base of every parameter struct; R is the result."""

    streams: ClassVar[bool] = False
    admin: ClassVar[bool] = False


def method_name(kind: type[Method[Any]]) -> str:
    """Return the method's name on the wire: `SendMessage` is `send_message`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()


def result_type(kind: type[Method[R]]) -> type[R]:
    """Return the type of the method's result."""
    *_, base = kind.__orig_bases__  # type: ignore[attr-defined]
    (result,) = typing.get_args(base)
    return typing.cast("type[R]", result)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a method that has nothing to tell but a sentence."""

    message: str = ""
