"""Reads a chat template for what its prompts end with, without running it.

    {% if add_generation_prompt %}<|assistant|>{{ '<think>' if enable_thinking else '' }}{% endif %}

Templates are not trusted and are rendered in the worker only. Here the parsed template is walked
once: loops and calls count as unknown text, what nobody sets is undefined, and an unknown condition
counts as true, for it asks for what a usual conversation has (a user's message at its end).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jinja2
import jinja2.meta
from jinja2 import nodes

_MAX_CHARACTERS = 512 * 1024
# A tag of Hugging Face's, around what a model generated.
_GENERATION = re.compile(r"\{%[-+]?[ \t\n]{0,8}(?:end)?generation[ \t\n]{0,8}[-+]?%\}")
_GIVEN = frozenset({"messages", "tools", "bos_token", "eos_token"})
_END_CHARACTERS = 4096

UNKNOWN = type("_Unknown", (), {})()
UNDEFINED = type("_Undefined", (), {})()
_UNKNOWN_TEXT = "\0"


def prompt_end(template: str) -> str:
    """Return the end of a template's prompts without blanks behind it, "" when it is not read."""
    if len(template) > _MAX_CHARACTERS:
        return ""
    try:
        environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)
        walk = _Walk()
        walk.run(environment.parse(_GENERATION.sub("", template)).body)
    except (jinja2.TemplateError, RecursionError):
        return ""
    # Unknown text at the end, such as an answer to go on with, is usually none.
    return walk.written().rstrip(f"{_UNKNOWN_TEXT} \t\n")


def variables_of(template: str) -> frozenset[str]:
    """Return the names that a template reads and nobody in it sets; none when it is not read."""
    if len(template) > _MAX_CHARACTERS:
        return frozenset()
    try:
        environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)
        tree = environment.parse(_GENERATION.sub("", template))
        return frozenset(jinja2.meta.find_undeclared_variables(tree))
    except (jinja2.TemplateError, RecursionError):
        return frozenset()


