"""A gap filled in over HTTP in three dialects: by a model that can, and told by one that cannot."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from clawd.channels.http.llama_server import infill_request
from clawd.errors import InvalidRequestError
from clawd.providers.base import Infill, InfillFile
from tests.channels.http.local_models import LOCAL
from tests.channels.http.rig import Served, events_of, served
from tests.support.gguf_models import FIM, write_infilling
from tests.support.smollm2 import NAME, smollm2_provider

pytestmark = pytest.mark.real_model
pytest.importorskip("llama_cpp")

# What is written out must not become control tokens: the model's own end, and a mark of the gap.
BEFORE = "def add(a, b):\n    # <|im_end|> <|unused1509|>\n"
BEHIND = "\n\nprint(add(1, 2))\n"
GAP = {"input_prefix": BEFORE, "input_suffix": BEHIND}
SHORT = {"temperature": 0, "seed": 1}


@asynccontextmanager
async def filling(folder: Path) -> AsyncIterator[Served]:
    models = folder / "home" / "models"
    models.mkdir(parents=True, mode=0o700)
    models.parent.chmod(0o700)
    write_infilling(models / "fim.gguf")
    async with served(folder, tables=LOCAL.format(ctx_size=1024)) as door:
        yield door


async def tokens_of(door: Served, text: str) -> list[int]:
    body = {"model": "fim", "content": text, "parse_special": False}
    _, cut = await door.post("/tokenize", body)
    found: list[int] = cut["tokens"]
    return found


async def test_h7_a_gap_is_filled_in_alike_in_every_dialect(tmp_path: Path) -> None:
    async with filling(tmp_path) as door:
        before, behind = await tokens_of(door, BEFORE), await tokens_of(door, BEHIND)
        prompt = [FIM["pre"], *before, FIM["suf"], *behind, FIM["mid"]]
        asked: dict[str, Any] = {"model": "fim", "n_predict": 12, **SHORT}
        _, exact = await door.post("/v1/completions", {**asked, "prompt": prompt})
        text = exact["choices"][0]["text"]
        count = exact["usage"]["prompt_tokens"]
        assert text and count in {len(prompt), len(prompt) + 1}

        status, told = await door.post("/infill", {**asked, **GAP})
        assert (status, told["content"], told["stop"], told["model"]) == (200, text, True, "fim")
        assert (told["tokens_evaluated"], told["tokens_predicted"]) == (count, 12)
        assert told["stop_type"] == "limit"
        _, streamed = await door.stream("/infill", {**asked, **GAP, "stream": True})
        events = [value for _, value in events_of(streamed)]
        assert "".join(each["content"] for each in events) == text
        assert [each["stop"] for each in events] == [False] * (len(events) - 1) + [True]

        gap = {**asked, "prompt": BEFORE, "suffix": BEHIND}
        _, whole = await door.post("/v1/completions", gap)
        assert (whole["choices"][0]["text"], whole["usage"]["prompt_tokens"]) == (text, count)
        _, echoed = await door.post("/v1/completions", gap | {"echo": True})
        assert echoed["choices"][0]["text"] == BEFORE + text

        options = {"num_predict": 12, **SHORT}
        body = {"model": "fim", "prompt": BEFORE, "suffix": BEHIND, "options": options}
        _, line = await door.post("/api/generate", body | {"stream": False})
        assert (line["response"], line["prompt_eval_count"]) == (text, count)
        # At the beginning of a file nothing stands before the gap.
        _, line = await door.post("/api/generate", body | {"stream": False, "prompt": ""})
        assert line["done_reason"] in {"stop", "length"} and line["prompt_eval_count"] < count
        _, shown = await door.post("/api/show", {"model": "fim"})
        assert "insert" in shown["capabilities"] and ".Suffix" in shown["template"]

        # As Continue completes: it knows by the template that it may send what is behind.
        more = {"num_ctx": 4096, "num_thread": None, "mirostat": None, "use_mmap": None}
        continued = body | {"options": options | more, "keep_alive": 1800, "stream": True}
        _, streamed = await door.stream("/api/generate", continued)
        pieces = [json.loads(line) for line in streamed.splitlines()]
        assert "".join(each["response"] for each in pieces) == text
        assert [each["done"] for each in pieces[-2:]] == [False, True]


async def test_h7_other_files_and_a_beginning_are_read_and_nought_tokens_only_read(
    tmp_path: Path,
) -> None:
    async with filling(tmp_path) as door:
        asked = {"model": "fim", "n_predict": 3, **SHORT, **GAP}
        _, bare = await door.post("/infill", asked)
        extra = [{"filename": "maths.py", "text": "def sub(a, b): ...\n"}]
        _, more = await door.post("/infill", asked | {"input_extra": extra, "prompt": "    re"})
        wanted = len(
            await tokens_of(door, "def sub(a, b): ...\n") + await tokens_of(door, "    re")
        )
        assert more["tokens_evaluated"] >= bare["tokens_evaluated"] + wanted + 3
        _, read = await door.post("/infill", asked | {"n_predict": 0})
        assert (read["content"], read["tokens_predicted"]) == ("", 0)
        assert read["tokens_evaluated"] == bare["tokens_evaluated"]
        _, streamed = await door.stream("/infill", asked | {"n_predict": 0, "stream": True})
        (only,) = [value for _, value in events_of(streamed)]
        assert (only["content"], only["stop"]) == ("", True)
        long = asked | {"input_prefix": "word " * 2_000}
        status, error = await door.post("/infill", long)
        assert (status, error["error"]["code"]) == (400, "context_length_exceeded")


def refusals(body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return how each dialect asks to fill in a gap."""
    return [
        ("/infill", {**GAP, **body}),
        ("/v1/completions", {"prompt": BEFORE, "suffix": BEHIND, **body}),
        ("/api/generate", {"prompt": BEFORE, "suffix": BEHIND, **body}),
    ]


