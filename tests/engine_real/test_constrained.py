"""Answers held to schemas by real grammars: random weights say only what validates."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clawd.engine.protocol import Grammar, ModelConfig, SamplingConfig, Tokens
from tests.engine_real.conftest import TEMPLATE, StartWorker
from tests.support.engine_worker import Answer, WorkerClient
from tests.support.gguf_models import EMBEDDED, write_random_gguf
from tests.support.schema_check import is_valid

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


def test_constrained_answers_of_random_weights_validate_200_times_of_200(
    start_worker: StartWorker, random_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=8192, n_parallel=4))
    runs = []
    for seed in range(200):
        schema = SCHEMAS[seed % len(SCHEMAS)]
        sampling = SamplingConfig(temperature=1.2, top_k=0, top_p=1, min_p=0, seed=seed)
        grammar = Grammar(kind="json_schema", schema=schema)
        runs.append((schema, worker.start(f"say {seed}", sampling, grammar)))
        if len(runs) % 40 == 0:
            check_all(worker, runs[-40:])


def check_all(worker: WorkerClient, runs: list[tuple[Any, int]]) -> None:
    for schema, number in runs:
        got = worker.finish(number)
        assert got.done.reason == "stop"
        assert is_valid(json.loads(got.text), schema), got.text
