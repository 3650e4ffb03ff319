"""Chat templates: the environment that they expect, its limits, and the fallbacks."""

import logging
import resource

import msgspec
import pytest

from clawd.engine.protocol import CallFrame, ChatCall, ChatMessage, ParameterForm, StringForm
from clawd.engine.worker.template import MAX_EXTRA_BYTES, ChatTemplate, RenderInput
from tests.support.rows import each_row

USER = ChatMessage(role="user", content="hi")
SYSTEM = ChatMessage(role="system", content="be brief")
CALL = ChatMessage(
    role="assistant", tool_calls=(ChatCall(id="c1", name="look", arguments='{"b": 1, "a": "<ä>"}'),)
)
RESULT = ChatMessage(role="tool", content="seen", tool_call_id="c1", name="look")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
LOOP = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
CHATML_HI = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def render(source: str, *messages: ChatMessage, tools: bool = False, **variables: object) -> str:
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    return template.render(
        RenderInput(
            messages=list(messages), tools=[TOOL] if tools else [], variables=dict(variables)
        )
    )


@each_row(
    ("source", "expected"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("  {% if true %}\nx\n  {% endif %}\n", "x\n"),
        ("{{ {'b': 1, 'a': '<ä>'} | tojson }}", '{"b": 1, "a": "<ä>"}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% generation %}text{% endgeneration %}", "text"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ tools is none }}{{ add_generation_prompt }}", "TrueTrue"),
        ("{{ '%s-%d' % ('a', 3) }}{{ 7 % 4 }}{{ 2 ** 8 }}{{ 'ab' * 2 }}", "a-33256abab"),
    ],
)
def test_templates_find_what_they_expect(source: str, expected: str) -> None:
    assert render(source, USER) == expected


def test_a_templates_own_variables_reach_it_but_replace_nothing() -> None:
    text = render(LOOP + "{{ thinking }}", USER, thinking=False, messages=[])
    assert text == "user:hi;False"


def test_tool_arguments_are_an_object_in_their_own_order() -> None:
    source = "{% for m in messages %}{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}"
    assert render(source, CALL) == '{"b": 1, "a": "<ä>"}'


def test_tool_arguments_are_text_for_a_template_that_wants_text() -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}"
    )
    assert render(source, USER, CALL) == 'look{"b": 1, "a": "<ä>"}'


def test_a_call_without_text_has_no_content_where_a_template_asks_for_none() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
        "call {{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments | tojson }}"
        "{% endif %}{% endfor %}"
    )
    assert render(source, USER, CALL).startswith("call look")


