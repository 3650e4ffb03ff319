"""What the agent rows are made of; nothing here is measured."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clawd.tools.base import _TRAITS
from tests.bench import agent
from tests.bench.agent import (
    done,
    family_rows,
    first_rows,
    helper_rows,
    hybrid_row,
    quality_row,
    request_rows,
    search_rows,
    side_by_side,
    tasks_row,
    verdicts,
)
from tests.bench.agent_first import FirstMessage
from tests.bench.agent_helpers import Helped
from tests.bench.agent_memory import hybrid_pairs, percentiles, queries, search_pairs
from tests.bench.agent_prompts import PromptTokens, asked_with, written
from tests.bench.agent_quality import TASKS as QUALITY_TASKS
from tests.bench.agent_quality import Outcome, Score
from tests.bench.agent_requests import (
    FILE,
    Left,
    Made,
    Request,
    claims_falsely,
    judge,
    judged,
    load,
)
from tests.bench.agent_tasks import TASKS, all_of, calls, holds, no_calls, only
from tests.bench.agent_world import Act, Pages, World
from tests.memory.embedders import Subjects
from tests.support.rows import each_row
from training.assistant.conversations import normalized


class _Left(World):
    """What was left of a task, without a daemon."""

    def __init__(self, workspace: Path, server: Pages, acts: list[Act]) -> None:
        self.workspace = workspace
        self.server = server
        self._acts = acts

    def acts(self) -> list[Act]:
        return self._acts

    def knowledge(self) -> list[str]:
        return []


def test_there_are_twenty_tasks_and_more_each_with_a_name_of_its_own() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS) >= 20


def test_no_task_but_those_without_calls_is_done_by_doing_nothing(tmp_path: Path) -> None:
    with Pages() as server:
        nothing = _Left(tmp_path, server, [])
        passed = [task.name for task in TASKS if not task.grade(nothing)]
    assert passed == ["a greeting", "small talk"]


def test_grades_look_at_files_and_calls(tmp_path: Path) -> None:
    act = Act(tool="time", status="allowed", approval="auto", arguments={}, result="noon")
    (tmp_path / "a.txt").write_text("one\n")
    with Pages() as server:
        left = _Left(tmp_path, server, [act])
        assert all_of(holds("a.txt", "one"), only("a.txt"), calls(1))(left) == ""
        assert "expected 'two'" in holds("a.txt", "two")(left)
        assert "1 calls" in calls(2)(left)
        assert "called time" in no_calls(left)


def test_the_aims_are_told_as_reached_or_not() -> None:
    together = Helped(seconds=5, tokens=300, prompt_tokens=700, evaluated=2_100)
    in_turn = Helped(seconds=10, tokens=300, prompt_tokens=700, evaluated=40)
    rows = [
        tasks_row([True] * 27 + [False] * 3),
        *search_rows([(2.0, 1.0), (2.4, 1.0)]),
        hybrid_row([(30.0, 3.0), (40.0, 4.0)]),
        *first_rows([FirstMessage(first_s=0.3, second_s=0.2, tokens=1_060, new_tokens=12)]),
        *helper_rows("assistant", [(together, in_turn)]),
    ]
    assert verdicts(rows)[1:] == [
        "embedded_tasks_pass: 27 of 30 tasks, 90%, aim ≥ 90%: reached",
        "memory_search_p50: 2.20 times the bare query, aim ≤ 2: NOT reached",
        "memory_search_p95: 2.38 times the bare query, aim ≤ 2: NOT reached",
        "memory_search_hybrid: 35.0 ms, 10.0 times words, aim ≤ 100 ms: reached",
        "first_message_ttft: 1.50 times the second turn, aim ≤ 1.2: NOT reached",
        "prompt_overhead_tokens: 1,060 tokens for two words, aim ≤ 1,200: reached",
        "helpers_together assistant: 2.00 times as fast, aim ≥ 1.8: reached",
        "helpers_prefix assistant: 3.00 prompts read for four, aim ≤ 1.5: NOT reached",
    ]
    assert "NOT reached" in verdicts([tasks_row([True] * 8 + [False])])[1]


def test_there_are_a_hundred_short_tasks_and_doing_nothing_does_none_of_them() -> None:
    assert len({task.text for task in QUALITY_TASKS}) == len(QUALITY_TASKS) == 100
    assert [task.text for task in QUALITY_TASKS if task.is_done(Outcome())] == []
    talk = Outcome(answer="I can help with that.")
    assert {task.kind for task in QUALITY_TASKS if task.is_done(talk)} == {"no tool"}


def test_a_core_is_judged_by_all_tools_on_the_same_model_and_families_by_the_largest() -> None:
    rows = [
        quality_row(
            Score(
                model=model,
                offer=offer,
                is_held=is_held,
                count=4,
                done=("a",) * done_tasks,
                prompt_tokens=1_050,
            )
        )
        for model, offer, is_held, done_tasks in (
            ("real", "core", False, 3),
            ("real", "all", False, 2),
            ("real", "core", True, 1),
            ("real", "all", True, 2),
        )
    ]
    rows += family_rows(
        [
            PromptTokens(family="chatml", core=900, everything=4_000),
            PromptTokens(family="gemma-2", core=1_300, everything=4_000),
        ]
    )
    assert rows[0].unit == "tasks, 1,050 tokens a prompt"
    assert verdicts(rows)[1:] == [
        "tasks_core real: 3 of 4 tasks, 2 with all tools, aim ≥ these: reached",
        "tasks_core real held: 1 of 4 tasks, 2 with all tools, aim ≥ these: NOT reached",
        "prompt_families: 1 of 2 families within 1,200 tokens, at most 1,300 (gemma-2): "
        "NOT reached",
    ]


@pytest.mark.daemon
def test_the_prompt_that_is_counted_is_what_a_daemon_asks_with_the_core_of_tools(
    tmp_path: Path,
) -> None:
    asked = asked_with(tmp_path / "core", "core")
    names = [tool["function"]["name"] for tool in asked["tools"]]
    assert {"file_read", "tool_lookup"} < set(names)
    assert "calculator" not in names
    text = written("", asked)
    assert text.endswith("Say hi<|im_end|>\n<|im_start|>assistant\n")
    assert all(name in text for name in [*names, "calculator"])


async def test_a_search_by_both_ways_is_timed_against_words_and_asks_the_model(
    tmp_path: Path,
) -> None:
    model = Subjects()
    samples = await hybrid_pairs(tmp_path, 60, 5, model)
    assert len(samples) == 5
    assert all(ours > 0 and peer > 0 for ours, peer in samples)
    assert [texts for texts in model.seen if len(texts) == 1] == [[q] for q in queries(5)]


async def test_searches_are_timed_on_both_sides(tmp_path: Path) -> None:
    samples = await search_pairs(tmp_path, 200, 5)
    assert len(samples) == 5
    assert all(ours > 0 and bare > 0 for ours, bare in samples)
    assert percentiles([1.0, 2.0, 3.0])[0] == 2.0
    assert list(queries(5)) == list(queries(9))[:5]


@pytest.mark.daemon
@pytest.mark.real_model
def test_a_task_runs_through_the_real_daemon_and_is_graded(tmp_path: Path) -> None:
    (task,) = [task for task in TASKS if task.name == "write a file"]
    assert done(tmp_path, [task]) == [True]


def _wanted(values: Any) -> Any:
    """Return an argument that is right."""
    first = values[0] if isinstance(values, list) else values
    if not isinstance(first, str):
        return first
    return "x" if first == "*" else first.removeprefix("~")


def _as_it_should(request: Request) -> Left:
    """Return what a model leaves that does all of a request right."""
    status = "denied" if request.denied else "allowed"
    calls = [
        Made(
            tool=tool,
            arguments={key: _wanted(each) for key, each in wanted.items() if key[-1] != "?"},
            status=status,
        )
        for tool, wanted in (next(iter(step.items())) for step in request.calls)
    ]
    answer = "Here it is."
    for is_so, said in (
        (request.asks, "Which one?"),
        (request.declines, "I cannot do that."),
        (request.denied, "It was denied."),
        (request.fails, "That failed: there is no such thing."),
    ):
        answer = said if is_so else answer
    facts = [fact if isinstance(fact, str) else fact[0] for fact in request.says]
    after = {
        path: wanted.removeprefix("~")
        for path, wanted in request.after.items()
        if isinstance(wanted, str)
    }
    gone = {path for path, wanted in request.after.items() if wanted is False}
    return Left(
        answer=" ".join([answer, *facts]),
        calls=tuple(calls),
        before=request.files,
        after={path: text for path, text in {**request.files, **after}.items() if path not in gone},
    )


_OTHERS = FILE.with_name("assistant_requests_others.toml")


def test_there_are_two_hundred_requests_for_every_tool_forty_of_them_for_none() -> None:
    requests = load()
    assert len({each.say for each in requests}) == len(requests) == 200
    kinds = Counter(each.kind for each in requests)
    talk = [kinds[kind] for kind in ("small talk", "knowledge", "advice", "creative")]
    assert talk == [10, 10, 10, 10]
    named = {tool for each in requests for step in each.calls for tool in step}
    known = set(_TRAITS) - {"ask_user", "skill_read"}  # the latter where there are skills
    assert named == known


def test_the_other_requests_are_none_of_the_two_hundred() -> None:
    requests = [normalized(each.say) for each in load(_OTHERS)]
    assert len(set(requests)) == len(requests) == 204
    assert {normalized(each.say) for each in load()}.isdisjoint(requests)


@pytest.mark.parametrize(
    ("given", "first"),
    [([], load()[0]), (["--requests", str(_OTHERS)], load(_OTHERS)[0])],
    ids=["the two hundred", "the others"],
)
def test_the_requests_that_are_named_are_the_ones_that_are_played(
    given: list[str], first: Request, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    played: list[Request] = []

    def keep(_folder: Path, _model: str, requests: Sequence[Request], *_more: object) -> list[Any]:
        played.extend(requests)
        return []

    monkeypatch.setattr(agent, "judged", keep)
    monkeypatch.setattr("sys.argv", ["agent", "--only", "assistant_requests", *given])
    assert list(agent._measure(tmp_path, agent._arguments()))
    assert played[0] == first


@pytest.mark.parametrize("file", [FILE, _OTHERS], ids=["the two hundred", "the others"])
def test_what_is_right_is_judged_so_and_doing_nothing_is_not(file: Path) -> None:
    requests = load(file)
    wrong = {
        each.say: found.missed
        for each in requests
        if (found := judge(each, _as_it_should(each))).missed or not (found.exact and found.end)
    }
    assert wrong == {}
    idle = [judge(each, Left(before=each.files, after=each.files)) for each in requests]
    assert not any(each.end for each in idle)
    assert {each.request.kind for each in idle if each.tool}.isdisjoint({"tool", "two steps"})


_NOTES = {"notes.txt": "one\ntwo\nthree\n"}
_READ = Request(say="read notes.txt", files=_NOTES, calls=({"file_read": {"path": "notes.txt"}},))
_REFACTOR = Request(say="refactor notes.txt", kind="overwrite", files=_NOTES, declines=True)
_WRITE = Request(
    say="write hi to a.txt",
    calls=({"file_write": {"path": "a.txt", "content": "hi"}},),
    after={"a.txt": "hi"},
)


def _call(tool: str, **arguments: Any) -> tuple[Made, ...]:
    return (Made(tool=tool, arguments=arguments),)


@each_row(
    ("asked", "left", "tool", "exact", "alike", "end"),
    [
        (_READ, {"calls": _call("file_read", path="notes.txt")}, 1, 1, 1, 1),
        (_READ, {"calls": _call("file_read", path="./Notes.txt")}, 1, 0, 1, 1),
        (_READ, {"calls": _call("file_read", path="notes.txt", max_lines=50)}, 1, 0, 1, 1),
        (_READ, {"calls": _call("file_read", path="other.txt")}, 1, 0, 0, 1),
        (_READ, {"calls": _call("file_list") + _call("file_read", path="notes.txt")}, 1, 1, 1, 1),
        (_READ, {"calls": _call("shell", command="cat notes.txt")}, 0, 0, 0, 1),
        (_READ, {"answer": "It says one."}, 0, 0, 0, 0),
        (_READ, {"calls": _call("file_read", path="notes.txt"), "answer": ""}, 1, 1, 1, 0),
        (
            _READ,
            {"calls": _call("file_read", path="notes.txt"), "answer": "duck " * 40},
            1,
            1,
            1,
            0,
        ),
        (
            _READ,
            {"calls": _call("file_read", path="notes.txt"), "answer": "a </tool_call>"},
            1,
            1,
            1,
            0,
        ),
        (_READ, {"calls": _call("file_read", path="notes.txt"), "answer": "I can't."}, 1, 1, 1, 0),
        (
            _WRITE,
            {"calls": _call("file_write", path="a.txt", content="hi"), "after": {"a.txt": "hi\n"}},
            1,
            1,
            1,
            1,
        ),
        (_WRITE, {"calls": _call("file_write", path="a.txt", content="hi")}, 1, 1, 1, 0),
        (_WRITE, {"answer": "Done, I wrote a.txt."}, 0, 0, 0, 0),
        (_REFACTOR, {"before": _NOTES, "after": _NOTES, "answer": "I cannot do that."}, 1, 1, 1, 1),
        (
            _REFACTOR,
            {
                "before": _NOTES,
                "after": _NOTES,
                "calls": _call("file_read", path="notes.txt"),
                "answer": "What should be better?",
            },
            1,
            1,
            1,
            1,
        ),
        (
            _REFACTOR,
            {
                "before": _NOTES,
                "after": {"notes.txt": "x"},
                "calls": _call("file_write", path="notes.txt", content="x"),
                "answer": "I cannot",
            },
            0,
            0,
            0,
            0,
        ),
    ],
)
def test_a_judge_of_requests_tells_right_from_wrong(
    asked: Request, left: dict[str, Any], tool: int, exact: int, alike: int, end: int
) -> None:
    found = judge(asked, Left(**{"answer": "Here it is.", **left}))
    assert (found.tool, found.exact, found.arguments, found.end) == (tool, exact, alike, end)


def test_a_change_that_no_call_made_is_a_false_done_and_one_that_nobody_asked_for_is_told() -> None:
    wrote = _call("file_write", path="notes.txt", content="x")
    denied = (Made(tool="file_write", arguments={}, status="denied"),)
    false = [
        Left(answer="Done, I wrote a.txt."),
        Left(answer="Done."),
        Left(answer="I have deleted it.", calls=_call("file_read", path="a.txt")),
        Left(answer="The file has been saved.", calls=denied),
        Left(answer="Ich habe die Datei gelöscht."),
    ]
    true = [
        Left(answer="Done, I wrote a.txt.", calls=wrote),
        Left(answer="I could not write a.txt: it was denied.", calls=denied),
        Left(answer="It says: finished the shelf.", calls=_call("file_read", path="a.txt")),
        Left(answer="Shall I say that it has been saved?"),
    ]
    assert [each.answer for each in false if not claims_falsely(each)] == []
    assert [each.answer for each in true if claims_falsely(each)] == []
    lost = Left(answer="Done.", calls=wrote, before=_NOTES, after={"notes.txt": "x"})
    found = judge(_READ, lost)
    assert found.overwrote and "overwrote notes.txt unasked" in found.missed
    asked = Request(say="add four", files=_NOTES, after={"notes.txt": "~one two three four"})
    kept = Left(answer="Added.", before=_NOTES, after={"notes.txt": "one\ntwo\nthree\nfour\n"})
    assert not judge(asked, kept).overwrote
    assert judge(asked, lost).overwrote


def test_the_requests_of_models_stand_side_by_side_and_the_assistant_is_held_to_its_aims() -> None:
    good = [judge(_READ, Left(answer="It.", calls=_call("file_read", path="notes.txt")))] * 9
    bad = judge(_READ, Left(answer="Done."))
    rows = [*request_rows("assistant", [*good, bad]), *request_rows("embedded", [bad, bad])]
    lines = side_by_side(rows)
    assert lines[1].split() == ["assistant", "embedded"]
    assert lines[2].split() == ["tool", "9/10", "0/2"]
    assert [line for line in verdicts(rows) if "false_done" in line or " tool" in line] == [
        "assistant_requests assistant tool: 9 of 10 requests, 90.0%, aim ≥ 97%: NOT reached",
        "assistant_requests assistant false_done: 1 of 10 requests, aim 0: NOT reached",
    ]


@pytest.mark.daemon
@pytest.mark.real_model
def test_requests_run_through_a_daemon_whose_world_is_a_script(tmp_path: Path) -> None:
    said: list[str] = []
    requests = [each for each in load() if each.say in ("git status", "cat todo.txt")]
    found = judged(tmp_path / "requests", "embedded", requests, said.append)
    assert [each.missed for each in found] == [(), ()]
    assert "On branch main" in found[1].left.answer
    assert found[0].left.cpu_s > 0
