"""POST /api/pull and DELETE /api/delete, against a server of models on loopback."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.channels.http.app import KEEPING
from clawd.channels.http.model_api import Caller
from clawd.channels.http.ollama.models import ref_of
from clawd.errors import InvalidRequestError
from tests.channels.http.rig import LIMIT_S, Served, served
from tests.channels.http.told import raw, reread_lines
from tests.support.inprocess import OWNER
from tests.support.model_server import Faults, ModelServer, hub_document, model_bytes, model_server
from tests.support.rows import each_row

DATA = model_bytes(50_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
NAME = "hf.co/org/repo"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    with model_server() as made:
        made.files["/org/repo/resolve/c0ffee/fine.gguf"] = DATA
        told = hub_document({"fine.gguf": DATA})
        made.documents["/api/models/org/repo/revision/main?blobs=true"] = told
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        yield made


async def folder_of(door: Served) -> Path:
    return Path((await door.get("/models/local"))[1]["folder"])


async def test_a_model_is_pulled_with_its_progress_in_lines_and_removed_by_an_admin(
    tmp_path: Path, server: ModelServer
) -> None:
    server.faults = Faults(breaks=3)
    async with served(tmp_path) as door:
        path = await folder_of(door) / "fine.gguf"
        answer = await raw(door.url, "/api/pull", {"model": NAME})
        assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
        lines = reread_lines(answer.body)
        assert lines[0] == {"status": "pulling manifest"}
        assert lines[-2:] == [{"status": "verifying sha256 digest"}, {"status": "success"}]
        last = [line for line in lines if "total" in line][-1]
        assert last == {
            "status": f"pulling {SHA256[:12]}",
            "digest": f"sha256:{SHA256}",
            "total": len(DATA),
            "completed": len(DATA),
        }
        assert path.read_bytes() == DATA
        again = await raw(door.url, "/api/pull", {"model": NAME, "stream": False})
        assert (again.status, again.json()) == (200, {"status": "success"})
        names = [each["name"] for each in (await door.get("/api/tags"))[1]["models"]]
        assert "fine" in names
        gone = await raw(door.url, "/api/delete", {"model": "fine:latest"}, method="DELETE")
        assert (gone.status, gone.body) == (200, b"")
        assert not path.exists()


async def test_what_a_pull_refuses_is_told_as_ollama_tells_it(
    tmp_path: Path, server: ModelServer
) -> None:
    server.faults = Faults(wrong_at=20_000)
    async with served(tmp_path) as door:
        folder = await folder_of(door)
        whole = await raw(door.url, "/api/pull", {"model": NAME, "stream": False})
        assert whole.status >= 400
        assert "another content than its source tells" in whole.json()["error"]
        lines = reread_lines((await raw(door.url, "/api/pull", {"model": NAME})).body)
        assert set(lines[-1]) == {"error"}
        assert "another content" in lines[-1]["error"]
        assert not list(folder.glob("*.gguf"))
        server.faults = Faults()
        folder.mkdir(exist_ok=True)
        (folder / "fine.gguf").write_bytes(b"GGUF mine")
        taken = await raw(door.url, "/api/pull", {"model": NAME, "stream": False})
        assert (taken.status, "is there already" in taken.json()["error"]) == (400, True)
        assert (folder / "fine.gguf").read_bytes() == b"GGUF mine"


async def test_one_pull_runs_at_a_time_none_under_the_stop_and_a_client_that_leaves_ends_it(
    tmp_path: Path, server: ModelServer
) -> None:
    server.faults = Faults(refusals=1_000)  # it waits and asks again
    async with served(tmp_path) as door:
        body = {"model": NAME}
        async with door.session.post(door.url + "/api/pull", json=body) as first:
            assert await first.content.readline() == b'{"status":"pulling manifest"}\n'
            second = await raw(door.url, "/api/pull", body)
            assert (second.status, "already" in second.json()["error"]) == (503, True)
            key = Caller(principal=OWNER, scopes=frozenset({"models"}), key_id="k1")
            door.callers["/api/delete"] = key
            refused = await raw(door.url, "/api/delete", {"model": "x"}, method="DELETE")
            assert refused.status == 403
        async with asyncio.timeout(LIMIT_S), door.app[KEEPING]:
            pass  # whoever left pulls no more
        async with door.session.post(door.url + "/api/pull", json=body) as running:
            await running.content.readline()
            assert (await door.post("/estop", {"reason": "a test"}))[0] == 200
            assert "stop" in reread_lines(await running.read())[-1]["error"]
        stopped = await raw(door.url, "/api/pull", body)
        assert (stopped.status, "stop" in stopped.json()["error"]) == (403, True)


@each_row(
    ("name", "ref"),
    [
        ("llama3.2:1b", "ollama:llama3.2:1b"),
        ("ollama:user/thing:latest", "ollama:user/thing:latest"),
        ("registry.ollama.ai/library/qwen3", "ollama:library/qwen3"),
        ("hf.co/org/repo:Q4_K_M", "hf:org/repo:Q4_K_M"),
        ("hf:org/repo", "hf:org/repo"),
        ("https://example.org/m.gguf", ""),
        ("http://169.254.169.254/", ""),
        ("127.0.0.1:8080/a/b:c", ""),
        ("other.example/a/b", ""),
        ("../secret", ""),
        ("/etc/passwd", ""),
        ("hf.co/../repo/x/y", ""),
        ("a b", ""),
    ],
)
def test_a_name_is_one_of_the_hub_or_of_ollamas_registry_and_never_an_address(
    name: str, ref: str
) -> None:
    if ref:
        assert ref_of(name) == ref
        return
    with pytest.raises(InvalidRequestError):
        ref_of(name)
