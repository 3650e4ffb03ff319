"""Expressions and templates: what they come to, and that values stay words in a command."""

import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.sop.expressions import (
    ExpressionError,
    StepValue,
    evaluate,
    parse,
    render,
    render_tree,
    unquoted_problem,
)
from tests.support.rows import each_row

SCOPE: dict[str, Any] = {
    "disk": StepValue(status="done", output="91%", exit_code=0, items=("a", "b")),
    "sum": StepValue(status="failed", output='{"level": "high", "n": [1, {"x": 2}]}', error="no"),
    "inputs": {"days": 7},
    "run": {"id": "run-1"},
    "item": "it's",
}

VALUES: dict[str, Any] = {
    "disk": "91%",
    "disk.ok": True,
    "sum.ok": False,
    "sum.error": "no",
    "sum.status == 'failed'": True,
    "disk.exit_code == 0 and not sum.ok": True,
    "sum.ok or disk.ok": True,
    "not (disk.ok or sum.ok)": False,
    "not not disk.ok": True,
    "inputs.days >= 7": True,
    "inputs.days < 7.5": True,
    "inputs.days != -7": True,
    "sum.json.level": "high",
    "sum.json.n.1.x > 1": True,
    "'hig' in sum.json.level": True,
    "'a' in disk.items": True,
    'disk == "91%"': True,
    "true and false": False,
    "run.id": "run-1",
}


@each_row("text", VALUES)
def test_an_expression_has_the_value_that_it_says(text: str) -> None:
    assert evaluate(parse(text), SCOPE) == VALUES[text]


@each_row(
    "text",
    ["nothing", "disk.json", "sum.json.x", "sum.json.n.9", "disk.nothing", "disk > 1", "1 in 2"],
)
def test_one_without_a_value_says_so(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(parse(text), SCOPE)


@each_row("text", ["", "1 2", "a b", "(", "and", "a.", "f(1)", "a[0]", "x = 1", "not " * 30 + "a"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


def test_a_template_as_a_whole_keeps_its_type_and_within_text_is_text() -> None:
    assert render("{{ inputs.days }}", SCOPE) == 7
    assert render("{{ inputs.days }} days: {{ disk.items }}", SCOPE) == '7 days: ["a", "b"]'
    assert render_tree({"a": ["{{ disk }}", 1]}, SCOPE) == {"a": ["91%", 1]}


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_a_value_in_a_command_is_one_word_whatever_it_is(value: str) -> None:
    command = render("printf %s -- {{ item }} end", SCOPE | {"item": value}, quoted=True)
    assert shlex.split(command) == ["printf", "%s", "--", value, "end"]


@each_row("value", ["$(id)", "`id`", "'; id; '", "a\nid", "${HOME}", "-n", "*", "\\", "{{ disk }}"])
def test_a_shell_takes_it_as_it_is(value: str) -> None:
    command = render("printf '%s' {{ item }}", SCOPE | {"item": value}, quoted=True)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == value


@each_row(
    "command",
    [
        "echo '{{ a }}'",
        'echo "{{ a }}"',
        "x # {{ a }}",
        "cat <<E\n{{ a }}\nE",
        "echo $(( {{ a }} ))",
        "[[ {{ a }} -eq 1 ]]",
        "echo `ls {{ a }}`",
        "echo ${x:-{{ a }}}",
        "echo $'{{ a }}'",
    ],
)
def test_where_quotes_would_not_hold_a_template_is_refused(command: str) -> None:
    assert unquoted_problem(command) != ""


@each_row("command", ["echo {{ a }}", "echo 'x' {{ a }} \"y\"", "grep -- {{ a }} f | wc", "# no"])
def test_elsewhere_it_is_not(command: str) -> None:
    assert unquoted_problem(command) == ""