class _Walk:
    """Walks statements; attributes of namespaces are kept as `name.attribute`."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {"add_generation_prompt": True}
        self._known |= dict.fromkeys(_GIVEN, UNKNOWN)
        self._out = ""
        # Each takes the kind of node that it stands beside.
        self._readers: dict[type[nodes.Node], Callable[[Any], Any]] = {
            nodes.Name: self._named,
            nodes.Getattr: self._named,
            nodes.Concat: self._concatenated,
            nodes.Add: self._added,
            nodes.CondExpr: self._one_of,
            nodes.Filter: self._filtered,
            nodes.Compare: self._compared,
            nodes.Test: self._tested,
            nodes.Not: self._negated,
            nodes.And: self._both,
            nodes.Or: self._either,
        }

    def written(self) -> str:
        return self._out

    def run(self, body: Sequence[nodes.Node]) -> None:
        for node in body:
            match node:
                case nodes.Output():
                    for part in node.nodes:
                        self._write(self._value(part))
                case nodes.If():
                    self._choose(node)
                case nodes.Assign():
                    self._assign(node)
                case _:
                    self._forget(node)

    def _write(self, value: Any) -> None:
        self._out = (self._out + _text(value))[-_END_CHARACTERS:]

    def _choose(self, node: nodes.If) -> None:
        for branch in (node, *node.elif_):
            if self._truth(branch.test) is not False:
                self.run(branch.body)
                return
        self.run(node.else_)

    def _assign(self, node: nodes.Assign) -> None:
        value = node.node
        if isinstance(value, nodes.Call) and isinstance(node.target, nodes.Name):
            for pair in value.kwargs:
                self._known[f"{node.target.name}.{pair.key}"] = self._value(pair.value)
        if name := _name(node.target):
            self._known[name] = self._value(value)

    def _forget(self, node: nodes.Node) -> None:
        """Take what is not followed, such as a loop: what it sets and writes is unknown.

        A switch that is on stays on: messages that turn reasoning off are the rare ones.
        """
        targets = [one.target for one in node.find_all(nodes.Assign)]
        targets += [one.target for one in node.find_all(nodes.AssignBlock)]
        for name in map(_name, targets):
            if name and self._known.get(name) is not True:
                self._known[name] = UNKNOWN
        if isinstance(node, nodes.For):
            self._write(UNKNOWN)

    def _truth(self, node: nodes.Node) -> bool | None:
        """Return whether a condition holds; None when that is unknown."""
        value = self._value(node)
        if value is UNKNOWN:
            return None
        return False if value is UNDEFINED else bool(value)

    def _value(self, node: nodes.Node) -> Any:
        if isinstance(node, nodes.TemplateData):
            return node.data
        if isinstance(node, nodes.Const):
            return node.value
        read = self._readers.get(type(node))
        return UNKNOWN if read is None else read(node)

    def _named(self, node: nodes.Node) -> Any:
        name = _name(node)
        if name in self._known:
            return self._known[name]
        return UNDEFINED if isinstance(node, nodes.Name) else UNKNOWN

    def _one_of(self, node: nodes.CondExpr) -> Any:
        if self._truth(node.test) is not False:
            return self._value(node.expr1)
        return self._value(node.expr2) if node.expr2 is not None else ""

    def _filtered(self, node: nodes.Filter) -> Any:
        value = self._value(node.node) if node.node is not None else UNKNOWN
        if node.name in {"default", "d"} and value is UNDEFINED:
            return self._value(node.args[0]) if node.args else ""
        if node.name in {"default", "d", "string", "safe"}:
            return value
        return value.strip() if node.name == "trim" and isinstance(value, str) else UNKNOWN

    def _concatenated(self, node: nodes.Concat) -> str:
        return "".join(_text(self._value(part)) for part in node.nodes)

    def _added(self, node: nodes.Add) -> Any:
        left, right = self._value(node.left), self._value(node.right)
        is_text = isinstance(left, str) or isinstance(right, str)
        return _text(left) + _text(right) if is_text else UNKNOWN

    def _negated(self, node: nodes.Not) -> Any:
        inner = self._truth(node.node)
        return UNKNOWN if inner is None else not inner

    def _both(self, node: nodes.And) -> Any:
        both = {self._truth(node.left), self._truth(node.right)}
        return False if False in both else UNKNOWN if None in both else True

    def _either(self, node: nodes.Or) -> Any:
        either = {self._truth(node.left), self._truth(node.right)}
        return True if True in either else UNKNOWN if None in either else False

    def _compared(self, node: nodes.Compare) -> Any:
        sides = (self._value(node.expr), self._value(node.ops[0].expr))
        is_partial = any(isinstance(side, str) and _UNKNOWN_TEXT in side for side in sides)
        if len(node.ops) != 1 or UNKNOWN in sides or is_partial:
            return UNKNOWN
        operator = node.ops[0].op
        if operator not in {"eq", "ne"}:
            return UNKNOWN
        return (sides[0] == sides[1]) is (operator == "eq")

    def _tested(self, node: nodes.Test) -> Any:
        value = self._value(node.node)
        if value is UNKNOWN:
            return UNKNOWN
        kinds = {
            "defined": value is not UNDEFINED,
            "undefined": value is UNDEFINED,
            "none": value is None,
            "true": value is True,
            "false": value is False,
            "string": isinstance(value, str),
            "boolean": isinstance(value, bool),
        }
        return kinds.get(node.name, UNKNOWN)


def _name(node: nodes.Node) -> str:
    """Return what a name is kept under, "" for what is none."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.NSRef):
        return f"{node.name}.{node.attr}"
    owner = _name(node.node) if isinstance(node, nodes.Getattr) else ""
    return f"{owner}.{node.attr}" if isinstance(node, nodes.Getattr) and owner else ""


def _text(value: Any) -> str:
    if value is UNDEFINED:
        return ""
    return value if isinstance(value, str) else _UNKNOWN_TEXT
