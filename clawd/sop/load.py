"""Reading a SOP.toml: the procedure, or all that is wrong with it, each with line and key. Pure.

    name = "daily-check"
    description = "Looks at the disk and says what is wrong."

    [[steps]]
    id = "disk"
    kind = "shell"
    command = "df -h ."
    on_failure = "retry(2) then continue"

    [[steps]]
    id = "report"
    kind = "tool"
    tool = "file_write"
    args = { path = "report.md", content_from = "disk" }

What a step refers to stands before it. `NAME_from` in `args` gives the argument NAME the output of
an earlier step.

What a procedure is: its inputs, its steps and its limits, as `load` makes it of a SOP.toml.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from clawd.sop.expressions import (
    RUN_FIELDS,
    STEP_FIELDS,
    TYPES,
    ExpressionError,
    ValueType,
    expressions_of,
    parse,
    problem_of_value,
    references,
    schema_problem,
    texts_of,
    type_of,
    unquoted_problem,
    whole_expression,
)
from clawd.wire.safe_text import shortened
from clawd.wire.sops import SopProblem

FILE_NAME = "SOP.toml"
NAME_PATTERN = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
ID_PATTERN = r"[a-z][a-z0-9]*([_-][a-z0-9]+)*"
MAX_NAME = 64
MAX_STEPS = 100
MAX_ITEMS = 100
MAX_RETRIES = 9
MAX_DEPTH = 4
STEP_BUDGET = 200
MAX_STEP_S = 86_400.0
RESERVED_IDS = frozenset(
    {"inputs", "item", "index", "run", "true", "false", "and", "or", "not", "in"}
)

StepKind = Literal["tool", "agent", "approval", "shell", "sub"]
InputType = Literal["string", "integer", "number", "boolean"]


class OnFailure(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a step that failed: so many more attempts, then one of three ways."""

    retries: int = 0
    then: Literal["abort", "continue", "goto"] = "abort"
    target: str = ""


class SopStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step.

    Attributes:
        when: an expression; where it is false the step is skipped. "" is always.
        foreach: an expression for a list; the step is done once per item. "" is once.
        timeout_s: of one attempt; 0 leaves it to the limits of what is called.
        compensation: id of the compensation that takes back what the step did, or "".
        idempotent: it may be repeated though nobody knows whether it happened.
        tool: of kind tool, with the arguments; texts in them may be templates.
        command: of kind shell, a template.
        prompt: of kind agent and approval, a template.
        agent: of kind agent, the name of the configured one; "" is the plain one.
        tools: of kind agent, patterns that the tools must match as well; empty for all.
        max_rounds: of kind agent; 0 is as configured.
        output_schema: of kind agent, what the answer is held to; None for text.
        sop: of kind sub, the name of the procedure, with its inputs, which may be templates.
    """

    id: str
    kind: StepKind
    when: str = ""
    foreach: str = ""
    on_failure: OnFailure = OnFailure()
    timeout_s: float = 0.0
    compensation: str = ""
    idempotent: bool = False
    tool: str = ""
    args: dict[str, Any] = {}
    command: str = ""
    prompt: str = ""
    agent: str = ""
    tools: tuple[str, ...] = ()
    max_rounds: int = 0
    output_schema: dict[str, Any] | None = None
    sop: str = ""
    inputs: dict[str, Any] = {}


class SopInput(msgspec.Struct, frozen=True, kw_only=True):
    """What is given to a run; without a default it must be."""

    name: str
    type: InputType = "string"
    description: str = ""
    default: str | int | float | bool | None = None


class SopBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How much one run may do: attempts of steps, and tokens of agents (0 is without a limit)."""

    steps: int = STEP_BUDGET
    tokens: int = 0


class Procedure(msgspec.Struct, frozen=True, kw_only=True):
    """A SOP.toml that nothing is wrong with."""

    name: str
    description: str
    inputs: tuple[SopInput, ...] = ()
    budget: SopBudget = SopBudget()
    steps: tuple[SopStep, ...] = ()
    compensations: tuple[SopStep, ...] = ()

    def step(self, identity: str) -> SopStep:
        """Return the step or compensation of this id; `load` saw to it that there is one."""
        return next(each for each in (*self.steps, *self.compensations) if each.id == identity)


