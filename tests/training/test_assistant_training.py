"""How the assistant's adapter is made: texts, the file, the card; training where torch is."""

import itertools
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bootstrap import models

from clawd.engine.protocol import ChatCall, ChatMessage, ModelConfig
from clawd.engine.worker.template import ChatTemplate
from tests.support.rows import each_row
from tests.support.smollm2 import SMOLLM2
from training.assistant import adapter_file, decisions, judge, make
from training.assistant.conversations import Conversation, Conversations
from training.assistant.decisions import Decision
from training.assistant.texts import TEMPLATE, Texts

ROOT = Path(__file__).parents[2]
TRAINING_PYTHON = ROOT / "build" / "training-venv" / "bin" / "python"
TRAINED = ("step", "tokens", "learnt", "loss", "right")
CALL = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'
RESULT = {"role": "tool", "content": "9:00", "tool_call_id": "call_0"}


def called(name: str, arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def drawn(count: int) -> list[Conversation]:
    return list(itertools.islice(Conversations(11), count))


def test_what_is_learnt_is_what_the_assistant_says_with_the_mark_that_ends_it() -> None:
    messages = [asked("when?"), called("time", {}), RESULT, said("At 9."), asked("ok"), said("!")]

    head, parts = Texts().parts(messages, [])

    assert head.endswith("<|im_end|>\n")
    assert [text for text, is_learnt in parts if is_learnt] == [
        f"{CALL}<|im_end|>",
        "At 9.<|im_end|>",
        "!<|im_end|>",
    ]
    with pytest.raises(ValueError, match="ends with what the assistant says"):
        Texts().parts(messages[:1], [])


def test_the_parts_of_a_conversation_are_its_prompts() -> None:
    texts = Texts()
    for conversation in drawn(60):
        messages, tools = conversation.messages, conversation.tools
        head, parts = texts.parts(messages, tools)
        written = head
        turns = iter(
            index
            for index, message in enumerate(messages)
            if message["role"] == "assistant" and message.get("learnt", True)
        )
        for text, is_learnt in parts:
            if is_learnt:
                assert written == texts.prompt(messages[: next(turns)], tools)
            written += text
        assert next(turns, None) is None


class _Letters:
    """A tokenizer whose tokens are letters."""

    def tokens(self, text: str) -> list[int]:
        return list(map(ord, text))

    def bytes(self, token: int) -> bytes:
        return chr(token).encode()


def test_what_is_chosen_is_marked_and_what_the_base_knows_counts_as_known() -> None:
    from training.assistant.mask import ANSWER, CALL, CHOICE, KNOWN
    from training.assistant.prepare import Writer

    writer = Writer(_Letters(), 1000)  # type: ignore[arg-type]
    messages = [
        asked("1+2?"),
        called("calculator", {"expression": "1 + 22"}),
        {**RESULT, "content": "23"},
        said("Es heißt: 23 Bücher."),
        asked("who wrote Faust?"),
        {**said("It was: Goethe"), "known": True},
    ]

    conversation = Conversation("sum", "de", "none", [], messages)
    assert writer.add(conversation, held_out=False)
    rows = writer.rows

    def marked(sort: int) -> str:
        return "".join(
            chr(token) for token, mask in zip(rows.ids, rows.mask, strict=True) if mask == sort
        )

    assert marked(CALL + CHOICE) == "calculator,1 + 22}"
    assert marked(ANSWER + CHOICE) == "23 Bü<|im_end|>"
    assert marked(KNOWN) == "It was: Goethe<|im_end|>"
    assert not writer.add(Conversation("sum", "de", "none", [], [*messages] * 9), held_out=False)


@pytest.mark.smollm2
@pytest.mark.real_model
def test_training_and_product_agree_to_the_token() -> None:
    from clawd.engine.worker.model import LlamaModel
    from clawd.engine.worker.prompt import PromptBuilder, tokens_of
    from training.assistant.runner import Runner

    runner, texts = Runner(SMOLLM2), Texts()
    model = LlamaModel(ModelConfig(path=str(SMOLLM2), n_ctx=512, n_parallel=1, n_threads=1))
    template = ChatTemplate(TEMPLATE.read_text("utf-8"))
    builder = PromptBuilder(model, template, max_characters=100_000)
    for conversation in drawn(40):
        head, parts = texts.parts(conversation.messages, conversation.tools)
        learnt_from = runner.tokens(head)
        for text, _ in parts[:-1]:
            learnt_from += runner.tokens(text)
        messages = [message_of(each) for each in conversation.messages[:-1]]
        assert tokens_of(builder.build(messages, conversation.tools, {}, ())) == learnt_from


def message_of(given: dict[str, Any]) -> ChatMessage:
    """Return a message as the product holds it."""
    calls = tuple(
        ChatCall(
            id="call_0",
            name=call["function"]["name"],
            arguments=json.dumps(call["function"]["arguments"], ensure_ascii=False),
        )
        for call in given.get("tool_calls", ())
    )
    return ChatMessage(role=given["role"], content=given["content"], tool_calls=calls)


def test_an_adapter_file_holds_what_was_trained(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    down, up = rng.normal(size=(4, 32)), rng.normal(size=(64, 4))

    adapter_file.write_adapter(tmp_path / "a.gguf", [("blk.0.attn_q.weight", down, up)], 8.0)
    tensors, alpha = adapter_file.read_adapter(tmp_path / "a.gguf")

    assert alpha == 8.0
    assert list(tensors) == ["blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"]
    assert np.array_equal(tensors["blk.0.attn_q.weight.lora_a"], down.astype(np.float16))
    assert np.array_equal(tensors["blk.0.attn_q.weight.lora_b"], up.astype(np.float16))
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]

    adapter_file.write_adapter(tmp_path / "b.gguf", [("blk.0.attn_q.weight", 3 * down, up)], 8.0)
    mean_path = tmp_path / "mean.gguf"
    adapter_file.mean_adapter(tmp_path / "a.gguf", tmp_path / "b.gguf", 0.25, mean_path)
    mean, alpha = adapter_file.read_adapter(mean_path)
    assert alpha == 8.0
    assert np.allclose(mean["blk.0.attn_q.weight.lora_a"], 1.5 * down, atol=0.01)
    assert np.allclose(mean["blk.0.attn_q.weight.lora_b"], up, atol=0.01)


@each_row(
    ("answer", "expected"),
    [
        (CALL, ("time", {})),
        (f"Sure.\n{CALL}", ("time", {})),
        ('<tool_call>{"name": "time", "arguments": {}}', ("time", {})),
        ("It is nine.", None),
        ('<tool_call>{"name": "time"', ("(not JSON)", '{"name": "time"')),
        ('<tool_call>{"name": "time"}</tool_call>', ("(not JSON)", '{"name": "time"}')),
    ],
)
def test_a_call_is_read_from_an_answer(answer: str, expected: object) -> None:
    assert judge.call_of(answer) == expected


class Repeating:
    """Answers with what is handed to it, one after the other, and keeps the prompts."""

    def __init__(self, *answers: str) -> None:
        self._answers = iter(answers)
        self.prompts: list[str] = []

    def complete(self, prompt: str, *, limit: int) -> str:
        assert limit
        self.prompts.append(prompt)
        return next(self._answers)


def test_each_turn_is_judged_on_its_own_after_what_was_right_before() -> None:
    row = {
        "kind": "time",
        "messages": [asked("when?"), called("time", {}), RESULT, said("At 9.")],
        "tools": [],
    }
    runner = Repeating("Done.", "At nine.", CALL, CALL)
    judged = judge.Judge(runner)

    judged.judge(row)
    judged.judge(row)

    assert runner.prompts[1].endswith(
        f"{CALL}<|im_end|>\n<|im_start|>tool\n9:00<|im_end|>\n<|im_start|>assistant\n"
    )
    figures = judged.figures()
    assert (figures["calls"], figures["tool"], figures["exact"]) == (2, 1, 1)
    assert (figures["texts"], figures["uncalled"], figures["same"]) == (2, 1, 0)
    assert (figures["whole"], figures["wrong"]) == (0, {"time": "0/2"})


def test_the_card_says_what_the_log_of_the_run_holds(tmp_path: Path) -> None:
    (tmp_path / "base.gguf").write_bytes(b"base")
    (tmp_path / "data.npz").write_bytes(b"data")
    (tmp_path / "adapter.gguf").write_bytes(b"adapter")
    judged = {"calls": 9, "tool": 8, "exact": 7, "texts": 5, "uncalled": 5, "whole": 4}
    rows: list[dict[str, object]] = [
        {"event": "begin", "start": "", "seed": 3},
        {"step": 1, "tokens": 10, "learnt": 6, "seconds": 2},
        {"step": 2, "tokens": 20, "learnt": 12, "seconds": 4},
        {"event": "held out", "loss": 0.5, "right": 0.9, "calls": 8, "calls_right": 7},
        {"event": "judged", **judged, "conversations": 6, "wrong": {}},
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")

    text = make.as_toml(make.card(tmp_path / "base.gguf", tmp_path, tmp_path / "data.npz"))

    read = tomllib.loads(text)
    assert (read["name"], read["base"]["licence"]) == ("assistant", "Apache-2.0")
    assert read["base"]["sha256"] == make.sha256(tmp_path / "base.gguf")
    assert read["adapter"]["sha256"] == make.sha256(tmp_path / "adapter.gguf")
    assert (read["training"]["steps"], read["training"]["tokens"]) == (2, 20)
    assert read["held_out"]["calls_right"] == 7
    assert read["judged"] == {**judged, "conversations": 6}
    assert read["calls"] == make.CALLS


def test_the_packaged_adapter_is_the_one_that_its_card_names() -> None:
    card = tomllib.loads((make.PACKAGE / make.CARD).read_text("utf-8"))

    assert card["adapter"]["sha256"] == make.sha256(make.PACKAGE / make.ADAPTER)
    assert (card["base"]["licence"], card["adapter"]["licence"]) == ("Apache-2.0", "Apache-2.0")
    assert card["base"]["sha256"] == models.SHA256
    assert card["calls"] == make.CALLS


def test_what_a_threshold_costs_is_told_for_both_places() -> None:
    first = [Decision(0.28, True, False), Decision(0.32, False, False), Decision(0.97, True, False)]
    lines = decisions.table([*first, Decision(0.92, False, True), Decision(0.999, True, True)])
    assert lines[0] == "to a person: 2 calls, 1 texts"
    assert {"  from 0.25: 0 missed, 1 wrong", "  from 0.35: 1 missed, 0 wrong"} <= set(lines)
    behind = lines[lines.index("behind a result: 1 calls, 1 texts") :]
    assert {"  from 0.9: 0 missed, 1 wrong", "  from 0.95: 0 missed, 0 wrong"} <= set(behind)


def training_python() -> str:
    """Return a Python that has torch; the test is skipped where there is none."""
    for python in (sys.executable, str(TRAINING_PYTHON)):
        probe = [python, "-c", "import importlib.util as u; assert u.find_spec('torch')"]
        if Path(python).exists() and subprocess.run(probe, capture_output=True).returncode == 0:
            return python
    pytest.skip("torch is not installed; make train sets it up")


def write_small_llama(path: Path) -> None:
    """Write a llama of two layers with random weights."""
    from gguf import GGUFWriter

    rng = np.random.default_rng(2)
    width, hidden, vocabulary = 32, 64, 96
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_embedding_length(width)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    shapes = {"token_embd.weight": (vocabulary, width), "output_norm.weight": (width,)}
    for layer in range(2):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (width,),
            f"blk.{layer}.ffn_norm.weight": (width,),
            f"blk.{layer}.attn_q.weight": (width, width),
            f"blk.{layer}.attn_k.weight": (width // 2, width),
            f"blk.{layer}.attn_v.weight": (width // 2, width),
            f"blk.{layer}.attn_output.weight": (width, width),
            f"blk.{layer}.ffn_gate.weight": (hidden, width),
            f"blk.{layer}.ffn_up.weight": (hidden, width),
            f"blk.{layer}.ffn_down.weight": (width, hidden),
        }
    for name, shape in shapes.items():
        value = np.ones(shape) if len(shape) == 1 else rng.normal(size=shape, scale=0.2)
        writer.add_tensor(name, value.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_small_data(path: Path) -> None:
    """Write rows under two heads: a request, then the same tokens again, which are learnt."""
    rng = np.random.default_rng(3)
    ids, mask, starts = list[int](), list[int](), [0]
    for _ in range(96):
        asked_for = rng.integers(1, 96, size=int(rng.integers(3, 6))).tolist()
        ids += [*asked_for, 0, *asked_for]
        mask += [0] * (len(asked_for) + 1) + [2] * len(asked_for)
        starts.append(len(ids))
    np.savez(
        path,
        ids=np.array(ids, np.int32),
        mask=np.array(mask, np.uint8),
        starts=np.array(starts),
        head_of=np.arange(96, dtype=np.int32) % 2,
        held_out=np.arange(96) >= 88,
        heads=np.array([5, 6, 7, 8, 9], np.int32),
        head_starts=np.array([0, 2, 5]),
    )


# All runs in one process, for torch takes seconds to be imported.
RUNS = """
import json, sys
from training.assistant import train

for words in json.loads(sys.argv[1]):
    sys.argv = ["train", *words]
    train.main()
"""


@pytest.mark.timeout(300)
def test_training_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    python = training_python()
    write_small_llama(tmp_path / "base.gguf")
    write_small_data(tmp_path / "data.npz")
    every = ["base.gguf", "data.npz"]
    fast = ["--batch", "64", "--report", "0", "--rate", "3e-3", "--tokens", "1800"]
    runs = [
        [*every, "whole", *fast],
        [*every, "parted", *fast, "--steps", "7"],
        [*every, "parted", *fast],
        [*every, "two", *fast, "--workers", "2", "--steps", "9"],
    ]

    run_training(python, tmp_path, RUNS, json.dumps(runs))

    whole, parted = (steps_of(tmp_path / run / "log.jsonl") for run in ("whole", "parted"))
    assert len(whole) > 14
    assert parted == whole
    assert whole[-1]["loss"] < whole[0]["loss"]
    adapters = [(tmp_path / run / "adapter.gguf").read_bytes() for run in ("whole", "parted")]
    assert adapters[0] == adapters[1]
    two = steps_of(tmp_path / "two" / "log.jsonl")
    assert len(two) == 9
    assert two[-1]["tokens"] > 1.5 * whole[8]["tokens"]


def run_training(python: str, folder: Path, program: str, *arguments: str) -> str:
    """Return what a program prints that needs torch."""
    answer = subprocess.run(
        [python, "-c", program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


# Of a loss over two rows behind a head: gradients, and differences of the loss in a direction.
GRADIENTS = """
import json, torch
from pathlib import Path
from training.assistant.model import Llama

found = {}
for dtype in (torch.float32, torch.bfloat16):
    torch.manual_seed(4)
    model = Llama(Path("base.gguf"), rank=4, alpha=8.0, dtype=dtype)
    ids = torch.randint(96, (2, 12))
    weights = torch.rand(2, 11).flatten()
    directions = [torch.randn_like(p) for p in model.parameters()]

    def loss(ids=ids, prefix=None):
        hidden, _ = model.hidden(ids[:, :-1], prefix)
        return model.loss(hidden.flatten(0, 1), ids[:, 1:].flatten(), weights)[0]

    def moved(by):
        with torch.no_grad():
            for p, direction in zip(model.parameters(), directions):
                p += by * direction
            model.merge()

    moved(0.1)
    with torch.no_grad():
        head = torch.tensor([[5, 6, 7]])
        _, prefix = model.hidden(head)
        after, _ = model.hidden(ids, prefix)
        whole, _ = model.hidden(torch.cat([head.expand(2, -1), ids], 1))
    loss(prefix=prefix).backward()
    slope = sum((p.grad * d).sum() for p, d in zip(model.parameters(), directions))
    grads = torch.cat([p.grad.flatten() for p in model.parameters()])
    losses = []
    for by in (1e-3, -2e-3):
        moved(by)
        losses.append(loss(prefix=prefix).item())
    found[str(dtype)] = {
        "apart": (after - whole[:, 3:]).abs().max().item(),
        "slope": slope.item(),
        "differences": (losses[0] - losses[1]) / 2e-3,
        "grads": grads.tolist(),
    }
print(json.dumps(found))
"""


@pytest.mark.timeout(300)
def test_the_gradient_is_the_slope_of_the_loss_in_both_precisions(tmp_path: Path) -> None:
    python = training_python()
    write_small_llama(tmp_path / "base.gguf")

    found = json.loads(run_training(python, tmp_path, GRADIENTS))

    exact, rounded = found["torch.float32"], found["torch.bfloat16"]
    assert exact["apart"] < 1e-4
    assert exact["slope"] == pytest.approx(exact["differences"], rel=1e-2)
    grads, others = np.array(exact["grads"]), np.array(rounded["grads"])
    assert 0 < np.linalg.norm(grads - others) < 0.05 * np.linalg.norm(grads)


def steps_of(log: Path) -> list[dict[str, Any]]:
    """Return what the log says of each step, without times."""
    rows = map(json.loads, log.read_text("utf-8").splitlines())
    return [{key: row[key] for key in TRAINED} for row in rows if "step" in row]
