"""The assistant's training conversations: what they hold, without any model."""

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clawd.tools.arguments import Form, decode_arguments
from training.assistant.conversations import (
    Conversation,
    Conversations,
    kept_back,
    normalized,
    request_kinds,
    talk,
)
from training.assistant.documents import Documents, families, fitting_rows
from training.assistant.offers import offered_lists, product_tools
from training.assistant.outcomes import Outcome, Outcomes
from training.assistant.printed import Printer
from training.assistant.scene import Scene
from training.assistant.units import unit_asked_for
from training.assistant.values import Values, growing_files, real

COUNT = 900
SUMS_WRITTEN = {"calculate_then_write", "sum_then_write", "product_then_write"}
COPIED = {"path", "content", "old_text", "new_text", "command", "url", "query", "source", "text"}


@pytest.fixture(scope="module")
def drawn() -> list[Conversation]:
    return list(islice(Conversations(5), COUNT))


def calls_of(conversation: Conversation) -> list[dict[str, Any]]:
    return [
        call["function"]
        for message in conversation.messages
        if message.get("learnt", True)
        for call in message.get("tool_calls", ())
    ]


def has_slipped(conversation: Conversation) -> bool:
    return any("near names are" in each["content"] for each in conversation.messages)


def test_every_tool_can_be_asked_for_in_a_dozen_ways_and_in_both_languages() -> None:
    ways: Counter[str] = Counter()
    german: Counter[str] = Counter()
    for kind in request_kinds().values():
        ways[kind.tools[0]] += len(set(kind.phrasings["en"] + kind.phrasings["de"]))
        german[kind.tools[0]] += len(kind.phrasings["de"])
    few = {name: ways[name] for name in product_tools() if ways[name] < 12 or german[name] < 2}
    assert not few


def test_every_call_is_one_that_is_offered_and_fits_its_schema(drawn: list[Conversation]) -> None:
    wrong: list[Any] = []
    for conversation in drawn:
        schemas = {
            tool["function"]["name"]: tool["function"]["parameters"] for tool in conversation.tools
        }
        for call in calls_of(conversation):
            if call["name"] not in schemas:
                wrong.append(call)
                continue
            schema, given = schemas[call["name"]], call["arguments"]
            form = Form(schema=schema, documents=tuple(given), is_exact=True)
            read = decode_arguments(given, schema, form)
            if read != given:
                wrong.append((call, read))
    assert not wrong


def test_a_name_that_was_written_wrongly_is_put_right_and_the_mistake_not_learnt() -> None:
    found: Counter[bool] = Counter()
    for conversation in islice(Conversations(9), 6 * COUNT):
        messages = conversation.messages
        for index, message in enumerate(messages):
            told = message["content"] if message["role"] == "tool" else ""
            wrong, _, near = told.removeprefix("error: ").partition(
                " does not exist; near names are "
            )
            if not near:
                continue
            before, after = messages[index - 1], messages[index + 1]
            given = str(before["tool_calls"][0]["function"]["arguments"])
            again = after["tool_calls"][0]["function"]["arguments"]
            assert wrong in given
            assert set(near.split(", ")) & {str(each) for each in again.values()}
            found[before["learnt"]] += 1
            if before["learnt"]:
                assert any(wrong in each["content"] for each in messages[: index - 1])
                answers = [each["content"] for each in messages[index:] if "tool_calls" not in each]
                said = [each for each in answers if each.startswith(f"{wrong} ")]
                assert said or (messages[-1]["role"] == "assistant" and not messages[-1]["content"])
    assert found[True] > 3
    assert found[False] > 20


def test_what_a_first_call_carries_stands_in_the_request(drawn: list[Conversation]) -> None:
    wrong, kinds = [], request_kinds()
    for conversation in drawn:
        request = conversation.messages[0]["content"]
        if conversation.kind not in kinds or kinds[conversation.kind].derived:
            continue
        for call in calls_of(conversation)[:1]:
            for name, value in call["arguments"].items():
                if name not in COPIED or value == ".":
                    continue
                parts = value.split("/") if name == "path" else [value]
                begins = request[:1].lower() + request[1:]  # with a name that is written small
                if not all(part in request or part in begins for part in parts):
                    wrong.append((request, name, value))
    assert not wrong


