"""What a turn looks like while it goes on and when it is over, on a terminal of the test."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from clawctl.approve import request_lines
from clawctl.render import Palette
from clawctl.repl.plain_view import PlainView
from clawctl.repl.theme import ASCII, CONTRAST, DARK, LIGHT, NONE, Look, chosen_look
from clawctl.safe_stream import Screen
from clawctl.turn import TurnView, ViewOptions, evaluation_line, footer, usage_line
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    DiffLine,
    FileDiff,
    HopFinished,
    HopReset,
    HopUsage,
    ModelLoading,
    Notice,
    PlanChanged,
    PromptEvaluated,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    TokenLedger,
    TokenPart,
    ToolDraft,
    ToolFinished,
    ToolProgress,
    ToolRequested,
    ToolStarted,
    TurnUsage,
)
from tests.support.drawing import Drawing, PyteTerminal, Tty
from tests.support.rows import each_row
from tests.support.terminal import REQUEST, STARTED, finished

PLAN = "## Plan\n- [x] 1. look\n- [~] 2. write\n- [ ] 3. test"
EVALUATED = PromptEvaluated(tokens=10, cached=0, elapsed_ms=100, context_used=10, context_size=2048)


def shown_plan(markdown: str) -> list[str]:
    return ["  " + line.removeprefix("- ") for line in markdown.split("\n")]


def drawing(columns: int = 80, **changes: object) -> Drawing:
    return Drawing(PyteTerminal(columns, 24), **changes)  # type: ignore[arg-type]


def requested(tool: str, arguments: object, call_id: str = "1") -> ToolRequested:
    return ToolRequested(call_id=call_id, tool=tool, arguments=json.dumps(arguments))


def done(tool: str, output: str = "", call_id: str = "1", **changes: object) -> ToolFinished:
    values = {"status": "allowed", "receipt_id": "receipt-1", "duration_ms": 120, **changes}
    return ToolFinished(call_id=call_id, tool=tool, output=output, **values)  # type: ignore[arg-type]


def test_the_spinner_says_how_far_the_prompt_is_and_leaves_no_trace() -> None:
    turn = drawing()
    turn.view.context_size = 1000
    turn.show(STARTED, PromptProgress(processed=43, cached=0, total=100))
    (row,) = turn.terminal.text
    assert row[3:] == " thinking 43% · ctx 10%"
    before = row[2]
    turn.tick(0.15)
    assert turn.terminal.text[0][2] != before, "the spinner turns"
    turn.show(EVALUATED, TextDelta(text="Hello."))
    turn.finish("Hello.", finished("Hello."))
    assert turn.terminal.text == ["Hello.", "512 tok · 9.5 tok/s · 25 %".rjust(79)]


def test_the_spinner_says_how_far_the_load_of_the_model_is() -> None:
    turn = drawing()
    loading = ModelLoading(
        model="big\x1b[2J", loaded_bytes=1_500_000_000, total_bytes=6_000_000_000
    )
    turn.show(STARTED, loading)
    (row,) = turn.terminal.text
    assert row[3:] == " loading big‹U+001B›[2J 25% · 1.5 GB of 6.0 GB"
    turn.show(PromptProgress(processed=43, cached=0, total=100))
    assert turn.terminal.text[0][3:] == " thinking 43%"


def test_one_paint_that_was_held_up_does_not_hold_up_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = drawing()
    canvas = turn.view._canvas
    paint = canvas.paint

    def slowly(kept: Sequence[str], live: Sequence[str]) -> None:
        turn.now += 5
        paint(kept, live)

    with monkeypatch.context() as patch:
        patch.setattr(canvas, "paint", slowly)
        turn.show(STARTED)
    turn.show(*(TextDelta(text=f"word{number} ") for number in range(20)))
    assert "word5" in "".join(turn.terminal.text)


def test_a_quiet_turn_is_its_text_alone() -> None:
    quiet = ViewOptions(rows=False, metrics=False)
    turn = Drawing(PyteTerminal(80, 24), options=quiet)
    turn.show(STARTED, EVALUATED, requested("shell", {"command": "ls"}), done("shell", "x"))
    turn.show(PlanChanged(markdown=PLAN), ReasoningDelta(text="hm"), TextDelta(text="Hello."))
    turn.finish("Hello.", finished("Hello."))
    assert turn.terminal.text == ["Hello."]


def test_reasoning_is_one_line_and_then_folded() -> None:
    turn = drawing()
    turn.show(STARTED, ReasoningDelta(text="I should lo"), ReasoningDelta(text="ok at the file"))
    (row,) = turn.terminal.text
    assert row.endswith("thinking … I should look at the file")
    turn.now += 3
    turn.show(TextDelta(text="Done."))
    turn.finish("Done.")
    assert turn.terminal.text == ["  ▸ thought for 3.1 s (6 words)", "", "Done."]


def test_reasoning_is_shown_whole_where_that_is_wanted() -> None:
    turn = Drawing(PyteTerminal(80, 24), options=ViewOptions(reasoning=True))
    turn.show(ReasoningDelta(text="first li"), ReasoningDelta(text="ne\nsecond"))
    turn.show(TextDelta(text="Done."))
    turn.finish("Done.")
    assert turn.terminal.text[:2] == ["  │ first line", "  │ second"]


def test_h4_a_call_is_seen_while_it_is_written_and_leaves_no_trace_of_that() -> None:
    turn = drawing()
    content = "".join(f"line {number} \\n\n" for number in range(5))
    written = json.dumps({"path": "src/ä.py", "content": content})
    pieces = [written[at : at + 3] for at in range(0, len(written), 3)]
    turn.show(STARTED, TextDelta(text="I write it."))
    turn.show(*(ToolDraft(tool="file_write", text=piece) for piece in pieces[:2]))
    assert turn.terminal.text[0] == "I write it."
    assert turn.terminal.text[-1][3:] == " writing file_write · 6 characters"
    turn.show(*(ToolDraft(tool="file_write", text=piece) for piece in pieces[2:]))
    assert turn.terminal.text[-1][3:] == " writing file_write src/ä.py · 6 lines"
    # The next call of the same answer is another one.
    turn.show(ToolDraft(tool="file_write", text='{"path": "b\x1b[2J', index=1))
    assert turn.terminal.text[-1][3:] == " writing file_write b‹U+001B›[2J · 15 characters"
    turn.show(requested("file_write", {"path": "src/ä.py", "content": content}))
    assert "writing" not in "\n".join(turn.terminal.text)
    turn.show(done("file_write", "ok"))
    # What turns out to be no call, or is asked again, leaves none either.
    for end in (HopFinished(usage=HopUsage()), HopReset(reason="again")):
        turn.show(ToolDraft(tool="shell", text="{"), end)
        assert "writing" not in "\n".join(turn.terminal.text)
    turn.show(ToolDraft(tool="shell", text="{"))
    turn.finish("I write it.")
    assert "writing" not in "\n".join(turn.terminal.text)


def test_h4_a_quiet_view_and_words_for_a_reader_show_nothing_of_what_is_being_written() -> None:
    draft = ToolDraft(tool="file_write", text='{"path": "a.py"')
    for options in (ViewOptions(calls=False), ViewOptions(rows=False, metrics=False)):
        turn = Drawing(PyteTerminal(80, 24), options=options)
        turn.show(draft)
        assert "writing" not in "\n".join(turn.terminal.text)


def test_a_call_shows_its_time_and_the_end_of_its_output_and_then_how_it_went() -> None:
    turn = drawing()
    turn.show(requested("shell", {"command": "make test"}))
    turn.show(ToolStarted(call_id="1", tool="shell"))
    turn.show(ToolProgress(call_id="1", text="one\ntwo\nthree\nfour\n"))
    turn.tick(1.9)
    rows = turn.terminal.text
    assert rows[0][3:] == " shell make test · 2.0 s"
    assert rows[1:] == ["    │ two", "    │ three", "    │ four"]
    turn.show(done("shell", "\n".join(f"line {n}" for n in range(9))))
    turn.finish(None)
    assert turn.terminal.text == ["  ✓ shell make test · 0.1 s"]


def test_p7_a_row_of_a_call_leaves_out_what_is_long_and_nested() -> None:
    items = [{"text": f"step {number}"} for number in range(9)]
    turn = drawing()
    turn.show(requested("plan", {"action": "add", "items": items, "at": [1]}), done("plan"))
    turn.finish(None)
    assert turn.terminal.text == ["  ✓ plan action=add items=[…] at=[1] · 0.1 s"]


def test_what_a_server_did_not_measure_is_not_displayed_as_zero() -> None:
    evaluated = msgspec.structs.replace(EVALUATED, elapsed_ms=0)
    assert evaluation_line(evaluated) == "● prompt eval: 10 tok · ctx 0%"


def test_the_context_is_as_full_in_the_bar_as_below_the_answer() -> None:
    usage = TurnUsage(context_used=473, context_size=8_192)
    evaluated = msgspec.structs.replace(EVALUATED, context_used=473, context_size=8_192)
    assert footer(usage).endswith("6 %")
    assert usage_line(usage).startswith("● 6%")
    assert evaluation_line(evaluated).endswith("ctx 6%")


def test_p7_receipts_output_and_what_the_prompt_cost_are_for_who_asks_for_details() -> None:
    turn = drawing(options=ViewOptions(details=True))
    turn.show(STARTED, EVALUATED, requested("shell", {"command": "make test"}))
    turn.show(done("shell", "\n".join(f"line {n}" for n in range(9)), duration_ms=62_000))
    ledger = TokenLedger(parts=(TokenPart(name="system", tokens=9),), free=3, context_size=12)
    turn.finish(None, msgspec.structs.replace(finished(""), ledger=ledger))
    assert turn.terminal.text == [
        "  ● prompt eval: 10 tok · 100 ms · 100.0 tok/s · ctx 0%",
        "  ✓ shell make test · 1 min 2 s · receipt-1",
        *[f"    │ line {n}" for n in range(6)],
        "    … 3 more lines",
        "  ● context: system 9 · free 3",
        "512 tok · 9.5 tok/s · 25 %".rjust(79),
    ]


def test_r7_what_tools_gave_stands_beside_the_answer_of_a_small_model() -> None:
    small = msgspec.structs.replace(STARTED, shows_results=True)
    output = "\n".join(f"line {n}" for n in range(9))
    call = requested("shell", {"command": "ls"})
    for started, expected in ((small, [*range(6)]), (STARTED, [])):
        turn = drawing()
        turn.show(started, call, done("shell", output), TextDelta(text="Nothing."))
        turn.finish("Nothing.")
        rows = [f"    │ line {n}" for n in expected]
        more = ["    … 3 more lines"] if expected else []
        assert turn.terminal.text == ["  ✓ shell ls · 0.1 s", *rows, *more, "", "Nothing."]
        out, err = Tty(), Tty()
        brief = TurnView(out, err, ViewOptions(metrics=False))
        words = PlainView(out, ViewOptions(), lambda: 1.0)
        for view in (brief, words):
            for event in (started, call, done("shell", output)):
                view.show(event)
            view.finish(None)
        assert [f"  │ line {n}" in err.getvalue() for n in range(9)] == [
            n in expected for n in range(9)
        ]
        assert out.getvalue().count("Result: line") == len(expected)


def test_r7_a_reason_is_not_told_twice_beside_the_answer_of_a_small_model() -> None:
    turn = drawing()
    small = msgspec.structs.replace(STARTED, shows_results=True)
    failed = done("shell", "error: no x", status="failed")
    turn.show(small, requested("shell", {"command": "ls"}), failed)
    turn.finish(None)
    assert turn.terminal.text == ["  ✗ shell ls · failed · 0.1 s", "    no x"]


def test_a_call_that_fails_says_why() -> None:
    long = "denied: " + "word " * 40
    rows = (
        ({"output": "error: no x", "status": "failed"}, "failed · 0.1 s", "no x"),
        (
            {"output": "error: it exited\nout", "status": "failed", "exit_code": 1},
            "exit 1 · 0.1 s",
            "",
        ),
        ({"output": long, "status": "denied"}, "denied", "word " * 40),
    )
    for changes, how, why in rows:
        turn = drawing()
        turn.show(requested("shell", {"command": "x"}), done("shell", **changes))
        turn.finish(None)
        first, *rest = turn.terminal.text
        assert first == f"  ✗ shell x · {how}"
        assert " ".join(" ".join(rest).split()) == why.strip(), "nothing of a reason is cut off"


def test_a_command_that_runs_on_says_as_what() -> None:
    turn = drawing()
    turn.show(requested("shell", {"command": "make"}), done("shell", "[it runs]", job="job-2"))
    turn.finish(None)
    assert turn.terminal.text == ["  ✓ shell make · runs on as job-2 · 0.1 s"]


def started(tool: str, *changes: FileDiff) -> ToolStarted:
    return ToolStarted(call_id="1", tool=tool, changes=changes)


def test_an_edit_is_a_diff_with_line_numbers() -> None:
    lines = (
        DiffLine(mark=" ", text="line 19", number=19),
        DiffLine(mark="-", text="line 20", number=20),
        DiffLine(mark="+", text="new 20", number=20),
        DiffLine(mark="+", text="new 21", number=21),
        DiffLine(mark=" ", text="line 21", number=22, has_end=False),
    )
    turn = drawing()
    turn.show(requested("file_edit", {"path": "a.py", "old_text": "line 20\n", "new_text": "…"}))
    turn.show(started("file_edit", FileDiff(path="a.py", lines=lines, added=2, removed=1)))
    turn.show(done("file_edit", "updated a.py"))
    turn.finish(None)
    assert turn.terminal.text == [
        "  ✓ edit a.py +2 −1 · 0.1 s",
        "    19   line 19",
        "    20 − line 20",
        "    20 + new 20",
        "    21 + new 21",
        "    22   line 21 (no newline at the end)",
    ]
    assert "\x1b[32m+ new 20\x1b[0m" in turn.raw


def test_a_long_diff_says_what_it_leaves_out() -> None:
    lines = tuple(DiffLine(mark="+", text="x", number=number) for number in range(1, 101))
    diff = FileDiff(path="new.txt", lines=lines, is_new=True, is_cut=True, added=102)
    turn = drawing()
    turn.show(requested("file_write", {"path": "new.txt", "content": "x\n" * 102}))
    turn.show(started("file_write", diff), done("file_write", "created"))
    turn.finish(None)
    assert turn.terminal.text[1] == "    new file, cut: 2 lines are not here"
    assert turn.terminal.text[-1] == "    … 61 more lines"


def test_the_plan_stands_below_and_stays_once() -> None:
    turn = drawing()
    turn.show(PlanChanged(markdown=PLAN), TextDelta(text="Working on it.\n\nMore"))
    assert turn.terminal.text == ["Working on it.", "", "More", "", *shown_plan(PLAN)]
    turn.show(PlanChanged(markdown=PLAN.replace("[~]", "[x]")), TextDelta(text=" text."))
    turn.finish("Working on it.\n\nMore text.")
    lines = shown_plan(PLAN.replace("[~]", "[x]"))
    assert turn.terminal.text == ["Working on it.", "", "More text.", "", *lines]


def test_a_pause_leaves_the_terminal_clean_and_the_call_comes_back_as_it_was_edited() -> None:
    turn = drawing()
    turn.show(TextDelta(text="I write"), requested("file_write", {"path": "a", "content": "1"}))
    request = ApprovalRequested(
        approval_id="a1",
        digest="d",
        call_id="1",
        tool="file_write",
        arguments='{"content":"2","path":"b"}',
        risk="medium",
        reason="r",
        workspace="/nowhere",
    )
    turn.show(request)
    turn.pause()
    assert turn.terminal.text == ["I write"]
    turn.terminal.feed("Approve? [y/N] y\n")
    turn.show(ApprovalResolved(approval_id="a1", answer="once", by="uid 1"))
    turn.show(done("file_write", "created b"))
    turn.finish(None)
    rows = turn.terminal.text
    assert rows[:4] == ["I write", "", "Approve? [y/N] y", "  approved (once) by uid 1"]
    assert rows[4] == "  ✓ write b content=2 · 0.1 s"


def test_warnings_stay_and_the_block_under_way_goes_on_below() -> None:
    turn = drawing()
    turn.show(TextDelta(text="One"), Notice(level="warning", text="low disk"))
    turn.show(TextDelta(text=" two."))
    turn.finish("One two.")
    assert turn.terminal.text == ["  ● low disk", "", "One two."]


def test_ascii_terminals_get_ascii() -> None:
    turn = drawing(look=Look(theme=NONE, marks=ASCII, unicode=False))
    turn.show(STARTED, EVALUATED, requested("shell", {"command": "ls"}))
    turn.show(ToolStarted(call_id="1", tool="shell"), ToolProgress(call_id="1", text="out"))
    turn.show(done("shell", "a\n" * 9), ReasoningDelta(text="hm"))
    turn.show(TextDelta(text="- item\n\n| a | b |\n|---|---|\n| c | d |\n\n---\n"))
    turn.finish(None, finished(""))
    assert turn.raw.isascii()
    assert "\x1b[1m" not in turn.raw, "no colour and no weight"


def test_words_alone_for_who_hears_them() -> None:
    out = Tty()
    view = PlainView(out, ViewOptions(), lambda: 1.0)
    view.show(STARTED)
    for done_bytes in (1, 2, 51):
        view.show(ModelLoading(model="m", loaded_bytes=done_bytes, total_bytes=100))
    view.show(ReasoningDelta(text="let me see"))
    view.show(requested("shell", {"command": "ls"}))
    view.show(done("shell", "x", duration_ms=7))
    view.show(PlanChanged(markdown=PLAN))
    view.show(TextDelta(text="Some **text**\nand"))
    view.show(TextDelta(text=" more"))
    view.tick()
    view.finish("Some **text**\nand more", finished(""))
    assert out.getvalue().split("\n") == [
        "Loading m: 0 percent.",
        "Loading m: 50 percent.",
        "Thinking.",
        "Thought for 0.0 s (3 words).",
        "Tool shell is asked for: ls",
        "Tool shell is done after 7 ms.",
        "Plan: ## Plan",
        "Plan: 1. look, done",
        "Plan: 2. write, under way",
        "Plan: 3. test, to do",
        "Some **text**",
        "and more",
        "Context 25 percent, 512 tokens, 9.5 tokens per second.",
        "",
    ]


def test_the_person_chooses_the_look(own_home: None, home: Path) -> None:
    out = Screen(Tty())
    assert chosen_look(out, {}).theme == DARK  # type: ignore[arg-type]
    assert chosen_look(out, {"COLORFGBG": "0;15"}).theme == LIGHT  # type: ignore[arg-type]
    (home / "client.toml").write_text('theme = "contrast"\nplain = true\n')
    look = chosen_look(out, {})  # type: ignore[arg-type]
    assert (look.theme, look.plain) == (CONTRAST, True)
    look = chosen_look(out, {"CLAWD_THEME": "light", "CLAWD_PLAIN": "0"})  # type: ignore[arg-type]
    assert (look.theme, look.plain) == (LIGHT, False)
    assert chosen_look(out, {"CLAWD_THEME": "light", "NO_COLOR": "1"}).theme == NONE  # type: ignore[arg-type]
    (home / "client.toml").write_text("theme = [")
    assert chosen_look(out, {}).theme == DARK  # type: ignore[arg-type]


def test_a_call_that_a_stop_cut_off_is_said_to_have_run_or_not() -> None:
    ends = []
    for has_begun in (False, True):
        turn = drawing(80)
        turn.show(STARTED, requested("shell", {"command": "make test"}))
        if has_begun:
            turn.now += 1
            turn.show(ToolStarted(call_id="1", tool="shell"))
        turn.finish(None)
        ends.append(turn.terminal.text[-1])
    assert ends == ["  ✗ shell make test · did not run", "  ✗ shell make test · did not finish"]


def test_sixty_and_twenty_columns_break_no_row() -> None:
    for columns in (60, 20):
        turn = drawing(columns)
        turn.show(STARTED, EVALUATED, requested("shell", {"command": "日本語 " * 30}))
        turn.show(ToolStarted(call_id="1", tool="shell"))
        turn.show(ToolProgress(call_id="1", text="👩‍👩‍👧" * 30))
        turn.tick()
        assert len(turn.terminal.text) <= 8
        turn.show(done("shell", "ｗ" * 100), Notice(level="info", text="e\u0301" * 100))
        turn.finish("日本語" * 30, finished(""))
        assert REQUEST.tool not in turn.raw
        assert all(len(row) < columns for row in turn.terminal.text)


def test_a_plan_is_shown_once_and_not_as_output_as_well() -> None:
    turn = drawing()
    turn.show(
        STARTED,
        requested("plan", {"action": "add"}),
        PlanChanged(markdown=PLAN),
        done("plan", PLAN),
        TextDelta(text="Done."),
    )
    turn.finish("Done.", finished("Done."))
    assert "\n".join(turn.terminal.text).count("2. write") == 1


MENDED = FileDiff(
    path="adder.py",
    lines=(
        DiffLine(mark=" ", text="def add(left, right):", number=4),
        DiffLine(mark="-", text="    return left - right", number=5),
        DiffLine(mark="+", text="    return left + right", number=5),
    ),
    added=1,
    removed=1,
)
EDIT = {"path": "adder.py", "old_text": "left - right", "new_text": "left + right"}


def turn_with_an_edit(turn: Drawing) -> None:
    turn.terminal.feed("> mend it\n")
    turn.show(STARTED, EVALUATED, requested("file_edit", EDIT))


def test_p7_a_turn_with_an_edit_that_runs_unasked_prints_seven_lines_and_its_diff() -> None:
    turn = drawing(60, options=ViewOptions(spaced=True))
    turn_with_an_edit(turn)
    turn.show(started("file_edit", MENDED), done("file_edit", "updated", duration_ms=210))
    turn.show(TextDelta(text="It adds now:\n\n```python\nadd(1, 2)\n```\n"))
    turn.finish("It adds now:\n\n```python\nadd(1, 2)\n```\n", finished(""))
    turn.terminal.feed("\n> ")
    assert turn.terminal.text == [
        "> mend it",
        "",
        "  ✓ edit adder.py +1 −1 · 0.2 s",
        "    4   def add(left, right):",
        "    5 −     return left - right",
        "    5 +     return left + right",
        "",
        "It adds now:",
        "",
        "add(1, 2)",
        "512 tok · 9.5 tok/s · 25 %".rjust(59),
        "",
        ">",
    ]


def test_p7_a_turn_with_an_edit_that_was_asked_about_shows_its_diff_once() -> None:
    turn = drawing(100, options=ViewOptions(spaced=True))
    turn_with_an_edit(turn)
    request = msgspec.structs.replace(
        REQUEST,
        tool="file_edit",
        arguments=json.dumps(EDIT),
        reason="changes a file",
        workspace=str(Path.cwd()),
        changes=(MENDED,),
    )
    turn.show(request)
    turn.pause()
    for line in request_lines(Palette(is_on=False), request):
        turn.terminal.feed(f"{line}\n")
    turn.terminal.feed("  ╰ Approve? [y/N]   y\n")
    turn.now += 30
    turn.show(ApprovalResolved(approval_id="a1", answer="once", by=""))
    turn.show(started("file_edit", MENDED), every_s=0)
    turn.show(
        done("file_edit", "updated", duration_ms=30_210), TextDelta(text="Done."), every_s=0.2
    )
    turn.finish("Done.", finished(""))
    rows = turn.terminal.text
    assert rows == [
        "> mend it",
        "",
        "  ╭ edit adder.py  +1 −1 · medium: changes a file",
        "  │ 4   def add(left, right):",
        "  │ 5 −     return left - right",
        "  │ 5 +     return left + right",
        "  ╰ Approve? [y/N]   y",
        "  ✓ edit adder.py +1 −1 · 0.2 s",  # not the 30 s in which a person thought
        "",
        "Done.",
        "512 tok · 9.5 tok/s · 25 %".rjust(99),
    ]
    assert len([row for row in rows if not row.startswith("  │")]) <= 8


@each_row(
    ("usage", "line"),
    [
        (TurnUsage(), ""),
        (TurnUsage(prompt_tokens=90, completion_tokens=10), "100 tok"),
        (
            TurnUsage(context_used=1_234, context_size=10_000, tokens_per_s=38.4),
            "1.2k tok · 38 tok/s · 12 %",
        ),
    ],
)
def test_the_footer_leaves_out_what_a_server_does_not_tell(usage: TurnUsage, line: str) -> None:
    assert footer(usage) == line


@each_row(
    ("usage", "line"),
    [
        (TurnUsage(), ""),
        (TurnUsage(prompt_tokens=90, completion_tokens=10), "● 100 tokens"),
        (
            TurnUsage(context_used=512, context_size=2048, tokens_per_s=9.5),
            "● 25% / 512 tokens  last: 9.5 tok/s",
        ),
    ],
)
def test_the_summary_leaves_out_what_a_server_does_not_tell(usage: TurnUsage, line: str) -> None:
    assert usage_line(usage) == line