@each_row(
    "source",
    [
        "{{ 'x' * 100000000 }}",
        "{{ [0] * 100000000 }}",
        "{{ 2 ** 100000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{% for i in range(100000000) %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ ''.__class__.__mro__ }}{{ raise_exception('unreached') }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% if messages.append(1) %}{% endif %}",
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% if %}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ 'x' | center(4000000000) }}",
        "{{ '{:4000000000}'.format(1) }}",
        "{% set n = namespace(x='xx') %}"
        "{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x | length }}",
        "{% set n = namespace(x=[0]) %}"
        "{% for i in range(40) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x | length }}",
        "{% for a in [1] %}" * 30 + "x" + "{% endfor %}" * 30,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{{ self.__init__.__globals__ }}{{ raise_exception('unreached') }}",
        "{{ messages[0].__class__.__base__.__subclasses__() }}",
        "{{ ('{0.__class__.__mro__}').format(messages) }}{{ raise_exception('unreached') }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ (messages | map(attribute='__class__') | list)[0].mro() }}",
        "{{ lipsum.__globals__.os.popen('true').read() }}",
        "{{ ''['__cla' ~ 'ss__']['__mro__'] }}{{ raise_exception('unreached') }}",
    ],
)
def test_a_template_that_cannot_render_is_replaced_by_chatml(
    source: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert render(source, USER) == CHATML_HI
    assert "template" in caplog.text


def test_a_template_that_is_refused_leaves_the_process_its_memory() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert render("{{ 'x' | center(4000000000) }}", USER) == CHATML_HI
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(b"x" * 2 * MAX_EXTRA_BYTES) == 2 * MAX_EXTRA_BYTES


def test_a_question_about_a_template_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clawd.engine.worker.template.MAX_PROBE_S", 0.02)
    loop, end = "{% for a in range(90000) %}", "{% endfor %}"
    template = ChatTemplate(loop * 3 + "{% if messages is none %}x{% endif %}" + end * 3)
    for _ in range(20):
        assert template.reads_tools()
    assert not template.notes


def test_no_template_means_chatml() -> None:
    assert render("", USER) == CHATML_HI


def test_a_template_without_a_system_role_gets_the_text_with_the_first_user_message() -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + LOOP
    assert render(source, SYSTEM, USER) == "user:be brief\n\nhi;"


def test_a_template_without_tools_gets_them_described_and_results_as_text() -> None:
    text = render(LOOP, SYSTEM, USER, CALL, RESULT, tools=True)
    assert text.startswith("system:be brief\n\nYou can call these functions.")
    assert '"name": "look"' in text
    assert 'assistant:<tool_call>\n{"name": "look", "arguments": {"b": 1, "a": "<ä>"}}' in text
    assert text.endswith("user:<tool_response>\nseen\n</tool_response>;")


def test_a_template_that_wants_turns_to_alternate_gets_them_joined() -> None:
    source = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('alternate') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}"
    )
    assert render(source, SYSTEM, USER, USER) == "user:be brief\n\nhi\n\nhi;"


TWO = ChatMessage(
    role="assistant",
    content="Both.",
    tool_calls=(
        ChatCall(id="call_one", name="look", arguments="{}"),
        ChatCall(id="call_two", name="find", arguments="{}"),
    ),
)
TWO_RESULTS = tuple(
    ChatMessage(role="tool", content=f"of {name}", tool_call_id=f"call_{name}", name="look")
    for name in ("two", "one")
)
CALLS = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    "[{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}"
    "{{ m.tool_call_id }};{% endfor %}{{ tools | length }}"
)
NINE = "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
NINE += "{{ raise_exception('ids have 9 characters') }}{% endif %}{% endfor %}{% endfor %}" + CALLS
ONE = "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}"
ONE += "{{ raise_exception('one call at a time') }}{% endif %}{% endfor %}" + CALLS


def test_r3_a_template_that_is_strict_about_ids_gets_such_and_keeps_its_own_form() -> None:
    template = ChatTemplate(NINE)
    asked = RenderInput(messages=[USER, TWO, *TWO_RESULTS], tools=[TOOL])
    text = template.render(asked)
    ids = [part.split()[0] for part in text.split("[")[1:]]
    assert [len(each) for each in ids] == [9, 9]
    assert text.index(f"of two{ids[1]}") < text.index(f"of one{ids[0]}")
    assert (template.fallback, text[-1]) == ("", "1")
    longer = [*asked.messages, USER, CALL]
    assert template.render(RenderInput(messages=longer, tools=[TOOL])).startswith(text[:-1])


def test_r3_a_template_of_single_calls_gets_each_call_before_its_result() -> None:
    template = ChatTemplate(ONE)
    asked = RenderInput(messages=[USER, TWO, *TWO_RESULTS, USER], tools=[TOOL])
    parts = [part.split(":")[0] for part in template.render(asked).split(";")]
    assert parts == ["user", "assistant", "tool", "assistant", "tool", "user", "1"]
    found = [part for part in template.render(asked).split(";") if part.startswith("tool")]
    assert [part[:11] for part in found] == ["tool:of one", "tool:of two"]
    assert template.fallback == ""


