"""What stays when a conversation is compressed: decisions over any sequence of messages."""

from collections.abc import Sequence

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from clawd.config.sections import CompressionSection
from clawd.providers.base import Message, ToolCall
from clawd.runtime.compression import (
    CUT_RESULT_TOKENS,
    RequestLoad,
    Selection,
    Wish,
    budget_tokens,
    choose,
    is_due,
    is_too_long,
    levelled,
    room_for_kept,
    summary_room,
)
from clawd.runtime.context import open_calls
from tests.support.rows import each_row

SETTINGS = CompressionSection()


def user(text: str = "u") -> Message:
    return Message(role="user", content=text)


def answer(*calls: str) -> Message:
    made = tuple(ToolCall(id=call, name="probe") for call in calls)
    return Message(role="assistant", content="a", tool_calls=made)


def result(call: str) -> Message:
    return Message(role="tool", content="r", tool_call_id=call, name="probe")


def exchange(rounds: Sequence[int]) -> list[Message]:
    """Return a user's words, rounds of so many calls each, and an answer."""
    messages = [user()]
    for number, calls in enumerate(rounds):
        names = [f"{number}-{call}" for call in range(calls)]
        messages += [answer(*names), *map(result, names)]
    return [*messages, answer()]


exchanges = st.lists(st.integers(0, 4), max_size=12).map(exchange)
whole = st.lists(exchanges, max_size=12).map(lambda parts: [m for part in parts for m in part])


@st.composite
def boards(draw: st.DrawFn) -> tuple[list[Message], list[int], Wish]:
    messages = draw(whole)
    has_pending = draw(st.booleans())
    if not has_pending and messages:
        # Between two rounds: the newest exchange has no answer yet.
        messages = messages[:-1]
    tokens = [draw(st.integers(1, 400)) for _ in messages]
    most = draw(st.integers(2, 40))
    return (
        messages,
        tokens,
        Wish(
            least=draw(st.integers(1, most)),
            most=most,
            room_tokens=draw(st.none() | st.integers(0, 6_000)),
            has_pending=has_pending,
        ),
    )


def kept(messages: Sequence[Message], choice: Selection) -> list[Message]:
    first = [messages[choice.anchor]] if choice.anchor is not None else []
    return [*first, *messages[choice.start :]]


def size(tokens: Sequence[int], choice: Selection) -> int:
    anchor = tokens[choice.anchor] if choice.anchor is not None else 0
    return anchor + sum(
        min(each, choice.cuts.get(index, each))
        for index, each in enumerate(tokens)
        if index >= choice.start
    )


@given(boards())
@example(([user(), answer("a"), result("a")], [10, 10, 5_000], Wish(least=1, most=2)))
def test_what_stays_is_whole_and_fits(board: tuple[list[Message], list[int], Wish]) -> None:
    messages, tokens, wish = board
    choice = choose(messages, tokens, wish)
    if choice is None:
        return
    stays = kept(messages, choice)
    assert choice.replaced or choice.cuts
    # No call is parted from its result, on either side of the cut.
    assert not open_calls(messages[: choice.start])
    assert not open_calls(stays)
    if stays:
        assert stays[0].role == "user"
        assert choice.anchor is None or messages[choice.anchor].role == "user"
    last_round = next((n for n, m in enumerate(reversed(messages), start=1) if m.role != "tool"), 0)
    assert len(stays) <= max(wish.most, last_round + 1)
    for index, limit in choice.cuts.items():
        assert messages[index].role == "tool"
        assert CUT_RESULT_TOKENS <= limit < tokens[index]
        assert index >= choice.start
    if wish.has_pending:
        assert not choice.cuts
        assert size(tokens, choice) <= (wish.room_tokens if wish.room_tokens is not None else 1e9)


@given(boards())
def test_what_cannot_be_made_to_fit_is_as_short_as_it_gets(
    board: tuple[list[Message], list[int], Wish],
) -> None:
    messages, tokens, wish = board
    choice = choose(messages, tokens, wish)
    room = wish.room_tokens
    if choice is None or room is None or size(tokens, choice) <= room:
        return
    shortened = [min(each, choice.cuts.get(index, each)) for index, each in enumerate(tokens)]
    results = [i for i in range(choice.start, len(messages)) if messages[i].role == "tool"]
    assert all(shortened[index] <= CUT_RESULT_TOKENS for index in results)
    # Nothing but the newest round and the words it works for is left.
    assert sum(m.role == "assistant" for m in kept(messages, choice)) <= 1


@given(boards())
def test_nothing_goes_only_where_nothing_could(
    board: tuple[list[Message], list[int], Wish],
) -> None:
    messages, tokens, wish = board
    if choose(messages, tokens, wish) is not None:
        return
    fits = wish.room_tokens is None or sum(tokens) <= wish.room_tokens
    rounds = sum(m.role == "assistant" for m in messages)
    is_short = all(
        each <= CUT_RESULT_TOKENS
        for message, each in zip(messages, tokens, strict=True)
        if message.role == "tool"
    )
    few = len(messages) <= wish.most
    assert not messages or (fits and few) or (rounds <= 1 and (fits or is_short))


