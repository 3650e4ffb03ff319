"""What an answer is held to, from where on, and that nothing forbidden is ever fed to a grammar."""

import contextlib
import time

import pytest

from clawd.engine.protocol import CallFrame, Grammar, ParameterForm, StringForm
from clawd.engine.worker.constraint import NOTHING_FITS, Constraint, Trigger
from clawd.engine.worker.grammar import GrammarPlanner, Rules
from clawd.engine.worker.guidance import (
    MAX_LEFT_BEHIND,
    MISSING,
    Guidance,
    Matcher,
    MissingError,
)
from clawd.engine.worker.schema import SchemaError
from tests.support.grammar_text import GrammarText, compiled
from tests.support.rows import each_row

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
BAD = {"type": "object", "not": {"required": ["x"]}}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
END = -7


def called(name: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>'


def planner() -> GrammarPlanner:
    return GrammarPlanner(compiled)


def test_nothing_asked_for_is_no_plan() -> None:
    assert planner().plan(Grammar()) is None


def test_a_required_call_is_one_call_of_a_tool_that_is_there() -> None:
    plan = planner().plan(Grammar(kind="tool_call", tools={"read": PATH, "time": True}))
    assert plan is not None
    assert (plan.is_lazy, plan.markers, plan.starts, plan.quarantined) == (False, (), (), {})
    text = GrammarText(plan.matcher)
    assert text.describes(CALL)
    assert text.describes('<tool_call>{"name":"time","arguments":{}}</tool_call>')
    assert not text.describes(CALL + CALL)
    assert not text.describes(f"{CALL}\n{CALL}")
    assert not text.describes(CALL.replace("read", "write"))
    assert not text.describes(CALL.replace('"a"', "1"))


def test_several_calls_are_required_where_they_may_come_in_parallel() -> None:
    plan = planner().plan(Grammar(kind="tool_call", tools={"read": PATH}, parallel=True))
    assert plan is not None
    text = GrammarText(plan.matcher)
    assert text.describes(CALL)
    assert text.describes(f"{CALL}\n{CALL}{CALL}")
    assert not text.describes(f"{CALL}\n")


def test_a_lazy_call_begins_with_its_marker() -> None:
    plan = planner().plan(Grammar(kind="tool_call", tools={"read": PATH}, lazy=True))
    assert plan is not None
    assert (plan.is_lazy, plan.markers, plan.starts) == (True, (b"<tool_call>",), ())
    assert GrammarText(plan.matcher).describes(CALL)


def test_nothing_follows_a_single_call() -> None:
    for lazy in (True, False):
        wanted = Grammar(
            kind="tool_call", tools={"read": PATH}, lazy=lazy, single=True, parallel=True
        )
        plan = planner().plan(wanted)
        assert plan is not None
        assert plan.is_last
        text = GrammarText(plan.matcher)
        assert text.describes(CALL)
        assert not text.describes(CALL + CALL)


def test_what_no_frame_can_tell_is_left_free() -> None:
    frames = (CallFrame(call="%name%(%arguments%)"),)
    assert (
        planner().plan(Grammar(kind="tool_call", tools={"f": True}, lazy=True, frames=())) is None
    )
    assert (
        planner().plan(Grammar(kind="tool_call", tools={"f": True}, lazy=True, frames=frames))
        is None
    )


def test_r2_a_call_is_one_of_a_tool_that_is_offered_also_where_the_model_began_it() -> None:
    tools = {"ab": {"const": {"p": 1}}, "abc": True, 'q"': True, "x" * 200: True}
    for lazy in (True, False):
        plan = planner().plan(Grammar(kind="tool_call", tools=tools, lazy=lazy))
        assert plan is not None
        assert list(plan.quarantined) == ["x" * 200]
        text = GrammarText(plan.matcher)
        for name in ("a", "abz", "abcd", "b", "main.py", "3", "", "q"):
            assert not text.describes(called(name)), name
        for name in ("abc", 'q\\"'):
            assert text.describes(called(name)), name
        assert not text.describes(called("ab"))
        assert text.describes('<tool_call>{"name": "ab", "arguments": {"p": 1}}</tool_call>')


def test_what_cannot_be_held_of_one_tool_is_left_out_and_named_and_the_others_live() -> None:
    tools = {"read": PATH, "odd": BAD}
    for lazy in (True, False):
        plan = planner().plan(Grammar(kind="tool_call", tools=tools, lazy=lazy))
        assert plan is not None
        (why,) = plan.quarantined.values()
        assert why.startswith("not (") and "#/not" in why
        text = GrammarText(plan.matcher)
        assert text.describes('<tool_call>{"name": "odd", "arguments": {"any": 1}}</tool_call>')
        assert text.describes(CALL)
        assert not text.describes(CALL.replace('"a"', "1"))


def test_a_schema_that_is_none_leaves_its_tool_free_where_the_model_begins_and_never_required() -> (
    None
):
    tools = {"read": PATH, "bad": 7}
    lazy = planner().plan(Grammar(kind="tool_call", tools=tools, lazy=True))
    required = planner().plan(Grammar(kind="tool_call", tools=tools))
    assert lazy is not None and required is not None
    assert list(lazy.quarantined) == list(required.quarantined) == ["bad"]
    assert GrammarText(lazy.matcher).describes(called("bad"))
    assert not GrammarText(required.matcher).describes(called("bad"))
    assert GrammarText(required.matcher).describes(CALL)


def test_what_is_required_and_cannot_be_held_is_refused_with_keyword_and_place() -> None:
    with pytest.raises(SchemaError, match="bad: a schema is an object"):
        planner().plan(Grammar(kind="tool_call", tools={"bad": 7}))
    inner = {"type": "object", "properties": {"a/b": {"items": BAD}}}
    with pytest.raises(SchemaError, match=r'"not".*#/properties/a~1b/items/not'):
        planner().plan(Grammar(kind="json_schema", schema=inner))


def test_without_llguidance_free_text_goes_on_and_what_must_be_held_is_refused() -> None:
    def missing(_lark: str) -> Matcher:
        raise MissingError(MISSING)

    free = GrammarPlanner(missing)
    plan = free.plan(Grammar(kind="tool_call", tools={"read": PATH}, lazy=True))
    assert plan is not None
    assert plan.matcher is None
    assert "pip install" in plan.quarantined["read"]
    assert free.plan(Grammar()) is None
    for wanted in (
        Grammar(kind="tool_call", tools={"read": PATH}),
        Grammar(kind="json_schema", schema=PATH, loose=True),
    ):
        with pytest.raises(MissingError, match="llguidance"):
            free.plan(wanted)


def test_an_answer_by_schema_may_be_a_call_where_tools_are_offered() -> None:
    plan = planner().plan(Grammar(kind="json_schema", schema=PATH, tools={"read": PATH}))
    assert plan is not None
    text = GrammarText(plan.matcher)
    assert text.describes('{"path": "a"}')
    assert text.describes(CALL)
    assert not text.describes("hello")


def test_equal_requests_are_planned_once() -> None:
    asked: list[str] = []

    def compile_text(lark: str) -> Matcher:
        asked.append(lark)
        return compiled(lark)

    kept = GrammarPlanner(compile_text)
    first = kept.plan(Grammar(kind="tool_call", tools={"read": PATH}))
    count = len(asked)
    assert kept.plan(Grammar(kind="tool_call", tools={"read": dict(PATH)})) is first
    assert len(asked) == count
    for number in range(100):
        kept.plan(Grammar(kind="json_schema", schema={"const": number}))
    assert kept.plan(Grammar(kind="tool_call", tools={"read": PATH})) is not first
    assert len(asked) > count + 100


def test_a_grammar_that_takes_too_long_is_left_behind_and_few_of_them() -> None:
    def slow() -> None:
        limited.compile('start: %json {"type": "integer", "multipleOf": 30011}\n')

    quick = Rules().text('"a"')
    limited = Guidance(lambda: ([bytes([byte]) for byte in range(128)], [0]), limit_s=0.02)
    limited.wait()
    for _ in range(MAX_LEFT_BEHIND):
        with pytest.raises(SchemaError, match="longer than"):
            slow()
    with pytest.raises(SchemaError, match="others"):
        limited.compile(quick)
    deadline = time.monotonic() + 60
    found = None
    while found is None and time.monotonic() < deadline:
        with contextlib.suppress(SchemaError):
            found = limited.compile(quick)
    assert found is not None and found.allowed().tolist() == [ord("a")]


THINK = ((b"<think>", b"</think>"), (b"[THINK]", b"[/THINK]"))


@each_row(
    ("text", "found"),
    [
        ("Look: <tool_call>\n{", "<tool_call>\n{"),
        ("<tool_call>", "<tool_call>"),
        ("<tool_<tool_call>x", "<tool_call>x"),
        ("<think>I use <tool_call> now</think>\n<tool_call>{", "<tool_call>{"),
        ("[THINK]</think><tool_call>[/THINK]<tool_call>[", "<tool_call>["),
        (" \n<think></think><tool_call>", "<tool_call>"),
        ("no <think><tool_call>y", "<tool_call>y"),
        (' \n{"name": "f", ', '{"name": "f", '),
        ('<think>{"name": "f"</think> {"name": "f"', '{"name": "f"'),
        ('So {"name": "f"[C] {}', "[C] {}"),
        ('{"name": "g"[C]', "[C]"),
    ],
)
def test_a_marker_is_found_in_every_split_and_not_in_reasoning(text: str, found: str) -> None:
    data = text.encode()
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            trigger = Trigger([b"<tool_call>", b"[C]"], [b'{"name": "f"'], thoughts=THINK)
            got = None
            for piece in (data[:first], data[first:second], data[second:]):
                if got is None:
                    got = trigger.push(piece)
                else:
                    got += piece
            assert got == found.encode()


@each_row(
    "text",
    [
        *("", "<", "<think>", "<tool_call", "<think><tool_call>", "<tool>", "[THINK]</think>[C]"),
        *('so {"name": "f"', '{"name": "g"', '{"name": "f', " " * 300 + '{"name": "f"'),
    ],
)
def test_what_is_no_marker_starts_nothing(text: str) -> None:
    trigger = Trigger([b"<tool_call>", b"[C]"], [b'{"name": "f"'], thoughts=THINK)
    assert [trigger.push(piece.encode()) for piece in text] == [None] * len(text)


def test_a_prompt_that_opens_reasoning_is_waited_for() -> None:
    for closing in (b"</think>", b"[/THINK]"):
        trigger = Trigger((), thoughts=THINK, in_reasoning=True)
        assert trigger.push(b"hm <tool_call> hm" + closing[:-4]) is None
        assert trigger.push(closing[-4:] + b"\n") == b"\n"
    assert Trigger((), in_reasoning=True).push(b"x</think>") == b""


class FakePicker:
    """Bytes as tokens, a grammar that is one text, samplers that want one text whatever comes.

    It ends everything when its grammar is fed what it forbids.
    """

    def __init__(self, wants: bytes, grammar: bytes) -> None:
        self.wants = list(wants)
        self.grammar = grammar
        self.masks = 0
        self.starts = 0
        self.remembered: list[int] = []
        self.fed = b""
        self.error = ""

    def pick(self, row: int) -> int:
        return self.wants[row] if row < len(self.wants) else END

    def pick_allowed(self, row: int, *, digits: bool = True) -> int:
        self.masks += 1
        every = [END, *range(256)]
        fitting = [token for token in every if self.allows(token)]
        if not digits:
            fitting = [token for token in fitting if not self.piece(token).isdigit()]
        return fitting[0] if fitting else NOTHING_FITS

    def remember(self, token: int) -> None:
        self.remembered.append(token)

    def start_grammar(self) -> None:
        self.starts += 1
        self.fed = b""

    def allows(self, token: int) -> bool:
        if token == END:
            return self.may_end()
        return self.grammar.startswith(self.fed + bytes([token]))

    def accept(self, token: int) -> None:
        assert token != END
        assert self.allows(token), "it is fed what it forbids"
        self.fed += bytes([token])

    def may_end(self) -> bool:
        return self.fed == self.grammar

    def grammar_error(self) -> str:
        return self.error

    def piece(self, token: int) -> bytes:
        return b"" if token == END else bytes([token])

    def ends_generation(self, token: int) -> bool:
        return token == END

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())