def test_r3_a_fallback_that_asks_for_calls_as_text_says_why() -> None:
    throws = "{% if tools %}{{ raise_exception('no tools\\n at all') }}{% endif %}" + LOOP
    for source, tools, why in (
        (throws, [TOOL], "no tools at all"),
        ("{{ tools }}{{ raise_exception('never') }}", [TOOL], "never"),
        (LOOP, [TOOL], "it knows no tools"),
        (throws, [], ""),
        (CALLS, [TOOL], ""),
    ):
        template = ChatTemplate(source)
        text = template.render(RenderInput(messages=[USER], tools=tools))
        assert template.fallback == why, source
        assert any(why in note for note in template.notes) or not why, template.notes
        assert ("<tool_call>" in text) is bool(why), source


FORM = "{{ m.role }}:{{ m.content }}"
SHOWN = "[{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}]"
EACH = "{% for c in m.tool_calls or [] %}" + SHOWN + "{% endfor %}"
END = ";{% endfor %}{{ tools | length }}"
DROPS_CALLS = "{% for m in messages %}" + FORM + END
DROPS_THE_SECOND = "{% for m in messages %}" + FORM
DROPS_THE_SECOND += (
    "{% if m.tool_calls %}{% set c = m.tool_calls[0] %}" + SHOWN + "{% endif %}" + END
)
SYSTEM_WITH_THE_LAST = (
    "{% for m in messages %}{% if m.role == 'system' %}{% if messages[-1].role == 'user' %}"
    "{{ m.content }};{% endif %}{% else %}" + FORM + EACH + "{{ m.tool_call_id }};{% endif %}"
    "{% endfor %}{{ tools | length }}"
)
NAMES_BY_ID = (
    "{% set ns = namespace(ids=[]) %}{% for m in messages %}" + FORM + "{% for c in "
    "m.tool_calls or [] %}{% set _ = ns.ids.append(c.id) %}[{{ c.id }} {{ c.function.arguments "
    "| tojson }}]{% endfor %}{% if m.role == 'tool' %}{{ ns.ids.pop(0) }}{% endif %}" + END
)
TEXT_BEHIND_CALLS = "{% for m in messages %}{{ m.role }}:" + EACH + "{% if m.tool_calls %}"
TEXT_BEHIND_CALLS += "{% for r in messages %}{% if r.role == 'tool' %}{{ r.content }}{% endif %}"
TEXT_BEHIND_CALLS += (
    "{% endfor %}{{ m.content }}{% elif m.role != 'tool' %}{{ m.content }}{% endif %}"
)
TEXT_BEHIND_CALLS += END
TAGGED = CallFrame(
    call="<call>%name%(%arguments%)</call>",
    opening="<calls>%ws%",
    separator=",%ws%",
    closing="%ws%</calls>",
    parameters=ParameterForm(
        key="%key%=", separator=", ", strings=(StringForm(key="%key%='", stop="'"),)
    ),
)


@each_row(
    ("source", "expected"),
    [
        (
            DROPS_CALLS,
            "assistant:Both.\n<calls><call>look(b=1, a='<ä>')</call>, <call>find()</call></calls>;"
            "tool:of one;tool:of two;1",
        ),
        (
            DROPS_THE_SECOND,
            'assistant:Both.[ca978112c look {"b": 1, "a": "<ä>"}];tool:of one;'
            "assistant:[3e23e8160 find {}];tool:of two;1",
        ),
        (
            SYSTEM_WITH_THE_LAST,
            'user:be brief\n\nhi;assistant:Both.[a look {"b": 1, "a": "<ä>"}][b find {}];'
            "tool:of onea;tool:of twob;1",
        ),
        (
            NAMES_BY_ID,
            'assistant:Both.[functions.look:0 {"b": 1, "a": "<ä>"}][functions.find:1 {}];'
            "tool:of onefunctions.look:0;tool:of twofunctions.find:1;1",
        ),
        (
            TEXT_BEHIND_CALLS,
            'assistant:Both.;assistant:[a look {"b": 1, "a": "<ä>"}][b find {}]of oneof two;'
            "tool:;tool:;1",
        ),
    ],
)
def test_r6_a_call_and_its_result_stay_in_the_prompt_whatever_the_template_drops(
    source: str, expected: str
) -> None:
    template = ChatTemplate(source)
    calls = (
        ChatCall(id="a", name="look", arguments='{"b": 1, "a": "<ä>"}'),
        ChatCall(id="b", name="find", arguments="{}"),
    )
    asked = [SYSTEM, USER]
    answered = [
        *asked,
        ChatMessage(role="assistant", content="Both.", tool_calls=calls),
        ChatMessage(role="tool", content="of one", tool_call_id="a", name="look"),
        ChatMessage(role="tool", content="of two", tool_call_id="b", name="find"),
    ]
    before, after = (
        template.render(RenderInput(messages=messages, tools=[TOOL], frames=(TAGGED,)))
        for messages in (asked, answered)
    )
    assert (after.endswith(expected), after) == (True, after)
    assert after.startswith(before[:-1])  # the same form from the first prompt on
    assert template.fallback == ""