def test_nothing_is_reported_as_done_after_an_error_or_a_denial(drawn: list[Conversation]) -> None:
    claims = re.compile(
        r"\b(wrote|added|changed|saved|deleted|restored|opened|done:|geschrieben|gespeichert|"
        r"angehängt|geändert|gelöscht)\b",
        re.IGNORECASE,
    )
    failed = 0
    for conversation in drawn:
        for before, after in zip(conversation.messages, conversation.messages[1:], strict=False):
            if before["role"] == "tool" and before["content"].startswith(("error: ", "denied: ")):
                if "exited with code 3" in before["content"]:  # so it tells that a service is off
                    continue
                failed += 1
                if "tool_calls" in after:  # the next call was asked for in case of a failure
                    continue
                lines = after["content"].split("\n")
                if "The command exited" in before["content"]:  # what went well before may be told
                    lines = [line for line in lines if re.search(r"\bnot\b|nicht|kein", line)]
                said = lines[0].split(": ")[0]
                assert not claims.search(said), (before, after)
                assert re.search(r"\bnot\b|nicht|kein", said), (before, after)
    assert failed > COUNT / 50


def test_a_sum_is_computed_before_its_result_is_written() -> None:
    found = 0
    for conversation in islice(Conversations(8, only=SUMS_WRITTEN), 60):
        calls = calls_of(conversation)
        if len(calls) < 2:
            continue
        if calls[1]["name"] not in {"file_write", "write_file"}:
            continue
        results = [each["content"] for each in conversation.messages if each["role"] == "tool"]
        if results[0].startswith(("error: ", "denied: ")):
            continue
        found += 1
        assert calls[1]["arguments"]["content"] == results[0]
    assert found > 5


@pytest.mark.parametrize(
    "sort",
    ["search_answer_write", "rate_write", "grep_value_then_write", "amount_item_write"],
)
def test_what_is_written_stands_in_what_was_looked_up(sort: str) -> None:
    found = 0
    for conversation in islice(Conversations(8, only={sort}), 40):
        if has_slipped(conversation) or len(calls := calls_of(conversation)) < 2:
            continue
        content = calls[1]["arguments"].get("content")
        if content is None:
            continue
        found += 1
        results = [each["content"] for each in conversation.messages if each["role"] == "tool"]
        assert content in results[0]
    assert found > 5


def test_the_numbers_of_a_file_are_those_that_are_added_up() -> None:
    found = 0
    for conversation in islice(Conversations(8, only={"amounts_sum"}), 40):
        if has_slipped(conversation) or len(calls := calls_of(conversation)) < 2:
            continue
        if "expression" not in calls[1]["arguments"]:
            continue
        found += 1
        text = next(each["content"] for each in conversation.messages if each["role"] == "tool")
        lines = text.split("\n")
        numbers = calls[1]["arguments"]["expression"].split(" + ")
        assert len(numbers) == len(lines)
        for number, line in zip(numbers, lines, strict=True):
            assert line.replace(",", ".").endswith(number)
    assert found > 5


def test_a_result_is_told_in_the_unit_that_was_asked_for() -> None:
    assert unit_asked_for("{NM} boxes of {UN}, how many {UN} are left", "en") == "{UN}"
    assert unit_asked_for("how many are left", "en") == ""
    assert unit_asked_for("convert {FT} liters to ml", "en") == "ml"
    assert unit_asked_for("{NM} km in {FT} hours", "en") == ""
    assert unit_asked_for("wie viele Meter sind {FT} km", "de") == "Meter"
    assert unit_asked_for("{FT} km in Metern", "de") == "Meter"
    prices = {name for name, kind in request_kinds().items() if kind.unit == "{MU}"}
    found = 0
    for conversation in islice(Conversations(8, only=prices), 60):
        if len(conversation.messages) < 4:
            continue
        request, _, result, told = (str(each["content"]) for each in conversation.messages[:4])
        if result.startswith(("error: ", "denied: ")):
            continue
        found += 1
        assert result in told
        for mark in ("$", "€", "£", "euros", "Euro", "CHF", "bucks", "dollars", "USD"):
            assert (mark in request) == (mark in told)
    assert found > 5