MAX_FILE_BYTES = 64 * 1024
MAX_PROBLEMS = 100
FROM = "_from"

Schemas = Callable[[str], Mapping[str, Any] | None]
"""Returns the schema of a tool's arguments; None where there is no such tool."""

_COMMON = {
    "id": "string",
    "kind": "string",
    "when": "string",
    "foreach": "string",
    "on_failure": "string",
    "timeout_s": "number",
    "compensation": "string",
    "idempotent": "boolean",
}
_OWN: dict[str, dict[str, str]] = {
    "tool": {"tool": "string", "args": "object"},
    "shell": {"command": "string"},
    "agent": {
        "prompt": "string",
        "agent": "string",
        "tools": "array",
        "max_rounds": "integer",
        "output_schema": "object",
    },
    "approval": {"prompt": "string"},
    "sub": {"sop": "string", "inputs": "object"},
}
_NEEDED = {
    "tool": "tool",
    "shell": "command",
    "agent": "prompt",
    "approval": "prompt",
    "sub": "sop",
}
_TOP = {
    "name": "string",
    "description": "string",
    "inputs": "object",
    "budget": "object",
    "steps": "array",
    "compensations": "array",
}
_INPUT = {"type": "string", "description": "string", "default": "any"}
_BUDGET = {"steps": "integer", "tokens": "integer"}
_LEAST = {"timeout_s": 0.1, "max_rounds": 1, "steps": 1, "tokens": 1}
_MOST = {"timeout_s": MAX_STEP_S, "max_rounds": 1000, "steps": 10_000, "tokens": 2**40}
_MAX_TEXT = {"name": MAX_NAME, "description": 1024, "id": MAX_NAME}
_ON_FAILURE = re.compile(
    r"(?:retry\((?P<times>\d+)\))?(?P<and> then )?"
    r"(?P<then>abort|continue|goto\((?P<target>[^()]*)\))?"
)
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")

Key = tuple[str | int, ...]


class ReadProcedure(NamedTuple):
    """What a file holds: the procedure as far as it can be read, and what is wrong with it."""

    procedure: Procedure
    problems: tuple[SopProblem, ...]


def load(data: bytes, folder: str, schemas: Schemas) -> ReadProcedure:
    """Read a SOP.toml.

    Args:
        data: the file.
        folder: the name of its folder, which is the procedure's; "" where it has none.
        schemas: knows the tools.
    """
    nothing = Procedure(name=folder, description="")
    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"it has {len(data)} bytes; at most {MAX_FILE_BYTES} are read")
        text = data.decode()
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        found = _AT.search(str(error))
        at = data if "end of document" in str(error) else data[: getattr(error, "start", 0)]
        line = int(found[1]) if found else at.count(b"\n") + 1
        problem = SopProblem(line=line, text=f"no TOML: {shortened(str(error), 200)}")
        return ReadProcedure(nothing, (problem,))
    return _Checker(tree, lines_of(text), schemas).loaded(folder)


