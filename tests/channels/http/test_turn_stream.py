"""The events of a turn as one answer: what is told, held back, taken back and added up."""

from hypothesis import given
from hypothesis import strategies as st

from clawd.channels.http.answering import ReplayGuard, WholeEmoji
from clawd.channels.http.model_api import Folding, GatewayEvent
from clawd.channels.http.turn_stream import Telling, may_be_call
from clawd.providers.base import Failed, Finished
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    Event,
    HopFinished,
    HopReset,
    HopUsage,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolRequested,
    TurnFinished,
    TurnStarted,
)

DONE = TurnFinished(conversation_id="c", turn_id="t", text="", provider="p", model="m")
RESET = HopReset(reason="again")
TOOL = ToolRequested(call_id="1", tool="look", arguments="{}")


def told(*events: Event) -> tuple[list[GatewayEvent], Telling]:
    telling = Telling()
    found = [event for each in (*events, DONE) for event in telling.take(each)]
    return [*found, telling.finished(DONE)], telling


def whole(events: list[GatewayEvent]) -> str:
    folding = Folding()
    for event in events:
        if answered := folding.add(event):
            return answered.text
    raise AssertionError("no end")


def streamed(events: list[GatewayEvent]) -> str | None:
    """Return the text that a stream shows; None for one that breaks off."""
    guard, shown = ReplayGuard(), ""
    for event in events:
        found = guard.take(event)
        if isinstance(found, Failed):
            return None
        shown += found.text if isinstance(found, TextDelta) else ""
    return shown


def said(text: str) -> TextDelta:
    return TextDelta(text=text)


def test_the_texts_of_the_hops_stand_one_below_the_other() -> None:
    events, telling = told(said("I "), said("look."), TOOL, TOOL, said("One"), said(" file."))
    assert whole(events) == telling.text == streamed(events) == "I look.\n\nOne file."
    events, telling = told(TOOL, said("One file."))
    assert whole(events) == "One file."
    events, telling = told(said("I look.\n"), TOOL, said("One file."))
    assert whole(events) == "I look.\nOne file."


def test_what_becomes_an_unreadable_call_is_never_shown() -> None:
    for begun in ('{"name": "look", "argu', '```json\n{"name": "look"', "<tool_call>\n{bad"):
        pieces = [said(character) for character in begun]
        events, telling = told(*pieces, RESET, said("In words."))
        assert [each.text for each in events if isinstance(each, TextDelta)] == ["In words."]
        assert telling.text == whole(events) == streamed(events) == "In words."


def test_json_that_is_an_answer_is_told_as_soon_as_it_is_no_call() -> None:
    telling = Telling()
    shown = [bool(telling.take(said(piece))) for piece in ('{"ci', 'ty"', ": ", '"Bo', 'nn"}')]
    assert shown == [False, False, False, True, True]
    telling.take(DONE)
    assert telling.text == '{"city": "Bonn"}'
    held = Telling()
    assert held.take(said('{"name": "Bonn"}')) == []
    assert held.take(DONE) == [TextDelta(text='{"name": "Bonn"}')]


def test_usage_is_the_sum_of_the_hops_and_what_is_no_answer_is_beside_it() -> None:
    hop = HopFinished(usage=HopUsage(prompt_tokens=10, cached_tokens=4, completion_tokens=3))
    notice = Notice(level="info", text="so")
    started = TurnStarted(conversation_id="c", turn_id="t", provider="p")
    events, _ = told(started, ReasoningDelta(text="hm"), hop, TOOL, notice, hop)
    assert events == [
        ReasoningDelta(text="hm"),
        TOOL,
        notice,
        Finished(
            reason="stop",
            usage=HopUsage(prompt_tokens=20, cached_tokens=8, completion_tokens=6),
            provider="p",
            model="m",
        ),
    ]


def test_plain_words_are_never_held_back() -> None:
    for text in ("Hello", "a {", "1. [x]", "\n\nSo", "it's"):
        assert not may_be_call(text)
    for text in ('{"name":', "{", " [ {", "```", "```js", '{"function"'):
        assert may_be_call(text)