def test_the_plan_that_is_shown_has_the_steps_that_were_put_on_it() -> None:
    found = 0
    for conversation in islice(Conversations(8, only={"plan_then_list", "done_then_list"}), 60):
        calls = calls_of(conversation)
        results = [each["content"] for each in conversation.messages if each["role"] == "tool"]
        if len(results) < 2:
            continue
        if not any(each.startswith(("error: ", "denied: ")) for each in results[:2]):
            found += 1
            given = calls[0]["arguments"]
            assert given.get("text", f" {given.get('id')}. ") in results[1]
    assert found


def test_a_line_is_read_before_it_is_changed() -> None:
    kinds = {
        name
        for name, kind in request_kinds().items()
        if kind.reads
        and kind.tools == ["file_read", "file_edit"]
        and kind.calls[0]["arguments"]["path"] == kind.calls[1]["arguments"]["path"]
    }
    assert {"set_to_value", "tick_off_item", "read_then_edit"} <= kinds
    found = 0
    for conversation in islice(Conversations(8, only=kinds), 60):
        calls, results = calls_of(conversation), conversation.messages[2:3]
        if len(calls) < 2 or has_slipped(conversation):
            continue
        assert calls[0]["name"] in {"file_read", "read_file"}
        if "old_text" in calls[1]["arguments"]:
            found += 1
            assert calls[1]["arguments"]["old_text"] in results[0]["content"]
    assert found > 5


def test_a_wrong_edit_is_not_learnt_and_is_put_right_by_what_the_tool_says() -> None:
    kinds = {name for name, kind in request_kinds().items() if "file_edit" in kind.tools}
    said: Counter[str] = Counter()
    for conversation in islice(Conversations(8, only=kinds), 700):
        for wrong, error, right in zip(
            conversation.messages,
            conversation.messages[1:],
            conversation.messages[2:],
            strict=False,
        ):
            told = error["content"]
            if wrong.get("learnt", True) or "near names are" in told or "tool_calls" not in right:
                continue
            if "is there already" in told:
                continue
            assert told.startswith("error: ")
            given = [json.dumps(each["tool_calls"][0]["function"]) for each in (wrong, right)]
            assert given[0] != given[1]
            reasons = ("would stay as it is", "but new_text does", "the nearest is", "not stand in")
            said[next(reason for reason in reasons if reason in told)] += 1
    assert min(said[reason] for reason in ("would stay as it is", "but new_text does")) > 5
    assert said["the nearest is"] > 10


def test_a_file_that_is_there_unread_is_added_to_read_first_or_asked_about() -> None:
    kinds, found = {"file_write", "file_append", "list_append", "list_new"}, Counter[str]()
    for conversation in islice(Conversations(9, only=kinds), 900):
        messages = conversation.messages
        for at, error in enumerate(messages[:-1]):
            if "is there already and was not read" not in error["content"]:
                continue
            wrong, after = messages[at - 1], messages[at + 1]
            given = json.loads(json.dumps(wrong["tool_calls"][0]["function"]["arguments"]))
            if "tool_calls" not in after:
                assert given["path"] in after["content"]
                assert after["content"].split("\n")[0].endswith("?")
                found["asked"] += 1
                continue
            call = after["tool_calls"][0]["function"]
            if not wrong.get("learnt", True):
                assert (call["name"] in {"file_append", "append_file"}, call["arguments"]) == (
                    True,
                    given,
                )
                found["added"] += 1
                continue
            assert call == {"name": call["name"], "arguments": {"path": given["path"]}}
            if len(messages) > at + 3:
                again = messages[at + 3]["tool_calls"][0]["function"]
                assert again == wrong["tool_calls"][0]["function"]
                found["read"] += 1
    assert min(found[each] for each in ("asked", "added", "read")) > 5


