"""The unified tools: only another spelling, so nothing that judges can tell the difference."""

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.engine.protocol import CallFrame, Grammar, json_call
from clawd.engine.worker.grammar import GrammarPlanner
from clawd.errors import InvalidRequestError, NotFoundError
from clawd.security.policy import Deny, PolicySettings
from clawd.tools.arguments import decode_arguments
from clawd.tools.audit import DispatchSettings
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed
from clawd.tools.journal import Journal
from clawd.tools.offer import Offer, example_of
from clawd.tools.preparing import CallPreparer
from clawd.tools.registry import FACADES, MEMBERS, Registry, facades_over
from tests.security.fakes import ADA
from tests.support.dispatching import Bench, Probe, request
from tests.support.grammar_text import compiled
from tests.support.rows import each_row
from tests.tools.test_off_spec_calls import tools_in
from tests.tools.test_offer import StandIn

FULL = PolicySettings(autonomy="full")


def preparer_of(bench: Bench, tools: list[Tool]) -> CallPreparer:
    journal = Journal(bench.chain, bench.memory.ledger, bench.redactor)
    return CallPreparer(Registry(tools), journal, DispatchSettings(sandbox_level="none"))


def member_calls(tools: list[Tool]) -> list[tuple[str, str, Tool]]:
    return [(*MEMBERS[tool.name], tool) for tool in tools if tool.name in MEMBERS]


def test_every_flat_file_and_web_tool_has_an_action(tmp_path: Path) -> None:
    names = {tool.name for tool in tools_in(tmp_path)}
    assert set(FACADES["fs"].values()) - {"fs_ops"} <= names
    assert "http" in names


async def test_a_facade_and_its_flat_tool_are_one_action(bench: Bench, tmp_path: Path) -> None:
    tools = tools_in(tmp_path)
    preparer, scope = preparer_of(bench, tools), bench.scope()
    for facade, action, tool in member_calls(tools):
        arguments = example_of(tool)
        flat = preparer.action(request(tool.name, json.dumps(arguments)), scope)
        unified = request(facade, json.dumps({"action": action, **arguments}))
        named = request(f"{facade}_{action}", json.dumps(arguments))
        assert preparer.action(unified, scope) == flat
        if f"{facade}_{action}" not in {each.name for each in tools}:
            assert preparer.action(named, scope) == flat


_VALUES = st.one_of(st.text(max_size=8), st.integers(-9, 99), st.booleans(), st.none())


async def test_whatever_the_arguments_both_spellings_are_judged_alike(
    bench: Bench, tmp_path: Path
) -> None:
    tools = tools_in(tmp_path)
    preparer = preparer_of(bench, tools)
    dispatcher = bench.dispatcher(tools)
    calls = member_calls(tools)

    @given(st.data())
    def judged_alike(data: st.DataObject) -> None:
        facade, action, tool = data.draw(st.sampled_from(calls))
        names = list(tool.parameters["properties"])
        chosen = data.draw(st.sets(st.sampled_from(names))) if names else set()
        arguments = {name: data.draw(_VALUES) for name in chosen | set(tool.parameters["required"])}
        flat = request(tool.name, json.dumps(arguments))
        unified = request(facade, json.dumps({"action": action, **arguments}))
        try:
            expected = preparer.action(flat, bench.scope())
        except InvalidRequestError as error:
            with pytest.raises(InvalidRequestError) as caught:
                preparer.action(unified, bench.scope())
            assert caught.value.message == error.message
            return
        assert preparer.action(unified, bench.scope()) == expected
        assert preparer.action(unified, bench.scope()).digest == expected.digest
        verdict = dispatcher.explain(flat, bench.scope())
        assert dispatcher.explain(unified, bench.scope()) == verdict

    judged_alike()


async def test_an_approval_and_the_receipt_know_the_flat_call_only(
    bench: Bench, tmp_path: Path
) -> None:
    dispatcher = bench.dispatcher(tools_in(tmp_path))
    call = request("fs", '{"action": "create", "path": "new.txt", "content": "hi"}')
    async with asyncio.TaskGroup() as tasks:
        made = tasks.create_task(dispatcher.call(call, bench.scope()))
        pending = await bench.answer("once")
    question = pending.question.action
    assert (question.tool, question.arguments) == (
        "file_write",
        b'{"content":"hi","path":"new.txt"}',
    )
    assert made.result().kind == "ok"
    assert (await bench.only_receipt()).tool == "file_write"


