"""What a request's answer is held to: schemas to one grammar, and from which text on it holds.

Pure planning. Where a tool's schema cannot be held whole, what cannot be is left out and named,
and the others live. A call, whether it is required or a model began it by itself, is one of a tool
that is offered.
"""

import contextlib
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from clawd.engine.protocol import CallFrame, Grammar
from clawd.engine.worker.guidance import Matcher, MissingError, SlowError
from clawd.engine.worker.lark import Rules, as_json, quote
from clawd.engine.worker.parameters import arguments_rule, frame_text
from clawd.engine.worker.schema import LOOSENED, SchemaError, whereabouts, without

REASONING_OPEN = b"<think>"
MAX_KEPT = 32
MAX_NAME = 128
THE_ANSWER = ""  # as no tool is called


class GrammarPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A grammar at its beginning.

    Attributes:
        matcher: what holds; None where there is nothing to hold with.
        markers: texts with which it begins to hold, again and again; it describes them as well.
        starts: such texts that count as the first thing of an answer only.
        is_lazy: it waits for one of these, and may end before the answer does.
        is_last: nothing follows what it describes.
        thoughts: the markers around reasoning, which it leaves alone.
        in_reasoning: the prompt ends within reasoning.
        quarantined: tools whose schema is not held whole, and why; by the name "" what was left
            out of the schema of the answer itself.
    """

    matcher: Matcher | None = None
    markers: tuple[bytes, ...] = ()
    starts: tuple[bytes, ...] = ()
    is_lazy: bool = False
    is_last: bool = False
    thoughts: tuple[tuple[bytes, bytes], ...] = ((REASONING_OPEN, b"</think>"),)
    in_reasoning: bool = False
    quarantined: dict[str, str] = {}


class GrammarPlanner:
    """Plans grammars and keeps the last ones: an agent asks with the same tools every time.

    `compile_text` makes a matcher of a grammar, or raises SchemaError (guidance.py).
    """

    def __init__(self, compile_text: Callable[[str], Matcher]) -> None:
        self._compile = compile_text
        self._kept: OrderedDict[bytes, GrammarPlan] = OrderedDict()

    def plan(self, grammar: Grammar) -> GrammarPlan | None:
        """Return the plan; None when nothing is asked for, or nothing tells where a call begins.

        Raises:
            SchemaError: the one schema that is required cannot be held.
        """
        if grammar.kind == "none" or (grammar.lazy and not _frames(grammar)):
            return None
        try:
            key = msgspec.msgpack.encode(grammar)
        except RecursionError:
            raise SchemaError("a schema is nested too deeply") from None
        plan = self._kept.get(key)
        if plan is None:
            plan = self._kept[key] = self._planned(grammar)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return plan

    def _planned(self, grammar: Grammar) -> GrammarPlan:
        frames = _frames(grammar)
        noted: dict[str, str] = {}
        matcher, wanted = None, grammar
        try:
            matcher = self._compile(_text(grammar, frames))
        except (MissingError, SlowError) as error:
            if not grammar.lazy:
                raise
            noted = dict.fromkeys(grammar.tools, str(error))
        except SchemaError:
            # Which one is it? Each is tried by itself, and then what is left of all.
            wanted, noted = self._holdable(grammar, frames)
            matcher = self._compile(_text(wanted, frames))
        names = list(wanted.tools)
        found = {at_start: _markers(frames, names, at_start=at_start) for at_start in (True, False)}
        return GrammarPlan(
            matcher=matcher,
            markers=found[False] if grammar.lazy else (),
            starts=found[True] if grammar.lazy else (),
            is_lazy=grammar.lazy,
            is_last=grammar.single,
            thoughts=tuple((begin.encode(), end.encode()) for begin, end in grammar.thoughts),
            in_reasoning=grammar.in_reasoning,
            quarantined=noted,
        )

    def _holdable(
        self, grammar: Grammar, frames: tuple[CallFrame, ...]
    ) -> tuple[Grammar, dict[str, str]]:
        """Return what of a request can be held, and what was left out of it, and why.

        Raises:
            SchemaError: the schema of the answer cannot be, and nothing may be left out of it, or
                no tool that is required.
        """
        schema, tools, noted = grammar.schema, dict[str, Any](), dict[str, str]()
        if grammar.kind == "json_schema":
            schema, told = self._loosened(schema, None, is_strict=not grammar.loose)
            noted |= {THE_ANSWER: told} if told else {}
        forms = list({repr(frame.parameters): frame.parameters for frame in frames}.values())
        for name, given in grammar.tools.items():
            try:
                _check_name(name)
                tools[name], told = given, ""
                for form in forms:
                    held = partial(arguments_rule, form=form)
                    tools[name], more = self._loosened(tools[name], held, is_strict=False)
                    told = told or more
            except SchemaError as error:
                tools.pop(name, None)
                told = str(error)
                if grammar.lazy and name and len(name) <= MAX_NAME:
                    tools[name] = True
            noted |= {name: told} if told else {}
        if not tools and grammar.kind == "tool_call":
            reasons = "; ".join(f"{name}: {why}" for name, why in noted.items())
            raise SchemaError(f"no tool can be called under a grammar ({reasons or 'none given'})")
        return msgspec.structs.replace(grammar, schema=schema, tools=tools), noted

    def _loosened(
        self, schema: Any, held: Callable[..., str] | None, *, is_strict: bool
    ) -> tuple[Any, str]:
        """Return a schema as it can be held, and what was left out of it, and why.

        `held` adds to rules what it describes; None for its JSON.

        Raises:
            SchemaError: it cannot be, and nothing may be left out or that does not help.
        """

        def check(tried: Any) -> None:
            rules = Rules()
            self._compile(rules.text(held(rules, schema=tried) if held else rules.json(tried)))

        try:
            check(schema)
        except SlowError:
            raise
        except SchemaError as error:
            refused = SchemaError(f"{error}{whereabouts(schema, str(error))}")
        else:
            return schema, ""
        if is_strict:
            raise refused
        for names in LOOSENED:
            looser, had = without(schema, names)
            with contextlib.suppress(SchemaError):
                check(looser)
                return looser, f"{', '.join(sorted(had))} ({refused})"
        raise refused


def _frames(grammar: Grammar) -> tuple[CallFrame, ...]:
    """Return the frames in which a call may come: by itself in any that has a marker."""
    if grammar.lazy:
        return tuple(frame for frame in grammar.frames if frame.marker)
    return grammar.frames[:1]


def _markers(
    frames: tuple[CallFrame, ...], names: list[str], *, at_start: bool
) -> tuple[bytes, ...]:
    found = [markers(frame, names) for frame in frames if frame.at_start is at_start]
    return tuple(dict.fromkeys(marker for some in found for marker in some))


def _check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME:
        raise SchemaError(f"the tool's name has {len(name)} characters, expected 1 to {MAX_NAME}")


def _text(grammar: Grammar, frames: tuple[CallFrame, ...]) -> str:
    """Return the grammar of everything together.

    Raises:
        SchemaError: something of it cannot be held.
    """
    rules = Rules()
    roots = []
    if grammar.kind == "json_schema":
        roots.append(rules.json(grammar.schema))
    parallel = (grammar.parallel or grammar.lazy) and not grammar.single
    for name in grammar.tools:
        _check_name(name)
    if grammar.tools:
        tools = list(grammar.tools.items())
        roots += [calls_rule(rules, frame, tools, parallel=parallel) for frame in frames]
    if not roots:
        raise SchemaError("no tool can be called")
    return rules.text(rules.choice(roots))


_NAME = re.compile(r'%(?:name|"name")%')

Tools = Sequence[tuple[str, Any]]


def calls_rule(rules: Rules, frame: CallFrame, tools: Tools, *, parallel: bool) -> str:
    """Return the rule of what an answer's calls are in a frame.

    Args:
        rules: the grammar.
        frame: how they are written.
        tools: names and schemas of those that may be called.
        parallel: several calls may stand in a row, where the frame has that.

    Raises:
        SchemaError: no grammar can be made of it.
    """
    call = _call(rules, frame, tools)
    row = call
    if parallel and frame.separator is not None:
        row = f"{call} ({frame_text(frame.separator)} {call})*"
    return rules.add(f"{frame_text(frame.opening)} {row} {frame_text(frame.closing)}".strip())


def markers(frame: CallFrame, names: Sequence[str]) -> list[bytes]:
    """Return what tells that a call of one of these tools has begun; nothing where it cannot."""
    if not _NAME.search(frame.marker):
        return [frame.marker.encode()] if frame.marker else []
    return [
        frame.marker.replace("%name%", name).replace('%"name"%', as_json(name)).encode()
        for name in names
    ]


def _call(rules: Rules, frame: CallFrame, tools: Tools) -> str:
    before, hole, rest = _split(frame.call)
    between, _, after = rest.partition("%arguments%")
    is_json = hole == '%"name"%'
    found = []
    for name, schema in tools:
        written = quote(as_json(name) if is_json else name)
        arguments = arguments_rule(rules, frame.parameters, schema)
        found.append(rules.add(f"{written} {frame_text(between)} {arguments}"))
    return rules.add(f"{frame_text(before)} {rules.choice(found)} {frame_text(after)}".strip())


def _split(call: str) -> tuple[str, str, str]:
    found = _NAME.search(call)
    assert found is not None, f"a frame without a name: {call!r}"
    return call[: found.start()], found[0], call[found.end() :]