def test_what_is_asked_of_a_file_is_answered_by_what_stands_in_it() -> None:
    kinds, found = {"read_value", "read_cell", "read_item"}, Counter[str]()
    for conversation in islice(Conversations(8, only=kinds), 90):
        if conversation.language != "en":
            continue
        results = [each["content"] for each in conversation.messages if each["role"] == "tool"]
        if not results or results[0].startswith(("error: ", "denied: ")):
            continue
        found[conversation.kind] += 1
        _, _, value = conversation.messages[3]["content"].partition(" is ")
        assert value.rstrip(".") in results[0]
        if conversation.kind == "read_item":
            ordinal = conversation.messages[3]["content"].split()[1]
            assert ordinal in conversation.messages[0]["content"].lower()
    assert set(found) == kinds


def test_a_question_about_a_file_reads_it_and_is_answered_without_another_call() -> None:
    found: Counter[str] = Counter()
    for conversation in islice(Conversations(8), 20_000):
        if found["read"] > 80 and found["listed"] and found["added up"]:
            break  # sums over a table are rare
        if not conversation.kind.startswith("document_") or has_slipped(conversation):
            continue
        calls = calls_of(conversation)
        is_listed = len(calls) > 1 and str(calls[1]["arguments"].get("path")).startswith(
            f"{calls[0]['arguments'].get('path')}/"
        )
        if is_listed or re.search(r"list|^ls|dir", calls[0]["name"]):
            found["listed"] += 1
            continue
        if any("expression" in call["arguments"] for call in calls):
            found["added up"] += 1
            continue
        given = calls[0]["arguments"]
        if "path" in given:
            assert calls[0]["name"] in {"file_read", "read_file"}
        path = next(value for name, value in given.items() if name != "pages")
        parts = path.split("/")
        request = conversation.messages[0]["content"]
        assert all(part in request for part in parts) or " the " in f" {request.lower()}"
        if len(conversation.messages) > 2:
            found["read"] += 1
            assert "tool_calls" not in conversation.messages[3]
    assert found["read"] > 80
    assert found["listed"] and found["added up"]


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("held_out", [False, True])
def test_what_is_told_of_a_document_stands_in_it(language: str, held_out: bool) -> None:
    rng = Random(6)
    documents = Documents(rng, Values(rng, held_out=held_out), held_out=held_out)
    drawn: Counter[str] = Counter()
    for _ in range(1600):
        document, asked = documents.draw(language, 2)
        drawn[document.family] += 1
        text = "\n".join(document.lines) + document.path
        for each in asked:
            assert not re.search(r"<[a-z_]+[#~:>]", each.phrasing + each.answer + text)
            if not re.search(
                r"nichts|nothing|not mention|There (is|are)|Es (sind|gab)", each.answer
            ):
                told = re.findall(r"[\w.@:/-]*\d[\w.@:/-]*\w", each.answer)
                assert all(part in text for part in told if ":" not in part), (each, text)
    assert set(drawn) == set(families())


@pytest.mark.parametrize("language", ["en", "de"])
def test_most_answers_about_a_document_are_a_line_of_it(language: str) -> None:
    rng = Random(7)
    documents = Documents(rng, Values(rng, held_out=False), held_out=False)
    found: Counter[str] = Counter()
    for _ in range(600):
        document, asked = documents.draw(language, 2)
        lines = [line.strip() for line in document.lines]
        for each in asked:
            framed = re.sub(r"\A(The (line|row) says|Die Zeile lautet): ", "", each.answer)
            found["line"] += framed != each.answer and framed in lines
            found["absent"] += bool(re.search("nichts über|nothing", each.answer))
    assert found["line"] > 900  # of 1,200, each in the one frame
    assert 0 < found["absent"] < 0.05 * 1200