def test_r6_a_template_keeps_lists_of_its_own_but_changes_no_tools() -> None:
    source = (
        "{% set _ = tools[0].function.parameters.update({'x': 1}) if false else 0 %}"
        "{% set own = [] %}{% for t in tools %}{% set _ = own.append(t) %}{% endfor %}"
        "{% set _ = tools.pop() %}{{ own | length }}{{ tools | length }}" + LOOP
    )
    template, tools = ChatTemplate(source), [TOOL]
    assert template.render(RenderInput(messages=[USER], tools=tools)).startswith("10user:hi")
    assert tools == [TOOL]


def test_r6_tools_are_given_by_the_name_that_smollm3_calls_them() -> None:
    template = ChatTemplate("{% for t in xml_tools or [] %}{{ t | tojson }}{% endfor %}" + LOOP)
    text = template.render(RenderInput(messages=[USER], tools=[TOOL]))
    assert text.startswith('{"type": "function"')
    assert template.fallback == ""


def test_r5_a_variable_that_a_template_refuses_is_left_out_and_the_form_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = "{% if effort is defined %}{{ raise_exception('no such effort') }}{% endif %}" + CALLS
    template = ChatTemplate(source)
    asked = RenderInput(messages=[USER], tools=[TOOL], variables={"effort": "much"})
    with caplog.at_level(logging.WARNING):
        assert template.render(asked) == "user:hi;1"
    assert (template.fallback, "no such effort" in caplog.text) == ("", True)


CALLED = (
    "{% if m.tool_calls %}[{{ m.tool_calls[0].function.name }}"
    "{{ m.tool_calls[0].function.arguments | tojson }}]{% endif %};{% endfor %}"
)
OPENED = "{{ tools | length }}{% for m in messages %}{{ m.role }}:"
THOUGHT = "{% if m.KEY %}<think>{{ m.KEY }}</think>{% endif %}"
REST = "{{ m.content }}" + CALLED
IN_BLOCKS = (
    "{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}"
    "{{ '<think>' + b.thinking + '</think>' if b.type == 'thinking' else b.text }}"
    "{% endfor %}{% endif %}" + CALLED
)
ONE_OF_THE_TWO = (
    "{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('one of the two') }}"
    "{% endif %}"
)
OF_THE_LAST_TURN = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}" + OPENED + "{% if loop.index0 > "
    "ns.last and m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}" + REST
)
WHERE_IT_THINKS = (
    OPENED + "{% if enable_thinking and m.reasoning_content %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}" + REST
)
LOSES_CALLS = (
    OPENED + "{% if m.thinking %}{{ m.thinking }}{% else %}" + REST.replace(";", "{% endif %};")
)
BEFORE, NOW = "<think>a plan</think>Let me look.[look", "<think>b plan</think>[look"
BOTH_LEFT_OUT = ("Let me look.[look", "assistant:[look")