pieces = st.sampled_from(["He", "llo", "{", '{"name":', ' "x"', "<tool_call>", "\n", " ", "`"])
hops = st.lists(
    st.one_of(pieces.map(said), st.just(RESET), st.just(TOOL), st.just(ReasoningDelta(text="r"))),
    max_size=20,
)


@given(hops)
def test_a_stream_shows_the_whole_text_or_breaks_off(made: list[Event]) -> None:
    events, telling = told(*made)
    assert whole(events) == telling.text
    assert streamed(events) in {telling.text, None}


@given(st.lists(pieces, max_size=8), st.lists(pieces, max_size=8), st.integers(0, 8))
def test_a_hop_that_says_the_same_again_never_breaks_a_stream(
    first: list[str], rest: list[str], cut: int
) -> None:
    begun = [said(piece) for piece in first[:cut]]
    again = [said("".join(first)), *map(said, rest)]
    events, telling = told(*begun, RESET, *again)
    assert streamed(events) == whole(events) == telling.text == "".join([*first, *rest])


def test_only_what_may_begin_a_marker_is_held_back() -> None:
    telling = Telling()
    told = [telling.take(TextDelta(text=text)) for text in ("Hello ", "there ", "you <to", "day")]
    assert told == [
        [TextDelta(text="Hello")],
        [TextDelta(text=" there")],
        [TextDelta(text=" you ")],
        [TextDelta(text="<today")],
    ]


WAITS = ApprovalRequested(
    approval_id="approval-1", digest="d", call_id="1", tool="shell", workspace="/w",
    arguments='{"command":"make"}', risk="medium", reason="asks", expires_in_s=120.0,
)  # fmt: skip
DENIED = ApprovalResolved(approval_id="approval-1", answer="deny", by="", reason="nobody answered")


def test_h5_a_call_that_waits_for_an_approval_is_seen_by_who_sees_the_text_alone() -> None:
    turn = (said("I run it."), TOOL, WAITS, DENIED, RESET, said("It "), RESET, said("It was not."))
    events, telling = told(*turn)
    assert [each for each in events if each in (WAITS, DENIED)] == [WAITS, DENIED]
    assert whole(events) == telling.text == "I run it.\n\nIt was not."
    telling = Telling(tells_waiting=True)
    events = [event for each in (*turn, DONE) for event in telling.take(each)]
    shown = streamed([*events, telling.finished(DONE)])
    assert shown == telling.text
    assert "clawctl approval approve approval-1 (or deny approval-1)" in telling.text
    assert 'shell {"command":"make"}' in telling.text and "within 120 s" in telling.text
    assert "shell: deny (nobody answered)" in telling.text
    assert telling.text.startswith("I run it.") and telling.text.endswith("It was not.")


EMOJI = (
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f44d\U0001f3fd",
    "\U0001f1e9\U0001f1ea",
    "\u2764\ufe0f\u200d\U0001f525",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
)


def test_h8_a_stream_is_never_cut_inside_an_emoji_and_loses_nothing() -> None:
    wrong = []
    for emoji in EMOJI:
        text = f"so {emoji}{emoji} and {emoji}!{emoji}"
        holding = WholeEmoji()
        pieces = [each for letter in text for each in holding.take(TextDelta(text=letter))]
        pieces += holding.take(Finished(reason="stop"))[:-1]
        shown = [each.text for each in pieces if isinstance(each, TextDelta)]
        parts = [part for each in shown for part in each.replace(emoji, "").split()]
        if "".join(shown) != text or any(set(part) & set(emoji) for part in parts):
            wrong.append((emoji, shown))
    assert not wrong
    endless = WholeEmoji()
    told_so_far = [each for _ in range(50) for each in endless.take(TextDelta(text=EMOJI[1]))]
    assert len(told_so_far) > 40  # a model that repeats itself is seen
