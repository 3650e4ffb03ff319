"""Commands in the text of a model that can call no tools: found, run like calls, told back."""

import itertools
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clawd.providers.base import Capabilities, Finished, Message, StopReason, ToolCall
from clawd.runtime.commands import (
    INSTRUCTIONS,
    MAX_COMMAND_CHARS,
    as_plain_history,
    command_calls,
    commands_in,
    with_instructions,
)
from clawd.tools.base import Tool
from clawd.wire.events import Notice, ReasoningDelta, TextDelta, ToolRequested
from tests.runtime.inboxes import House
from tests.runtime.models import DONE, Hop, PlannedModel, says
from tests.runtime.test_turn import Table
from tests.support.dispatching import Bench, Probe
from tests.support.rows import each_row


class Shell(Probe):
    """A shell that only says what it was to run."""

    def __init__(self, **options: Any) -> None:
        super().__init__("shell", **options)
        self.parameters = {  # type: ignore[misc]
            "type": "object",
            "properties": {"text": {"type": "string"}, "command": {"type": "string"}},
            "required": ["command"],
        }


class Plain(PlannedModel):
    """A model that can call no tools."""

    def capabilities(self) -> Capabilities:
        return Capabilities(tools=False)


class PlainTable(Table):
    """A turn with a model that can call no tools."""

    def __init__(self, bench: Bench, *hops: Hop, tools: list[Tool] | None = None) -> None:
        super().__init__(bench, *hops, tools=tools if tools is not None else [Shell(), Probe()])

    def turn(self, **limits: float) -> Any:
        turn = super().turn(**limits)
        turn._plan = msgspec.structs.replace(turn._plan, calls_tools=False)
        return turn


@each_row(
    ("text", "expected"),
    [
        ("CMD: ls", ["ls"]),
        ("I look.\nCMD: ls -l \nCMD:\twc -l a.md\nDone.", ["ls -l", "wc -l a.md"]),
        ("CMD: ls\r\nCMD: pwd\r\n", ["ls", "pwd"]),
        ("CMD: echo CMD: ls", ["echo CMD: ls"]),
        (" CMD: ls", []),
        ("cmd: ls", []),
        ("CMD:ls", []),
        ("CMD: ", []),
        ("CMD:", []),
        ("Write CMD: ls to list.", []),
        ("> CMD: ls", []),
        ("`CMD: ls`", []),
        ("```\nCMD: rm x\n```\nCMD: ls", ["ls"]),
        ("~~~sh\nCMD: rm x\n~~~\nCMD: ls", ["ls"]),
        ("````\n```\nCMD: rm x\n```\n````\nCMD: ls", ["ls"]),
        ("```\nCMD: rm x\n```sh\nCMD: rm y", []),
        ("```\nCMD: never closed", []),
        (f"CMD: {'x' * MAX_COMMAND_CHARS}", ["x" * MAX_COMMAND_CHARS]),
        (f"CMD: {'x' * (MAX_COMMAND_CHARS + 1)}", []),
        ("", []),
    ],
)
def test_which_lines_are_commands(text: str, expected: list[str]) -> None:
    assert list(commands_in(text)) == expected


@given(st.text())
def test_any_text_is_read_and_a_command_is_a_part_of_one_of_its_lines(text: str) -> None:
    for command in commands_in(text):
        assert command
        assert any(command in line for line in text.split("\n") if line.startswith("CMD:"))


@given(st.lists(st.text(alphabet="ab c`\\\"'$", min_size=1).map(str.strip).filter(bool)))
def test_commands_that_are_written_are_found(commands: list[str]) -> None:
    text = "\n".join(f"CMD: {command}" for command in commands)
    assert list(commands_in(text)) == commands