@each_row(
    ("source", "variables", "expected"),
    [
        (OPENED + THOUGHT.replace("KEY", "reasoning_content") + REST, {}, (BEFORE, NOW)),
        (OPENED + THOUGHT.replace("KEY", "reasoning") + REST, {}, (BEFORE, NOW)),
        (OPENED + THOUGHT.replace("KEY", "thinking") + REST, {}, (BEFORE, NOW)),
        (OPENED + THOUGHT.replace("KEY", "thought") + REST, {}, (BEFORE, NOW)),
        (OPENED + IN_BLOCKS, {}, (BEFORE, NOW)),
        (
            OPENED + ONE_OF_THE_TWO + THOUGHT.replace("KEY", "thinking") + REST,
            {},
            ("<think>a plan\n\nLet me look.</think>[look", NOW),
        ),
        (OF_THE_LAST_TURN, {}, ("assistant:Let me look.[look", NOW)),
        (WHERE_IT_THINKS, {"enable_thinking": True}, (BEFORE, NOW)),
        (WHERE_IT_THINKS, {"enable_thinking": False}, BOTH_LEFT_OUT),
        (LOSES_CALLS, {}, BOTH_LEFT_OUT),
        (OPENED + REST, {}, BOTH_LEFT_OUT),
        ("", {}, ("Let me look.\n<tool_call>", "assistant\n<tool_call>")),
    ],
)
def test_r5_reasoning_is_given_back_where_the_template_reads_it_and_the_prompt_only_grows(
    source: str, variables: dict[str, object], expected: tuple[str, str]
) -> None:
    template = ChatTemplate(source)
    first = msgspec.structs.replace(CALL, content="Let me look.", reasoning="a plan")
    second = msgspec.structs.replace(CALL, reasoning="b plan")
    conversation = [USER, first, RESULT, USER, second, RESULT]
    hops = [
        template.render(
            RenderInput(messages=conversation[:end], tools=[TOOL], variables=dict(variables))
        )
        for end in (4, 6)
    ]
    assert [text in hops[1] for text in expected] == [True, True], hops[1]
    assert hops[1].startswith(hops[0])


def test_r5_reasoning_that_a_template_refuses_is_left_out_and_the_form_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = "{% for m in messages %}{% if 'odd' in (m.thinking or '') %}"
    source += "{{ raise_exception('odd thoughts') }}{% endif %}{{ m.thinking }}" + FORM
    source += ";{% endfor %}"
    template = ChatTemplate(source)
    said = ChatMessage(role="assistant", content="hello", reasoning="odd")
    with caplog.at_level(logging.WARNING):
        text = template.render(RenderInput(messages=[USER, said, USER]))
    assert ("hello" in text, "odd" in text, "odd thoughts" in caplog.text) == (True, False, True)


REFUSES_EFFORT = "{% if effort is defined %}{{ raise_exception('no effort') }}{% endif %}" + CALLS


@each_row(
    ("source", "expected"),
    [
        ("{% if %}", ["it cannot be compiled, and ChatML is used: "]),
        (LOOP, ["it is not used for tool calls, which are asked for, and read, as JSON in "]),
        (DROPS_CALLS, ["it drops tool calls of earlier messages, which are written out as text "]),
        (REFUSES_EFFORT, ["it refuses variables, which it is not given: no effort"]),
        (
            "{{ raise_exception('no') }}{{ tools }}",
            [
                "it failed on a conversation, which was handed to it otherwise: no",
                "it cannot render a conversation, and ChatML is used: no",
                "it is not used for tool calls, which are asked for, and read, as JSON in "
                "<tool_call> tags: no",
            ],
        ),
        (CALLS, []),
    ],
)
def test_r6_what_is_done_otherwise_with_a_template_is_told_once(
    source: str, expected: list[str]
) -> None:
    template = ChatTemplate(source)
    asked = RenderInput(messages=[USER], tools=[TOOL], variables={"effort": 1}, frames=(TAGGED,))
    for _ in range(2):
        template.render(asked)
    notes = list(template.notes)
    if source == "{% if %}":
        notes = notes[:1]  # ChatML knows no tools either
    assert len(notes) == len(expected), notes
    assert all(note.startswith(begun) for note, begun in zip(notes, expected, strict=True)), notes
