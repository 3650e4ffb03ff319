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
