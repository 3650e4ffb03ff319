"""One policy, every door: the same verdict, words, receipt and effects by any that a call takes."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings

from clawd.wire.conversations import OpenConversation
from tests.daemon.doors import CLIENTS, DOORS, MODELS, Attempt, Door, Effects, House, effects
from tests.daemon.test_three_doors import CASES, Case, Told, arrange, case_of
from tests.support.inprocess import OWNER
from tests.support.rows import each_row


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.close()


def doors_for(house: House, case: Case, attempt: Attempt) -> dict[str, Door]:
    if case.is_stopped:  # no model is asked over HTTP then, so there is no call (test_stopped.py)
        return {name: door for name, door in DOORS.items() if "/chat" not in name}
    if case.person == "absent":
        return DOORS
    # Behind a program nobody answers: a question is not offered to it, nor named among the tools.
    offered = {tool.name for tool in house.inside.daemon.registry.all()} - {"ask_user"}
    takes_it = is_object(attempt.arguments) and case.tool in offered
    return DOORS | MODELS | (CLIENTS if takes_it else {})


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def by_every_door(house: House, case: Case, attempt: Attempt, *, tainted: bool = False) -> Told:
    """Make the call at every door, each time in the same circumstances; return what all said."""
    found: dict[str, tuple[Told, Effects]] = {}
    for name, door in doors_for(house, case, attempt).items():
        arrange(house.inside, case)
        before = effects(house.inside.workspace)
        there = msgspec.structs.replace(
            attempt, conversation_id=tainted_conversation(house) if tainted else ""
        )
        told, after = found[name] = house.run(house.through(door, case, there))
        if told.status == "denied" or told.receipt["reason"] in {"unknown tool", "bad arguments"}:
            assert after == before, (name, "something ran that should not")
    ((first, effect), *others) = found.values()
    for name, other in zip(list(found)[1:], others, strict=True):
        assert msgspec.structs.asdict(other[0]) == msgspec.structs.asdict(first), name
        assert other[1] == effect, name
    return first


def attempt_of(case: Case) -> Attempt:
    return Attempt(
        tool=case.tool,
        # As the doors of MCP write it, who are given no text: it is hashed where no tool reads it.
        arguments=msgspec.json.encode(case.arguments).decode(),
        is_attended=case.person != "absent",
    )


def tainted_conversation(house: House) -> str:
    line = house.run(house.inside.ask(OpenConversation(), OWNER))
    house.taint(line.id)
    return line.id


by_doors = settings(max_examples=5, deadline=None)
STOPPED = Case(
    tool="shell", arguments={"command": "ls"}, autonomy="full", person="approves", is_stopped=True
)


@by_doors
@given(case=CASES)
@example(case=case_of("calculator", "readonly", "absent", expression="6*7"))
@example(case=case_of("file_write", "supervised", "approves", path="b", content="x"))
@example(case=case_of("file_write", "supervised", "denies", path="b", content="x"))
@example(case=case_of("file_write", "supervised", "absent", path="b", content="x"))
@example(case=case_of("file_write", "readonly", "approves", path="b", content="x"))
@example(case=case_of("shell", "full", "approves", command="rm -rf /"))
@example(case=case_of("nope", "full", "approves", x="y"))
@example(case=case_of("file_read", "full", "approves", x="y"))
@example(case=case_of("ask_user", "supervised", "approves", question="Shall I?"))
@example(case=STOPPED)
def test_a_call_is_the_same_by_every_door(house: House, case: Case) -> None:
    told = by_every_door(house, case, attempt_of(case))
    if told.status != "allowed":
        assert told.text.startswith("denied: " if told.status == "denied" else "error: ")
    if case.is_stopped and told.receipt["reason"] not in {"unknown tool", "bad arguments"}:
        assert told.text.startswith("denied: emergency stop is set")


@each_row(
    ("case", "status", "wrote"),
    [
        (case_of("file_write", "supervised", "approves", path="b", content="x"), "allowed", True),
        (case_of("file_write", "supervised", "denies", path="b", content="x"), "denied", False),
        (case_of("file_write", "readonly", "approves", path="b", content="x"), "denied", False),
        (case_of("file_write", "full", "absent", path="b", content="x"), "allowed", True),
        (case_of("file_write", "full", "approves", path="../b", content="x"), "denied", False),
        (case_of("file_write", "full", "approves", path="b"), "failed", False),
    ],
)
def test_what_every_door_must_do(house: House, case: Case, status: str, *, wrote: bool) -> None:
    told = by_every_door(house, case, attempt_of(case))
    assert told.status == status
    assert (house.inside.workspace / "b").exists() is wrote


@each_row("raw", ["not json", "[1]", '{"path":', "null", '{"a":1}x'])
def test_arguments_that_are_no_object_are_the_same_by_every_door(house: House, raw: str) -> None:
    case = case_of("file_read", "full", "approves")
    told = by_every_door(house, case, Attempt(tool="file_read", arguments=raw))
    assert (told.status, told.receipt["reason"]) == ("failed", "bad arguments")


@each_row("person", ["denies", "absent"])
def test_an_outward_call_asks_at_every_door_once_untrusted_text_is_about(
    house: House, person: Any
) -> None:
    case = case_of("http", "full", person, url="http://example.org/", method="POST")
    told = by_every_door(house, case, attempt_of(case), tainted=True)
    assert told.status == "denied" and told.receipt["approval"] == "none"


@by_doors
@given(case=CASES)
def test_untrusted_text_counts_the_same_at_every_door(house: House, case: Case) -> None:
    if case.person == "approves":
        case = msgspec.structs.replace(case, person="denies")
    by_every_door(house, case, attempt_of(case), tainted=True)