def said(picker: FakePicker, constraint: Constraint, limit: int = 60) -> str:
    """Return what a generation says, as the sampler does it."""
    out = b""
    for row in range(limit):
        if constraint.is_active:
            token = constraint.sample(row)
        else:
            token = picker.pick(row)
            constraint.watch(token)
        if token in {END, NOTHING_FITS}:
            break
        out += bytes([token])
    return out.decode()


def test_a_model_that_says_what_fits_pays_for_no_mask() -> None:
    picker = FakePicker(b'{"a": 1}', b'{"a": 1}')
    constraint = Constraint(picker, None, repeats=False)
    assert said(picker, constraint) == '{"a": 1}'
    assert picker.masks == 0
    assert bytes(picker.remembered[:-1]) == b'{"a": 1}'


def test_a_model_that_says_something_else_is_masked_where_it_must_be() -> None:
    picker = FakePicker(b'{"b": 2}', b'{"a": 1}')
    assert said(picker, Constraint(picker, None, repeats=False)) == '{"a": 1}'
    assert picker.masks == 2


def test_a_model_cannot_end_before_the_grammar_does() -> None:
    picker = FakePicker(b"{", b"{}")
    assert said(picker, Constraint(picker, None, repeats=False)) == "{}"


def test_a_number_without_an_end_is_ended() -> None:
    class Numbers(FakePicker):
        def allows(self, token: int) -> bool:
            return token == END if b"}" in self.fed else token in {*b"0123456789}"}

        def accept(self, token: int) -> None:
            self.fed += bytes([token])

        def may_end(self) -> bool:
            return b"}" in self.fed

    picker = Numbers(b"3" * 500, b"")
    assert said(picker, Constraint(picker, None, repeats=False), 300) == "3" * 100 + "}"