def test_the_rows_that_fit_are_found_by_what_stands_in_them() -> None:
    rows = [
        {"item": item, "price": price} for item, price in [("a", "-2,5"), ("b", ""), ("c", "7")]
    ]
    wanted = {"price min": [0], "price max": [2], "price empty": [1], "price over 0": [2]}
    wanted |= {"item is a|c": [0, 2], "item not b": [0, 2], "first": [0], "last": [2]}
    for where, fitting in wanted.items():
        assert fitting_rows(rows, where, Random(1)) == fitting


def test_a_call_with_a_condition_is_made_only_where_it_holds() -> None:
    found: Counter[bool] = Counter()
    conditions = {"if", "unless", "one", "if_failed"}
    kinds = {
        name: kind
        for name, kind in request_kinds().items()
        if len(kind.calls) > 1 and conditions & set(kind.calls[1])
    }
    for conversation in islice(Conversations(8, only=kinds), 200):
        kind, messages = kinds[conversation.kind], conversation.messages
        if len(messages) < 4:
            continue
        call, result = kind.calls[1], messages[2]["content"]
        is_error = result.startswith(("error: ", "denied: "))
        if is_error and "if_failed" not in call:
            continue
        holds = call.get("if_failed", call.get("if", "")) in result
        holds &= call.get("unless", "\0") not in result
        holds &= not ("one" in call and ("\n" in result or result == "no matches"))
        holds &= is_error == ("if_failed" in call)
        assert bool(messages[3].get("tool_calls")) == holds, messages
        found[holds] += 1
    assert min(found[True], found[False]) > 5


def test_a_listing_has_what_was_written_before_it() -> None:
    source = Conversations(3)
    scene = Scene(source.values, source.outcomes, "en")
    written = {"path": "docs/new.txt", "content": "one\ntwo"}
    scene.note("file_write", written, Outcome("created", ""))
    scene.note("shell", {"command": "mv a.pdf docs/"}, Outcome("", ""))
    listed = next(
        each
        for each in (scene.outcome("file_list", {"path": "docs"}) for _ in range(30))
        if not each.failed
    )
    assert {"new.txt", "a.pdf"} <= set(listed.result.split("\n"))
    read = scene.outcome("file_read", {"path": "docs/new.txt"})
    assert read.result == "1|one\n2|two"
    assert scene.outcome("file_read", {"path": "docs/new.txt", "start_line": 9}).failed


def test_a_folder_that_is_shown_whole_has_nothing_else() -> None:
    source = Conversations(3)
    scene = Scene(source.values, source.outcomes, "en")
    for path in ("sums/a.txt", "sums/b.txt"):
        scene.show(path, alone=True)
    drawn = (scene.outcome("file_list", {"path": "sums"}) for _ in range(30))
    listed = next(each for each in drawn if not each.failed)
    assert listed.result == "a.txt\nb.txt"


def test_a_range_of_lines_has_as_many_lines_as_are_asked_for() -> None:
    for conversation in islice(Conversations(8, only={"file_read_span"}), 30):
        given = calls_of(conversation)[0]["arguments"]
        last = given["start_line"] + given["max_lines"] - 1
        assert re.search(rf"(?<!\d){last}(?!\d)", conversation.messages[0]["content"])


