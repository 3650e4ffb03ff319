"""The session for programs without asyncio: messages, prompt, tools, approvals, history."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import ClawError
from clawd.sdk import ApprovalRequested, QuestionAsked, Session
from clawd.sdk.session_config import Said
from clawd.wire.conversations import ShowPrompt
from clawd.wire.daemon import Reload, ShowConfig, Status
from clawd.wire.events import TextDelta, ToolFinished, TurnFinished
from clawd.wire.receipts import ShowReceipt
from tests.sdk.rig import ECHO, calling, error_of, receipt_lines, scripted
from tests.support.rows import each_row

WRITE = calling("file_write", {"path": "a.txt", "content": "words"})


def local(folder: Path, *replies: dict[str, Any], **settings: Any) -> Session:
    return Session.local(**scripted(folder, *replies, **settings))


def test_a_message_brings_its_answer_and_every_call_with_its_receipt(tmp_path: Path) -> None:
    with local(tmp_path, *calling("calculator", {"expression": "6 * 7"}, "it is 42")) as session:
        result = session.chat("what is 6 * 7?")
        assert session.verify_receipts().ok
    assert (result.text, str(result)) == ("it is 42", "it is 42")
    (call,) = result.calls
    assert (call.name, call.arguments, call.status) == (
        "calculator",
        {"expression": "6 * 7"},
        "allowed",
    )
    assert "42" in call.output
    assert [line["id"] for line in receipt_lines(tmp_path)] == [call.receipt_id]
    assert (result.stop_reason, result.provider, result.usage.rounds) == ("stop", "mock", 1)
    assert result.conversation_id == session.conversation_id


def test_a_message_says_after_how_many_rounds_of_calls_it_ends(tmp_path: Path) -> None:
    time = calling("time", {})[0]
    with local(tmp_path, time, time, {"text": "never"}) as session:
        result = session.chat("what time is it?", max_rounds=1)
        assert (result.stop_reason, result.usage.rounds, len(result.calls)) == ("cap", 1, 1)
        assert "max_rounds of the message" in result.text
        assert "max_rounds" in error_of(lambda: session.chat("again", max_rounds=-1)).message


def test_an_answer_comes_in_pieces(tmp_path: Path) -> None:
    with local(tmp_path, {"text": "one two three"}) as session:
        told: list[str] = []
        session.on_token(told.append)
        reply = session.stream("count")
        assert "has not ended" in error_of(lambda: reply.result).message
        pieces = list(reply)
        assert pieces == told
        assert len(pieces) > 1
        assert "".join(pieces) == reply.result.text == "one two three"


def test_every_event_is_told_in_the_callers_own_thread(tmp_path: Path) -> None:
    events: list[object] = []
    threads: set[str] = set()

    def note(event: object) -> None:
        events.append(event)
        threads.add(threading.current_thread().name)

    with local(tmp_path, *calling("time", {}, "late")) as session:
        session.on_event(note).chat("what time is it?")
    kinds = [type(event) for event in events]
    assert kinds.index(ToolFinished) < kinds.index(TextDelta) < kinds.index(TurnFinished)
    assert threads == {threading.current_thread().name}


def test_an_async_callback_is_awaited(tmp_path: Path) -> None:
    told: list[str] = []

    async def note(piece: str) -> None:
        await asyncio.sleep(0)
        told.append(piece)

    with local(tmp_path, {"text": "hello"}) as session:
        session.on_token(note).chat("hi")
    assert "".join(told) == "hello"


def test_breaking_off_cancels_the_turn_and_the_session_goes_on(tmp_path: Path) -> None:
    slow = {"text": "word " * 1000, "when": "long"}
    with local(tmp_path, slow, ECHO) as session:
        for _ in session.stream("a long one"):
            break
        assert session.chat("next").text == "next"


def test_an_error_of_a_callback_reaches_the_caller_and_ends_the_turn(tmp_path: Path) -> None:
    def refuse(_piece: str) -> None:
        raise LookupError("mine")

    with local(tmp_path) as session:
        session.on_token(refuse)
        with pytest.raises(LookupError, match="mine"):
            session.chat("hello")
        assert session.call(Status()).conversations == 1
        with pytest.raises(LookupError, match="mine"):
            session.chat("again")


# --- approvals and questions


@each_row("answer", [None, False, "deny", "yes", 1, "ONCE"])
def test_only_a_clear_yes_lets_a_call_run(tmp_path: Path, answer: Any) -> None:
    with local(tmp_path, *WRITE) as session:
        if answer is not None:
            session.on_approval(lambda _question: answer)
        result = session.chat("write")
        workspace = tmp_path / "home" / "workspace"
    assert (result.denied, list(workspace.iterdir())) == (1, [])
    assert result.text.startswith("denied: ")
    (receipt,) = receipt_lines(tmp_path)
    assert (receipt["status"], receipt["approval"]) == ("denied", "none")


@each_row("answer", [True, "once"])
def test_a_yes_lets_a_call_run_once(tmp_path: Path, answer: Any) -> None:
    questions: list[ApprovalRequested] = []

    def decide(question: ApprovalRequested) -> Any:
        questions.append(question)
        return answer

    with local(tmp_path, *WRITE, *WRITE) as session:
        session.on_approval(decide)
        session.chat("write")
        session.chat("and again")
    assert [question.tool for question in questions] == ["file_write", "file_write"]
    assert questions[0].arguments == '{"content":"words","path":"a.txt"}'
    assert {line["approval"] for line in receipt_lines(tmp_path)} == {"user"}


def test_a_yes_for_the_conversation_is_asked_once_and_ends_with_it(tmp_path: Path) -> None:
    asked: list[str] = []

    def decide(question: ApprovalRequested) -> str:
        asked.append(question.tool)
        return "conversation"

    with local(tmp_path, *WRITE) as session:
        session.on_approval(decide)  # type: ignore[arg-type]
        session.chat("write")
        session.chat("again")
        assert asked == ["file_write"]
        (tmp_path / "home" / "workspace" / "a.txt").unlink()
        session.reset().chat("write")
        assert asked == ["file_write", "file_write"]


def test_a_question_of_the_model_is_answered(tmp_path: Path) -> None:
    questions: list[QuestionAsked] = []

    def answer(question: QuestionAsked) -> str:
        questions.append(question)
        return "the blue one"

    ask = calling("ask_user", {"question": "which?", "options": ["red", "blue"]})
    with local(tmp_path, *ask) as session:
        session.on_question(answer)
        assert "the blue one" in session.chat("paint").text
    assert [(each.text, each.options) for each in questions] == [("which?", ("red", "blue"))]


def test_who_answers_only_the_one_kind_is_not_waited_for_with_the_other(tmp_path: Path) -> None:
    with local(tmp_path, *WRITE) as session:
        session.on_question(lambda _question: "x")
        assert session.chat("write").denied == 1
    other = tmp_path / "other"
    other.mkdir()
    with local(other, *calling("ask_user", {"question": "which?"})) as session:
        session.on_approval(lambda _question: True)
        assert "Nobody is here" in session.chat("ask").text


def test_the_autonomy_of_the_settings_holds(tmp_path: Path) -> None:
    with local(tmp_path, *WRITE, security__autonomy="readonly") as session:
        session.on_approval(lambda _question: True)
        assert session.chat("write").denied == 1
    with local(tmp_path, *WRITE, security__autonomy="full") as session:
        assert session.chat("write").calls[0].status == "allowed"


# --- the prompt


def test_the_prompt_is_what_was_said(tmp_path: Path) -> None:
    with local(tmp_path) as session:
        session.system("You sell books.").system_append("Be kind.").system_append(lambda: "Now.")
        text = session.render_system()
    assert text.startswith("You sell books.\n\nBe kind.\n\nNow.\n\n[rules]")
    assert "[guidance]" in text


def offered(session: Session) -> tuple[str, ...]:
    return session.call(ShowPrompt()).tools


def test_no_builtin_system_leaves_the_programs_own_text_alone(tmp_path: Path) -> None:
    with local(tmp_path) as session:
        session.no_builtin_system()
        assert session.render_system() == ""
        session.system("You sell books.").system_append("Be kind.").refresh_system()
        assert session.render_system() == "You sell books.\n\nBe kind."
        session.preamble_options(guidance=True).refresh_system()
        assert "[guidance]" in session.render_system()
        for wanted in (False, True):
            session.preamble_options(environment=wanted).refresh_system()
            assert ("\nworkspace: /" in session.call(ShowPrompt()).block) is wanted


def test_fragments_are_switched_one_by_one(tmp_path: Path) -> None:
    with local(tmp_path) as session:
        session.preamble_options(guidance=False, catalogue=False)
        text = session.render_system()
        assert "[rules]" in text
        assert "[guidance]" not in text
        assert "[tools]" not in text
    unknown: Any = {"weather": True}
    assert "weather" in error_of(lambda: Session.local().preamble_options(**unknown)).message
    half: Any = {"rules": 1}
    assert "rules=1" in error_of(lambda: Session.local().preamble_options(**half)).message


def test_what_the_config_says_of_the_prompt_stays(tmp_path: Path) -> None:
    configured = {"agent__system_prompt": "You are Ada.", "agent__system_append": "House rules."}
    with local(tmp_path, **configured) as session:
        session.no_builtin_system().system_append("Mine.")
        assert session.render_system() == "You are Ada.\n\nHouse rules.\n\nMine."


def test_a_function_is_asked_at_the_beginning_and_at_a_refresh_only(tmp_path: Path) -> None:
    count = 0

    async def number() -> str:
        nonlocal count
        count += 1
        return f"number {count}"

    with local(tmp_path) as session:
        session.system_append(number)
        assert count == 0
        for _ in range(2):
            session.chat("hello")
            assert "number 1" in session.render_system()
        session.refresh_system()
        assert "number 2" in session.render_system()
        assert len(session.history()) == 4


def test_a_function_that_fails_says_so_and_leaves_the_prompt_as_it_was(tmp_path: Path) -> None:
    answers: list[Any] = ["fine", ValueError("no stock"), 7, "x" * 20_000, "well"]

    def text() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with local(tmp_path) as session:
        session.system_append(text).init()
        assert "ValueError: no stock" in error_of(session.refresh_system).message
        assert "returned a int" in error_of(session.refresh_system).message
        assert "20000 bytes" in error_of(session.refresh_system).message
        assert "\n\nfine\n\n" in session.render_system()
        session.refresh_system()
        assert "\n\nwell\n\n" in session.render_system()


def test_set_system_begins_anew_and_refresh_keeps_the_history(tmp_path: Path) -> None:
    with local(tmp_path) as session:
        session.chat("one")
        first = session.conversation_id
        session.refresh_system().chat("two")
        assert session.conversation_id == first
        assert [said.content for said in session.history()] == ["one", "one", "two", "two"]
        session.set_system("You sell maps.")
        assert (session.conversation_id, session.history()) == ("", ())
        session.chat("three")
        assert session.conversation_id not in {"", first}
        assert session.history() == (
            Said(role="user", content="three"),
            Said(role="assistant", content="three"),
        )
        assert session.render_system().startswith("You sell maps.")


# --- tools


def area(width: float, height: float) -> float:
    """Compute an area."""
    return width * height


def test_a_tool_added_on_the_way_is_offered_and_the_history_stays(tmp_path: Path) -> None:
    replies = [{"text": "hello"}, *calling("area", {"width": "2", "height": 3.5})]
    with local(tmp_path, *replies) as session:
        session.chat("hi")
        before = offered(session)
        session.add_tool(area)
        assert session.chat("how large?").text == "7.0"
        assert "area" in offered(session)
        assert "area" not in before
        assert [said.role for said in session.history()][:2] == ["user", "assistant"]
        assert len(session.history()) == 6


def test_without_default_tools_only_those_of_the_program_are_there(tmp_path: Path) -> None:
    replies = [*calling("file_list", {}), *calling("area", {"width": 1, "height": 2})]
    with local(tmp_path, *replies) as session:
        session.with_default_tools(False).add_tool(area)
        assert "area" in offered(session)
        assert "file_list" not in offered(session)
        (call,) = session.chat("list").calls
        assert (call.status, call.output.startswith("error: there is no tool")) == ("failed", True)
        session.with_default_tools(True)
        assert "file_list" in offered(session)


def test_tools_allow_of_the_config_does_not_hide_the_programs_own(tmp_path: Path) -> None:
    with local(tmp_path, channels__cli__tools_allow=["time"]) as session:
        session.add_tool(area)
        assert offered(session) == ("area", "time")


def test_the_tools_of_one_session_are_not_anothers(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with (
        local(tmp_path / "one") as one,
        local(tmp_path / "two", *calling("area", {"width": 1, "height": 2})) as two,
    ):
        one.add_tool(area).init()
        assert "area" in offered(one)
        assert "area" not in offered(two)
        assert two.chat("go").calls[0].status == "failed"


# --- errors, layers below, threads


def test_errors_come_as_what_they_are(tmp_path: Path) -> None:
    failure = {"error": {"kind": "http", "status": 500}}
    with local(tmp_path, failure, failure, failure, failure, failure, failure) as session:
        error = error_of(lambda: session.chat("hello"))
        assert (type(error).__name__, getattr(error, "status", 0)) == ("ProviderError", 500)
        empty = error_of(lambda: session.chat("  "))
        assert type(empty).__name__ == "InvalidRequestError"


def test_a_config_with_problems_is_told_whole(tmp_path: Path) -> None:
    session = local(tmp_path, security__autonomy="godmode")
    error = error_of(lambda: session.chat("hello"))
    assert error.code == "config_invalid"
    assert "readonly, supervised, edits, full" in error.message
    session.close()


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Session.local("no-such-model", home=tmp_path / "home") as session:
        error = error_of(lambda: session.chat("hello"))
    assert (error.code, "no-such-model" in error.message) == ("model_not_found", True)


def test_a_place_that_is_none_is_refused() -> None:
    wrong: Any = {"folder": "/tmp"}
    assert "takes no folder" in error_of(lambda: Session.local(**wrong)).message


def test_engine_and_provider_are_reached_on_the_sessions_loop(tmp_path: Path) -> None:
    with local(tmp_path) as session:
        assert session.provider.name() == "mock"
        assert session.engine.status() == []

        async def running() -> bool:
            return asyncio.get_running_loop().is_running()

        assert session.run(running())


async def test_inside_a_running_loop_it_points_to_the_other_face(tmp_path: Path) -> None:
    session = local(tmp_path)
    with pytest.raises(ClawError, match="would block the event loop") as caught:
        session.chat("hello")
    assert "AsyncSession" in caught.value.hint
    session.close()


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    session = local(tmp_path)
    session.chat("hello")
    session.close()
    session.close()
    assert "closed" in error_of(lambda: session.chat("hello")).message


def test_two_threads_may_use_one_session(tmp_path: Path) -> None:
    with local(tmp_path) as session:
        texts: list[str] = []
        threads = [
            threading.Thread(target=lambda n=n: texts.append(session.chat(f"m{n}").text))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(texts) == ["m0", "m1", "m2", "m3"]
        assert len(session.history()) == 8


@each_row("url", ["models", "ftp://x/v1", "https://ada:word@x/v1"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with Session.remote(url, "m", api_key="a key of the test", home=tmp_path / "home") as session:
        error = error_of(session.init)
    assert error.code == "config_invalid"
    assert "base_url" in error.message
    assert "a key of the test" not in error.message


def test_a_key_is_in_no_receipt_and_in_no_config_that_is_shown(tmp_path: Path) -> None:
    key, at = "a-key-of-the-test", "providers__models__other__"
    other = {"kind": "openai-compatible", "base_url": "http://x/v1", "model": "m", "api_key": key}
    settings = {at + name: value for name, value in other.items()}

    def leak() -> str:
        """Leak."""
        return f"it is {key}"

    with local(tmp_path, *calling("leak", {}), **settings) as session:
        (call,) = session.add_tool(leak).chat("go").calls
        assert key not in session.call(ShowReceipt(receipt_id=call.receipt_id)).result
        assert key not in str(session.call(ShowConfig()).values)


def test_a_key_that_is_not_in_the_environment_is_named(tmp_path: Path) -> None:
    with Session.remote(
        "https://models.example.org/v1", "m", api_key_env="NO_SUCH_KEY", home=tmp_path / "home"
    ) as session:
        assert "NO_SUCH_KEY" in error_of(lambda: session.chat("hello")).message


def test_turning_clawds_tools_on_again_over_a_name_that_is_taken_changes_nothing(
    tmp_path: Path,
) -> None:
    def shell(command: str) -> str:
        """Pretend."""
        return f"pretended {command}"

    with local(tmp_path, *calling("shell", {"command": "rm -rf /"})) as session:
        session.with_default_tools(False).add_tool(shell)
        assert session.chat("go").text == "pretended rm -rf /"
        session.with_default_tools(True)
        assert "two tools are called 'shell'" in error_of(lambda: session.chat("x")).message
        session.chat("x")
        assert "file_list" not in offered(session)


def test_a_reload_keeps_what_the_program_said(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[agent]\nknowledge_cutoff = "2024-01"\n')
    where = scripted(tmp_path, *WRITE, security__autonomy="readonly")
    where["config"] = config
    with Session.local(**where) as session:
        session.system("You sell books.").add_tool(area).on_approval(lambda _question: True)
        before = session.render_system()
        config.write_text('[agent]\nknowledge_cutoff = "2025-02"\n')
        session.call(Reload())
        assert session.render_system() == before.replace("2024-01", "2025-02") != before
        assert session.chat("write").denied == 1


@each_row(
    "mistake",
    [
        lambda s: s.system(5),
        lambda s: s.set_system(None),
        lambda s: s.system_append(None),
        lambda s: s.system_append(["x"]),
    ],
)
def test_what_is_no_text_is_refused_at_once(mistake: Callable[[Session], Any]) -> None:
    assert error_of(lambda: mistake(Session.local())).code == "invalid_request"


@each_row("key", ["", ".", "a..b", 5])
def test_a_setting_without_a_name_is_refused_at_once(key: Any) -> None:
    assert "no key" in error_of(lambda: Session.local(settings={key: 1})).message


def test_a_long_history_comes_whole_and_in_order(tmp_path: Path) -> None:
    with local(tmp_path, compression__at_messages=1000) as session:
        for number in range(110):
            session.chat(f"message {number}")
        told = [said.content for said in session.history()]
    assert told == [f"message {number // 2}" for number in range(220)]
