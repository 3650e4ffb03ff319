"""A Python function as a tool: its name, what its docstring says, a schema from its type hints.

    def shelf(title: str, copies: int = 1) -> str:
        '''Find the shelf of a book (its title as on the cover).'''

An `Args:` section tells the model of each argument.

It runs in the program that added it, with all of the program's rights: neither in the sandbox nor
bound to the workspace. What it may do without a person is said by its `risk`.
"""

import asyncio
import contextlib
import contextvars
import enum
import inspect
import re
import threading
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import msgspec
from typing_extensions import override

from clawd.errors import InvalidRequestError
from clawd.security.risk import Assessment, Risk
from clawd.tools.base import (
    SHORT_LIMIT,
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    failed,
    succeeded,
)

Function = Callable[..., Any]
Schema = dict[str, Any]

TIMEOUT_S = 30.0
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ToolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a function does not say of itself.

    Attributes:
        name: what the model calls it; empty is the function's own.
        risk: low runs by itself, medium asks in supervised autonomy, high is refused there.
        outward: whether it can send data out or change things outside; None when nobody knows,
            which counts as yes for all but low risk once untrusted text is about.
        untrusted: where what it returns comes from, when nobody vouches for that ("the web"); the
            conversation is then treated with care.
        timeout_s: a call that takes longer has failed.
    """

    name: str = ""
    risk: Risk = "low"
    outward: bool | None = None
    untrusted: str = ""
    timeout_s: float = TIMEOUT_S


class FunctionTool(Tool):
    """Calls a function; `function_tool` makes one."""

    source: ClassVar[str] = "program"

    def __init__(self, function: Function, hints: dict[str, Any], options: ToolOptions) -> None:
        self._function = function
        self._hints = hints
        self._options = options
        # What may be left out by the model and not by a caller in Python.
        self._nothing = tuple(
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is inspect.Parameter.empty and takes_none(hints[parameter.name])
        )
        self.timeout_s = options.timeout_s

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk=self._options.risk, reason="runs a function of the program")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        values: dict[str, Any] = dict.fromkeys(self._nothing)
        for name, value in arguments.items():
            try:
                values[name] = msgspec.convert(value, self._hints[name], strict=False)
            except msgspec.ValidationError as error:
                return failed(f"argument `{name}` does not fit: {error}")
        try:
            value = await _called(self._function, values)
        except Exception as error:  # noqa: BLE001 - what a third-party function raises is a result
            said = f": {error}" if str(error) else ""
            return failed(f"{self.name} failed: {type(error).__name__}{said}")
        result = value if isinstance(value, ToolResult) else succeeded(_text_of(value))
        if not self._options.untrusted:
            return result
        facts = {"untrusted_source": self._options.untrusted, **result.metadata}
        return msgspec.structs.replace(result, metadata=facts)


def function_tool(function: Function, options: ToolOptions | None = None) -> FunctionTool:
    """Return the tool that calls a function.

    Raises:
        InvalidRequestError: it has no docstring, no type hints, or one that JSON cannot hold.
    """
    options = options or ToolOptions()
    given: object = function
    if not callable(given) or inspect.isclass(given):
        raise InvalidRequestError(f"{given!r} is no function", hint="Give the function itself.")
    name = options.name or getattr(function, "__name__", type(function).__name__)
    told = read_docstring(inspect.getdoc(function))
    if not told.short:
        raise InvalidRequestError(
            f"{name} has no docstring: the model reads there what it is for",
            hint=f'Begin it with a line that says so: """Find the shelf of a book."""  ({name})',
        )
    hints = _hints_of(function, name)
    facts: dict[str, Any] = {
        "name": name,
        "short": told.short[:SHORT_LIMIT],
        "description": told.text,
        "parameters": _parameters(function, hints, told.arguments, name),
        "outward": options.outward,
    }
    kind: type[FunctionTool] = type(f"FunctionTool_{name}", (FunctionTool,), facts)
    return kind(function, hints, options)


def _hints_of(function: Function, name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidRequestError(f"the type hints of {name} cannot be read: {error}") from error


def _signature(function: Function, name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"the parameters of {name} cannot be read: {error}",
            hint="Write a function around it that has type hints.",
        ) from error


def _parameters(
    function: Function, hints: dict[str, Any], described: dict[str, str], name: str
) -> Schema:
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for parameter in _signature(function, name).parameters.values():
        where = f"{name}({parameter.name})"
        if parameter.kind in _VARIADIC or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InvalidRequestError(f"{where}: a model gives arguments by name; give it a name")
        if parameter.name not in hints:
            raise InvalidRequestError(
                f"{where} has no type hint, so the model cannot be told what to give",
                hint=f"Write one, as in: def {name}({parameter.name}: str)",
            )
        hint = hints[parameter.name]
        rule = schema_of(hint, where=where)
        _check_convertible(hint, where)
        if text := described.get(parameter.name):
            rule = rule | {"description": text}
        if parameter.default is inspect.Parameter.empty and not takes_none(hint):
            required.append(parameter.name)
        properties[parameter.name] = rule | _default(parameter.default)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _check_convertible(hint: Any, where: str) -> None:
    try:
        msgspec.json.Decoder(hint)
    except TypeError as error:
        raise InvalidRequestError(f"{where}: values of {hint} cannot be told apart") from error


def _default(value: Any) -> Schema:
    return {"default": value} if isinstance(value, str | int | float) else {}


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return str(value)


async def _called(function: Function, values: dict[str, Any]) -> Any:
    """Return what the function returns; one that is not async runs in a thread of its own."""
    if _is_async(function):
        return await function(**values)
    value = await _in_own_thread(lambda: function(**values))
    return await value if isinstance(value, Awaitable) else value


def _is_async(function: Function) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _in_own_thread(act: Callable[[], Any]) -> Any:
    """Run blocking work in a daemon thread: one that never returns must not keep a program alive.

    The pool of the loop would be waited for at the end. Cancelling lets the thread run on.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(act)
        except BaseException as raised:  # noqa: BLE001 - it goes to the caller
            # A future takes no StopIteration, and a SystemExit would end the loop's thread.
            is_plain = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
            error = raised if is_plain else RuntimeError(repr(raised))
        with contextlib.suppress(RuntimeError):  # the loop ended, and nobody waits any more
            loop.call_soon_threadsafe(tell, value, error)

    threading.Thread(target=work, name="clawd-sdk-function", daemon=True).start()
    return await done