@pytest.mark.parametrize("language", ["en", "de"])
def test_an_everyday_change_says_what_comes_and_what_goes_stands_once(language: str) -> None:
    values = Values(Random(12), held_out=False)
    wanted = {"edit": ["AL", "AM"], "cut": ["AI"], "add": ["AM"], "twice": ["AV", "AW"]}
    lines: Counter[int] = Counter()
    for sort, slots in wanted.items():
        for _ in range(150):
            drawn = values.all(["AP", "AT", "AR", *slots], language)
            sent = {name: each.sent for name, each in drawn.items()}
            assert "{AP}" in sent["AR"]
            assert not re.search(r"<(p|n|t|w|id)\d?>", "".join(map(str, sent.values())))
            for name in {"AL", "AV"} & set(sent):
                assert sent["AT"].count(sent[name]) == 1
            if sort == "cut":
                lines[sent["AI"]] += 1
                assert sent["AT"].split("\n")[sent["AI"] - 1].strip() == sent["AL"]
            else:
                assert sent["AM"] not in sent["AT"].split("\n")
    assert len(lines) > 3  # not always the same line


def test_what_belongs_together_is_drawn_together() -> None:
    values = Values(Random(4), held_out=False)
    for _ in range(400):
        drawn = values.all(["A", "A2", "LA", "LB", "TY", "TZ", "N", "NO"], "en")
        sent = {name: value.sent for name, value in drawn.items()}
        assert sent["A"] != sent["A2"]
        assert sent["LA"] < sent["LB"]
        assert [sent["TY"], sent["TZ"]] in real(held_out=False)["typos"]
        assert sent["N"] != sent["NO"]


def test_a_list_is_written_anew_only_where_the_request_says_so() -> None:
    """What is added to a list must not take away what stands in it."""
    says_so = re.compile(
        r"creat|new|make|generate|overwrit|replac|rewrite|empty|contain|call|name|only|exactly|whole|"
        r"start|set up|neu|erstell|erzeug|leg|überschreib|ersetz|nenn|nur|genau|mach|wipe",
        re.IGNORECASE,
    )
    added = written = silent = 0
    kinds = [
        name
        for name, kind in request_kinds().items()
        if kind.tools[0] in {"file_write", "file_append"}
    ]
    for conversation in islice(Conversations(8, only=kinds), 700):
        calls = calls_of(conversation)[:1]
        if conversation.kind.startswith(("list_append", "log_append")):
            added += 1
            assert calls[0]["name"] in {"file_append", "append_file"}
        path = str(calls[0]["arguments"].get("path", "")).rpartition("/")[2]
        if calls[0]["name"] in {"file_write", "write_file"} and path in growing_files():
            written += 1
            silent += not says_so.search(conversation.messages[0]["content"])
    assert added > 20
    assert written > 10
    assert silent <= written / 5  # those in which a slip of the hand spoils the word


def test_a_long_listing_tells_whose_the_files_are_and_what_may_be_done_with_them() -> None:
    rng = Random(3)
    printer = Printer(rng, Values(rng, held_out=False))
    for options in ["-la", "-l", "-la src", "-lh"]:
        printed = printer.of(["ls", *options.split()], "en")
        assert printed
        told = printed.english.splitlines()
        assert told
        for line in told:
            name, _, rest = line.partition(": ")
            mode, owner = rest.split(", ")[:2]
            row = next(row for row in printed.result.splitlines() if row.endswith(f" {name}"))
            assert row.startswith(mode)
            assert row.split()[2] == owner


def test_what_a_command_did_to_folders_is_told() -> None:
    rng = Random(3)
    outcomes = Outcomes(rng, Values(rng, held_out=False))
    told = {
        "rm -r src": "Deleted src.",
        "cp -r src old": "Copied src to old.",
        "mkdir -p a b c": "Created the folders a, b and c.",
        "mkdir -p src/lib": "Created the folder src/lib.",
        "mv a.txt docs/": "Moved a.txt to docs/.",
    }
    for command, said in told.items():
        answers = {outcomes.of("shell", {"command": command}, "en").answer for _ in range(20)}
        assert said in answers
        assert all(each == said or "did not" in each for each in answers)


