"""JSON Schema from Python type hints: what a function's parameters may be. Pure.

str, int, float, bool           the JSON types of these names
list[T], tuple[T, ...], set[T]  an array of T
dict[str, T]                    an object of T
Literal["a", "b"], Enum         one of these values
T | None                        T; a parameter that may be left out
Annotated[T, "what it is"]      T with a description
Any                             anything
"""

import enum
import types
from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from clawd.errors import InvalidRequestError

Schema = dict[str, Any]

_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LISTS = (list, tuple, set, frozenset, Sequence, Set)
_OBJECTS = (dict, Mapping)
_KNOWN = "str, int, float, bool, list, dict, Literal, an Enum and `| None` of these"


def schema_of(hint: Any, *, where: str) -> Schema:
    """Return the schema of a type hint.

    Args:
        hint: the type.
        where: what it is the type of, for errors.

    Raises:
        InvalidRequestError: JSON has nothing like it; says what there is.
    """
    if hint is Any or hint in _PLAIN:
        return {"type": _PLAIN[hint]} if hint in _PLAIN else {}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _choice([member.value for member in hint], where)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        described = next((each for each in args[1:] if isinstance(each, str)), "")
        inner = schema_of(args[0], where=where)
        return inner | {"description": described} if described else inner
    if origin in {Union, types.UnionType}:
        return _union(args, where)
    is_choice = origin is Literal
    return _choice(list(args), where) if is_choice else _container(origin or hint, args, where)


def takes_none(hint: Any) -> bool:
    """Tell whether a type hint takes None."""
    if get_origin(hint) is Annotated:
        return takes_none(get_args(hint)[0])
    is_union = get_origin(hint) in {Union, types.UnionType}
    return hint is None or (is_union and type(None) in get_args(hint))


def _container(kind: Any, args: tuple[Any, ...], where: str) -> Schema:
    if kind in _OBJECTS:
        if args and args[0] is not str:
            raise InvalidRequestError(f"{where}: the keys of a JSON object are text, use dict[str]")
        values = schema_of(args[1], where=where) if args else {}
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if kind not in _LISTS:
        shown = getattr(kind, "__name__", str(kind))
        raise InvalidRequestError(
            f"{where}: a model cannot be asked for the type {shown}",
            hint=f"What it can give: {_KNOWN}.",
        )
    kinds = {each for each in args if each is not ...}
    if len(kinds) > 1:
        raise InvalidRequestError(f"{where}: the items of a list are of one type")
    items = schema_of(kinds.pop(), where=where) if kinds else {}
    return {"type": "array", "items": items} if items else {"type": "array"}


def _union(args: tuple[Any, ...], where: str) -> Schema:
    schemas = [schema_of(each, where=where) for each in args if each is not type(None)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _choice(values: list[Any], where: str) -> Schema:
    kinds = {_PLAIN.get(type(value)) for value in values}
    if None in kinds or not values:
        raise InvalidRequestError(f"{where}: the values to choose from are text, numbers or bool")
    kind = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return {**kind, "enum": values}