_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?):\s*$"
)
_ARGUMENTS = frozenset({"Args", "Arguments", "Parameters"})
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_PARAM = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
_FIELD = re.compile(r"^:\w+[^:]*:")


class DocstringParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a docstring says: the first line, the text before its sections, its arguments."""

    short: str = ""
    text: str = ""
    arguments: dict[str, str] = {}


def read_docstring(docstring: str | None) -> DocstringParts:
    """Return what a docstring says."""
    text: list[str] = []
    arguments: dict[str, str] = {}
    section, entry, indent = "", "", 0
    for line in inspect.cleandoc(docstring or "").splitlines():
        words = line.strip()
        if found := _SECTION.match(line):
            section, entry = found[1], ""
        elif found := _PARAM.match(words):
            section, entry, indent = "Args", found[1], len(line) - len(line.lstrip())
            arguments[entry] = found[2]
        elif _FIELD.match(words):
            section, entry = "Returns", ""
        elif not section:
            text.append(line)
        elif section in _ARGUMENTS and words:
            depth = len(line) - len(line.lstrip())
            found = _ENTRY.match(words)
            if found and (not entry or depth <= indent):
                entry, indent = found[1], depth
                arguments[entry] = found[2]
            elif entry:
                arguments[entry] = f"{arguments[entry]} {words}".strip()
    body = "\n".join(text).strip()
    return DocstringParts(short=body.partition("\n")[0].strip(), text=body, arguments=arguments)


# JSON Schema from Python type hints: what a function's parameters may be. Pure.
#
# str, int, float, bool           the JSON types of these names
# list[T], tuple[T, ...], set[T]  an array of T
# dict[str, T]                    an object of T
# Literal["a", "b"], Enum         one of these values
# T | None                        T; a parameter that may be left out
# Annotated[T, "what it is"]      T with a description
# Any                             anything

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
    """Return whether a type hint takes None."""
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