async def test_a_standing_rule_for_the_flat_tool_counts_for_the_facade_and_for_no_other_call(
    bench: Bench, tmp_path: Path
) -> None:
    dispatcher = bench.dispatcher(tools_in(tmp_path))
    first = request("file_write", '{"path": "new.txt", "content": "one"}')
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(dispatcher.call(first, bench.scope()))
        await bench.answer("always")
    bench.is_reachable = False
    again = request("fs", '{"action": "write", "path": "new.txt", "content": "one"}')
    assert (await dispatcher.call(again, bench.scope())).kind == "ok"
    other = request("fs", '{"action": "write", "path": "other.txt", "content": "one"}')
    assert (await dispatcher.call(other, bench.scope())).status == "denied"


@each_row("name", ["fs", "fs_write", "fs.write", "write_file", "FileWrite"], fresh=["bench"])
async def test_no_spelling_gets_around_what_is_not_offered_or_not_allowed(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    dispatcher = bench.dispatcher(tools_in(tmp_path), policy=FULL)
    arguments: dict[str, Any] = {"path": "new.txt", "content": "hi"}
    if name == "fs":
        arguments["action"] = "write"
    call = request(name, json.dumps(arguments))
    outcome = await dispatcher.call(call, bench.scope(offered=["file_read", "file_list"]))
    assert outcome.status != "allowed"
    assert not (bench.workspace / "new.txt").exists()
    readonly = bench.dispatcher(tools_in(tmp_path), policy=PolicySettings(autonomy="readonly"))
    assert isinstance(readonly.explain(call, bench.scope())[1], Deny)


def test_a_facade_lists_the_allowed_actions_only(tmp_path: Path) -> None:
    tools = [tool for tool in tools_in(tmp_path) if tool.name in {"file_read", "glob", "time"}]
    (facade,) = facades_over(tools)
    assert facade.parameters["properties"]["action"]["enum"] == ["read", "glob"]
    assert facade.short == "Work with files: read, glob."
    assert "content" not in facade.parameters["properties"]
    assert facades_over([Probe()]) == ()


async def test_a_facade_itself_never_runs(bench: Bench, tmp_path: Path) -> None:
    for facade in facades_over(tools_in(tmp_path)):
        with pytest.raises(InvalidRequestError, match="two tools are called"):
            Registry([facade])
        context = ToolContext(
            conversation_id="", call_id="c", principal=ADA, workspace=bench.workspace
        )
        assert facade.risk({"action": "list"}, context).blocked
        assert not (await facade.invoke({"action": "list"}, context)).success


def test_a_facade_whose_tools_are_there_fits_a_grammar(tmp_path: Path) -> None:
    others = ["fs_ops", "web_search", "web_fetch", "pdf_extract"]
    tools = [*tools_in(tmp_path), *map(StandIn, others)]
    for facade in facades_over(tools):
        assert len(facade.short) <= 120
        frame = CallFrame(call=f"<call>{json_call()}</call>", marker="<call>")
        grammar = Grammar(
            kind="tool_call", schema=True, tools={facade.name: facade.parameters}, frames=(frame,)
        )
        plan = GrammarPlanner(compiled).plan(grammar)
        assert plan is not None
        assert plan.quarantined == {}
        for action, tool in facade.members.items():
            arguments = {"action": action, **example_of(tool)}
            assert decode_arguments(json.dumps(arguments), facade.parameters) == arguments


def test_an_argument_that_actions_take_in_different_forms_may_have_any_of_them() -> None:
    class Wordy(Probe):
        parameters = {"type": "object", "properties": {"path": {"type": "integer"}}}  # noqa: RUF012

    class Plain(Probe):
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}}  # noqa: RUF012

    (facade,) = facades_over([Wordy("file_read"), Plain("file_list")])
    rule = facade.parameters["properties"]["path"]
    assert rule == {"anyOf": [{"type": "string"}, {"type": "integer"}]}


