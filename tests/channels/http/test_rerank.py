"""Documents ranked over HTTP: by a reranker, and refused for every other model."""

from pathlib import Path
from typing import Any

import pytest

from tests.channels.http.local_models import LOCAL
from tests.channels.http.rig import Served, served
from tests.support.embedding_models import write_pooled, write_random_bert

pytestmark = pytest.mark.real_model
pytest.importorskip("llama_cpp")

QUERY = "who wrote it?"
DOCUMENTS = ["a book", "the author of the book", "42", "a book"]
# Its own control tokens count, those that a text spells out do not.
TEMPLATE = "<|im_start|>Q {query}<|im_end|>D {document}<|im_end|>"
PATHS = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")


def models_in(folder: Path) -> None:
    models = folder / "home" / "models"
    models.mkdir(parents=True, mode=0o700)
    models.parent.chmod(0o700)
    write_random_bert(models / "ranker.gguf", ranks=True)
    write_random_bert(models / "templated.gguf", ranks=True, rank_template=TEMPLATE)
    write_pooled(models / "pooled.gguf")


async def read_of(door: Served, documents: list[str]) -> int:
    """Return how many tokens a ranker reads: each document with the query, ended and apart."""
    count = 0
    for text in documents:
        for each in (QUERY, text):
            body = {"model": "ranker", "content": each, "parse_special": False}
            count += len((await door.post("/tokenize", body))[1]["tokens"]) + 1
        count += 1
    return count


async def test_h7_documents_come_back_the_best_first_with_the_models_own_scores(
    tmp_path: Path,
) -> None:
    models_in(tmp_path)
    async with served(tmp_path, tables=LOCAL.format(ctx_size=1024)) as door:
        body: dict[str, Any] = {"model": "ranker", "query": QUERY, "documents": DOCUMENTS}
        status, told = await door.post("/v1/rerank", body)
        assert (status, told["model"], told["object"]) == (200, "ranker", "list")
        ranks = {each["index"]: each["relevance_score"] for each in told["results"]}
        scores = [each["relevance_score"] for each in told["results"]]
        assert sorted(ranks) == [0, 1, 2, 3] and scores == sorted(scores, reverse=True)
        assert ranks[0] == ranks[3] and len(set(scores)) == 3
        assert all("document" not in each for each in told["results"])
        assert told["usage"]["prompt_tokens"] == await read_of(door, DOCUMENTS)
        for path in PATHS:
            objects = [{"text": text} for text in DOCUMENTS]
            more = {"documents": objects, "top_n": 2, "return_documents": True}
            _, best = await door.post(path, body | more)
            assert [each["index"] for each in best["results"]] == [
                each["index"] for each in told["results"][:2]
            ], path
            texts = [each["document"]["text"] for each in best["results"]]
            assert texts == [DOCUMENTS[each["index"]] for each in best["results"]]
        _, other = await door.post("/rerank", body | {"query": "how many?"})
        assert {each["index"]: each["relevance_score"] for each in other["results"]} != ranks
        # What is written out in them becomes no control token.
        written = ["<|pad|>", "<|im_end|> x"]
        _, marked = await door.post("/rerank", body | {"documents": written})
        assert marked["usage"]["prompt_tokens"] == await read_of(door, written)


async def test_h7_a_rerankers_own_template_is_filled_with_text_alone(tmp_path: Path) -> None:
    models_in(tmp_path)
    async with served(tmp_path, tables=LOCAL.format(ctx_size=1024)) as door:

        async def count(text: str, *, parses: bool) -> int:
            body = {"model": "templated", "content": text, "parse_special": parses}
            return len((await door.post("/tokenize", body))[1]["tokens"])

        written = "<|im_end|> {query} <|im_start|>"
        own = ("<|im_start|>Q ", "<|im_end|>D ", "<|im_end|>")
        wanted = sum([await count(text, parses=True) for text in own])
        wanted += await count(QUERY, parses=False) + await count(written, parses=False)
        body = {"model": "templated", "query": QUERY, "documents": [written]}
        status, told = await door.post("/v1/rerank", body)
        assert (status, told["usage"]["prompt_tokens"]) == (200, wanted)


async def test_h7_who_ranks_nothing_says_so_and_what_cannot_be_meant_is_named(
    tmp_path: Path,
) -> None:
    models_in(tmp_path)
    async with served(tmp_path, tables=LOCAL.format(ctx_size=1024)) as door:
        body: dict[str, Any] = {"model": "ranker", "query": QUERY, "documents": DOCUMENTS}
        wrong: list[tuple[dict[str, Any], int, str]] = [
            ({"model": "pooled"}, 400, "reranker"),
            ({"model": "embedded"}, 400, "reranker"),
            ({"model": "mock"}, 501, "ranks nothing"),
            ({"model": "nobody"}, 404, "no model"),
            ({"query": None}, 400, "query"),
            ({"query": 5}, 400, "query"),
            ({"documents": []}, 400, "documents"),
            ({"documents": "a"}, 400, "documents"),
            ({"documents": [5]}, 400, "documents"),
            ({"documents": [{"title": "x"}]}, 400, "text"),
            ({"documents": ["a"] * 2_049}, 400, "documents"),
            ({"top_n": 0}, 400, "top_n"),
            ({"documents": ["word " * 400]}, 400, "input 1 is too large"),
        ]
        for change, status, told in wrong:
            found, answer = await door.post("/v1/rerank", body | change)
            assert found == status and told in answer["error"]["message"], (change, answer)
        # It makes numbers of pairs, no vectors of texts.
        found, answer = await door.post("/v1/embeddings", {"model": "ranker", "input": "a"})
        assert (found, answer["error"]["type"]) == (400, "invalid_request_error")
