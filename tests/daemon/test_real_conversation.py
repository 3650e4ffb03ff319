"""Twenty turns with a weak real model: what it does wrong is named, and nothing is lost or hangs.

The model calls no tool by itself, so some turns insist on one, and some are made to fail: by a
limit, by words that end an answer, by an approval that nobody gives.
"""

import json
import time

import msgspec
import psutil
import pytest

from clawctl.client import Client, connect
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.providers.toolcalls.detect import looks_like_call
from clawd.wire.conversations import ShowConversation
from clawd.wire.events import (
    ApprovalRequested,
    ContextCompressed,
    Event,
    HopFinished,
    HopReset,
    Notice,
    TextDelta,
    ToolFinished,
    ToolRequested,
    TurnFinished,
    TurnStarted,
)
from clawd.wire.receipts import ReceiptDetail, ShowReceipt, VerifyReceipts
from clawd.wire.turns import SamplingWishes, SendMessage
from tests.support.home import Home
from tests.support.rows import thorough
from tests.support.smollm2 import NAME, smollm2_provider

pytestmark = [pytest.mark.daemon, pytest.mark.real_model, pytest.mark.smollm2]

LIMIT_S = 240.0  # of one turn, on a machine that others use
LOOP_TOKENS = 512
MOST_TOKENS = LOOP_TOKENS + 64 if thorough() else 64
# Every answer has one of them, the mark of an answer that was stopped included.
LETTERS = tuple("aeiouyhsnrtlAEIOUYHSNRTL0123456789(")
TABLES = f"""
[channels.cli]
tools_allow = ["file_list", "file_write", "time", "tool_lookup"]

[tools]
offer = "core"

[prompt]
guidance = false
rules = false
environment = false
date = false

[agent]
system_prompt = "You are a helpful assistant."
max_tool_rounds = 3

[compression]
at_context_percent = 50
keep_least = 2
keep_most = 6
summary_tokens = 64
summary_timeout_s = {180 if thorough() else 5}

[engine]
n_threads = 1
ctx_size = 1536
temperature = {0.8 if thorough() else 0.0}
seed = 7
max_tokens = {MOST_TOKENS}
"""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One message: which tool its answer must call, and how it is sampled."""

    text: str
    choice: str = "auto"
    most: int = 24
    stop: tuple[str, ...] = ()
    agrees: bool = True


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn was for the person: its events, and its end or the error that it ended with."""

    said: Said
    events: list[Event]
    finished: TurnFinished | None
    error: str

    @property
    def notices(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Notice))

    @property
    def calls(self) -> list[ToolFinished]:
        return [event for event in self.events if isinstance(event, ToolFinished)]

    @property
    def shown(self) -> str:
        """The text that stands there at the end; what was voided is gone."""
        text = ""
        for event in self.events:
            if isinstance(event, HopReset | ToolRequested):
                text = ""
            elif isinstance(event, TextDelta):
                text += event.text
        return text

    @property
    def tokens(self) -> list[int]:
        """How many tokens each answer of the turn had."""
        hops = (event for event in self.events if isinstance(event, HopFinished))
        return [hop.usage.completion_tokens for hop in hops]


