"""Rules of a grammar in Lark, as llguidance reads it: names, literals, texts up to a stop, JSON.

A schema stands in it as it is, behind `%json`; llguidance makes the rules of it.
"""

import json
from collections.abc import Sequence
from typing import Any

from clawd.engine.worker.schema import OPTIONS, SchemaError, prepared

MAX_RULES = 20_000
MAX_BYTES = 2 * 1024 * 1024
MAX_REPETITIONS = 100_000
MAX_IN_ANY_ORDER = 48

# Whatever tokens write it is taken, not only those that the tokeniser would choose.
_OPTIONS = '%llguidance {"no_forcing": true}'
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x{9f}"
# The blanks that models write; a longer run is how small ones lose themselves.
_SHARED = {
    "ws": "WS?",
    "WS": r"/ |\n[ \t]{0,20}/",
    "TEXT": f"/[^{_CONTROLS}]*/",
    "NAME": "/[a-zA-Z_][a-zA-Z_0-9]*/",
    "ID": "/[a-zA-Z0-9]{9}/",
    "DIGITS": "/[0-9]{1,3}/",
}


class Rules:
    """The rules of one grammar; equal bodies share a rule."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._size = 0

    def add(self, body: str) -> str:
        """Return the name of a rule with this body.

        Raises:
            SchemaError: the grammar becomes too large.
        """
        return self._named("r", body)

    def reserve(self) -> str:
        """Return the name of a rule that is defined later."""
        return self._define(f"r{len(self._rules)}", "")

    def define(self, name: str, body: str) -> None:
        """Give a reserved rule its body.

        Raises:
            SchemaError: the grammar becomes too large.
        """
        self._define(name, body)

    def json(self, schema: Any) -> str:
        """Return a rule for the JSON values that a schema takes.

        Raises:
            SchemaError: it is no schema, or too much of one.
        """
        ready = prepared(schema)
        if ready is False:
            raise SchemaError("the schema false allows nothing")
        options = {"x-guidance": OPTIONS}
        return self.add(f"%json {json.dumps(options if ready is True else options | ready)}")

    def choice(self, alternatives: Sequence[str]) -> str:
        """Return a rule that is one of several rules."""
        distinct = list(dict.fromkeys(alternatives))
        return distinct[0] if len(distinct) == 1 else self.add(" | ".join(distinct))

    def one_of_texts(self, texts: Sequence[str]) -> str:
        """Return a rule for one of several texts."""
        return self.choice([self.add(quote(text)) for text in sorted(set(texts))])

    def until(self, stop: str) -> str:
        """Return a rule for any text without `stop` in it, and `stop` behind it."""
        body = f"TEXT {quote(stop)}"
        if body not in self._names:
            name = f"r{len(self._rules)}"
            self._names[body] = name
            self._define(f"{name}[lazy]", body)
        return self._names[body]

    def bounded(self, excluded: str, low: int, high: int | None) -> str:
        """Return a terminal for text of bounded length without some characters.

        Raises:
            SchemaError: more than a grammar can count.
        """
        inside = "".join(f"\\x{{{ord(char):x}}}" for char in sorted(set(excluded)))
        return self._named("T", f"/[^{_CONTROLS}{inside}]{_counted(low, high)}/")

    def repeat(self, item: str, low: int, high: int | None) -> str:
        """Return an expression for `low` to `high` items (None: any number).

        Raises:
            SchemaError: more than a grammar can count.
        """
        return f"{item}{_counted(low, high)}"

    def members(self, members: Sequence[tuple[str, bool]], separator: str) -> str:
        """Return a rule for one or more members, each (rule, is required); "" for none.

        Each comes once at most, up to MAX_IN_ANY_ORDER in any order, more in the one given.
        `separator` is the expression between two.
        """
        if not members or len(members) > MAX_IN_ANY_ORDER:
            return self._in_order(members, separator)
        first, more = self.reserve(), self.reserve()
        chosen = " | ".join(
            f"{rule} {more}::set_bit({at}) %if bit_clear({at})"
            for at, (rule, _) in enumerate(members)
        )
        required = [f"bit_set({at})" for at, (_, must) in enumerate(members) if must]
        whole = "true"
        for condition in required:
            whole = condition if whole == "true" else f"and({whole}, {condition})"
        self._define(f"{first}::_", chosen)
        # Not behind the last one: a separator there leads nowhere.
        others = f"{separator} {first}::_ %if not(is_ones([0:{len(members)}]))"
        self._define(f"{more}::_", f'"" %if {whole} | {others}')
        return f"{first}::0x0"

    def text(self, root: str) -> str:
        """Return the grammar, beginning with the rule `start`."""
        lines = [_OPTIONS, f"start: {root}"]
        lines += [f"{name}: {body}" for name, body in (_SHARED | self._rules).items() if body]
        return "\n".join(lines) + "\n"

    def _in_order(self, members: Sequence[tuple[str, bool]], separator: str) -> str:
        """Return a rule for members in their order, made from the last to the first.

        `first` begins with one of the members from here on, `more` may follow a member. After a
        separator few rules are open at a time, not one per subset.
        """
        first, more, must = "", '""', False
        for rule, is_required in reversed(members):
            here = self.add(f"{rule} {more}")
            first = here if is_required or not first else self.add(f"{here} | {first}")
            must = must or is_required
            following = f"{separator} {first}"
            more = self.add(following if must else f"({following})?")
        return first

    def _named(self, prefix: str, body: str) -> str:
        name = self._names.get(body)
        if name is None:
            name = self._names[body] = self._define(f"{prefix}{len(self._rules)}", body)
        return name

    def _define(self, name: str, body: str) -> str:
        self._rules[name] = body
        self._size += len(body)
        if len(self._rules) > MAX_RULES or self._size > MAX_BYTES:
            raise SchemaError(
                f"the schema needs more than {MAX_RULES} rules or {MAX_BYTES >> 20} MiB of grammar"
            )
        return name


def as_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def quote(text: str) -> str:
    """Return text as a literal."""
    return json.dumps(text, ensure_ascii=False)


def _counted(low: int, high: int | None) -> str:
    if max(low, high or 0) > MAX_REPETITIONS:
        raise SchemaError(f"{max(low, high or 0)} repetitions are over {MAX_REPETITIONS}")
    if high is not None and high < low:
        raise SchemaError(f"at least {low} and at most {high} contradict each other")
    return f"{{{low},{'' if high is None else high}}}"
