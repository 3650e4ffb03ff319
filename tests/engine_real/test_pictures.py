"""Pictures with real llama.cpp: as its own helper reads them, kept as text is, and bounded.

Models and projectors have random weights, and are made on the spot: one whose cells see what is
before them (LLaVA), one whose cells of a picture see each other (Gemma 3), one with M-RoPE (Qwen2).
"""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from clawd.engine.protocol import (
    CancelGeneration,
    ChatMessage,
    LoadFailed,
    ModelConfig,
    ModelReady,
    PromptStep,
    QuestionFailed,
    Rendered,
    RenderPrompt,
    Sampling,
    Tokens,
)
from clawd.wire.pictures import Picture
from tests.engine_real.conftest import TEMPLATE, StartWorker
from tests.support.engine_worker import Answer, WorkerClient
from tests.support.gguf_models import write_random_gguf
from tests.support.projectors import Kind, noise, write_pair, write_projector

pytestmark = [pytest.mark.real_model, pytest.mark.vision]

KINDS: tuple[Kind, ...] = ("mlp", "gemma3", "qwen2vl_merger")
TELLING = Sampling(temperature=0, max_tokens=6, logprobs=True, top_logprobs=20)
GREEDY = Sampling(temperature=0, max_tokens=6)
ENDLESS = Sampling(temperature=0, max_tokens=4000, stop_loops=False)
# The same steps give the same numbers; other batches round otherwise, in half precision.
SAME, ROUNDED = 1e-4, 2e-2
ONE, TWO = noise(1), noise(2, width=56)
REFERENCE = Path(__file__).parents[1] / "support" / "mtmd_reference.py"
# Cells of a picture of 32 by 32 pixels, and those of 40 by 32 with M-RoPE.
CELLS = {"mlp": 16, "gemma3": 4, "qwen2vl_merger": 12}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where models and projectors are written."""
    return tmp_path_factory.mktemp("vision")


@pytest.fixture(scope="session", params=KINDS)
def seeing(request: pytest.FixtureRequest, folder: Path) -> ModelConfig:
    """A model that sees, of each kind."""
    model, projector = write_pair(folder, request.param, template=TEMPLATE)
    return config_of(model, projector, alias=request.param)


@pytest.fixture(scope="session")
def llava(folder: Path) -> ModelConfig:
    """A model that sees, whose projector takes a moment."""
    model, projector = write_pair(folder, "mlp", template=TEMPLATE)
    return config_of(model, projector, alias="mlp")


def config_of(model: Path, projector: Path | None, alias: str = "") -> ModelConfig:
    eyes = str(projector) if projector is not None else ""
    return ModelConfig(
        path=str(model),
        mmproj=eyes,
        alias=alias,
        n_ctx=2048,
        n_threads=1,
        flash_attn="on",  # as llama.cpp itself chooses for the reference
    )


def user(text: str, *pictures: Picture) -> ChatMessage:
    return ChatMessage(role="user", content=text, pictures=pictures)


def assistant(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


def logprobs(answer: Answer) -> list[dict[int, float]]:
    """Return for each generated token the log probabilities of the likeliest."""
    told = [each for event in answer.events if isinstance(event, Tokens) for each in event.logprobs]
    return [{each.token: each.logprob for each in (token, *token.top)} for token in told]


def reference(
    config: ModelConfig, folder: Path, prompt: str, *pictures: Picture
) -> list[list[float]]:
    """Return the same of all tokens from llama.cpp's own helper, in a process without clawd."""
    files = [folder / f"{picture.sha256}.png" for picture in pictures]
    for file, picture in zip(files, pictures, strict=True):
        file.write_bytes(picture.data)
    words = [sys.executable, str(REFERENCE), config.path, config.mmproj, str(TELLING.max_tokens)]
    asked = json.dumps({"prompt": prompt, "files": list(map(str, files))})
    done = subprocess.run(words, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [logprobs for _, logprobs in json.loads(done.stdout)]


def farthest(told: list[dict[int, float]], expected: list[list[float]]) -> float:
    """Return the largest difference of log probabilities; as many tokens must be told."""
    assert len(told) == len(expected) == TELLING.max_tokens
    return max(
        abs(logprob - of_all[token])
        for found, of_all in zip(told, expected, strict=True)
        for token, logprob in found.items()
    )


def shown(*turns: ChatMessage) -> str:
    """Return the prompt of these turns as mtmd takes it."""
    text = "".join(
        f"<|im_start|>{turn.role}\n{'<__media__>' * len(turn.pictures)}{turn.content}<|im_end|>\n"
        for turn in turns
    )
    return f"{text}<|im_start|>assistant\n"


def test_log_probabilities_are_those_of_mtmds_own_helper(
    start_worker: StartWorker, seeing: ModelConfig, folder: Path
) -> None:
    worker = start_worker(seeing)
    asked = (user("What is it?", ONE),)
    answer = worker.ask(asked, TELLING)
    assert farthest(logprobs(answer), reference(seeing, folder, shown(*asked), ONE)) < SAME
    # What is seen counts at all.
    other = reference(seeing, folder, shown(*asked), TWO)
    assert farthest(logprobs(answer), other) > 10 * ROUNDED


def test_two_pictures_stand_where_their_messages_have_them(
    start_worker: StartWorker, seeing: ModelConfig, folder: Path
) -> None:
    worker = start_worker(seeing)
    asked = (user("One", ONE, TWO), assistant("and"), user("the first again?", ONE))
    answer = worker.ask(asked, TELLING)
    expected = reference(seeing, folder, shown(*asked), ONE, TWO, ONE)
    assert farthest(logprobs(answer), expected) < SAME


def test_a_second_turn_evaluates_what_is_new_alone(
    start_worker: StartWorker, seeing: ModelConfig, folder: Path
) -> None:
    worker = start_worker(seeing)
    first = worker.ask((user("What is it?", ONE),), TELLING)
    turn = (user("What is it?", ONE), assistant(first.text), user("And this?", TWO))
    second = worker.ask(turn, TELLING)
    # All of the first turn but its last token, which nobody has read yet.
    kept = first.done.prompt_tokens + first.done.completion_tokens - 1
    assert second.done.cached_tokens == kept
    assert second.done.prompt_tokens > kept + CELLS[seeing.alias]
    # Without the answer, whose tokens no text gives back, so that the helper reads the same.
    plain = (user("What is it?", ONE), user("And this?", TWO))
    third = worker.ask(plain, TELLING)
    assert third.done.cached_tokens >= CELLS[seeing.alias]
    expected = reference(seeing, folder, shown(*plain), ONE, TWO)
    assert farthest(logprobs(third), expected) < ROUNDED


def test_another_picture_at_the_same_place_is_never_taken_for_it(
    start_worker: StartWorker, seeing: ModelConfig, folder: Path
) -> None:
    worker = start_worker(seeing)
    like_one = noise(3)
    worker.ask((user("What is it?", ONE),), GREEDY)
    answer = worker.ask((user("What is it?", like_one),), TELLING)
    before = 7 if seeing.alias == "mlp" else 0
    assert answer.done.cached_tokens <= answer.done.prompt_tokens - CELLS[seeing.alias] - before
    expected = reference(seeing, folder, shown(user("What is it?", like_one)), like_one)
    assert farthest(logprobs(answer), expected) < ROUNDED


def test_a_picture_comes_back_from_ram_after_others_pushed_it_out(
    start_worker: StartWorker, seeing: ModelConfig, folder: Path
) -> None:
    worker = start_worker(msgspec.structs.replace(seeing, n_parallel=2))
    text = "the river runs under the green bridge " * 4
    first = worker.ask((user(text, ONE),), GREEDY)
    for other in "abcdef":
        worker.ask((user(f"{other}, {text}"),), GREEDY)
    turn = (user(text, ONE), user("And?"))
    second = worker.ask(turn, TELLING)
    assert second.done.cached_tokens >= first.done.prompt_tokens - 8
    assert farthest(logprobs(second), reference(seeing, folder, shown(*turn), ONE)) < ROUNDED


def test_what_holds_pictures_is_not_written_to_the_disk(
    start_worker: StartWorker, llava: ModelConfig, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    config = msgspec.structs.replace(llava, prefix_cache_disk_mb=100, prefix_cache_folder=str(kept))
    worker = start_worker(config)
    words = "the river runs under the green bridge at seven and the children walk home " * 3
    worker.ask((user(words, ONE),), GREEDY)
    worker.quit()
    assert list(kept.glob("*")) == []
    worker = start_worker(config)
    worker.ask((user(words),), GREEDY)
    worker.quit()
    assert len(list(kept.glob("*.kv"))) == 1
    worker = start_worker(config)
    assert worker.ask((user(words, ONE),), GREEDY).done.cached_tokens < CELLS["mlp"]


def test_a_stream_without_pictures_goes_on_beside_one_with_many(
    start_worker: StartWorker, seeing: ModelConfig
) -> None:
    pictures = tuple(noise(seed) for seed in range(10, 16))
    asked = (user("What are they?", *pictures),)
    alone = start_worker(seeing).ask(asked, TELLING)
    worker = start_worker(seeing)
    running = worker.start("Tell me more.", ENDLESS)
    looking = worker.finish(worker.start(asked, TELLING))
    # Each picture takes two steps at least, and each step a token of the other.
    worker.send(CancelGeneration(id=running))
    other = worker.finish(running)
    evaluated = looking.times[looking.events.index(looking.evaluated)]
    told = zip(other.events, other.times, strict=True)
    assert sum(isinstance(event, Tokens) and at <= evaluated for event, at in told) >= len(pictures)
    first, expected = logprobs(looking)[0], logprobs(alone)[0]
    shared = first.keys() & expected.keys()
    assert len(shared) > 10
    assert max(abs(first[token] - expected[token]) for token in shared) < ROUNDED


def test_a_cancel_ends_a_picture_that_is_being_encoded(
    start_worker: StartWorker, folder: Path
) -> None:
    side = 512
    model = write_random_gguf(folder / "slow.gguf", chat_template=TEMPLATE, chain=False)
    projector = folder / "mmproj-slow.gguf"
    worker = start_worker(
        config_of(model, write_projector(projector, "gemma3", side=side, merged=side // 16))
    )
    number = worker.start((user("What?", *(noise(seed) for seed in range(20))),), GREEDY)
    steps = worker.stream(number)
    assert isinstance(next(steps).events[0], PromptStep)
    worker.send(CancelGeneration(id=number))
    *_, ended = steps
    assert ended.done.reason == "cancelled"
    read = [each.progress for each in ended.events if isinstance(each, PromptStep)]
    assert len(read) == len(ended.events) - 1
    assert read[-1].processed < read[-1].total
    # What was given up is no part of another answer.
    fresh = worker.ask((user("What?", noise(1)),), GREEDY)
    assert fresh.done.completion_tokens == GREEDY.max_tokens


def test_a_model_without_a_projector_refuses_before_anything_is_evaluated(
    start_worker: StartWorker, llava: ModelConfig
) -> None:
    blind = msgspec.structs.replace(llava, mmproj="")
    worker = start_worker(blind)
    answer = worker.ask((user("What is it?", ONE),), GREEDY)
    assert [answer.failed] == list(answer.events)
    assert answer.failed.code == "invalid_request"
    assert "sees no pictures: it has no projector (mmproj)" in answer.failed.message
    worker.send(RenderPrompt(id=9, messages=(user("What is it?", ONE),)))
    refused = worker.receive()
    assert isinstance(refused, QuestionFailed)
    assert "sees no pictures" in refused.message
    assert worker.ask("And as text?", GREEDY).text


def test_what_is_ready_says_whether_it_sees(llava: ModelConfig) -> None:
    for config in (llava, msgspec.structs.replace(llava, mmproj="")):
        with WorkerClient() as worker:
            ready = worker.load(config)
            assert isinstance(ready, ModelReady)
            assert ready.info.vision == bool(config.mmproj)


@pytest.mark.parametrize("what", ["garbage", "cut", "text", "other", "missing"])
def test_what_is_no_projector_of_the_model_is_refused_with_its_name(
    what: str, llava: ModelConfig, tmp_path: Path
) -> None:
    path = tmp_path / "mmproj-bad.gguf"
    whole = Path(llava.mmproj).read_bytes()
    match what:
        case "garbage":
            path.write_bytes(b"GGUF" + bytes(range(256)) * 40)
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "text":
            path.write_text("no projector")
        case "other":
            write_projector(path, "mlp", width=64)
        case _:
            pass
    with WorkerClient() as worker:
        failed = worker.load(msgspec.structs.replace(llava, mmproj=str(path)))
    assert isinstance(failed, LoadFailed)
    assert str(path) in failed.message
    assert "projector" in failed.message


def test_bytes_that_are_no_picture_are_refused_and_others_go_on(
    start_worker: StartWorker, llava: ModelConfig
) -> None:
    worker = start_worker(llava)
    for data in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", ONE.data[:60], b"RIFF0000WAVE"):
        answer = worker.ask((user("?", noise(1, data=data, sha256=f"{len(data):064x}")),), GREEDY)
        assert answer.failed.code == "invalid_request"
        assert "cannot be read" in answer.failed.message
    assert worker.ask((user("?", ONE),), GREEDY).done.completion_tokens == GREEDY.max_tokens


def test_no_text_passes_for_a_picture(start_worker: StartWorker, llava: ModelConfig) -> None:
    worker = start_worker(llava)
    signed = f"\ufdd1{ONE.sha256}\ufdd1"
    for text in (signed, "<__media__>"):
        worker.send(RenderPrompt(id=9, messages=(user(text, ONE),)))
        rendered = worker.receive()
        assert isinstance(rendered, Rendered)
        worker.send(RenderPrompt(id=9, messages=(user(text),)))
        plain = worker.receive()
        assert isinstance(plain, Rendered)
        assert rendered.tokens == plain.tokens + CELLS["mlp"]
    assert not worker.ask(signed, GREEDY).done.prompt_tokens < 20


def test_a_picture_that_no_batch_holds_is_refused_with_the_number_that_would(
    start_worker: StartWorker, folder: Path
) -> None:
    model, projector = write_pair(folder, "gemma3", template=TEMPLATE)
    small = msgspec.structs.replace(config_of(model, projector), n_batch=64, n_ubatch=3)
    answer = start_worker(small).ask((user("?", ONE),), GREEDY)
    assert "takes 4 tokens at once, and a batch has 3" in answer.failed.message
    assert "n_ubatch of the model to 4" in answer.failed.hint


def test_a_picture_is_scaled_down_to_the_tokens_that_it_may_take(
    start_worker: StartWorker, folder: Path
) -> None:
    whole = config_of(*write_pair(folder, "qwen2vl_merger", template=TEMPLATE))
    few = msgspec.structs.replace(whole, image_max_tokens=9)
    square = noise(3, width=64, height=64)
    taken = [
        start_worker(config).ask((user("?", square),), GREEDY).done.prompt_tokens
        for config in (whole, few)
    ]
    assert taken[0] - taken[1] == 16 - 9
    less = msgspec.structs.replace(whole, image_max_tokens=4)
    with WorkerClient() as client:
        failed = client.load(less)
    assert isinstance(failed, LoadFailed)
    assert "raise image_max_tokens (it is 4)" in failed.message