async def test_h7_a_model_without_such_tokens_says_so_before_a_stream_begins(
    tmp_path: Path,
) -> None:
    async with filling(tmp_path) as door:
        for stream in (True, False):
            for path, body in refusals({"model": "embedded", "stream": stream}):
                status, text = await door.stream(path, body)
                assert status == 400, (path, text)
                assert "FIM" in str(json.loads(text)["error"]), (path, text)
        _, shown = await door.post("/api/show", {"model": "embedded"})
        assert "insert" not in shown["capabilities"] and ".Suffix" not in shown["template"]
        # Of no suffix nothing is asked that a model must be trained for.
        for suffix in ({}, {"suffix": ""}, {"suffix": None}):
            body = {"model": "embedded", "prompt": "Hello", "max_tokens": 3, **suffix}
            assert (await door.post("/v1/completions", body))[0] == 200


@pytest.mark.smollm2
async def test_h7_the_real_model_says_that_it_fills_in_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, tables=smollm2_provider("[engine]\nn_threads = 1\n")) as door:
        for path, body in refusals({"model": NAME}):
            status, told = await door.post(path, body)
            assert status == 400 and "FIM" in str(told["error"]), (path, told)


def test_h7_a_body_becomes_a_gap_or_says_which_field_cannot_be_meant() -> None:
    files = [{"text": "x"}, {"text": "y", "filename": "b.py", "score": 1}]
    asked = infill_request(GAP | {"input_extra": files, "prompt": "z", "n_predict": -1})
    assert asked.prompt == Infill(
        prefix=BEFORE,
        suffix=BEHIND,
        files=(InfillFile(name="tmp", text="x"), InfillFile(name="b.py", text="y")),
        begun="z",
    )
    assert asked.sampling.max_tokens is None and not asked.inject
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"input_prefix": "x"}, "input_suffix"),
        ({"input_suffix": "x"}, "input_prefix"),
        (GAP | {"input_prefix": 5}, "input_prefix"),
        (GAP | {"input_extra": [5]}, "input_extra[0]"),
        (GAP | {"input_extra": [{"filename": "x"}]}, "input_extra[0]"),
        (GAP | {"input_extra": [{"text": "x"}] * 257}, "input_extra"),
        (GAP | {"prompt": [1]}, "prompt"),
        (GAP | {"grammar": "x"}, "grammar"),
        (GAP | {"n_predict": "x"}, "n_predict"),
    ]
    for body, name in wrong:
        with pytest.raises(InvalidRequestError) as refused:
            infill_request(body)
        assert (refused.value.data or {})["param"] == name