def test_a_lazy_grammar_holds_behind_each_marker_only() -> None:
    picker = FakePicker(b"free <c>[9] free <c>[1] end", b"<c>[1]")
    constraint = Constraint(picker, Trigger([b"<c>"]), repeats=True)
    assert said(picker, constraint) == "free <c>[1] free <c>[1] end"
    assert (picker.starts, picker.masks) == (2, 1)
    assert not constraint.is_active


class LongTokens(FakePicker):
    """The first token brings text, the marker and more."""

    def piece(self, token: int) -> bytes:
        return b"no <c>[" if token == 0 else super().piece(token)


def test_text_behind_the_marker_in_the_same_token_is_fed() -> None:
    picker = LongTokens(b"\x007]", b"<c>[1]")
    constraint = Constraint(picker, Trigger([b"<c>"]), repeats=True)
    constraint.watch(0)
    assert constraint.is_active
    assert picker.fed == b"<c>["
    assert constraint.sample(1) == ord("1")


def test_text_behind_the_marker_that_does_not_fit_leaves_the_model_alone() -> None:
    picker = LongTokens(b"\x00", b"<c>(1)")
    constraint = Constraint(picker, Trigger([b"<c>"]), repeats=True)
    constraint.watch(0)
    assert not constraint.is_active
    assert picker.fed == b"<c>"