class _Checker:
    """Checks one file; notes what is wrong and goes on."""

    def __init__(self, tree: Mapping[str, Any], lines: Mapping[Key, int], schemas: Schemas) -> None:
        self._tree = tree
        self._lines = lines
        self._schemas = schemas
        self._problems: list[SopProblem] = []
        self._inputs: dict[str, ValueType] = {}
        self._known: dict[str, SopStep] = {}  # the steps that stand before the one looked at

    def loaded(self, folder: str) -> ReadProcedure:
        """Return the procedure, and the problems in the order of lines."""
        tree = self._table((), self._tree, _TOP)
        name = tree.get("name", "")
        for key in ("name", "description"):
            if not str(tree.get(key, "")).strip():
                self._note((key,), "is missing or empty")
        if name and not re.fullmatch(NAME_PATTERN, name):
            self._note(("name",), f"{name!r:.80} must be lower-case words with hyphens")
        elif name and folder and name != folder:
            self._note(("name",), f"is {name!r:.80}, but the folder is {folder!r:.80}")
        inputs = tuple(self._each_input(tree.get("inputs", {})))
        budget = self._table(("budget",), tree.get("budget", {}), _BUDGET)
        compensations = self._compensations(tree)
        steps = self._steps(tree, "steps", {each.id for each in compensations})
        if not steps and "steps" in tree:
            self._note(("steps",), "there must be at least one step")
        elif "steps" not in tree:
            self._note(("steps",), "is missing: there must be at least one step")
        self._check_targets(steps, compensations)
        for each in compensations:
            self._check_step(each, ("compensations", self._places[each.id]))
        procedure = Procedure(
            name=name,
            description=tree.get("description", ""),
            inputs=inputs,
            budget=SopBudget(**budget),
            steps=steps,
            compensations=compensations,
        )
        ordered = sorted(self._problems, key=lambda each: each.line)
        return ReadProcedure(procedure, tuple(ordered[:MAX_PROBLEMS]))

    # --- tables

    def _note(self, key: Key, text: str) -> None:
        at = key
        while at and at not in self._lines:
            at = at[:-1]
        line = self._lines.get(at, 1)
        self._problems.append(SopProblem(line=line, key=dotted(key), text=text))

    def _table(self, at: Key, found: object, keys: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of a table that have a known key and the right type and size."""
        good: dict[str, Any] = {}
        if not isinstance(found, dict):
            self._note(at, "must be a table")
            return good
        for name, value in found.items():
            key = (*at, name)
            if name not in keys:
                self._note(key, f"is not known here; known are {', '.join(keys)}")
            elif keys[name] != "any" and not TYPES[keys[name]](value):
                self._note(key, f"must be {_AN[keys[name]]}")
            elif not isinstance(value, list) and not _is_in_bounds(name, value):
                self._note(key, f"is {value}; it must be {_LEAST[name]:g} to {_MOST[name]:g}")
            elif isinstance(value, str) and len(value) > _MAX_TEXT.get(name, MAX_FILE_BYTES):
                self._note(key, f"has {len(value)} characters; at most {_MAX_TEXT[name]} are taken")
            elif isinstance(value, str) and _is_hidden(value):
                self._note(key, "holds control or hidden characters")
            else:
                good[name] = value
        return good

    def _each_input(self, found: object) -> Iterator[SopInput]:
        if not isinstance(found, dict):
            return
        for name, value in found.items():
            key: Key = ("inputs", name)
            if not re.fullmatch(ID_PATTERN, name):
                self._note(key, f"{name!r:.80} is no name: lower-case letters, digits, _ and -")
            given = self._table(key, value, _INPUT)
            kind = given.get("type", "string")
            if kind not in ("string", "integer", "number", "boolean"):
                self._note(
                    (*key, "type"), f"{kind!r:.40} is none of string, integer, number, boolean"
                )
                kind = given["type"] = "string"
            if "default" in given and not TYPES[kind](given["default"]):
                self._note((*key, "default"), f"must be {_AN[kind]}")
                del given["default"]
            self._inputs[name] = kind
            yield SopInput(name=name, **given)

    # --- steps

    def _compensations(self, tree: Mapping[str, Any]) -> tuple[SopStep, ...]:
        found = self._steps(tree, "compensations", frozenset())
        self._places = {each.id: number for number, each in enumerate(found)}
        self._known.clear()
        return found

    def _steps(
        self, tree: Mapping[str, Any], where: str, taken: set[str] | frozenset[str]
    ) -> tuple[SopStep, ...]:
        steps: list[SopStep] = []
        ids = set(taken)
        found = tree.get(where, [])
        if len(found) > MAX_STEPS:
            self._note((where,), f"there are {len(found)}; at most {MAX_STEPS} are taken")
        for number, table in enumerate(found[:MAX_STEPS]):
            step = self._step((where, number), table)
            if step is None:
                continue
            if step.id in ids:
                self._note((where, number, "id"), f"{step.id!r} is the id of another step, too")
            ids.add(step.id)
            if where == "steps":
                self._check_step(step, (where, number))
            elif step.compensation:
                self._note((where, number, "compensation"), "a compensation has none itself")
            steps.append(step)
            self._known[step.id] = step
        return tuple(steps)

    def _step(self, at: Key, table: object) -> SopStep | None:
        kind = table.get("kind") if isinstance(table, dict) else None
        if not isinstance(kind, str) or kind not in _OWN:
            if isinstance(table, dict):
                said = f"{kind!r:.40} is" if "kind" in table else "is missing:"
                self._note((*at, "kind"), f"{said} none of {', '.join(_OWN)}")
            every = {name: of for own in _OWN.values() for name, of in own.items()}
            self._table(at, table, _COMMON | every)
            return None
        given = self._table(at, table, _COMMON | _OWN[kind])
        identity = given.get("id", "")
        if "id" not in given and "id" not in table:  # type: ignore[operator]  # it is a dict
            self._note((*at, "id"), "is missing")
        elif identity and not re.fullmatch(ID_PATTERN, identity):
            self._note(
                (*at, "id"), f"{identity!r:.80} is no id: lower-case letters, digits, _ and -"
            )
        elif identity in RESERVED_IDS:
            self._note((*at, "id"), f"{identity!r} has a meaning of its own")
        needed = _NEEDED[kind]
        if not str(given.get(needed, "")).strip() and (needed in given or needed not in table):  # type: ignore[operator]  # it is a dict
            self._note((*at, needed), f"is missing or empty; a step of kind {kind} needs it")
        given["on_failure"] = self._on_failure((*at, "on_failure"), given.get("on_failure", ""))
        tools = given.get("tools", ())
        if not all(isinstance(each, str) and each for each in tools):
            self._note((*at, "tools"), "must be a list of patterns of names of tools")
            tools = ()
        return SopStep(**(given | {"id": identity or f"step-{at[-1]}", "tools": tuple(tools)}))

    def _on_failure(self, key: Key, text: str) -> OnFailure:
        if not text:
            return OnFailure()
        found = _ON_FAILURE.fullmatch(text.strip())
        if found is None or bool(found["and"]) is not bool(found["times"] and found["then"]):
            expected = "abort, continue, retry(N), goto(STEP), or retry(N) then one of the others"
            self._note(key, f"{text!r:.80} is none of {expected}")
            return OnFailure()
        retries = int(found["times"] or 0)
        if found["times"] and not 1 <= retries <= MAX_RETRIES:
            self._note(key, f"retries {found['times']} times; it must be 1 to {MAX_RETRIES}")
        then = (found["then"] or "abort").partition("(")[0]
        return OnFailure(retries=retries, then=then, target=found["target"] or "")  # type: ignore[arg-type]  # one of three

    # --- what a step says

    def _check_step(self, step: SopStep, at: Key) -> None:
        if step.when:
            self._check_expression((*at, "when"), step.when, in_list=False)
        if step.foreach:
            found = self._check_expression((*at, "foreach"), step.foreach, in_list=False)
            if found not in {"", "array", "any", "string"}:
                self._note((*at, "foreach"), f"is {_AN[found]}; a list or lines of text are wanted")
            if step.kind in {"approval", "sub"}:
                self._note((*at, "foreach"), f"a step of kind {step.kind} is done once")
        self._check_act(step, at)

    def _check_act(self, step: SopStep, at: Key) -> None:
        in_list = bool(step.foreach)
        match step.kind:
            case "tool":
                self._check_args(step, at)
            case "shell":
                self._check_template((*at, "command"), step.command, in_list=in_list)
                if problem := unquoted_problem(step.command):
                    self._note((*at, "command"), problem)
            case "agent" | "approval":
                self._check_template((*at, "prompt"), step.prompt, in_list=in_list)
                if step.output_schema is not None and (why := schema_problem(step.output_schema)):
                    self._note((*at, "output_schema"), why)
            case "sub":
                if not re.fullmatch(NAME_PATTERN, step.sop):
                    self._note((*at, "sop"), f"{step.sop!r:.80} is no name of a procedure")
                elif step.sop == self._tree.get("name"):
                    self._note((*at, "sop"), "a procedure cannot be a step of itself")
                for keys, text in texts_of(step.inputs):
                    self._check_template((*at, "inputs", *keys), text, in_list=in_list)

    def _check_args(self, step: SopStep, at: Key) -> None:
        found = self._schemas(step.tool) if step.tool else None
        if found is None:
            if step.tool:
                self._note((*at, "tool"), f"there is no tool {step.tool!r:.80}")
            return
        if step.tool in {"sop", "shell"}:
            instead = {"sop": "sub", "shell": "shell"}[step.tool]
            self._note((*at, "tool"), f"a step that does this has the kind {instead}")
            return
        properties = found.get("properties") or {}
        given: set[str] = set()
        for name, value in step.args.items():
            key = (*at, "args", name)
            target = name.removesuffix(FROM)
            if name not in properties and name.endswith(FROM) and target in properties:
                self._check_source(key, value, properties[target])
                name = target
            elif name not in properties:
                known = ", ".join(properties) or "none"
                self._note(key, f"is no argument of {step.tool}; there are: {known}")
                continue
            else:
                self._check_argument(key, value, properties[name], in_list=bool(step.foreach))
            if name in given:
                self._note(key, f"gives {name} twice")
            given.add(name)
        for name in found.get("required") or ():
            if name not in given:
                self._note((*at, "args"), f"the argument {name} of {step.tool} is missing")

    def _check_source(self, key: Key, value: object, rule: Mapping[str, Any]) -> None:
        if not isinstance(value, str):
            self._note(key, "must be the id of an earlier step")
        elif value not in self._known:
            self._note(key, f"{value!r:.80} is no step before this one")
        elif "string" not in type_of(rule):
            self._note(key, f"the output of a step is text; {_AN[type_of(rule)[0]]} is wanted")

    def _check_argument(
        self, key: Key, value: object, rule: Mapping[str, Any], *, in_list: bool
    ) -> None:
        if not isinstance(value, str) or "{{" not in value:
            for keys, text in texts_of(value):
                self._check_template((*key, *keys), text, in_list=in_list)
            if not any("{{" in text for _, text in texts_of(value)) and (
                why := problem_of_value(value, rule)
            ):
                self._note(key, why)
            return
        found = self._check_template(key, value, in_list=in_list)
        wanted = type_of(rule)
        fits = found in {"", "any"} or not wanted or found in wanted
        if not fits and not (found == "integer" and "number" in wanted):
            self._note(key, f"the template is {_AN[found]}; {_AN[wanted[0]]} is wanted")

    def _check_template(self, key: Key, text: str, *, in_list: bool) -> ValueType | str:
        """Return the type of a template, "" where it has an error."""
        found: ValueType | str = "string"
        whole = whole_expression(text)
        if text.count("{{") != len(expressions_of(text)):
            self._note(key, "a {{ is not closed by }}")
            return ""
        for each in expressions_of(text):
            kind = self._check_expression(key, each, in_list=in_list)
            found = kind if whole or not kind else found
        return found

    def _check_expression(self, key: Key, text: str, *, in_list: bool) -> ValueType | str:
        try:
            node = parse(text)
        except ExpressionError as error:
            self._note(key, f"{text!r:.80}: {error}")
            return ""
        kinds = [self._check_reference(key, parts, in_list) for parts in references(node)]
        if "" in kinds:
            return ""
        if node.kind == "path":
            return kinds[0]
        if node.kind != "value":
            return "boolean"
        return next(name for name, fits in TYPES.items() if fits(node.value))

    def _check_reference(self, key: Key, parts: tuple[str, ...], in_list: bool) -> ValueType | str:  # noqa: FBT001 - of the step
        """Return the type of what is referred to, "" where there is nothing."""
        head, name = parts[0], ".".join(parts)
        problem, kind = f"{head!r:.80} is no step before this one", ""
        if head == "inputs":
            known = ", ".join(self._inputs) or "none"
            problem = f"{name!r:.80} is no input; there are: {known}"
            kind = self._inputs.get(".".join(parts[1:]), "")
        elif head == "run":
            problem = f"{name!r:.80}: a run has {', '.join(RUN_FIELDS)}"
            kind = "string" if parts[1:] in {(field,) for field in RUN_FIELDS} else ""
        elif head in {"item", "index"}:
            problem = f"{head!r} is there only in what a step with foreach does"
            kind = ("integer" if head == "index" else "any") if in_list else ""
        elif head in self._known:
            problem = f"{name!r:.80}: a step has {', '.join(STEP_FIELDS)}"
            kind = _field_type(self._known[head], parts[1:] or ("output",))
        if not kind:
            self._note(key, problem)
        return kind

    def _check_targets(
        self, steps: tuple[SopStep, ...], compensations: tuple[SopStep, ...]
    ) -> None:
        """Check where steps lead: goto goes forward, a compensation is there and used."""
        ids = [each.id for each in steps]
        undoes = {each.id for each in compensations}
        for number, step in enumerate(steps):
            target = step.on_failure.target
            if step.on_failure.then == "goto" and target not in ids[number + 1 :]:
                self._note(("steps", number, "on_failure"), f"{target!r:.80} is no later step")
            if step.compensation and step.compensation not in undoes:
                text = f"{step.compensation!r:.80} is no compensation"
                self._note(("steps", number, "compensation"), text)
        used = {each.compensation for each in steps}
        for number, each in enumerate(compensations):
            if each.id not in used:
                self._note(("compensations", number, "id"), f"no step names {each.id!r}")


_AN = {
    "string": "text in quotes",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def _field_type(step: SopStep, parts: tuple[str, ...]) -> ValueType | str:
    """Return the type of a field of a step, "" where it has none of this name."""
    field, *rest = parts
    if field not in STEP_FIELDS or (rest and field not in {"json", "items"}):
        return ""
    if rest:
        return _typed(step.output_schema, rest) if field == "json" else "string"
    return STEP_FIELDS[field]


def _typed(found: Mapping[str, Any] | None, keys: list[str]) -> ValueType | str:
    """Return the type that a schema gives to a part of an answer."""
    for name in keys:
        below = (found or {}).get("properties", {})
        found = below.get(name) if isinstance(below, dict) else None
    kinds = type_of(found) if isinstance(found, Mapping) else ()
    simple = len(kinds) == 1 and kinds[0] in {"string", "integer", "number", "boolean", "array"}
    return kinds[0] if simple else "any"


def _is_in_bounds(name: str, value: Any) -> bool:
    return name not in _LEAST or bool(_LEAST[name] <= value <= _MOST[name])


def _is_hidden(text: str) -> bool:
    return any(not each.isprintable() and each not in "\n\t" for each in text)


def dotted(key: Key) -> str:
    """Return a key as people write it: `steps[2].args.path`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


# --- lines

_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|\n|.',
    re.DOTALL,
)