async def test_commands_run_in_order_and_what_came_of_them_is_the_next_user_message(
    bench: Bench,
) -> None:
    asked = "I look.\nCMD: ls\nCMD: pwd"
    table = PlainTable(bench, says(asked), says("Two files."))
    finished = await table.turn().run()
    assert (finished.text, finished.usage.rounds, finished.usage.tool_calls) == ("Two files.", 1, 2)
    requested = [e.arguments for e in bench.events if isinstance(e, ToolRequested)]
    assert requested == ['{"command": "ls"}', '{"command": "pwd"}']
    assert [(r.tool, r.status) for r in bench.receipts()] == [("shell", "allowed")] * 2
    first, second = table.model.requests
    assert (first.tools, second.tools) == ((), ())
    assert second.messages == (
        *first.messages,
        Message(role="assistant", content=asked),
        Message(role="user", content="[tool: shell]\nok\n\n[tool: shell]\nok"),
    )
    assert [m.role for m in table.context.messages] == [
        "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    assert table.in_step()


async def test_a_command_needs_the_approval_that_a_call_needs(bench: Bench) -> None:
    bench.is_reachable = False
    shell = Shell(risk="medium")
    table = PlainTable(bench, says("CMD: make"), says("I may not."), tools=[shell])
    finished = await table.turn().run()
    assert (finished.denied, shell.calls) == (1, 0)
    told = table.model.requests[1].messages[-1]
    assert (told.role, (told.content or "").startswith("[tool: shell]\ndenied: ")) == ("user", True)


async def test_commands_in_a_fence_are_an_answer(bench: Bench) -> None:
    shell = Shell()
    text = "Run this:\n```\nCMD: ls\n```"
    assert (await PlainTable(bench, says(text), tools=[shell]).turn().run()).text == text
    assert shell.calls == 0


async def test_a_model_that_calls_tools_has_its_lines_left_alone(bench: Bench) -> None:
    shell = Shell()
    finished = await Table(bench, says("CMD: ls"), tools=[shell]).turn().run()
    assert (finished.text, shell.calls) == ("CMD: ls", 0)


async def test_where_no_shell_is_offered_a_line_is_text(bench: Bench) -> None:
    finished = await PlainTable(bench, says("CMD: ls"), tools=[Probe()]).turn().run()
    assert (finished.text, bench.receipts()) == ("CMD: ls", [])


async def test_no_more_than_eight_commands_of_an_answer_are_run_and_that_is_said(
    bench: Bench,
) -> None:
    shell = Shell()
    lines = "\n".join(f"CMD: echo {number}" for number in range(20))
    await PlainTable(bench, says(lines), says("."), tools=[shell]).turn().run()
    assert shell.calls == 8
    told = "the first 8 of 20 commands are run, no others"
    assert Notice(level="warning", text=told) in bench.events


@each_row("reason", ["cancelled", "error"], fresh=["bench"])
async def test_commands_of_an_answer_that_somebody_ended_are_not_run(
    bench: Bench, reason: StopReason
) -> None:
    ended: Hop = [TextDelta(text="I look.\nCMD: rm -r build"), Finished(reason=reason)]
    shell = Shell()
    finished = await PlainTable(bench, ended, tools=[shell]).turn().run()
    assert (shell.calls, finished.text) == (0, "I look.\nCMD: rm -r build")


async def test_commands_of_an_answer_that_was_cut_are_not_run(bench: Bench) -> None:
    shell = Shell()
    table = PlainTable(bench, says("CMD: rm -r build/old"), tools=[shell])
    finished = await table.turn(max_response_bytes=14).run()
    assert (finished.stop_reason, shell.calls) == ("length", 0)


async def test_commands_that_were_only_thought_of_are_not_run(bench: Bench) -> None:
    shell = Shell()
    table = PlainTable(bench, [ReasoningDelta(text="CMD: rm x"), DONE], tools=[shell])
    assert (await table.turn().run()).text == "CMD: rm x"
    assert shell.calls == 0


async def test_the_same_command_three_times_stops_the_turn(bench: Bench) -> None:
    finished = await PlainTable(bench, says("CMD: ls")).turn().run()
    assert finished.stop_reason == "loop"


async def test_every_prompt_of_such_a_model_extends_the_one_before(bench: Bench) -> None:
    hops = [says(f"CMD: echo {number}") for number in range(3)]
    table = PlainTable(bench, *hops, says("end"), *hops, says("end"))
    for _ in range(2):
        await table.turn().run()
    for earlier, later in itertools.pairwise(table.model.requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert later.system == earlier.system


def test_calls_of_another_model_are_shown_as_text() -> None:
    history = (
        Message(role="user", content="a"),
        Message(role="assistant", tool_calls=(ToolCall(id="c", name="time"),)),
        Message(role="tool", content="noon", tool_call_id="c", name="time"),
        Message(role="assistant", content="CMD: ls", tool_calls=command_calls(["ls"])),
        Message(role="tool", content="x", tool_call_id="cmd_0", name="shell"),
        Message(role="user", content="b"),
    )
    assert [(m.role, m.content) for m in as_plain_history(history)] == [
        ("user", "a"),
        ("assistant", "[call: time]\n{}"),
        ("user", "[tool: time]\nnoon"),
        ("assistant", "CMD: ls"),
        ("user", "[tool: shell]\nx\n\nb"),
    ]


def test_the_prompt_says_how_where_there_is_a_shell() -> None:
    assert with_instructions("Be good.", [Shell()]) == f"Be good.\n\n{INSTRUCTIONS}"
    assert with_instructions("Be good.", [Probe()]) == "Be good."
    assert list(commands_in(INSTRUCTIONS)) == ["ls -l"]


@each_row("calls_tools", [True, False], fresh=["bench"])
async def test_the_provider_says_whether_a_model_is_told_of_commands(
    bench: Bench,
    calls_tools: bool,
) -> None:
    house = House(bench, says("CMD: ls"), says("done"), tools=[Shell(), Probe()])
    if not calls_tools:
        house.model = Plain(says("CMD: ls"), says("done"), name="mock")
    finished = await house.say("hi")
    first = house.model.requests[0]
    assert (INSTRUCTIONS in first.system) is not calls_tools
    assert bool(first.tools) is calls_tools
    assert finished.text == ("CMD: ls" if calls_tools else "done")
