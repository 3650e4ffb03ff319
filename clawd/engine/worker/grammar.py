"""What a request's answer is held to: schemas to one grammar, and from which text on it holds.

Pure planning. Every tool's schema is compiled alone; one that cannot be is quarantined with its
reason and the others live. Where a model began a call by itself any other name may be called with
any object as arguments, quarantined tools among them: who wants a tool that is not there must
learn that, and not be led to another one. Where a call is required, it is one of the tools that
are held to their schemas.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from clawd.engine.protocol import CallFrame, Grammar
from clawd.engine.worker.frames import Tools, calls_rule, markers
from clawd.engine.worker.gbnf import Rules, SchemaError
from clawd.engine.worker.parameters import arguments_rule
from clawd.engine.worker.schema import LOOSENED, schema_rule, without

REASONING_OPEN = b"<think>"
MAX_KEPT = 32
MAX_NAME = 128
THE_ANSWER = ""  # as no tool is called


class GrammarPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A grammar ready for llama.cpp.

    Attributes:
        gbnf: the grammar; its rule `root` is what holds.
        markers: texts with which it begins to hold, again and again; it describes them as well.
        starts: such texts that count as the first thing of an answer only.
        is_lazy: it waits for one of these, and may end before the answer does.
        is_last: nothing follows what it describes.
        thoughts: the markers around reasoning, which it leaves alone.
        in_reasoning: the prompt ends within reasoning.
        quarantined: tools whose schema could not be compiled, and why; by the name "" what was
            left out of the schema of the answer itself.
    """

    gbnf: str
    markers: tuple[bytes, ...] = ()
    starts: tuple[bytes, ...] = ()
    is_lazy: bool = False
    is_last: bool = False
    thoughts: tuple[tuple[bytes, bytes], ...] = ((REASONING_OPEN, b"</think>"),)
    in_reasoning: bool = False
    quarantined: dict[str, str] = {}


class GrammarPlanner:
    """Plans grammars and keeps the last ones: an agent asks with the same tools every time.

    `accepts` says whether llama.cpp takes a grammar.
    """

    def __init__(self, accepts: Callable[[str], bool]) -> None:
        self._accepts = accepts
        self._kept: OrderedDict[bytes, GrammarPlan] = OrderedDict()

    def plan(self, grammar: Grammar) -> GrammarPlan | None:
        """Return the plan; None when nothing is asked for, or nothing tells where a call begins.

        Raises:
            SchemaError: the one schema that is required cannot be compiled.
        """
        if grammar.kind == "none" or (grammar.lazy and not _frames(grammar)):
            return None
        key = msgspec.msgpack.encode(grammar)
        plan = self._kept.get(key)
        if plan is None:
            plan = self._kept[key] = self._planned(grammar)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return plan

    def _planned(self, grammar: Grammar) -> GrammarPlan:
        frames = _frames(grammar)
        tools, quarantined = self._sorted_out(grammar.tools, frames)
        if grammar.kind == "json_schema":
            schema, left_out = self._holdable(grammar)
            grammar = msgspec.structs.replace(grammar, schema=schema)
            quarantined |= {THE_ANSWER: left_out} if left_out else {}
        elif not tools and not grammar.lazy:
            reasons = "; ".join(f"{name}: {why}" for name, why in quarantined.items())
            raise SchemaError(f"no tool can be called under a grammar ({reasons or 'none given'})")
        found = {at_start: _markers(frames, tools, at_start=at_start) for at_start in (True, False)}
        plan = GrammarPlan(
            gbnf=_text(grammar, frames, tools),
            markers=found[False] if grammar.lazy else (),
            starts=found[True] if grammar.lazy else (),
            is_lazy=grammar.lazy,
            is_last=grammar.single,
            thoughts=tuple((begin.encode(), end.encode()) for begin, end in grammar.thoughts),
            in_reasoning=grammar.in_reasoning,
            quarantined=quarantined,
        )
        if not self._accepts(plan.gbnf):
            raise SchemaError("llama.cpp does not take the grammar of all tools together")
        return plan

    def _sorted_out(
        self, given: dict[str, Any], frames: tuple[CallFrame, ...]
    ) -> tuple[Tools, dict[str, str]]:
        """Return the tools that can be held in all of these frames, and why the others cannot."""
        forms = list({repr(frame.parameters): frame.parameters for frame in frames}.values())
        tools: list[tuple[str, Any]] = []
        quarantined: dict[str, str] = {}
        for name, schema in given.items():
            try:
                _check_name(name)
                for form in forms:
                    self._check(partial(arguments_rule, form=form, schema=schema))
                tools.append((name, schema))
            except SchemaError as error:
                quarantined[name] = str(error)
        return tools, quarantined

    def _holdable(self, grammar: Grammar) -> tuple[Any, str]:
        """Return the schema of an answer as it can be held, and what was left out of it, and why.

        Raises:
            SchemaError: it cannot be, and nothing may be left out or that does not help.
        """

        def check(schema: Any) -> None:
            self._check(lambda rules: schema_rule(rules, schema))

        try:
            check(grammar.schema)
        except SchemaError as error:
            if not grammar.loose:
                raise
            refused = error
        else:
            return grammar.schema, ""
        for names in LOOSENED:
            schema, had = without(grammar.schema, names)
            with contextlib.suppress(SchemaError):
                check(schema)
                return schema, f"{', '.join(sorted(had))} ({refused})"
        raise refused

    def _check(self, compile_one: Callable[[Rules], str]) -> None:
        """Compile one schema alone.

        Raises:
            SchemaError: it is not possible.
        """
        rules = Rules()
        if not self._accepts(rules.text(compile_one(rules))):
            raise SchemaError("llama.cpp does not take its grammar (does it refer to itself?)")


def _frames(grammar: Grammar) -> tuple[CallFrame, ...]:
    """Return the frames in which a call may come: by itself in any that has a marker."""
    if grammar.lazy:
        return tuple(frame for frame in grammar.frames if frame.marker)
    return grammar.frames[:1]


def _markers(frames: tuple[CallFrame, ...], tools: Tools, *, at_start: bool) -> tuple[bytes, ...]:
    found = [markers(frame, tools) for frame in frames if frame.at_start is at_start]
    return tuple(dict.fromkeys(marker for some in found for marker in some))


def _check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME:
        raise SchemaError(f"the tool's name has {len(name)} characters, expected 1 to {MAX_NAME}")


def _text(grammar: Grammar, frames: tuple[CallFrame, ...], tools: Tools) -> str:
    rules = Rules()
    roots = []
    if grammar.kind == "json_schema":
        roots.append(schema_rule(rules, grammar.schema))
    parallel = (grammar.parallel or grammar.lazy) and not grammar.single
    if tools or grammar.lazy:
        roots += [
            calls_rule(rules, frame, tools, lazy=grammar.lazy, parallel=parallel)
            for frame in frames
        ]
    return rules.text(rules.choice(roots))
