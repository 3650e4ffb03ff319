"""When a turn goes in circles."""

from clawd.providers.base import ToolCall
from clawd.runtime.progress import SAME_CALL_LIMIT, STALE_ROUND_LIMIT, LoopGuard


def call(name: str = "t", arguments: str = "{}") -> ToolCall:
    return ToolCall(id="1", name=name, arguments=arguments)


def test_the_same_call_three_times_in_a_row_stops() -> None:
    guard = LoopGuard()
    assert guard.note([call()], ["1"]) == ""
    assert guard.note([call()], ["2"]) == ""
    assert guard.note([call()], ["3"]) == "the same t call was made 3 times in a row"


def test_three_times_within_one_round_stops_too() -> None:
    assert "3 times" in LoopGuard().note([call()] * SAME_CALL_LIMIT, ["1", "2", "3"])


def test_another_call_between_begins_to_count_anew() -> None:
    guard = LoopGuard()
    for number in range(20):
        calls = [call(), call()] if number % 2 else [call("other")]
        assert guard.note(calls, [f"{number}", f"{number}b"]) == ""


def test_other_arguments_are_another_call() -> None:
    guard = LoopGuard()
    for number in range(20):
        assert guard.note([call(arguments=f"[{number}]")], [str(number)]) == ""


def test_six_rounds_that_bring_nothing_new_stop() -> None:
    guard = LoopGuard()
    assert guard.note([call("a")], ["same"]) == ""
    for number in range(STALE_ROUND_LIMIT - 1):
        assert guard.note([call(str(number))], ["same"]) == ""
    assert guard.note([call("z")], ["same"]) == "6 rounds in a row brought nothing new"


def test_something_new_begins_to_count_anew() -> None:
    guard = LoopGuard()
    guard.note([call("a")], ["same"])
    for number in range(50):
        texts = ["same", f"new {number}"] if number % 5 == 0 else ["same"]
        assert guard.note([call(str(number))], texts) == ""


def test_blanks_and_the_order_of_keys_make_no_other_call() -> None:
    guard = LoopGuard()
    spellings = ['{"a":1,"b":2}', '{ "b": 2, "a": 1 }', '{"a": 1, "b": 2}']
    reasons = [
        guard.note([ToolCall(id=str(n), name="grep", arguments=text)], [str(n)])
        for n, text in enumerate(spellings)
    ]
    assert reasons[:2] == ["", ""]
    assert "3 times" in reasons[2]


def test_blanks_around_a_value_make_no_other_call() -> None:
    guard = LoopGuard()
    spellings = ['{"command":"ls"}', '{"command":" ls "}', '{"command":"ls\\n"}']
    reasons = [guard.note([call(arguments=text)], [str(n)]) for n, text in enumerate(spellings)]
    assert "3 times" in reasons[2]


def test_calls_that_take_turns_stop_when_they_bring_nothing_new() -> None:
    guard = LoopGuard()
    reasons: list[str] = []
    while not any(reasons):
        number = len(reasons)
        reasons.append(guard.note([call("ab"[number % 2])], [f"result of {number % 2}"]))
    assert reasons == [""] * 7 + ["6 rounds in a row brought nothing new"]


def test_calls_that_take_turns_and_bring_news_go_on() -> None:
    guard = LoopGuard()
    for number in range(40):
        assert guard.note([call("ab"[number % 2])], [f"line {number}"]) == ""


def test_arguments_that_are_no_json_are_compared_as_they_are() -> None:
    guard = LoopGuard()
    reasons = [guard.note([call(arguments="{oops")], [str(n)]) for n in range(3)]
    assert "3 times" in reasons[2]
