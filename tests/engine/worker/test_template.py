"""Chat templates: the environment that they expect, its limits, and the fallbacks."""

import logging
import resource

import pytest

from clawd.engine.protocol import ChatCall, ChatMessage
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
    "{% for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }}]{% endfor %}"
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
        assert ("<tool_call>" in text) is bool(why), source
