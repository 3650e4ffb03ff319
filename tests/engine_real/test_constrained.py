"""Answers held to schemas by real grammars: random weights say only what validates."""

import datetime
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.engine.protocol import CancelGeneration, Grammar, ModelConfig, Sampling, Tokens
from tests.engine_real.conftest import TEMPLATE, StartWorker, one_worker
from tests.support.engine_worker import WorkerClient
from tests.support.gguf_models import EMBEDDED, write_random_gguf
from tests.support.rows import each_row, thorough
from tests.support.schema_check import is_valid
from tests.support.smollm2 import SMOLLM2

pytestmark = pytest.mark.real_model

SHORT = {"type": "string", "maxLength": 12}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": SHORT,
                "children": {
                    "type": "array",
                    "items": {"$ref": "#/$defs/node"},
                    "maxItems": 1,
                },
            },
            "required": ["name"],
        }
    },
}
SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"path": SHORT}, "required": ["path"]},
    {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": -7, "maximum": 250},
            "share": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            "mode": {"enum": ["read", "write", None, 3, {"deep": [1, 2]}]},
            "tags": {"type": "array", "items": SHORT, "minItems": 1, "maxItems": 3},
        },
        "required": ["mode", "count"],
        "additionalProperties": False,
    },
    TREE,
    {
        "anyOf": [
            {"type": "object", "properties": {"a": SHORT}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"const": "fixed"}}, "required": ["b"]},
        ]
    },
    {"type": "string", "pattern": r'^[a-z]{2,6}(-\d{2}|_"q\\")?$'},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3},
    {"type": ["integer", "null", "boolean"]},
    {"type": "array", "prefixItems": [{"type": "boolean"}, SHORT], "items": False},
    {
        "allOf": [
            {"type": "object", "properties": {"n": {"type": "integer"}}},
            {"properties": {"n": {"minimum": 10, "maximum": 99}}, "required": ["n"]},
        ]
    },
    {
        "type": "object",
        "properties": {f"p{number}": {"type": "boolean"} for number in range(100)},
        "required": ["p7", "p93"],
    },
]


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says anything."""
    path = tmp_path_factory.mktemp("model") / "random.gguf"
    return write_random_gguf(path, chat_template=TEMPLATE, chain=False)


@pytest.fixture(scope="module")
def on_random(random_model: Path) -> Iterator[WorkerClient]:
    with one_worker(ModelConfig(path=str(random_model), n_ctx=4096)) as worker:
        yield worker


@pytest.fixture(scope="module")
def on_embedded() -> Iterator[WorkerClient]:
    with one_worker(ModelConfig(path=str(EMBEDDED), n_ctx=2048)) as worker:
        yield worker


def test_constrained_answers_of_random_weights_validate_every_time(
    start_worker: StartWorker, random_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=8192, n_parallel=4))
    runs = []
    for seed in range(200 if thorough() else 40):
        schema = SCHEMAS[seed % len(SCHEMAS)]
        sampling = Sampling(temperature=1.2, top_k=0, top_p=1, min_p=0, seed=seed)
        grammar = Grammar(kind="json_schema", schema=schema)
        runs.append((schema, worker.start(f"say {seed}", sampling, grammar)))
        if len(runs) % 40 == 0:
            check_all(worker, runs[-40:])


def check_all(worker: WorkerClient, runs: list[tuple[Any, int]]) -> None:
    """Look at all answers that end; what is drawn depends on who is in a batch, so few may not."""
    ended = 0
    for schema, number in runs:
        got = worker.finish(number)
        if got.done.reason == "stop":
            ended += 1
            assert is_valid(json.loads(got.text), schema), got.text
    assert ended >= len(runs) - 2


CORPUS: dict[str, Any] = {
    "recursive": TREE,
    "root_any_of": SCHEMAS[3],
    "hundred_properties": SCHEMAS[-1],
    "bad_regex": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^([a-z"}}},
    "huge_enum": {
        "type": "object",
        "properties": {"value": {"enum": [f"value number {number}" for number in range(10_000)]}},
        "required": ["value"],
    },
    "itself": {"$ref": "#"},
    "nowhere": {"$ref": "#/$defs/gone"},
    "exclusion": {"type": "object", "not": {"required": ["a"]}},
    "no_schema": {"type": 7},
    "good": SCHEMAS[0],
}
UNUSABLE = {"itself", "nowhere", "no_schema"}
HELD_IN_PART = {"bad_regex", "exclusion"}


@each_row("lazy", [True, False])
def test_bad_schemas_take_no_other_tool_down(on_random: WorkerClient, lazy: bool) -> None:
    limit = 5 if lazy else 0
    for seed in range(12):
        sampling = Sampling(temperature=1, top_k=0, min_p=0, seed=seed, max_tokens=limit)
        got = on_random.ask("go", sampling, Grammar(kind="tool_call", tools=CORPUS, lazy=lazy))
        assert set(got.evaluated.quarantined) == UNUSABLE | HELD_IN_PART
        assert all(got.evaluated.quarantined.values())
        if not lazy:
            call = call_in(got.text)
            assert call["name"] in set(CORPUS) - UNUSABLE
            if call["name"] not in HELD_IN_PART:
                assert is_valid(call["arguments"], CORPUS[call["name"]])


@each_row("name", sorted(UNUSABLE | HELD_IN_PART))
def test_a_bad_schema_that_is_required_fails_its_request_only(
    on_random: WorkerClient, name: str
) -> None:
    schema = CORPUS[name]
    required = [Grammar(kind="json_schema", schema=schema)]
    if name in UNUSABLE:
        required.append(Grammar(kind="tool_call", tools={name: schema}))
    for grammar in required:
        failed = on_random.ask("go", grammar=grammar).failed
        assert failed.code == "invalid_request"
        assert "cannot be held to its schema" in failed.message
    assert on_random.ask("go", Sampling(temperature=0, max_tokens=3)).done.reason == "length"


def call_in(text: str) -> dict[str, Any]:
    """Return the one call that a text is."""
    inside = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert len(inside) == len(text) - len("<tool_call></tool_call>"), text
    call: dict[str, Any] = json.loads(inside)
    return call


LIST = {
    "type": "object",
    "properties": {"path": {"type": "string", "maxLength": 200}},
    "required": ["path"],
    "additionalProperties": False,
}


@each_row("question", ["what files are in this project?", "hello", "thanks!", "1"])
@each_row("tools", [{"file_list": LIST}, {"unknown_to_it": SCHEMAS[1]}])
def test_a_required_call_of_the_embedded_model_is_one_valid_call(
    on_embedded: WorkerClient, question: str, tools: dict[str, Any]
) -> None:
    got = on_embedded.ask(question, Sampling(temperature=0), Grammar(kind="tool_call", tools=tools))
    assert got.done.reason == "stop"
    call = call_in(got.text)
    assert list(tools) == [call["name"]]
    assert is_valid(call["arguments"], tools[call["name"]])


def test_a_waiting_grammar_changes_nothing(on_random: WorkerClient) -> None:
    lazy = Grammar(kind="tool_call", tools={"file_list": LIST}, lazy=True)
    for seed in range(5):
        sampling = Sampling(temperature=1, seed=seed, max_tokens=60)
        assert on_random.ask("go", sampling, lazy).text == on_random.ask("go", sampling).text


def test_a_lazy_grammar_holds_the_embedded_models_own_call(on_embedded: WorkerClient) -> None:
    worker = on_embedded
    greedy = Sampling(temperature=0, max_tokens=200)
    question = "what files are in the src folder?"
    tools = ({"type": "function", "function": {"name": "file_list", "parameters": LIST}},)
    free = worker.ask(question, greedy, tools=tools).text
    assert call_in(free)["name"] == "file_list"
    same = Grammar(kind="tool_call", tools={"file_list": LIST}, lazy=True)
    assert worker.ask(question, greedy, same, tools).text == free
    number = {"type": "object", "properties": {"n": {"const": 7}}, "required": ["n"]}
    other = Grammar(kind="tool_call", tools={"file_list": number}, lazy=True)
    assert call_in(worker.ask(question, greedy, other, tools).text)["arguments"] == {"n": 7}


def test_from_a_probability_on_an_answer_begins_with_a_call(on_embedded: WorkerClient) -> None:
    tools = ({"type": "function", "function": {"name": "file_list", "parameters": LIST}},)
    lazy = Grammar(kind="tool_call", tools={"file_list": LIST}, lazy=True)

    def asked(question: str, least: float | None) -> str:
        sampling = Sampling(temperature=0, max_tokens=200, call_from=least)
        return on_embedded.ask(question, sampling, lazy, tools).text

    listing = "what files are in the src folder?"
    shown = Sampling(temperature=0, max_tokens=1, logprobs=True, top_logprobs=1)
    events = on_embedded.ask(listing, shown, lazy, tools).events
    (first,) = (one for event in events if isinstance(event, Tokens) for one in event.logprobs)
    likely = math.exp(first.logprob)
    assert b"<tool_call>".startswith(first.piece)
    free = asked(listing, None)
    assert call_in(free)["name"] == "file_list"
    assert asked(listing, likely * 0.99) == free
    assert not asked(listing, likely * 1.01).startswith("<tool_call>")
    # What would be text, and only that, is a call where so little is enough; the grammar holds it.
    assert not asked("hello", None).startswith("<tool_call>")
    assert call_in(asked("hello", 1e-30))["name"] == "file_list"
    # How likely the call is: what its tokens, behind those that open it, have together.
    told = Sampling(temperature=0, max_tokens=200, call_from=1e-30, logprobs=True, top_logprobs=1)
    got = on_embedded.ask(listing, told, lazy, tools)
    shares = [one for event in got.events if isinstance(event, Tokens) for one in event.logprobs]
    behind = itertools.accumulate(one.piece for one in shares)
    opening = next(at for at, said in enumerate(behind, start=1) if b"<tool_call>" in said)
    wanted = math.exp(sum(one.logprob for one in shares[opening:]))
    assert wanted < 1.0
    assert got.done.likely == pytest.approx(wanted, rel=1e-3)
    assert on_embedded.ask(listing, shown, lazy, tools).done.likely == 1.0
    # Without tools nothing is decided.
    told = Sampling(temperature=0, max_tokens=20, call_from=1e-30)
    free_talk = on_embedded.ask("hello", msgspec.structs.replace(told, call_from=None)).text
    assert on_embedded.ask("hello", told).text == free_talk


def test_an_answer_ends_with_its_one_call_where_more_are_unwelcome(
    on_embedded: WorkerClient,
) -> None:
    worker = on_embedded
    # Neither end-of-answer token is ever drawn freely.
    bias = {0: -1000.0, 2: -1000.0}
    going_on = Sampling(temperature=0, max_tokens=200, logit_bias=bias, stop_loops=False)
    question = "what files are in the src folder?"
    tools = ({"type": "function", "function": {"name": "file_list", "parameters": LIST}},)
    any_number = Grammar(kind="tool_call", tools={"file_list": LIST}, lazy=True)
    free = worker.ask(question, going_on, any_number, tools)
    assert free.done.reason == "length"
    one = worker.ask(question, going_on, msgspec.structs.replace(any_number, single=True), tools)
    assert one.done.reason == "stop"
    assert one.text.endswith("</tool_call>")
    assert free.text.startswith(one.text)


def test_many_constrained_streams_do_not_meet(
    start_worker: StartWorker, random_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=4096, n_parallel=4))
    asked = []
    for seed, schema in enumerate((SCHEMAS * 2)[:16]):
        sampling = Sampling(temperature=1, seed=seed)
        grammar = Grammar(kind="json_schema", schema=schema)
        asked.append((sampling, grammar, worker.start("go", sampling, grammar)))
    check_all(worker, [(grammar.schema, number) for _, grammar, number in asked])
    worker.send(CancelGeneration(id=worker.start("go", asked[2][0], asked[2][1])))
    assert is_valid(json.loads(worker.ask("go", asked[0][0], asked[0][1]).text), SCHEMAS[0])


@pytest.mark.smollm2
def test_r2_answers_of_a_real_model_validate_on_its_own_vocabulary() -> None:
    note: dict[str, Any] = {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 24},
            "day": {"type": "string", "format": "date"},
            "share": {"type": "number", "minimum": 0.5, "maximum": 0.9},
            "kind": {"enum": ["note", "task"]},
            "tags": {"type": "array", "items": SHORT, "minItems": 1, "maxItems": 2},
        },
        "required": ["title", "day", "share", "kind", "tags"],
        "additionalProperties": False,
    }
    nothing = {"type": "object", "additionalProperties": False}
    tools: dict[str, Any] = {"add_note": note, "list_notes": nothing}
    call = Grammar(kind="tool_call", tools=tools)
    with one_worker(ModelConfig(path=str(SMOLLM2), n_ctx=1024)) as worker:
        for seed in range(2 if thorough() else 1):
            sampling = Sampling(seed=seed, max_tokens=400)
            answer = worker.ask(
                "A note about the last of May.", sampling, Grammar(kind="json_schema", schema=note)
            )
            assert (answer.done.reason, answer.done.lifted) == ("stop", "")
            said = json.loads(answer.text)
            assert is_valid(said, note)
            assert list(said) == list(note["properties"])
            assert datetime.date.fromisoformat(said["day"]).year > 0
            called = call_in(worker.ask("Add a note.", sampling, call).text)
            assert called["name"] in call.tools
            assert is_valid(called["arguments"], call.tools[called["name"]])