class Talk:
    """One conversation with a daemon, over its socket."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.conversation_id = ""
        self.heard: list[Heard] = []

    def client(self) -> Client:
        return connect(layout(self.home.environ).socket)

    def say(self, said: Said, *, until: type[Event] | None = None) -> Heard:
        """Say something and hear the turn to its end; with `until` the daemon is killed there."""
        request = SendMessage(
            text=said.text,
            conversation_id=self.conversation_id,
            interactive=True,
            tool_choice=said.choice,
            sampling=SamplingWishes(max_tokens=said.most, stop=said.stop),
        )
        events: list[Event] = []
        finished, error = None, ""
        deadline = time.monotonic() + LIMIT_S
        with self.client() as client:
            stream = client.stream(request)
            try:
                while not stream.is_done:
                    assert time.monotonic() < deadline, f"{said.text}: no end, {events[-3:]}"
                    event = stream.wait(1.0)
                    if event is None:
                        continue
                    events.append(event)
                    if isinstance(event, TurnStarted):
                        self.conversation_id = event.conversation_id
                    if isinstance(event, ApprovalRequested):
                        answer = "once" if said.agrees else "deny"
                        stream.answer(event.approval_id, answer, event.digest)
                    if until is not None and isinstance(event, until):
                        self.home.kill()
                        until = None
                finished = stream.result
            except ClawError as failure:
                error = f"{failure.code}: {failure.message}"
        self.heard.append(Heard(said=said, events=events, finished=finished, error=error))
        return self.heard[-1]


def unnamed(heard: Heard) -> str:
    """Return what went wrong in a turn without being said; "" where nothing did."""
    finished = heard.finished
    if finished is None:
        return "" if ": " in heard.error else "it ended without a word"
    if heard.shown != finished.text:
        return f"shown was {heard.shown!r}, kept is {finished.text!r}"
    if looks_like_call(finished.text):
        return f"a call is shown as an answer: {finished.text!r}"
    reasons = heard.notices + finished.text
    if finished.stop_reason == "length" and "cut at its limit of" not in reasons:
        return "nothing says that the answer was cut"
    if finished.stop_reason in {"loop", "cap"} and "I stopped: " not in finished.text:
        return "nothing says why it stopped"
    if not finished.text.strip() and "empty answer" not in heard.notices:
        return "nothing says that the answer is empty"
    silent = [call.tool for call in heard.calls if call.status != "allowed" and not call.output]
    return f"{silent} did not run, and nothing says why" if silent else ""


def wrong_history(talk: Talk) -> list[str]:
    """Return what of the conversation memory lacks, or has and was not said."""
    with talk.client() as client:
        shown = client.call(ShowConversation(conversation_id=talk.conversation_id, limit=1_000))
    wrong = []
    said = [line.content for line in shown.messages if line.role == "user"]
    expected = [heard.said.text for heard in talk.heard]
    if [text.rpartition("</context>\n")[2] for text in said] != expected:
        wrong.append(f"said was {expected}, kept is {said}")
    kept = [line.content for line in shown.messages if line.role == "assistant"]
    answers = [heard.finished.text for heard in talk.heard if heard.finished is not None]
    if lost := [text for text in answers if text not in kept]:
        wrong.append(f"lost answers: {lost}")
    asked = [call["id"] for line in shown.messages for call in json.loads(line.tool_calls or "[]")]
    given = [line.tool_call_id for line in shown.messages if line.role == "tool"]
    # The crash comes between the receipt of a call and its result in the conversation, or after it.
    cut_off = [call.call_id for heard in talk.heard if heard.error for call in heard.calls]
    if [each for each in asked if each not in cut_off] != [e for e in given if e not in cut_off]:
        wrong.append(f"calls {asked}, results {given}, cut off {cut_off}")
    return wrong


def wrong_receipts(talk: Talk) -> list[str]:
    """Return where receipts and the calls that were shown differ."""
    with talk.client() as client:
        verdict = client.call(VerifyReceipts())
        lines = talk.home.receipt_lines()
        details = [client.call(ShowReceipt(receipt_id=line["id"])) for line in lines]
    shown = [_shown(heard, call) for heard in talk.heard for call in heard.calls]
    kept = [
        _kept(line["tool"], line["status"], each) for line, each in zip(lines, details, strict=True)
    ]
    wrong = [] if verdict.ok and verdict.receipts == len(lines) else [verdict.message]
    return wrong if shown == kept else [*wrong, f"shown {shown}, receipts {kept}"]


def _shown(heard: Heard, call: ToolFinished) -> tuple[str, str, str, object, str]:
    asked = [e for e in heard.events if isinstance(e, ToolRequested) and e.call_id == call.call_id]
    arguments = json.loads(asked[0].arguments)
    return call.receipt_id, call.tool, call.status, arguments, call.output


def _kept(tool: str, status: str, detail: ReceiptDetail) -> tuple[str, str, str, object, str]:
    return str(detail.receipt["id"]), tool, status, json.loads(detail.arguments), detail.result


BEFORE = (
    Said(text="Hello"),
    Said(text="Which files are there?", choice="file_list", most=40),
    Said(text="Write hi to hi.txt", choice="file_write", most=96, agrees=False),
    Said(text="Write hi to hi.txt", choice="file_write", most=96),
    Said(text="Tell me about clocks.", most=6),
    Said(text="What time is it?", choice="required", most=8),
    Said(text="Say something.", stop=LETTERS),
    Said(text="What time is it?", choice="time", most=32),
    Said(text="Thanks."),
    Said(text="Which tools are there?", choice="required", most=40),
)
CUT_OFF = Said(text="What time is it now?", choice="time", most=40)
AFTER = (
    Said(text="Are you there?"),
    Said(text="What did I ask first?"),
    Said(text="What time is it?", choice="time", most=32),
    Said(text="And the files?", choice="required", most=40),
    Said(text="Tell me a story.", most=MOST_TOKENS if thorough() else 32),
    Said(text="More.", most=32),
    Said(text="Even more.", most=32),
    Said(text="What is in hi.txt?", choice="required", most=40),
    Said(text="Goodbye"),
)


@pytest.mark.timeout(4 * LIMIT_S)
def test_twenty_turns_of_a_weak_model_are_whole_and_each_of_its_failures_is_named(
    home: Home,
) -> None:
    home.configure(provider=NAME, tables=smollm2_provider(TABLES))
    home.start()
    talk = Talk(home)
    for said in BEFORE:
        talk.say(said)
    running = psutil.Process(home.pid()).children(recursive=True)
    crashed = talk.say(CUT_OFF, until=ToolFinished)
    assert crashed.finished is None
    assert psutil.wait_procs(running, timeout=LIMIT_S)[1] == []
    home.start()
    for said in AFTER:
        talk.say(said)

    assert len(talk.heard) == 20
    assert {heard.said.text: why for heard in talk.heard if (why := unnamed(heard))} == {}
    assert wrong_history(talk) == []
    assert wrong_receipts(talk) == []
    assert max(tokens for heard in talk.heard for tokens in heard.tokens) <= MOST_TOKENS
    assert [heard.said.text for heard in talk.heard if _is_compressed(heard)]
    by_text = {heard.said.text: heard for heard in talk.heard[:10]}
    assert "cut at its limit of 6 tokens" in by_text["Tell me about clocks."].notices
    assert "the model gave an empty answer" in by_text["Say something."].notices
    # How long a call it writes is the model's doing; one that ends is refused, or run.
    assert [call.status for call in talk.heard[2].calls] in (["denied"], [])
    assert any(call.status == "allowed" for heard in talk.heard for call in heard.calls)
    cut = talk.heard[5]
    assert cut.calls == []
    assert cut.finished is not None
    assert "was not run: the answer was cut at its limit of 8" in cut.finished.text


def _is_compressed(heard: Heard) -> bool:
    return any(isinstance(event, ContextCompressed) for event in heard.events)