def test_the_newest_twenty_to_thirty_stay_and_begin_with_the_user() -> None:
    messages = [m for _ in range(40) for m in exchange([])]
    choice = choose(messages, [1] * 80, Wish(least=20, most=30))
    assert choice == Selection(start=50)


def test_a_long_exchange_keeps_its_words_and_its_newest_rounds() -> None:
    messages = [*exchange([]), *exchange([1] * 40)]
    choice = choose(messages, [1] * len(messages), Wish(least=20, most=30, has_pending=True))
    assert choice is not None
    stays = kept(messages, choice)
    assert (choice.anchor, stays[0], stays[1].role) == (2, messages[2], "assistant")
    assert 20 <= len(stays) <= 30


def test_fewer_stay_where_the_newest_are_too_large() -> None:
    messages = [m for _ in range(20) for m in exchange([])]
    wish = Wish(least=20, most=30, room_tokens=45, has_pending=True)
    assert choose(messages, [10] * 40, wish) == Selection(start=36)


def test_only_the_answer_stays_of_a_last_exchange_with_a_huge_result() -> None:
    messages = [*exchange([]), *exchange([1])]
    tokens = [5, 5, 5, 5, 9_000, 5]
    wish = Wish(least=20, most=30, room_tokens=100, has_pending=True)
    assert choose(messages, tokens, wish) == Selection(start=5, anchor=2)


def test_in_a_running_exchange_old_results_are_cut_before_the_newest() -> None:
    messages = [*exchange([]), user(), answer("a"), result("a"), answer("b"), result("b")]
    tokens = [5, 5, 5, 5, 4_000, 5, 900]
    choice = choose(messages, tokens, Wish(least=20, most=30, room_tokens=1_215))
    assert choice == Selection(start=2, cuts={4: 300})
    choice = choose(messages, tokens, Wish(least=20, most=30, room_tokens=515))
    assert choice == Selection(start=2, cuts={4: CUT_RESULT_TOKENS, 6: 436})


def test_one_exchange_that_fits_is_left_alone() -> None:
    messages = [user(), answer("a"), result("a")]
    assert choose(messages, [5, 5, 5], Wish(least=20, most=30, room_tokens=100)) is None


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 5_000)), st.integers(0, 20_000))
def test_levelling_cuts_the_longest_first(sizes: dict[int, int], room: int) -> None:
    cut = levelled(sizes, room)
    after = {index: cut.get(index, size) for index, size in sizes.items()}
    assert len(set(cut.values())) <= 1
    assert all(after[index] < sizes[index] for index in cut)
    assert sum(after.values()) <= room or all(n <= CUT_RESULT_TOKENS for n in after.values())
    if sum(sizes.values()) <= room:
        assert not cut


def test_it_is_due_at_the_number_of_messages_or_at_the_share_of_the_context() -> None:
    few = RequestLoad(messages=79, tokens=7_500, context_tokens=10_000)
    assert not is_due(SETTINGS, few)
    assert is_due(SETTINGS, msgspec.structs.replace(few, messages=80))
    assert is_due(SETTINGS, msgspec.structs.replace(few, tokens=7_501))
    assert not is_too_long(SETTINGS, msgspec.structs.replace(few, messages=80))
    unknown = msgspec.structs.replace(few, tokens=10**9, context_tokens=0)
    assert not is_due(SETTINGS, unknown)


def test_messages_that_undo_brought_back_do_not_count() -> None:
    load = RequestLoad(messages=150, tokens=1)
    assert not is_due(SETTINGS, load, uncompressed=100)
    assert is_due(SETTINGS, msgspec.structs.replace(load, messages=180), uncompressed=100)


@each_row(("fixed", "budget"), [(1_000, 7_500), (7_300, 7_812), (9_400, 9_500), (20_000, 9_500)])
def test_the_budget_stretches_where_prompt_and_tools_fill_it(fixed: int, budget: int) -> None:
    load = RequestLoad(messages=1, tokens=1, fixed_tokens=fixed, context_tokens=10_000)
    assert budget_tokens(SETTINGS, load) == budget


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(0, 20_000))
def test_what_stays_and_the_summary_fit_the_budget(fixed: int, pending: int, size: int) -> None:
    load = RequestLoad(
        messages=9, tokens=1, fixed_tokens=fixed, pending_tokens=pending, context_tokens=size
    )
    budget = budget_tokens(SETTINGS, load)
    summary = summary_room(SETTINGS, load)
    room = room_for_kept(SETTINGS, load, summary_tokens=summary)
    if budget is None or room is None:
        assert size == 0
        assert summary == SETTINGS.summary_tokens
    elif room:
        assert fixed + pending + summary + room <= budget


def test_never_more_than_half_of_the_limit_stays() -> None:
    assert CompressionSection(at_messages=20).most == 10
    assert CompressionSection(keep_most=12).most == 12