def test_the_readme_counts_sorts_and_phrasings() -> None:
    kinds = request_kinds().values()
    english, german = (sum(len(kind.phrasings[each]) for kind in kinds) for each in ("en", "de"))
    readme = (Path(__file__).parents[2] / "training" / "assistant" / "README.md").read_text("utf-8")
    text = " ".join(readme.split())
    assert f"{len(kinds)} sorts of requests ({english:,} phrasings in English, {german:,}" in text
    assert f"{sum(len(kind.calls) > 1 for kind in kinds)} sorts need two calls" in text
    assert f"{len(talk()['topic'])} topics are answered" in text


def test_no_command_is_two_sorts() -> None:
    sorts: dict[str, set[str]] = {}
    for kind in request_kinds().values():
        if len(kind.calls) == 1 and kind.tools == ["shell"] and not kind.calls_de:
            sorts.setdefault(kind.calls[0]["arguments"].get("command", ""), set()).add(kind.name)
    assert len(sorts) > 250
    twice = [names for names in sorts.values() if len(names) > 1]
    assert twice == [{"shell_bare", "shell_meant"}]  # any command, by itself or in a sentence


def test_sums_alone_are_drawn_as_often_as_documented(drawn: list[Conversation]) -> None:
    called = [calls_of(each)[0]["name"] for each in drawn if calls_of(each)]
    assert 0.085 < called.count("calculator") / len(called) < 0.15


def test_most_requests_need_one_call(drawn: list[Conversation]) -> None:
    sorts = [request_kinds()[each.kind] for each in drawn if each.kind in request_kinds()]
    assert 0.26 < sum(len(sort.calls) > 1 for sort in sorts) / len(sorts) < 0.38


def test_commands_alone_and_questions_about_files_are_drawn_often(
    drawn: list[Conversation],
) -> None:
    sorts = [request_kinds()[each.kind] for each in drawn if each.kind in request_kinds()]
    commands = sum(sort.tools == ["shell"] and len(sort.calls) == 1 for sort in sorts)
    asked = sum(each.kind.startswith("document") for each in drawn)
    assert 0.135 < commands / len(sorts) < 0.2
    assert 0.14 < asked / sum(bool(calls_of(each)) for each in drawn) < 0.21


def test_the_shares_are_as_documented(drawn: list[Conversation]) -> None:
    talked = sum(1 for each in drawn if not calls_of(each)) / COUNT
    worked = [each for each in drawn if calls_of(each)]
    ended = sum(1 for each in worked if each.messages[-1].get("tool_calls")) / len(worked)
    german = sum(1 for each in drawn if each.language == "de") / COUNT
    assert 0.18 < talked < 0.3
    assert 0.35 < ended < 0.6
    assert 0.27 < german < 0.36


def test_the_same_seed_gives_the_same_conversations_and_another_one_others() -> None:
    first, again, other = (list(islice(Conversations(seed), 60)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_requests_that_are_kept_back_are_never_drawn() -> None:
    drawn = list(islice(Conversations(2), 300))
    kept_back = {drawn[0].messages[0]["content"].upper() + " !", "what time is it"}
    avoided = {normalized(request) for request in kept_back}
    for conversation in islice(Conversations(2, avoid=kept_back), 300):
        for message in conversation.messages:
            assert message["role"] != "user" or normalized(message["content"]) not in avoided


def test_the_requests_by_which_models_are_judged_are_never_drawn(drawn: list[Conversation]) -> None:
    asked = {
        normalized(message["content"])
        for conversation in drawn
        for message in conversation.messages
        if message["role"] == "user"
    }
    assert normalized("What files are in this project?") in kept_back()
    assert len(kept_back()) > 100
    assert not asked & kept_back()


def test_there_are_about_a_dozen_lists_of_tools_and_each_is_always_the_same(
    drawn: list[Conversation],
) -> None:
    lists = offered_lists()
    assert 8 <= len(lists) <= 16
    tools_of = {each.key: json.dumps(each.tools) for each in lists}
    assert {json.dumps(each.tools) for each in drawn} <= set(tools_of.values())
    assert len(tools_of) == len(lists)
    assert list(product_tools()) == sorted(product_tools())
