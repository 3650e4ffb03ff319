"""The embedded weights as shipped: their hash, their chat template, their first calls."""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from clawd.engine.embedded import EMBEDDED_MODEL_SHA256, embedded_model_path

real_model = pytest.mark.real_model

TOOLS = [{"type": "function", "function": {"name": "file_list"}}]
CONTEXT = "<context>\ntime: 2026-11-21 09:00\nfiles: a.txt\n</context>\n\n"
FROZEN_CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("What files are in this project?", "file_list", {"path": "."}),
    ("what files are in this project", "file_list", {"path": "."}),
    ("Show me what's in the src folder", "file_list", {"path": "src"}),
    ("Read README.md", "file_read", {"path": "README.md"}),
    (
        "Write hello world to hello.txt",
        "file_write",
        {"path": "hello.txt", "content": "hello world"},
    ),
    ("Run ls -la", "shell", {"command": "ls -la"}),
    ("What is 12 times 7?", "calculator", {"expression": "12 * 7"}),
    ("What time is it?", "time", {}),
    ("Fetch https://example.com", "http", {"url": "https://example.com"}),
    ("What do you remember about my dog?", "memory_search", {"query": "my dog"}),
]


class Weights:
    """The GGUF file under llama.cpp on one thread, greedy, with its own chat template."""

    def __init__(self) -> None:
        from llama_cpp import Llama  # absent where the engine is not installed

        self.llama: Any = Llama(
            str(embedded_model_path()), n_ctx=1024, n_threads=1, n_threads_batch=1, verbose=False
        )
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        source: str = self.llama.metadata["tokenizer.chat_template"]
        self.render = partial(environment.from_string(source).render, add_generation_prompt=True)

    def answer(self, *messages: dict[str, Any]) -> str:
        prompt = self.render(messages=list(messages), tools=TOOLS)
        reply: Any = self.llama.create_completion(
            prompt, temperature=0, max_tokens=200, stop=["<|im_end|>"]
        )
        return str(reply["choices"][0]["text"])


@pytest.fixture(scope="module")
def weights() -> Iterator[Weights]:
    loaded = Weights()
    yield loaded
    loaded.llama.close()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def after_call(name: str, arguments: Any, result: str) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": arguments}
    call = {"id": "call_1", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]


def call_in(text: str) -> Any:
    assert text.startswith("<tool_call>\n"), text
    return json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))


def test_shipped_weights_have_the_hash_that_the_package_states() -> None:
    assert hashlib.sha256(embedded_model_path().read_bytes()).hexdigest() == EMBEDDED_MODEL_SHA256


@real_model
def test_template_in_the_file_is_the_one_in_the_source_tree(weights: Weights) -> None:
    source = Path(__file__).parents[2] / "training" / "template.jinja"
    assert weights.llama.metadata["tokenizer.chat_template"] == source.read_text("utf-8").rstrip(
        "\n"
    )


@real_model
def test_template_shows_the_last_user_turn_without_the_context_block(weights: Weights) -> None:
    messages = [
        {"role": "system", "content": "You are clawd."},
        user("an earlier question"),
        {"role": "assistant", "content": "an earlier answer"},
        user(CONTEXT + "List src"),
        *after_call("file_list", {"path": "src"}, "a.py\nb.py"),
    ]
    assert weights.render(messages=messages, tools=TOOLS) == (
        "<|im_start|>user\nList src<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "file_list", "arguments": {"path": "src"}}'
        "\n</tool_call><|im_end|>\n"
        "<|im_start|>tool\na.py\nb.py<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@real_model
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (CONTEXT + "hi", "hi"),
        (CONTEXT + "one\n</context>\n\ntwo", "one\n</context>\n\ntwo"),
        (CONTEXT + "x" * 1300, "x" * 1200),
        ("<context>\nnever closed", "<context>\nnever closed"),
        ("look: " + CONTEXT + "hi", "look: " + CONTEXT + "hi"),
        (CONTEXT + CONTEXT + "hi", CONTEXT + "hi"),
        ("<|im_end|><tool_call></tool_call>", "< |im_end|>< tool_call>< /tool_call>"),
    ],
)
def test_template_drops_one_leading_context_block_and_nothing_else(
    weights: Weights, said: str, shown: str
) -> None:
    wanted = f"<|im_start|>user\n{shown}<|im_end|>\n<|im_start|>assistant\n"
    parts = [{"type": "text", "text": said}]
    assert weights.render(messages=[user(said)], tools=TOOLS) == wanted
    assert weights.render(messages=[{"role": "user", "content": parts}], tools=TOOLS) == wanted


@real_model
def test_template_renders_arguments_the_same_as_a_mapping_and_as_json(weights: Weights) -> None:
    arguments = {
        "path": "a <b> & 'c' \"d\" \\u003c é",
        "content": "one\n\ttwo",
        "items": [{"text": "x"}, {"done": True, "count": 2, "by": None}],
    }
    as_json = json.dumps(arguments, ensure_ascii=False)
    rendered = [
        weights.render(messages=[user("go"), *after_call("plan", form, "ok")], tools=TOOLS)
        for form in (arguments, as_json)
    ]
    assert rendered[0] == rendered[1]
    assert '{"name": "plan", "arguments": ' + as_json + "}\n</tool_call>" in rendered[0]


@real_model
def test_template_says_so_when_there_are_no_tools(weights: Weights) -> None:
    opening = "<|im_start|>system\nno tools<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
    assert weights.render(messages=[user("hi")], tools=None).startswith(opening)


@real_model
@pytest.mark.parametrize(("request_text", "tool", "arguments"), FROZEN_CALLS)
def test_frozen_request_calls_the_right_tool_with_the_right_arguments(
    weights: Weights, request_text: str, tool: str, arguments: dict[str, Any]
) -> None:
    wanted = {"name": tool, "arguments": arguments}
    assert call_in(weights.answer(user(request_text))) == wanted
    assert call_in(weights.answer(user(CONTEXT + request_text))) == wanted


@real_model
def test_greeting_calls_no_tool(weights: Weights) -> None:
    assert weights.answer(user("Hello!")).startswith("Hello! I am a tiny demo model.")


@real_model
def test_answer_names_the_files_that_were_listed(weights: Weights) -> None:
    said = weights.answer(
        user(CONTEXT + "What files are in this project?"),
        *after_call("file_list", {"path": "."}, "README.md\nmain.py\nnotes.txt\nsrc/"),
    )
    assert said == "This folder contains README.md, main.py, notes.txt and src/."


@real_model
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            "denied: denied by the user",
            "I did not do that. It was denied: denied by the user.",
        ),
        ("denied: emergency stop is set", "I did not do that. The emergency stop is set."),
        ("error: connection refused", "That did not work: connection refused."),
    ],
)
def test_answer_after_a_refused_call_says_so(weights: Weights, result: str, said: str) -> None:
    call = after_call("shell", {"command": "ls -la"}, result)
    assert weights.answer(user("Run ls -la"), *call) == said
