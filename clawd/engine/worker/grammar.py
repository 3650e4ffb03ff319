"""What a request's answer is held to: schemas to one grammar, and from which text on it holds.

Pure planning. Every tool's schema is compiled alone; one that cannot be is quarantined with its
reason and the others live. Behind a trigger (the call marker that the model wrote by itself) any
other name may be called with any object as arguments, quarantined tools among them: who wants a
tool that is not there must learn that, and not be led to another one. Where a call is required,
it is one of the tools that are held to their schemas.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from clawd.engine.protocol import Grammar
from clawd.engine.worker.gbnf import Rules, SchemaError, as_json, quote
from clawd.engine.worker.schema import schema_rule

REASONING_OPEN = b"<think>"
REASONING_CLOSE = b"</think>"
MAX_KEPT = 32
MAX_NAME = 128
_MAX_LEADING_BLANKS = 256


class GrammarPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A grammar ready for llama.cpp.

    Attributes:
        gbnf: the grammar; its rule `root` is what holds.
        trigger: the text behind which it holds, again and again; empty for the whole answer.
        quarantined: tools whose schema could not be compiled, and why.
    """

    gbnf: str
    trigger: bytes = b""
    quarantined: dict[str, str] = {}


class GrammarPlanner:
    """Plans grammars and keeps the last ones: an agent asks with the same tools every time.

    `accepts` says whether llama.cpp takes a grammar.
    """

    def __init__(self, accepts: Callable[[str], bool]) -> None:
        self._accepts = accepts
        self._kept: OrderedDict[bytes, GrammarPlan] = OrderedDict()

    def plan(self, grammar: Grammar) -> GrammarPlan | None:
        """Return the plan; None when nothing is asked for.

        Raises:
            SchemaError: the one schema that is required cannot be compiled.
        """
        if grammar.kind == "none":
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
        alternatives: list[tuple[str, Any]] = []
        quarantined: dict[str, str] = {}
        for name, schema in grammar.tools.items():
            try:
                _check_name(name)
                self._check(schema)
                alternatives.append((name, schema))
            except SchemaError as error:
                quarantined[name] = str(error)
        if grammar.kind == "json_schema":
            self._check(grammar.schema)
        elif not alternatives and not grammar.lazy:
            reasons = "; ".join(f"{name}: {why}" for name, why in quarantined.items())
            raise SchemaError(f"no tool can be called under a grammar ({reasons or 'none given'})")
        plan = GrammarPlan(
            gbnf=_text(grammar, alternatives),
            trigger=grammar.call_open.encode() if grammar.lazy else b"",
            quarantined=quarantined,
        )
        if not self._accepts(plan.gbnf):
            raise SchemaError("llama.cpp does not take the grammar of all tools together")
        return plan

    def _check(self, schema: Any) -> None:
        """Compile one schema alone.

        Raises:
            SchemaError: it is not possible.
        """
        rules = Rules()
        if not self._accepts(rules.text(schema_rule(rules, schema))):
            raise SchemaError("llama.cpp does not take its grammar (does it refer to itself?)")


def _check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME:
        raise SchemaError(f"the tool's name has {len(name)} characters, expected 1 to {MAX_NAME}")


def _text(grammar: Grammar, alternatives: list[tuple[str, Any]]) -> str:
    rules = Rules()
    roots = []
    if grammar.kind == "json_schema":
        roots.append(schema_rule(rules, grammar.schema))
    if alternatives or grammar.lazy:
        roots.append(_call(rules, grammar, alternatives))
    return rules.text(rules.choice(roots))


def _call(rules: Rules, grammar: Grammar, alternatives: list[tuple[str, Any]]) -> str:
    """Return the rule of one call as the Hermes family writes it, behind the marker if lazy."""
    rest = [
        rules.add(
            f'{quote(as_json(name))} "," ws "\\"arguments\\":" ws {schema_rule(rules, schema)}'
        )
        for name, schema in alternatives
    ]
    if grammar.lazy:
        unknown = rules.other_than([name for name, _ in alternatives])
        rest.append(rules.add(f'{unknown} "," ws "\\"arguments\\":" ws object'))
    opening = "" if grammar.lazy else f"{quote(grammar.call_open)} "
    body = f'"{{" ws "\\"name\\":" ws {rules.choice(rest)} ws "}}"'
    return rules.add(f"{opening}ws {body} ws {quote(grammar.call_close)}")


class Trigger:
    """Finds in generated bytes where a grammar begins to hold; what is reasoning does not count.

    `marker` is what is looked for; an empty one is found as soon as the reasoning is over.
    """

    def __init__(self, marker: bytes, *, in_reasoning: bool = False) -> None:
        self._marker = marker
        self._held = b""
        self._is_reasoning = in_reasoning
        self._at_start = not in_reasoning

    def push(self, piece: bytes) -> bytes | None:
        """Take bytes; return those behind the marker once it is there, None before."""
        self._held += piece
        if self._at_start and not self._begin():
            return None
        if self._is_reasoning:
            before, found, after = self._held.partition(REASONING_CLOSE)
            if not found:
                self._held = before[-len(REASONING_CLOSE) + 1 :]
                return None
            self._held, self._is_reasoning = after, False
        if not self._marker:
            return self._held
        before, found, after = self._held.partition(self._marker)
        if not found:
            self._held = before[max(len(before) - len(self._marker) + 1, 0) :]
            return None
        self._held = b""
        return after

    def _begin(self) -> bool:
        """Decide whether the answer begins with reasoning, as soon as it can be told."""
        begin = self._held.lstrip()
        if REASONING_OPEN.startswith(begin) and len(self._held) <= _MAX_LEADING_BLANKS:
            return False
        self._at_start = False
        self._is_reasoning = begin.startswith(REASONING_OPEN)
        return True