async def test_errors_name_the_tools_of_the_session(bench: Bench, tmp_path: Path) -> None:
    dispatcher = bench.dispatcher(tools_in(tmp_path), policy=FULL)
    call = request("file_edit", '{"path": "no", "old_text": "a", "new_text": "b"}')
    split = await dispatcher.call(call, bench.scope())
    assert split.text == "error: no does not exist; file_write creates a file"
    scope = msgspec.structs.replace(bench.scope(), mode="unified")
    unified = await dispatcher.call(call, scope)
    assert unified.text == 'error: no does not exist; fs(action="write") creates a file'
    quoting = request("file_edit", '{"path": "file_write", "old_text": "a", "new_text": "b"}')
    quoted = await dispatcher.call(quoting, scope)
    assert quoted.text == "error: file_write does not exist; file_write creates a file"
    unknown = await dispatcher.call(request("file_wipe_out", "{}"), scope)
    assert "file_" not in unknown.text.partition(";")[2]


async def test_a_tool_may_ask_how_its_session_calls_another(bench: Bench) -> None:
    async def act(_arguments: Arguments, context: ToolContext) -> ToolResult:
        return failed(f"use {context.tools.of('grep')}")

    dispatcher = bench.dispatcher([Probe(act=act), Probe("grep")])
    scope = msgspec.structs.replace(bench.scope(), mode="unified")
    assert (await dispatcher.call(request("probe"), scope)).text == 'error: use fs(action="grep")'
    assert (await dispatcher.call(request("probe"), bench.scope())).text == "error: use grep"


def test_the_mode_decides_what_is_shown_and_nothing_else(tmp_path: Path) -> None:
    tools = tools_in(tmp_path)
    flat = {tool.name for tool in tools}
    shown = {
        mode: {tool.name for tool in Offer(tools, mode).shown}
        for mode in ("split", "unified", "both")
    }
    assert shown["split"] == flat
    assert shown["unified"] == (flat - set(MEMBERS)) | {"fs", "web"}
    assert shown["both"] == flat | {"fs", "web"}
    assert {Offer(tools, mode).names for mode in ("split", "unified", "both")} == {frozenset(flat)}


class Plan(Probe):
    """A tool with an action of its own, in the shape of the plan."""

    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["list", "add", "update", "delete"]},
            "text": {"type": "string"},
            "id": {"type": "string"},
            "status": {"type": "string"},
        },
        "required": ["action"],
        "additionalProperties": False,
    }


@each_row(
    ("name", "arguments", "expected"),
    [
        ("plan", {}, {"action": "list"}),
        ("plan", {"text": "x"}, {"action": "add", "text": "x"}),
        ("plan", {"task": "x"}, {"action": "add", "text": "x"}),
        ("plan", {"colour": "x"}, None),
        ("plan", {"id": 1, "status": "done"}, {"action": "update", "id": "1", "status": "done"}),
        ("plan", {"id": 1}, None),
        ("plan", {"id": 1, "text": "x"}, {"action": "update", "text": "x", "id": "1"}),
        ("plan", {"action": "remove", "id": 1}, {"action": "delete", "id": "1"}),
        ("plan", {"action": "Create", "text": "x"}, {"action": "add", "text": "x"}),
        ("plan", {"action": "undelete", "id": 1}, None),
        ("plan", {"action": "complete", "id": 1},
         {"action": "update", "id": "1", "status": "done"}),
        ("plan", {"action": "Mark done", "id": 1, "status": "done"},
         {"action": "update", "id": "1", "status": "done"}),
        ("plan", {"action": "start", "id": 1},
         {"action": "update", "id": "1", "status": "working"}),
        ("plan", {"action": "done", "id": 1, "status": "pending"}, None),
        ("plan", {"op": "rm", "id": 1}, {"action": "delete", "id": "1"}),
        ("plan", {"add": {"text": "x"}}, {"action": "add", "text": "x"}),
        ("plan_add", {"text": "x"}, {"action": "add", "text": "x"}),
        ("plan.remove", {"id": 1}, {"action": "delete", "id": "1"}),
        ("plan_add", {"action": "delete", "id": 1}, None),
        ("plan_purge", {"id": 1}, None),
        ("todo", {}, {"action": "list"}),
    ],
 fresh=["bench"])  # fmt: skip
async def test_an_action_is_read_out_of_a_call_or_asked_for(
    bench: Bench, name: str, arguments: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    preparer = preparer_of(bench, [Plan("plan")])
    call = request(name, json.dumps(arguments))
    if expected is None:
        with pytest.raises((InvalidRequestError, NotFoundError)) as caught:
            preparer.action(call, bench.scope())
        assert "like this: " in caught.value.hint
    else:
        action = preparer.action(call, bench.scope())
        assert (action.tool, json.loads(action.arguments)) == ("plan", expected)