def lines_of(text: str) -> dict[Key, int]:
    """Return the line of every table and key of a TOML document that was read already."""
    lines: dict[Key, int] = {}
    counts: dict[Key, int] = {}
    at: Key = ()
    for line, head, is_key in _logical_lines(text):
        names = _names_of(head if is_key else head.strip("[] \t"))
        if is_key:
            for end in range(1, len(names) + 1):
                lines.setdefault((*at, *names[:end]), line)
            continue
        at = ()
        for name in names[:-1]:
            at = (*at, name)
            if at in counts:
                at = (*at, counts[at] - 1)
        at = (*at, names[-1])
        lines.setdefault(at, line)
        if head.startswith("[["):
            counts[at] = counts.get(at, 0) + 1
            at = (*at, counts[at] - 1)
            lines[at] = line
    return lines


def _logical_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the line on which a header or a key stands, its text, and whether it is a key."""
    line = start = 1
    depth, head, is_key = 0, "", False
    for found in _PIECE.finditer(f"{text}\n"):
        piece = found[0]
        if piece == "\n" and depth == 0:
            if head.strip():
                yield start, head.strip(), is_key
            head, is_key = "", False
        elif piece == "=" and not is_key and depth == 0:
            is_key = True
        elif not is_key and piece[:1] != "#":
            if not head.strip():
                start = line
            head += piece
        if is_key:
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece, 0)
        line += piece.count("\n")


def _names_of(head: str) -> list[str]:
    """Return the parts of a dotted key."""
    found: Any = tomllib.loads(f"{head} = 0")
    names = []
    while isinstance(found, dict):
        ((name, found),) = found.items()
        names.append(name)
    return names