def test_bytes_that_are_no_utf8_are_never_allowed() -> None:
    schema = {"type": "string"}
    tagged = CallFrame(
        call="<%name%>%arguments%</>",
        parameters=ParameterForm(key="<%key%>", strings=(StringForm(key="<%key%>", stop="</p>"),)),
    )
    text = planner().plan(Grammar(kind="json_schema", schema=schema))
    tags = planner().plan(
        Grammar(kind="tool_call", tools={"f": {"properties": {"a": schema}}}, frames=(tagged,))
    )
    for plan, begun in ((text, b'"'), (tags, b"<f><a>")):
        assert plan is not None and plan.matcher is not None
        matcher = plan.matcher.anew()
        for byte in begun:
            matcher.accept(byte)
        assert not any(map(matcher.allows, (0x80, 0xBF, 0xC0, 0xC1, 0xF5, 0xFF)))
        matcher.accept(0xC3)
        assert matcher.allowed().tolist() == list(range(0x80, 0xC0))
        matcher.accept(0xA4)
        matcher.accept(0xE0)
        assert matcher.allowed().tolist() == list(range(0xA0, 0xC0))
        matcher.accept(0xED)
        assert matcher.error


def test_a_grammar_that_breaks_down_holds_nothing_from_there_on_and_says_so() -> None:
    class Breaking(FakePicker):
        def allows(self, token: int) -> bool:
            if len(self.fed) == 3:
                self.error = "too complex"
            return not self.error and super().allows(token)

        def pick_allowed(self, row: int, *, digits: bool = True) -> int:
            return NOTHING_FITS if self.error else super().pick_allowed(row, digits=digits)

    picker = Breaking(b"abXYZ", b"abcdefgh")
    constraint = Constraint(picker, None, repeats=False)
    assert said(picker, constraint) == "abcYZ"
    assert (constraint.lifted, constraint.is_active) == ("too complex", False)


def test_where_nothing_fits_it_is_said_and_nothing_is_fed() -> None:
    class Mute(FakePicker):
        def allows(self, token: int) -> bool:
            return False

    picker = Mute(b"x", b"y")
    assert Constraint(picker, None, repeats=False).sample(0) == NOTHING_FITS
    assert picker.remembered == []


def test_h8_a_schema_that_need_not_be_strict_is_held_without_what_cannot_be() -> None:
    named_like_keywords = {"type": "object", "properties": {"not": {"type": "null"}}}
    loose = {
        "type": "object",
        "properties": {"n": {"type": "integer", "multipleOf": 5}, "inner": named_like_keywords},
        "required": ["n"],
        "not": {"required": ["x"]},
    }
    with pytest.raises(SchemaError):
        planner().plan(Grammar(kind="json_schema", schema=loose))
    plan = planner().plan(Grammar(kind="json_schema", schema=loose, loose=True))
    assert plan is not None
    (why,) = plan.quarantined.values()
    assert why.startswith("not (") and "#/not" in why
    text = GrammarText(plan.matcher)
    assert text.describes('{"n": 5, "inner": {"not": null}}')
    assert not text.describes('{"n": "5"}')
    held = planner().plan(Grammar(kind="json_schema", schema=PATH, loose=True))
    assert held is not None and held.quarantined == {}
    with pytest.raises(SchemaError):
        planner().plan(Grammar(kind="json_schema", schema={"type": 5}, loose=True))
