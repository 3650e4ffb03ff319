"""Embeddings over Ollama's door, in its newer form and its older one."""

import math
from pathlib import Path
from typing import Any

from tests.channels.http.rig import Served, served
from tests.support.embedding_models import write_random_bert

LOCAL = '[providers.models.here]\nkind = "local"\n'


def prepared(folder: Path) -> Path:
    models = folder / "home" / "models"
    models.mkdir(parents=True)
    models.parent.chmod(0o700)
    write_random_bert(models / "bert.gguf")
    return folder


async def embed(door: Served, given: Any, **fields: Any) -> Any:
    status, told = await door.post("/api/embed", {"model": "bert", "input": given} | fields)
    assert status == 200, told
    return told


async def test_each_input_has_its_vector_of_length_one_in_order(tmp_path: Path) -> None:
    async with served(prepared(tmp_path), tables=LOCAL) as door:
        both = await embed(door, ["one", "two words"])
        single = await embed(door, "two words", truncate=True, options={}, keep_alive="5m")
        _, older = await door.post("/api/embeddings", {"model": "bert", "prompt": "two words"})
        none = await embed(door, [])
        _, empty = await door.post("/api/embeddings", {"model": "bert"})
    assert both["model"] == "bert"
    assert len(both["embeddings"]) == 2
    for vector in both["embeddings"]:
        assert math.isclose(math.hypot(*vector), 1.0, abs_tol=1e-4)
    # One at a time or several: the numbers differ in the last place only.
    for other in (single["embeddings"][0], older["embedding"]):
        assert math.dist(other, both["embeddings"][1]) < 1e-3
    assert math.dist(*both["embeddings"]) > 1e-2
    assert both["prompt_eval_count"] > single["prompt_eval_count"] > 0
    assert isinstance(both["total_duration"], int)
    assert (none["embeddings"], empty) == ([], {"embedding": []})


async def test_what_cannot_be_embedded_is_refused_and_the_model_says_what_it_can(
    tmp_path: Path,
) -> None:
    async with served(prepared(tmp_path), tables=LOCAL) as door:
        for given, problem in ((5, "input"), ([{}], "input"), ("word " * 500, "too large")):
            asked: dict[str, Any] = {"model": "bert", "input": given, "truncate": False}
            status, told = await door.post("/api/embed", asked)
            assert status == 400
            assert problem in told["error"]
        body: dict[str, Any] = {"model": "bert", "input": "a", "dimensions": 3}
        assert (await door.post("/api/embed", body))[0] == 400
        _, shown = await door.post("/api/show", {"model": "bert"})
        chat = {"model": "bert", "stream": False, "messages": [{"role": "user", "content": "hi"}]}
        refused, _ = await door.post("/api/chat", chat)
    assert shown["capabilities"] == ["embedding"]
    assert refused == 400


async def test_h8_a_long_input_is_cut_unless_the_client_says_otherwise(tmp_path: Path) -> None:
    async with served(prepared(tmp_path), tables=LOCAL) as door:
        long = await embed(door, ["word " * 500, "short"])
        endless = await embed(door, "word " * 50_000, truncate=True)
        body = {"model": "bert", "input": "word " * 500, "truncate": False}
        refused, _ = await door.post("/api/embed", body)
    assert len(long["embeddings"]) == 2
    assert math.dist(long["embeddings"][0], endless["embeddings"][0]) < 1e-3
    assert refused == 400
