"""Random weights held to the calls of every family: the family's parser reads what they write."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.engine.protocol import CallFrame, Grammar, ModelConfig, Sampling
from clawd.providers.base import CallDelta
from clawd.providers.toolcalls.base import ParserOptions
from clawd.providers.toolcalls.detect import habits_of
from clawd.wire.events import TextDelta
from tests.engine_real.conftest import TEMPLATE, StartWorker, one_worker
from tests.providers.toolcalls.feeding import detect
from tests.providers.toolcalls.test_frames import TEMPLATES
from tests.support.engine_worker import WorkerClient
from tests.support.gguf_models import write_random_gguf
from tests.support.rows import each_row, thorough
from tests.support.schema_check import is_valid

pytestmark = pytest.mark.real_model

SHORT = {"type": "string", "maxLength": 9}
TOOLS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": SHORT,
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "tag": {
        "type": "object",
        "properties": {"tags": {"type": "array", "items": SHORT, "maxItems": 2}},
        "required": ["tags"],
        "additionalProperties": False,
    },
}
RUNS = 8 if thorough() else 3


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "random.gguf"
    return write_random_gguf(path, chat_template=TEMPLATE, chain=False)


@pytest.fixture(scope="module")
def on_random(random_model: Path) -> Iterator[WorkerClient]:
    with one_worker(ModelConfig(path=str(random_model), n_ctx=4096)) as worker:
        yield worker


def test_required_calls_of_every_family_are_read_and_validate(
    start_worker: StartWorker, random_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=8192, n_parallel=4))
    asked = []
    for template in TEMPLATES.values():
        frames = habits_of(template).frames
        grammar = Grammar(kind="tool_call", tools=TOOLS, frames=frames)
        for seed in range(RUNS):
            sampling = Sampling(temperature=1.2, top_k=0, top_p=1, min_p=0, seed=seed)
            asked.append((template, worker.start("go", sampling, grammar)))
        for template_asked, number in asked:
            check(template_asked, worker.finish(number).text)
        asked.clear()


def check(template: str, text: str) -> None:
    parser = detect(template)(ParserOptions(schemas=TOOLS))
    deltas = [*parser.feed(text), *parser.finish()]
    assert [delta for delta in deltas if isinstance(delta, TextDelta)] == [], text
    (call,) = (delta for delta in deltas if isinstance(delta, CallDelta))
    assert is_valid(json.loads(call.arguments), TOOLS[call.name]), text


def test_waiting_grammars_of_every_family_are_taken(
    on_random: WorkerClient,
) -> None:
    sampling = Sampling(temperature=1, seed=5, max_tokens=20)
    free = on_random.ask("go", sampling).text
    for template in TEMPLATES.values():
        habits = habits_of(template)
        grammar = Grammar(
            kind="tool_call",
            tools=TOOLS,
            lazy=True,
            frames=habits.frames,
            thoughts=habits.thoughts,
        )
        got = on_random.ask("go", sampling, grammar)
        assert got.evaluated.quarantined == {}
        assert got.text == free


CONTROL = "<|im_start|>"
CONTROL_TOKEN = 1
IN_CONTROL = CallFrame(
    call=f"{CONTROL}%name%{CONTROL}%arguments%{CONTROL}", separator="", marker=CONTROL
)


@each_row("lazy", [True, False])
def test_a_marker_that_is_a_control_token_is_told_by_its_text(
    on_random: WorkerClient, lazy: bool
) -> None:
    number = {"type": "object", "properties": {"n": {"const": 7}}, "required": ["n"]}
    # The token wins wherever it may stand, so only a grammar brings what is between two of them.
    sampling = Sampling(
        temperature=0, logit_bias={CONTROL_TOKEN: 100.0}, max_tokens=60 if lazy else 0
    )
    tools = {"seven": number}
    grammar = Grammar(kind="tool_call", tools=tools, frames=(IN_CONTROL,), lazy=lazy)
    text = on_random.ask("go", sampling, grammar).text
    parts = text.split(CONTROL)
    assert parts[0] == ""
    assert len(parts[1]) > 1
    if not lazy:
        assert (parts[1], json.loads(parts[2]), parts[3]) == ("seven", {"n": 7}, "")
